"""Report changes of keys to transactions (from WATCH to EXEC) and to clients that cache keys.

A client that watches keys has one Watch. Each database maps a watched key to its Watches. A command that
changes a key invalidates them all, and EXEC checks its own Watch.

Clients that cache keys (CLIENT TRACKING) are informed by `on_change`, which is None while there are none.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace.visibility import Public

WATCHED_KEY_BYTES = cython.declare(cython.Py_ssize_t, 410)  # measured, of a watched key beside its name


@cython.final
@cython.cclass
class Watch:
    """The keys that one client watches, and whether any of them has changed since."""

    invalidated: Public[cython.bint]
    # (database, key), oldest first: whether the key had expired already, and was hidden
    keys: dict[tuple[int, bytes], bool]
    memory_bytes: cython.Py_ssize_t  # about, as if no other client watched the same keys

    def __init__(self) -> None:
        self.invalidated = False
        self.keys = {}
        self.memory_bytes = 0

    @cython.ccall
    def add(self, database: cython.Py_ssize_t, key: bytes, hidden: cython.bint) -> cython.Py_ssize_t:
        """Watch a key; return the memory that it takes, in bytes."""
        used: cython.Py_ssize_t = WATCHED_KEY_BYTES + len(key)
        self.keys[(database, key)] = hidden
        self.memory_bytes += used
        return used

    @cython.ccall
    def contains(self, database: cython.Py_ssize_t, key: bytes) -> cython.bint:
        """Return whether this key of this database is watched already."""
        return (database, key) in self.keys


@cython.final
@cython.cclass
class WatchedKeys:
    """The watched keys of one database."""

    watches: dict[bytes, dict[Watch, None]]
    # Some key is watched, or on_change is set: changes must be passed to invalidate_and_report().
    has_observers: cython.bint
    on_change: Callable[[bytes, bool], object] | None  # (key, whether the client of the request changed it)

    def __init__(self) -> None:
        self.watches = {}
        self.has_observers = False
        self.on_change = None

    def listen(self, on_change: Callable[[bytes, bool], object] | None) -> None:
        """Call on_change for every change of a key from now on; None ends that."""
        self.on_change = on_change
        self._update_observed()

    @cython.cfunc
    def _update_observed(self) -> cython.void:
        self.has_observers = len(self.watches) > 0 or self.on_change is not None

    @cython.ccall
    def add(self, key: bytes, watch: Watch) -> cython.void:
        """Add a watch to a key; the watch is invalidated when the key changes."""
        found = self.watches.get(key)
        if found is None:
            found = {}
            self.watches[key] = found
            self.has_observers = True
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
            self._update_observed()

    @cython.ccall
    def invalidate_and_report(self, key: bytes, by_client: cython.bint) -> cython.void:
        """Invalidate all watches of the key; pass the change on.

        Args:
            key: the changed key.
            by_client: the client of the request changed it. Otherwise the server did: it has expired or was
                evicted.
        """
        self.invalidate_watches(key)
        if self.on_change is not None:
            self.on_change(key, by_client)

    @cython.ccall
    def invalidate_watches(self, key: bytes) -> cython.void:
        """Invalidate all watches of the key."""
        watch: Watch
        found = self.watches.get(key)
        if found is not None:
            for watch in found:
                watch.invalidated = True
