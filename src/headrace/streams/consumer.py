"""A consumer of a group: its name, when it was last seen and active, and its pending entries."""

from __future__ import annotations

import cython

from headrace.streams.pending_arena import PendingArena
from headrace.streams.pending_index import PendingIndex
from headrace.visibility import Public

NEVER = cython.declare(cython.longlong, -1)


@cython.final
@cython.no_gc
@cython.cclass
class Consumer:
    """A consumer, created by Group.make_consumer. Only PendingEntries changes its number and its entries."""

    name: bytes
    number: cython.Py_ssize_t  # from 1 on; numbers of deleted consumers are reused
    seen_ms: Public[cython.longlong]  # when a command last named it
    active_ms: Public[cython.longlong]  # when it last received an entry; -1: never
    pending_count: cython.Py_ssize_t  # how many entries it owns
    owned_entries: PendingIndex

    def __init__(
        self, name: bytes, number: cython.Py_ssize_t, now_ms: cython.longlong, arena: PendingArena
    ) -> None:
        self.name = name
        self.number = number
        self.seen_ms = now_ms
        self.active_ms = NEVER
        self.pending_count = 0
        self.owned_entries = PendingIndex(arena)

    @cython.cfunc
    def copy(self, arena: PendingArena) -> Consumer:
        """Return a copy whose entries are in the given copy of the arena."""
        return self._copy_with(self.owned_entries.copy(arena))

    @cython.cfunc
    def frozen_copy(self, arena: PendingArena) -> Consumer:
        """Return a copy whose entries are in the given frozen copy of the arena. It shares memory."""
        return self._copy_with(self.owned_entries.frozen_copy(arena))

    @cython.cfunc
    def _copy_with(self, owned: PendingIndex) -> Consumer:
        other: Consumer = Consumer.__new__(Consumer)
        other.name = self.name
        other.number = self.number
        other.seen_ms = self.seen_ms
        other.active_ms = self.active_ms
        other.pending_count = self.pending_count
        other.owned_entries = owned
        return other
