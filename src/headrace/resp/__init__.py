"""The Redis protocol, bytes in and bytes out; no socket anywhere."""
