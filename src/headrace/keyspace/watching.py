"""Which transaction is spoilt by which key: optimistic locking, from WATCH to EXEC.

A client that watches holds one Watch; each database maps a watched key to the Watches on it. Who
changes a key spoils them all, and EXEC asks its own Watch whether it is still good.
"""

from __future__ import annotations

import cython

from headrace.visibility import Public


@cython.final
@cython.cclass
class Watch:
    """What one client watches, and whether any of it has changed since."""

    invalidated: Public[cython.bint]
    keys: dict[tuple[int, bytes], None]  # database and key, oldest first

    def __init__(self) -> None:
        self.invalidated = False
        self.keys = {}

    @cython.ccall
    def contains(self, database: cython.Py_ssize_t, key: bytes) -> cython.bint:
        """Whether this key of this database is already watched."""
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
        """From now on a change of key spoils watch."""
        found = self.watches.get(key)
        if found is None:
            found = {}
            self.watches[key] = found
        found[watch] = None

    @cython.ccall
    def remove(self, key: bytes, watch: Watch) -> cython.void:
        """Watch no longer cares for key."""
        found = self.watches.get(key)
        if found is None:
            return
        found.pop(watch, None)
        if not found:
            del self.watches[key]

    @cython.ccall
    def invalidate(self, key: bytes) -> cython.void:
        """Key has changed."""
        watch: Watch
        found = self.watches.get(key)
        if found is not None:
            for watch in found:
                watch.invalidated = True
