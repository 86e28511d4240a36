"""Find the groups that refer to an entry, in a stream with many groups, without visiting each group.

groups      1 ... 8       searched: asked one by one, which costs less than an index
            9 ...         numbered: a ReferenceTree has their pending entries, a heap their positions

numbered    0      1      2      3            a dropped group leaves None, until the tree has no key
            group  None   group  group        with its number any more

heap        (1000-7, 3)  (1741-0, 0) ...      (last ID, number); IDs may be too low, because groups
                                              move on all the time: the top is corrected when it is needed
"""

from __future__ import annotations

import heapq

import cython

from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.reference_tree import DroppedGroup, ReferenceTree
from headrace.structures.stream_id import StreamId

UNINDEXED_GROUPS_MAX = cython.declare(cython.Py_ssize_t, 8)
HEAP_ITEM_BYTES = cython.declare(cython.Py_ssize_t, 160)  # of an item of the heap


@cython.final
@cython.no_gc  # groups refer to its tree only
@cython.cclass
class ReferenceIndex:
    """The groups of a stream, and which of them have an entry pending. Made with the ninth group."""

    tree: ReferenceTree
    unindexed_groups: list[Group]
    groups_by_number: list[Group | None]
    position_heap: list[tuple[int, int, int]] | None  # None: not needed yet

    def __init__(self, groups: list[Group]) -> None:
        """Create an index without keys. groups: those to be searched."""
        self.tree = ReferenceTree()
        self.unindexed_groups = groups
        self.groups_by_number = []
        self.position_heap = None

    @cython.ccall
    def add_group(self, group: Group) -> cython.void:
        """Index a group without pending entries: number it, and record its later pending entries."""
        number: cython.Py_ssize_t
        if self.tree.free_numbers:
            number = self.tree.free_numbers.pop()
            self.groups_by_number[number] = group
        else:
            number = len(self.groups_by_number)
            self.groups_by_number.append(group)
        group.pending.references = self.tree
        group.pending.group_number = number
        self.note_lower_position(group)

    @cython.ccall
    def add_copied_group(self, group: Group) -> cython.void:
        """Give a group that has pending entries a number, and add their keys: about 0.3 µs each."""
        pending: PendingEntries = group.pending
        slot: cython.Py_ssize_t = pending.first_by_id_from(0, 0)
        self.add_group(group)
        while slot >= 0:
            self.tree.add(pending.ms_of(slot), pending.seq_of(slot), pending.group_number)
            slot = pending.next_by_id(slot)

    @cython.ccall
    def drop_group(self, group: Group) -> cython.void:
        """Remove a group that is dropped from the stream."""
        pending: PendingEntries = group.pending
        if pending.references is None:
            self.unindexed_groups.remove(group)
            return
        self.groups_by_number[pending.group_number] = None
        pending.references = None
        self.tree.drop_group(pending.by_id, pending.group_number, pending.memory.total)

    @cython.ccall
    def groups_with_pending(
        self, ms: cython.ulonglong, seq: cython.ulonglong, at_most: cython.Py_ssize_t
    ) -> list[Group]:
        """Return the numbered groups that have ms-seq pending. The search may stop after at_most groups."""
        group: Group | None
        number: cython.Py_ssize_t
        found: list[Group] = []
        for number in self.tree.group_numbers(ms, seq, at_most + len(self.tree.dropped_groups)):
            group = self.groups_by_number[number]
            if group is not None:
                found.append(group)
        return found

    @cython.ccall
    def pop_groups_with_pending(self, ms: cython.ulonglong, seq: cython.ulonglong) -> list[Group]:
        """Return the numbered groups that have ms-seq pending, and remove the keys of this entry.

        The caller must remove the entry from their pending entries, by
        PendingEntries.remove_without_reference().
        """
        group: Group | None
        number: cython.Py_ssize_t
        found: list[Group] = []
        if self.tree.dropped_groups:
            found = self.groups_with_pending(ms, seq, len(self.groups_by_number))
            for group in found:
                self.tree.remove(ms, seq, group.pending.group_number)
            return found
        for number in self.tree.pop_group_numbers(ms, seq):
            group = self.groups_by_number[number]
            if group is not None:
                found.append(group)
        return found

    @cython.ccall
    def note_lower_position(self, group: Group) -> cython.void:
        """Record that a group is new, or that its last ID is lower than before."""
        if self.position_heap is not None and group.pending.references is not None:
            if len(self.position_heap) > 2 * len(self.groups_by_number):
                self._account(-len(self.position_heap))
                self.position_heap = None  # it has too many items of groups that are gone or that moved back
            else:
                heapq.heappush(self.position_heap, _position_heap_item(group))
                self._account(1)

    @cython.ccall
    def lowest_position(self) -> StreamId | None:
        """Return the lowest last ID of the numbered groups; None if there is none."""
        group: Group | None
        ms: cython.ulonglong
        seq: cython.ulonglong
        number: cython.Py_ssize_t
        if self.position_heap is None:
            self.position_heap = [
                _position_heap_item(one) for one in self.groups_by_number if one is not None
            ]
            heapq.heapify(self.position_heap)
            self._account(len(self.position_heap))
        while self.position_heap:
            ms, seq, number = self.position_heap[0]
            group = self.groups_by_number[number]
            if group is None:
                heapq.heappop(self.position_heap)
                self._account(-1)
            elif group.last_ms == ms and group.last_seq == seq:
                return StreamId(ms, seq)
            else:
                heapq.heapreplace(self.position_heap, _position_heap_item(group))
        return None

    @cython.cfunc
    def _account(self, items: cython.Py_ssize_t) -> cython.void:
        """Add the memory of so many items of the heap, which may be negative."""
        self.tree.memory.add(items * HEAP_ITEM_BYTES)

    def check(self, groups: list[Group]) -> None:
        """Assert every invariant. groups: all of the stream."""
        group: Group
        dropped: DroppedGroup
        keys: cython.Py_ssize_t = 0
        numbers: set[int] = set()
        assert {one.name for one in groups if one.pending.references is None} == {
            one.name for one in self.unindexed_groups
        }
        for group in groups:
            if group.pending.references is not None:
                assert group.pending.references is self.tree
                assert self.groups_by_number[group.pending.group_number] is group
                numbers.add(group.pending.group_number)
                keys += group.pending.count
                for slot in group.pending.by_id.slots():
                    found = self.tree.group_numbers(
                        group.pending.ms_of(slot), group.pending.seq_of(slot), len(self.groups_by_number)
                    )
                    assert group.pending.group_number in found, "a pending entry has no key"
        for dropped in self.tree.dropped_groups:
            numbers.add(dropped.number)
            keys += dropped.by_id.count
        assert keys == len(self.tree.tree), f"{len(self.tree.tree)} keys for {keys} pending entries"
        assert sorted([*numbers, *self.tree.free_numbers]) == list(range(len(self.groups_by_number)))


@cython.cfunc
def _position_heap_item(group: Group) -> tuple[int, int, int]:
    """Return the item of a group in `position_heap`: its last ID and its number."""
    return (group.last_ms, group.last_seq, group.pending.group_number)
