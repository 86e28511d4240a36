"""PendingIndex: the slots of some records, in the order of their IDs.

    blocks   low 1000-0                low 1741-0                low 2290-7
             +----+----+----+- -+      +----+----+----+- -+      +----+----+
             | 17 |  3 | 18 |   |      | 40 | 41 |  9 |   |      | 51 | 52 |      slots, u32 little-endian
             +----+----+----+- -+      +----+----+----+- -+      +----+----+

low is not after the first ID of its block, and after the last one of the block before; that of the
first block means nothing. Blocks are found by bisection over low, slots by bisection within a block:
O(log n). IDs that come in order fill the blocks to the brim. Neighbours that have become small are
merged, and only a set without slots may have an empty block, one.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem
from headrace.streams.pending_arena import PendingArena
from headrace.structures import footprint

BLOCK_SLOTS = cython.declare(cython.Py_ssize_t, 512)
BLOCK_FIRST = cython.declare(cython.Py_ssize_t, 4)  # the slots a block has room for to begin with
BLOCK_SMALL = cython.declare(cython.Py_ssize_t, 128)  # below this a block looks for a neighbour to merge with
BLOCK_MERGED = cython.declare(cython.Py_ssize_t, 384)  # what a merged block may have
SLOT = cython.declare(cython.Py_ssize_t, 4)  # bytes
NONE = cython.declare(cython.Py_ssize_t, -1)


@cython.final
@cython.cclass
class IndexBlock:
    """Up to 512 slots."""

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    count: cython.Py_ssize_t
    low_ms: cython.ulonglong
    low_seq: cython.ulonglong

    def __init__(self, ms: cython.ulonglong, seq: cython.ulonglong) -> None:
        self.cap = BLOCK_FIRST
        self.buf = bytearray(self.cap * SLOT)
        self.p = self.buf
        self.count = 0
        self.low_ms = ms
        self.low_seq = seq

    @cython.cfunc
    def at(self, place: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The slot at place, which must be below count."""
        return mem.u32le(self.p, place * SLOT)

    @cython.cfunc
    def insert(self, place: cython.Py_ssize_t, slot: cython.Py_ssize_t) -> cython.void:
        """Put slot at place; those from there on move up."""
        if self.count == self.cap:
            self.resize(2 * self.cap)
        mem.move(self.p, (place + 1) * SLOT, place * SLOT, (self.count - place) * SLOT)
        mem.put_u32le(self.p, place * SLOT, slot)
        self.count += 1

    @cython.cfunc
    def delete(self, place: cython.Py_ssize_t) -> cython.void:
        """Take out the slot at place; those after it move down."""
        self.count -= 1
        mem.move(self.p, place * SLOT, (place + 1) * SLOT, (self.count - place) * SLOT)
        if self.cap > BLOCK_FIRST and self.count * 4 <= self.cap:
            self.resize(self.cap // 2)

    @cython.cfunc
    def append_from(self, other: IndexBlock, place: cython.Py_ssize_t) -> cython.void:
        """Put the slots of other from place on at the end of this block, too."""
        n: cython.Py_ssize_t = other.count - place
        cap: cython.Py_ssize_t = self.cap
        while cap < self.count + n:
            cap *= 2
        if cap > self.cap:
            self.resize(cap)
        mem.copy(self.p, self.count * SLOT, other.p, place * SLOT, n * SLOT)
        self.count += n

    @cython.cfunc
    def resize(self, cap: cython.Py_ssize_t) -> cython.void:
        """Have room for cap slots."""
        mem.resize(self.buf, cap * SLOT)
        self.p = self.buf
        self.cap = cap

    @cython.cfunc
    def copy(self) -> IndexBlock:
        """Another block with the same slots."""
        other: IndexBlock = IndexBlock(self.low_ms, self.low_seq)
        other.buf = bytearray(self.buf)
        other.p = other.buf
        other.cap = self.cap
        other.count = self.count
        return other


@cython.final
@cython.cclass
class PendingIndex:
    """A set of slots of `records`, ordered by ID; no two may have the same.

    It remembers where it last found something, so that stepping on from there is O(1). What is
    remembered is looked at before it is believed: any change may have made it wrong.
    """

    arena: PendingArena
    blocks: list[IndexBlock]
    count: cython.Py_ssize_t
    block_at: cython.Py_ssize_t  # where something was last found
    place: cython.Py_ssize_t

    def __init__(self, arena: PendingArena) -> None:
        self.arena = arena
        self.blocks = []
        self.count = self.block_at = self.place = 0

    # ---- looking; -1 is none

    @cython.ccall
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """The slot of ms-seq."""
        last: cython.Py_ssize_t = self.last()
        if last < 0 or self.arena.precedes(last, ms, seq):
            return NONE
        slot: cython.Py_ssize_t = self._cached_slot()
        if slot >= 0 and self.arena.precedes(slot, ms, seq):
            self.place += 1
            slot = self._normalized_slot()
        if slot >= 0 and not self.arena.precedes(slot, ms, seq):
            if self.arena.has_id(slot, ms, seq):
                return slot
            if self._predecessor_precedes(ms, seq):
                return NONE
        self._bisect(ms, seq)
        slot = self._normalized_slot()
        return slot if slot >= 0 and self.arena.has_id(slot, ms, seq) else NONE

    @cython.ccall
    def seek(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """The first slot whose ID is not before ms-seq."""
        last: cython.Py_ssize_t = self.last()
        if last < 0 or self.arena.precedes(last, ms, seq):
            return NONE
        self._bisect(ms, seq)
        return self._normalized_slot()

    @cython.ccall
    def after(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The slot after this one, which must be in."""
        self._locate(slot)
        self.place += 1
        return self._normalized_slot()

    @cython.ccall
    def last(self) -> cython.Py_ssize_t:
        """The last slot."""
        if self.count == 0:
            return NONE
        block: IndexBlock = self.blocks[len(self.blocks) - 1]
        return block.at(block.count - 1)

    # ---- changing

    @cython.ccall
    def insert(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Put slot, whose ID is ms-seq, where it belongs; ValueError when that ID is in."""
        n: cython.Py_ssize_t = len(self.blocks)
        block: IndexBlock
        if n == 0:
            self._append(slot, ms, seq)
            return
        block = self.blocks[n - 1]
        if block.count == 0 or self.arena.precedes(block.at(block.count - 1), ms, seq):
            if block.count == block.cap:
                self._append(slot, ms, seq)
                return
            mem.put_u32le(block.p, block.count * SLOT, slot)
            block.count += 1
            self.count += 1
            return
        self._bisect(ms, seq)
        block = self.blocks[self.block_at]
        if self.place < block.count and self.arena.has_id(block.at(self.place), ms, seq):
            raise ValueError(f"{ms}-{seq} is in already")
        if block.count == BLOCK_SLOTS:
            self._split(block)
            self._bisect(ms, seq)
            block = self.blocks[self.block_at]
        block.insert(self.place, slot)
        self.count += 1

    @cython.ccall
    def remove(self, slot: cython.Py_ssize_t) -> cython.void:
        """Take slot out; KeyError when it is not in."""
        self._locate(slot)
        block: IndexBlock = self.blocks[self.block_at]
        block.delete(self.place)
        self.count -= 1
        if block.count == 0 and len(self.blocks) > 1:
            del self.blocks[self.block_at]
        elif block.count < BLOCK_SMALL:
            self._merge()

    @cython.ccall
    def slots(self) -> list[Any]:
        """All slots, in order."""
        found: list[Any] = []
        block: IndexBlock
        place: cython.Py_ssize_t
        for block in self.blocks:
            for place in range(block.count):
                found.append(block.at(place))
        return found

    @cython.ccall
    def copy(self, arena: PendingArena) -> PendingIndex:
        """The same slots, of records."""
        other: PendingIndex = PendingIndex(arena)
        block: IndexBlock
        twin: IndexBlock
        for block in self.blocks:
            twin = block.copy()
            other.blocks.append(twin)
        other.count = self.count
        return other

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """What it takes, without the records."""
        total: cython.Py_ssize_t = footprint.instance_bytes(PendingIndex) + footprint.object_bytes(
            self.blocks
        )
        each: cython.Py_ssize_t = footprint.instance_bytes(IndexBlock)
        block: IndexBlock
        for block in self.blocks:
            total += each + footprint.object_bytes(block.buf)
        return total

    @cython.ccall
    def check(self) -> cython.void:
        """Assert all that must hold."""
        count: cython.Py_ssize_t = 0
        previous: cython.Py_ssize_t = NONE
        slot: cython.Py_ssize_t
        place: cython.Py_ssize_t
        block: IndexBlock
        for block in self.blocks:
            assert len(block.buf) == block.cap * SLOT
            assert block.count <= block.cap <= BLOCK_SLOTS
            assert block.count > 0 or len(self.blocks) == 1, "an empty block"
            assert previous < 0 or self.arena.precedes(previous, block.low_ms, block.low_seq)
            if previous >= 0:
                assert not self.arena.precedes(block.at(0), block.low_ms, block.low_seq), "a low too high"
            for place in range(block.count):
                slot = block.at(place)
                assert previous < 0 or self.arena.precedes(
                    previous, self.arena.ms_of(slot), self.arena.seq_of(slot)
                ), f"slot {slot} out of order"
                previous = slot
            count += block.count
        assert count == self.count, f"{count} slots, count says {self.count}"

    # ---- inside

    @cython.cfunc
    def _bisect(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Remember where ms-seq is or belongs: in its block, maybe after the last slot there."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = len(self.blocks)
        middle: cython.Py_ssize_t
        block: IndexBlock
        while high - low > 1:
            middle = (low + high) // 2
            block = self.blocks[middle]
            if ms < block.low_ms or (ms == block.low_ms and seq < block.low_seq):
                high = middle
            else:
                low = middle
        block = self.blocks[low]
        self.block_at = low
        low = 0
        high = block.count
        while low < high:
            middle = (low + high) // 2
            if self.arena.precedes(block.at(middle), ms, seq):
                low = middle + 1
            else:
                high = middle
        self.place = low

    @cython.cfunc
    def _cached_slot(self) -> cython.Py_ssize_t:
        """The slot where something was last found, if there is one."""
        if self.block_at >= len(self.blocks):
            return NONE
        block: IndexBlock = self.blocks[self.block_at]
        return block.at(self.place) if self.place < block.count else NONE

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _predecessor_precedes(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Whether what stands before the place remembered is seen at once to come before ms-seq."""
        if self.place == 0:
            return self.block_at == 0
        block: IndexBlock = self.blocks[self.block_at]
        return self.arena.precedes(block.at(self.place - 1), ms, seq)

    @cython.cfunc
    def _normalized_slot(self) -> cython.Py_ssize_t:
        """The slot at the place remembered, or the first of the next block when that is past an end."""
        slot: cython.Py_ssize_t = self._cached_slot()
        if slot < 0 and self.block_at + 1 < len(self.blocks):
            self.block_at += 1
            self.place = 0
            slot = self._cached_slot()
        return slot

    @cython.cfunc
    def _locate(self, slot: cython.Py_ssize_t) -> cython.void:
        """Remember where slot is; KeyError when it is not in."""
        if self._cached_slot() == slot:
            return
        if self.count > 0:
            self._bisect(self.arena.ms_of(slot), self.arena.seq_of(slot))
        if self._cached_slot() != slot:
            raise KeyError(slot)

    @cython.cfunc
    def _append(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Put slot, of the highest ID, at the end, where there is no room yet."""
        n: cython.Py_ssize_t = len(self.blocks)
        block: IndexBlock | None = self.blocks[n - 1] if n > 0 else None
        if block is None or block.count == BLOCK_SLOTS:
            block = IndexBlock(ms, seq)
            self.blocks.append(block)
        block.insert(block.count, slot)
        self.count += 1

    @cython.cfunc
    def _split(self, block: IndexBlock) -> cython.void:
        """Move the upper half of the block remembered to a new one after it."""
        half: cython.Py_ssize_t = block.count // 2
        slot: cython.Py_ssize_t = block.at(half)
        upper: IndexBlock = IndexBlock(self.arena.ms_of(slot), self.arena.seq_of(slot))
        upper.append_from(block, half)
        self.blocks.insert(self.block_at + 1, upper)
        block.count = half

    @cython.cfunc
    def _merge(self) -> cython.void:
        """Join the block remembered with the one after it, else with the one before, if they are small."""
        at: cython.Py_ssize_t
        left: IndexBlock
        right: IndexBlock
        for at in (self.block_at, self.block_at - 1):
            if 0 <= at < len(self.blocks) - 1:
                left = self.blocks[at]
                right = self.blocks[at + 1]
                if left.count + right.count <= BLOCK_MERGED:
                    left.append_from(right, 0)
                    del self.blocks[at + 1]
                    return
