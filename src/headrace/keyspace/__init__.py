"""Databases of keys: expiry, blocking, WATCH, eviction, events, rules, snapshots, cold storage."""
