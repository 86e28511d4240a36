"""Databases of keys, their expiry, who waits for them and who watches them."""
