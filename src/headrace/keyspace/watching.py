"""Optimistic locking, from WATCH to EXEC: which keys invalidate which transaction.

A client that watches keys has one Watch. Each database maps a watched key to its Watches. A command that
changes a key invalidates them all, and EXEC checks its own Watch.
"""

from __future__ import annotations

import cython

from headrace.visibility import Public


@cython.final
@cython.cclass
class Watch:
    """The keys that one client watches, and whether any of them has changed since."""

    invalidated: Public[cython.bint]
    # (database, key), oldest first: whether the key had expired already, and was hidden
    keys: dict[tuple[int, bytes], bool]

    def __init__(self) -> None:
        self.invalidated = False
        self.keys = {}

    @cython.ccall
    def contains(self, database: cython.Py_ssize_t, key: bytes) -> cython.bint:
        """Return whether this key of this database is watched already."""
        return (database, key) in self.keys


@cython.final
@cython.cclass
class WatchedKeys:
    """The watched keys of one database."""

    watches: dict[bytes, dict[Watch, None]]

    def __init__(self) -> None:
        self.watches = {}

    @cython.ccall
    def add(self, key: bytes, watch: Watch) -> cython.void:
        """Invalidate the watch when the key changes."""
        found = self.watches.get(key)
        if found is None:
            found = {}
            self.watches[key] = found
        found[watch] = None

    @cython.ccall
    def remove(self, key: bytes, watch: Watch) -> cython.void:
        """Remove the watch from the key."""
        found = self.watches.get(key)
        if found is None:
            return
        found.pop(watch, None)
        if not found:
            del self.watches[key]

    @cython.ccall
    def invalidate(self, key: bytes) -> cython.void:
        """Invalidate all watches of the key."""
        watch: Watch
        found = self.watches.get(key)
        if found is not None:
            for watch in found:
                watch.invalidated = True
