"""Consumers of a group: the worker, its drivers in threads and asyncio, leases, dead letters."""
