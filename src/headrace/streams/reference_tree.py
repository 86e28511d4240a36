"""A radix tree of the pending entries of numbered groups, searched by entry; see reference_index.py.

    rax    milliseconds  sequence  number
           8 bytes       8 bytes   8 bytes    big-endian, no values
           1000          0         0          group 0 has 1000-0 pending
           1000          0         7          and so has group 7
           1000          1         0

All keys of an entry are neighbours, and the first key is that of the first pending entry.

A dropped group may have a million keys. Its index by ID is kept to find them, and later changes of the tree
remove them, the lowest first, so that no XGROUP DESTROY takes long. Until then, no group has their number.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.pending_index import PendingIndex
from headrace.structures import stream_id
from headrace.structures.rax import Rax
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId

ID_BYTES = cython.declare(cython.Py_ssize_t, 16)
KEY_BYTES = cython.declare(cython.Py_ssize_t, 24)
# Of a key in memory: 10 to 120, measured with 1,000 to 1 groups that have the same entries pending.
REFERENCE_BYTES = cython.declare(cython.Py_ssize_t, 64)
# Keys of dropped groups that are removed by one call.
KEYS_REMOVED_AT_ONCE = cython.declare(cython.Py_ssize_t, 1000)  # about a millisecond
KEYS_REMOVED_PER_CHANGE = cython.declare(cython.Py_ssize_t, 4)


@cython.final
@cython.no_gc
@cython.cclass
class DroppedGroup:
    """A dropped group that still has keys in the tree, and the index to find them."""

    by_id: PendingIndex  # of the entries that still have a key
    number: cython.Py_ssize_t
    kept_bytes: cython.Py_ssize_t  # the memory that is kept for it

    def __init__(self, by_id: PendingIndex, number: cython.Py_ssize_t, kept: cython.Py_ssize_t) -> None:
        self.by_id = by_id
        self.number = number
        self.kept_bytes = kept


@cython.final
@cython.no_gc
@cython.cclass
class ReferenceTree:
    """Keys of entries and group numbers. It refers to no group: the pending entries of groups refer to it."""

    tree: Rax
    dropped_groups: list[DroppedGroup]
    free_numbers: list[int]  # numbers of dropped groups without keys
    memory: MemoryAccount

    def __init__(self) -> None:
        self.tree = Rax()
        self.dropped_groups = []
        self.free_numbers = []
        self.memory = MemoryAccount()

    @cython.ccall
    def add(self, ms: cython.ulonglong, seq: cython.ulonglong, number: cython.Py_ssize_t) -> cython.void:
        """Record that the group of this number has ms-seq pending."""
        if self.tree.insert(_key(ms, seq, number), None):
            self.memory.add(REFERENCE_BYTES)
        if self.dropped_groups:
            self._remove_dropped(KEYS_REMOVED_PER_CHANGE)

    @cython.ccall
    def remove(self, ms: cython.ulonglong, seq: cython.ulonglong, number: cython.Py_ssize_t) -> cython.void:
        """Record that the group of this number no longer has ms-seq pending."""
        if self.tree.remove(_key(ms, seq, number)):
            self.memory.add(-REFERENCE_BYTES)
        if self.dropped_groups:
            self._remove_dropped(KEYS_REMOVED_PER_CHANGE)

    @cython.ccall
    def pop_group_numbers(self, ms: cython.ulonglong, seq: cython.ulonglong) -> list[Any]:
        """Record that no group has ms-seq pending any more; return the numbers of those that had.

        There must be no dropped groups, because only _remove_dropped() may remove their keys.
        """
        rests: list[bytes] = self.tree.pop_suffixes_of_prefix(stream_id.key_of(ms, seq))
        self.memory.add(-REFERENCE_BYTES * len(rests))
        return [_number_at(rest, 0) for rest in rests]

    @cython.ccall
    def drop_group(
        self, by_id: PendingIndex, number: cython.Py_ssize_t, kept: cython.Py_ssize_t
    ) -> cython.void:
        """Forget a group. Some of its keys are removed now, the others by later changes.

        Args:
            by_id: its pending entries; the caller must not use it any more.
            number: of the group; reused when it has no keys.
            kept: the bytes of memory that by_id needs.
        """
        self.dropped_groups.append(DroppedGroup(by_id, number, kept))
        self.memory.add(kept)
        self._remove_dropped(KEYS_REMOVED_AT_ONCE)

    @cython.cfunc
    def _remove_dropped(self, at_most: cython.Py_ssize_t) -> cython.void:
        """Remove at most this many keys of dropped groups; free the numbers of groups without keys."""
        group: DroppedGroup
        index: PendingIndex
        slot: cython.Py_ssize_t
        while self.dropped_groups and at_most > 0:
            group = self.dropped_groups[-1]
            index = group.by_id
            slot = index.first_from(0, 0)
            if slot < 0:
                self.free_numbers.append(group.number)
                self.memory.add(-group.kept_bytes)
                self.dropped_groups.pop()
                continue
            self.tree.remove(_key(index.arena.ms_of(slot), index.arena.seq_of(slot), group.number))
            self.memory.add(-REFERENCE_BYTES)
            index.remove(slot)
            at_most -= 1

    @cython.ccall
    def group_numbers(
        self, ms: cython.ulonglong, seq: cython.ulonglong, at_most: cython.Py_ssize_t
    ) -> list[Any]:
        """Return the numbers of groups that have ms-seq pending: the lowest at_most of them, ascending."""
        found: list[Any] = []
        cursor: RaxCursor = RaxCursor(self.tree)
        more: cython.bint = cursor.seek(">=", stream_id.key_of(ms, seq))
        while more and len(found) < at_most and _has_id(cursor.key, ms, seq):
            found.append(_number_at(cursor.key, ID_BYTES))
            more = cursor.next()
        return found

    @cython.ccall
    def first_entry_from(self, first: StreamId) -> StreamId | None:
        """Return the first entry that is not before `first` and has a key; None if there is none.

        The entry may be pending only in a dropped group whose keys are not all removed yet. Each call removes
        up to KEYS_REMOVED_AT_ONCE of them first.
        """
        if self.dropped_groups:
            self._remove_dropped(KEYS_REMOVED_AT_ONCE)
        cursor: RaxCursor = RaxCursor(self.tree)
        return stream_id.from_key(cursor.key[:ID_BYTES]) if cursor.seek(">=", first.key()) else None


@cython.cfunc
def _key(ms: cython.ulonglong, seq: cython.ulonglong, number: cython.Py_ssize_t) -> bytes:
    room: bytearray = bytearray(KEY_BYTES)
    p: cython.p_uchar = room
    mem.put_u64be(p, 0, ms)
    mem.put_u64be(p, 8, seq)
    mem.put_u64be(p, ID_BYTES, number)
    return mem.to_bytes(p, 0, KEY_BYTES)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _has_id(key: bytes, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    p: cython.p_const_uchar = key
    return mem.u64be(p, 0) == ms and mem.u64be(p, 8) == seq


@cython.cfunc
@cython.exceptval(-1, check=False)
def _number_at(key: bytes, at: cython.Py_ssize_t) -> cython.longlong:
    p: cython.p_const_uchar = key
    return mem.as_signed(mem.u64be(p, at))
