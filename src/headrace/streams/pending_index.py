"""PendingIndex: the slots of pending entries, sorted by ID.

    blocks   low 1000-0                low 1741-0                low 2290-7
             +----+----+----+- -+      +----+----+----+- -+      +----+----+
             | 17 |  3 | 18 |   |      | 40 | 41 |  9 |   |      | 51 | 52 |      slots, u32 little-endian
             +----+----+----+- -+      +----+----+----+- -+      +----+----+

low is at most the first ID of its block, and greater than the last ID of the previous block. The low of the
first block is not used. Blocks are found by bisection over low, slots by bisection within a block: O(log n).
Insertion in order of IDs fills the blocks completely. Small neighbours are merged. Only an index without
slots may have an empty block, and only one. A frozen copy (frozen_copy) shares the bytes of the blocks, like
a frozen copy of an arena.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem
from headrace.streams.pending_arena import PendingArena
from headrace.structures import footprint

BLOCK_SLOTS = cython.declare(cython.Py_ssize_t, 512)
BLOCK_SLOTS_INITIAL = cython.declare(cython.Py_ssize_t, 4)  # the initial capacity of a block
SMALL_BLOCK_SLOTS = cython.declare(cython.Py_ssize_t, 128)  # smaller blocks are merged with small neighbours
MERGED_BLOCK_SLOTS_MAX = cython.declare(cython.Py_ssize_t, 384)  # the most slots of a merged block
SLOT_BYTES = cython.declare(cython.Py_ssize_t, 4)  # bytes
NO_SLOT = cython.declare(cython.Py_ssize_t, -1)


@cython.final
@cython.no_gc
@cython.cclass
class IndexBlock:
    """A block of up to 512 slots."""

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    count: cython.Py_ssize_t
    shared: cython.bint  # a frozen copy has the same buf
    low_ms: cython.ulonglong
    low_seq: cython.ulonglong

    def __init__(self, ms: cython.ulonglong, seq: cython.ulonglong) -> None:
        self.cap = BLOCK_SLOTS_INITIAL
        self.buf = bytearray(self.cap * SLOT_BYTES)
        self.p = self.buf
        self.count = 0
        self.shared = False
        self.low_ms = ms
        self.low_seq = seq

    @cython.cfunc
    def slot_at(self, position: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the slot at position, which must be below count."""
        return mem.u32le(self.p, position * SLOT_BYTES)

    @cython.cfunc
    def insert(self, position: cython.Py_ssize_t, slot: cython.Py_ssize_t) -> cython.void:
        """Insert slot at position."""
        self.unshare()
        if self.count == self.cap:
            self.resize(2 * self.cap)
        mem.move(
            self.p, (position + 1) * SLOT_BYTES, position * SLOT_BYTES, (self.count - position) * SLOT_BYTES
        )
        mem.put_u32le(self.p, position * SLOT_BYTES, slot)
        self.count += 1

    @cython.cfunc
    def delete(self, position: cython.Py_ssize_t) -> cython.void:
        """Remove the slot at position."""
        self.unshare()
        self.count -= 1
        mem.move(
            self.p, position * SLOT_BYTES, (position + 1) * SLOT_BYTES, (self.count - position) * SLOT_BYTES
        )
        if self.cap > BLOCK_SLOTS_INITIAL and self.count * 4 <= self.cap:
            self.resize(self.cap // 2)

    @cython.cfunc
    def append_from(self, other: IndexBlock, position: cython.Py_ssize_t) -> cython.void:
        """Append the slots of other from position on."""
        n: cython.Py_ssize_t = other.count - position
        cap: cython.Py_ssize_t = self.cap
        self.unshare()
        while cap < self.count + n:
            cap *= 2
        if cap > self.cap:
            self.resize(cap)
        mem.copy(self.p, self.count * SLOT_BYTES, other.p, position * SLOT_BYTES, n * SLOT_BYTES)
        self.count += n

    @cython.cfunc
    def resize(self, cap: cython.Py_ssize_t) -> cython.void:
        """Change the capacity to cap slots."""
        mem.resize(self.buf, cap * SLOT_BYTES)
        self.p = self.buf
        self.cap = cap

    @cython.cfunc
    def unshare(self) -> cython.void:
        """Copy the bytes if a frozen copy has them, too. Must be called before they change.

        Callers on hot paths test `shared` themselves, which saves a call and its test for an exception.
        """
        if self.shared:
            self.buf = bytearray(self.buf)
            self.p = self.buf
            self.shared = False

    @cython.cfunc
    def copy(self) -> IndexBlock:
        """Return a copy of the block."""
        shared: cython.bint = self.shared
        other: IndexBlock = self.frozen_copy()
        other.unshare()
        self.shared = shared
        return other

    @cython.cfunc
    def frozen_copy(self) -> IndexBlock:
        """Return a copy that shares the bytes."""
        other: IndexBlock = IndexBlock.__new__(IndexBlock)
        other.buf = self.buf
        other.p = other.buf
        other.cap = self.cap
        other.count = self.count
        other.low_ms = self.low_ms
        other.low_seq = self.low_seq
        other.shared = self.shared = True
        return other


@cython.final
@cython.no_gc
@cython.nonecheck(False)  # the arena and blocks are never None; `only_block` and `blocks` are tested
@cython.cclass
class PendingIndex:
    """A set of slots of an arena, sorted by ID; IDs are unique.

    The position of the last lookup is cached, so that iteration costs O(1) per step. It is verified before
    use: any change may have invalidated it.
    """

    arena: PendingArena
    only_block: IndexBlock | None  # the block, if there is one: most indexes need no list
    blocks: list[IndexBlock] | None  # all, if there are several
    count: cython.Py_ssize_t
    cached_block_index: cython.Py_ssize_t  # the cached position: a block, and a position in it
    cached_position: cython.Py_ssize_t

    def __init__(self, arena: PendingArena) -> None:
        self.arena = arena
        self.only_block = self.blocks = None
        self.count = self.cached_block_index = self.cached_position = 0

    # ---- lookups; -1 if there is none

    @cython.ccall
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the slot of ms-seq; -1 if it is not in the index."""
        last: cython.Py_ssize_t = self.last()
        if last < 0 or self.arena.precedes(last, ms, seq):
            return NO_SLOT
        slot: cython.Py_ssize_t = self._cached_slot()
        if slot >= 0 and self.arena.precedes(slot, ms, seq):
            self.cached_position += 1
            slot = self._cached_slot_across_blocks()
        if slot >= 0 and not self.arena.precedes(slot, ms, seq):
            if self.arena.has_id(slot, ms, seq):
                return slot
            if self._predecessor_precedes(ms, seq):
                return NO_SLOT
        self._seek_id(ms, seq)
        slot = self._cached_slot_across_blocks()
        return slot if slot >= 0 and self.arena.has_id(slot, ms, seq) else NO_SLOT

    @cython.ccall
    def first_from(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the first slot whose ID is not before ms-seq; -1 if there is none."""
        last: cython.Py_ssize_t = self.last()
        if last < 0 or self.arena.precedes(last, ms, seq):
            return NO_SLOT
        self._seek_id(ms, seq)
        return self._cached_slot_across_blocks()

    @cython.ccall
    def after(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the slot after this one; -1 after the last. Raises KeyError if it is not in the index."""
        self._seek_slot(slot)
        self.cached_position += 1
        return self._cached_slot_across_blocks()

    @cython.ccall
    def last(self) -> cython.Py_ssize_t:
        """Return the last slot; -1 if there is none."""
        if self.count == 0:
            return NO_SLOT
        block: IndexBlock = self._block(self._block_count() - 1)
        return block.slot_at(block.count - 1)

    # ---- changing

    @cython.ccall
    def insert(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Insert slot, whose ID is ms-seq. Raises ValueError if the ID is in the index."""
        n: cython.Py_ssize_t = self._block_count()
        block: IndexBlock
        if n == 0:
            self._append(slot, ms, seq)
            return
        block = self._block(n - 1)
        if block.count == 0 or self.arena.precedes(block.slot_at(block.count - 1), ms, seq):
            if block.count == block.cap:
                self._append(slot, ms, seq)
                return
            if block.shared:
                block.unshare()
            mem.put_u32le(block.p, block.count * SLOT_BYTES, slot)
            block.count += 1
            self.count += 1
            return
        self._seek_id(ms, seq)
        block = self._block(self.cached_block_index)
        if self.cached_position < block.count and self.arena.has_id(
            block.slot_at(self.cached_position), ms, seq
        ):
            raise ValueError(f"{ms}-{seq} is in already")
        if block.count == BLOCK_SLOTS:
            self._split(block)
            self._seek_id(ms, seq)
            block = self._block(self.cached_block_index)
        block.insert(self.cached_position, slot)
        self.count += 1

    @cython.ccall
    def remove(self, slot: cython.Py_ssize_t) -> cython.void:
        """Remove slot. Raises KeyError if it is not in the index."""
        self._seek_slot(slot)
        block: IndexBlock = self._block(self.cached_block_index)
        block.delete(self.cached_position)
        self.count -= 1
        if block.count == 0 and self.blocks is not None:
            self._delete_block(self.cached_block_index)
        elif block.count < SMALL_BLOCK_SLOTS:
            self._merge()

    @cython.ccall
    def slots(self) -> list[Any]:
        """Return all slots, sorted by ID."""
        found: list[Any] = []
        block: IndexBlock
        position: cython.Py_ssize_t
        for block in self._all_blocks():
            for position in range(block.count):
                found.append(block.slot_at(position))
        return found

    @cython.ccall
    def copy(self, arena: PendingArena) -> PendingIndex:
        """Return a copy for another arena, with the same entries in the same slots."""
        return self._copy_with(arena, False)

    @cython.ccall
    def frozen_copy(self, arena: PendingArena) -> PendingIndex:
        """Return a copy for the frozen `arena`. It shares memory with this index; it must not be changed."""
        return self._copy_with(arena, True)

    @cython.cfunc
    def _copy_with(self, arena: PendingArena, frozen: cython.bint) -> PendingIndex:
        other: PendingIndex = PendingIndex(arena)
        block: IndexBlock
        block_copy: IndexBlock
        for block in self._all_blocks():
            block_copy = block.frozen_copy() if frozen else block.copy()
            other._insert_block(other._block_count(), block_copy)
        other.count = self.count
        return other

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the index takes, without the arena."""
        total: cython.Py_ssize_t = footprint.instance_bytes(PendingIndex)
        each: cython.Py_ssize_t = footprint.instance_bytes(IndexBlock)
        block: IndexBlock
        if self.blocks is not None:
            total += footprint.object_bytes(self.blocks)
        for block in self._all_blocks():
            total += each + footprint.object_bytes(block.buf)
        return total

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        count: cython.Py_ssize_t = 0
        previous: cython.Py_ssize_t = NO_SLOT
        slot: cython.Py_ssize_t
        position: cython.Py_ssize_t
        block: IndexBlock
        assert self.blocks is None or (self.only_block is None and len(self.blocks) > 1)
        for block in self._all_blocks():
            assert len(block.buf) == block.cap * SLOT_BYTES
            assert block.count <= block.cap <= BLOCK_SLOTS
            assert block.count > 0 or self.blocks is None, "an empty block"
            assert previous < 0 or self.arena.precedes(previous, block.low_ms, block.low_seq)
            if previous >= 0:
                assert not self.arena.precedes(block.slot_at(0), block.low_ms, block.low_seq), (
                    "a low too high"
                )
            for position in range(block.count):
                slot = block.slot_at(position)
                assert previous < 0 or self.arena.precedes(
                    previous, self.arena.ms_of(slot), self.arena.seq_of(slot)
                ), f"slot {slot} out of order"
                previous = slot
            count += block.count
        assert count == self.count, f"{count} slots, count says {self.count}"

    # ---- blocks

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _block_count(self) -> cython.Py_ssize_t:
        if self.blocks is not None:
            return len(self.blocks)
        return 0 if self.only_block is None else 1

    @cython.cfunc
    @cython.inline
    def _block(self, index: cython.Py_ssize_t) -> IndexBlock:
        """Return an existing block."""
        block: IndexBlock | None = self.only_block if self.blocks is None else self.blocks[index]
        assert block is not None
        return block

    @cython.cfunc
    def _all_blocks(self) -> list[IndexBlock]:
        """Return the blocks in order. The list must not be changed."""
        if self.blocks is not None:
            return self.blocks
        return [] if self.only_block is None else [self.only_block]

    @cython.cfunc
    def _insert_block(self, index: cython.Py_ssize_t, block: IndexBlock) -> cython.void:
        if self.blocks is not None:
            self.blocks.insert(index, block)
        elif self.only_block is None:
            self.only_block = block
        else:
            self.blocks = [block, self.only_block] if index == 0 else [self.only_block, block]
            self.only_block = None

    @cython.cfunc
    def _delete_block(self, index: cython.Py_ssize_t) -> cython.void:
        """Delete one of several blocks."""
        assert self.blocks is not None
        self.blocks.pop(index)  # from Python 3.13 on, `del` keeps the memory of the list
        if len(self.blocks) == 1:
            self.only_block = self.blocks[0]
            self.blocks = None

    # ---- inside

    @cython.cfunc
    def _seek_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Set the cached position to where ms-seq is or would be inserted; maybe the end of a block."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self._block_count()
        middle: cython.Py_ssize_t
        block: IndexBlock
        while high - low > 1:
            middle = (low + high) // 2
            block = self._block(middle)
            if ms < block.low_ms or (ms == block.low_ms and seq < block.low_seq):
                high = middle
            else:
                low = middle
        block = self._block(low)
        self.cached_block_index = low
        low = 0
        high = block.count
        while low < high:
            middle = (low + high) // 2
            if self.arena.precedes(block.slot_at(middle), ms, seq):
                low = middle + 1
            else:
                high = middle
        self.cached_position = low

    @cython.cfunc
    def _cached_slot(self) -> cython.Py_ssize_t:
        """Return the slot at the cached position; -1 if there is none."""
        if self.cached_block_index >= self._block_count():
            return NO_SLOT
        block: IndexBlock = self._block(self.cached_block_index)
        return block.slot_at(self.cached_position) if self.cached_position < block.count else NO_SLOT

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _predecessor_precedes(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the slot before the cached position, in the same block, is before ms-seq.

        At the start of a block, return whether it is the first block.
        """
        if self.cached_position == 0:
            return self.cached_block_index == 0
        block: IndexBlock = self._block(self.cached_block_index)
        return self.arena.precedes(block.slot_at(self.cached_position - 1), ms, seq)

    @cython.cfunc
    def _cached_slot_across_blocks(self) -> cython.Py_ssize_t:
        """Return the slot at the cached position; -1 if there is none.

        A cached position at the end of a block is moved to the start of the next block first.
        """
        slot: cython.Py_ssize_t = self._cached_slot()
        if slot < 0 and self.cached_block_index + 1 < self._block_count():
            self.cached_block_index += 1
            self.cached_position = 0
            slot = self._cached_slot()
        return slot

    @cython.cfunc
    def _seek_slot(self, slot: cython.Py_ssize_t) -> cython.void:
        """Set the cached position to that of slot. Raises KeyError if it is not in the index."""
        if self._cached_slot() == slot:
            return
        if self.count > 0:
            self._seek_id(self.arena.ms_of(slot), self.arena.seq_of(slot))
        if self._cached_slot() != slot:
            raise KeyError(slot)

    @cython.cfunc
    def _append(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Append slot, which has the highest ID, when there is no block or the last one is full."""
        n: cython.Py_ssize_t = self._block_count()
        block: IndexBlock | None = self._block(n - 1) if n > 0 else None
        if block is None or block.count == BLOCK_SLOTS:
            block = IndexBlock(ms, seq)
            self._insert_block(n, block)
        block.insert(block.count, slot)
        self.count += 1

    @cython.cfunc
    def _split(self, block: IndexBlock) -> cython.void:
        """Move the upper half of the block at the cached position to a new block after it."""
        half: cython.Py_ssize_t = block.count // 2
        slot: cython.Py_ssize_t = block.slot_at(half)
        upper: IndexBlock = IndexBlock(self.arena.ms_of(slot), self.arena.seq_of(slot))
        upper.append_from(block, half)
        self._insert_block(self.cached_block_index + 1, upper)
        block.count = half

    @cython.cfunc
    def _merge(self) -> cython.void:
        """Merge the block at the cached position with the next one, else with the previous one, if small."""
        at: cython.Py_ssize_t
        left: IndexBlock
        right: IndexBlock
        for at in (self.cached_block_index, self.cached_block_index - 1):
            if 0 <= at < self._block_count() - 1:
                left = self._block(at)
                right = self._block(at + 1)
                if left.count + right.count <= MERGED_BLOCK_SLOTS_MAX:
                    left.append_from(right, 0)
                    self._delete_block(at + 1)
                    return
