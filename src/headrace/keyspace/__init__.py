"""Databases of keys: expiry, blocking, WATCH, eviction, SCAN and events."""
