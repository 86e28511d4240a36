"""PendingArena: the records of the pending entries of a group. A record is addressed by its slot.

    slot 0                          slot 1024
    +---------+---------+- - -+     +---------+---------+- - -+
    | record  | record  |     |     | record  | record  |     |      chunks of up to 1024 records
    +---------+---------+- - -+     +---------+---------+- - -+

     0      4          8     12      18     24      26      28
    +------+----------+-----+-------+------+-------+-------+
    | next | previous | seq | ms    | time | count | owner |     narrow: enough for nearly all entries
    | u32  | u32      | u32 | u48   | u48  | u16   | u16   |
    +------+----------+-----+-------+------+-------+-------+
     0      4          8       12    20    28     36      44
    +------+----------+-------+-----+-----+------+-------+
    | next | previous | owner | ms  | seq | time | count |       wide
    | u32  | u32      | u32   | u64 | u64 | u64  | u64   |
    +------+----------+-------+-----+-----+------+-------+

All numbers are little-endian. A chunk becomes wide, for good, when a value does not fit. next and previous
are a slot plus one, so that 0 is none. In free records of a chunk next links the free list, as an index in
the chunk plus one. A chunk without records frees its memory.

A frozen copy (frozen_copy) shares the bytes of the chunks. A chunk that is shared copies its bytes before it
changes them, so the frozen copy stays as it is.
"""

from __future__ import annotations

from typing import NoReturn

import cython

from headrace import mem
from headrace.streams import memory_account
from headrace.streams.memory_account import MemoryAccount
from headrace.structures import footprint

NO_SLOT = cython.declare(cython.Py_ssize_t, -1)
CHUNK_BITS = cython.declare(cython.int, 10)
CHUNK_RECORDS = cython.declare(cython.Py_ssize_t, 1024)
CHUNK_RECORDS_INITIAL = cython.declare(cython.Py_ssize_t, 8)  # the initial capacity of a chunk
INDEX_MASK = cython.declare(cython.Py_ssize_t, 1023)  # the bits of a slot that are the index in its chunk
CHUNKS_MAX = cython.declare(cython.Py_ssize_t, (1 << 22) - 1)  # a slot plus one must fit into a link
NARROW_RECORD_BYTES = cython.declare(cython.Py_ssize_t, 28)
WIDE_RECORD_BYTES = cython.declare(cython.Py_ssize_t, 44)
OWNER_NARROW_MAX = cython.declare(cython.Py_ssize_t, 0xFFFF)
U16_MAX = cython.declare(cython.ulonglong, 0xFFFF)
U32_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFF)
U48_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFF)
NEXT_LINK_AT = cython.declare(cython.Py_ssize_t, 0)
PREVIOUS_LINK_AT = cython.declare(cython.Py_ssize_t, 4)


@cython.final
@cython.no_gc
@cython.cclass
class ArenaChunk:
    """Up to 1024 records of one width."""

    number: cython.Py_ssize_t  # its first slot is 1024 times this
    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t  # capacity in records
    used_count: cython.Py_ssize_t  # records from the start that were ever allocated
    live_count: cython.Py_ssize_t
    free_head: cython.Py_ssize_t  # the index of the first free record below used, plus one; 0: none
    record_bytes: cython.Py_ssize_t
    shared: cython.bint  # a frozen copy has the same buf
    # Of a chunk that is not full: the number of the next such chunk; -1: none.
    next_open_chunk_number: cython.Py_ssize_t
    memory: MemoryAccount  # of the arena
    accounted_bytes: cython.Py_ssize_t  # the bytes of this chunk in it

    def __init__(self, number: cython.Py_ssize_t, memory: MemoryAccount) -> None:
        self.number = number
        self.next_open_chunk_number = NO_SLOT
        self.memory = memory
        self.accounted_bytes = 0
        self.clear()

    @cython.cfunc
    def clear(self) -> cython.void:
        """Reset to an empty narrow chunk of the initial capacity."""
        self.buf = bytearray(CHUNK_RECORDS_INITIAL * NARROW_RECORD_BYTES)
        self.p = self.buf
        self.cap = CHUNK_RECORDS_INITIAL
        self.record_bytes = NARROW_RECORD_BYTES
        self.shared = False
        self.used_count = self.live_count = self.free_head = 0
        self.update_account()

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
    def update_account(self) -> cython.void:
        """Account for the memory of the current capacity."""
        now: cython.Py_ssize_t = self.cap * (self.record_bytes + memory_account.PENDING_INDEX_BYTES)
        self.memory.add(now - self.accounted_bytes)
        self.accounted_bytes = now

    @cython.cfunc
    def allocate(self) -> cython.Py_ssize_t:
        """Allocate a record and return its index; the chunk must not be full."""
        index: cython.Py_ssize_t = self.free_head - 1
        if self.shared:
            self.unshare()
        if index >= 0:
            self.free_head = mem.u32le(self.p, index * self.record_bytes)
        else:
            index = self.used_count
            if index == self.cap:
                mem.resize(self.buf, 2 * self.cap * self.record_bytes)
                self.p = self.buf
                self.cap *= 2
                self.update_account()
            self.used_count += 1
        self.live_count += 1
        return index

    @cython.cfunc
    def release(self, index: cython.Py_ssize_t) -> cython.void:
        """Free a record."""
        self.live_count -= 1
        if self.live_count > 0:
            self.unshare()
            mem.put_u32le(self.p, index * self.record_bytes, self.free_head)
            self.free_head = index + 1
        elif self.cap > CHUNK_RECORDS_INITIAL:
            self.clear()
        else:
            self.used_count = self.free_head = 0

    @cython.cfunc
    def widen(self) -> cython.void:
        """Convert all records to wide ones."""
        index: cython.Py_ssize_t
        to: cython.Py_ssize_t
        at: cython.Py_ssize_t
        source: cython.p_uchar = self.p
        wide: bytearray = bytearray(self.cap * WIDE_RECORD_BYTES)
        target: cython.p_uchar = wide
        for index in range(self.used_count):
            at = index * NARROW_RECORD_BYTES
            to = index * WIDE_RECORD_BYTES
            mem.copy(target, to, source, at, 8)
            mem.put_u32le(target, to + 8, mem.u16le(source, at + 26))
            mem.put_u64le(target, to + 12, _u48(source, at + 12))
            mem.put_u64le(target, to + 20, mem.u32le(source, at + 8))
            mem.put_u64le(target, to + 28, _u48(source, at + 18))
            mem.put_u64le(target, to + 36, mem.u16le(source, at + 24))
        self.buf = wide
        self.p = self.buf
        self.shared = False
        self.record_bytes = WIDE_RECORD_BYTES
        self.update_account()

    @cython.cfunc
    @cython.exceptval(check=False)
    def set_delivery(
        self,
        at: cython.Py_ssize_t,
        owner: cython.Py_ssize_t,
        time_ms: cython.longlong,
        count: cython.longlong,
    ) -> cython.void:
        """Write owner, time and count into the record at offset at; they must fit."""
        whose: cython.uint = owner
        times: cython.uint
        if self.shared:
            self.unshare()
        if self.record_bytes == NARROW_RECORD_BYTES:
            times = count
            _put_u48(self.p, at + 18, mem.as_unsigned(time_ms))
            mem.put_u16le(self.p, at + 24, times)
            mem.put_u16le(self.p, at + 26, whose)
        else:
            mem.put_u32le(self.p, at + 8, whose)
            mem.put_u64le(self.p, at + 28, mem.as_unsigned(time_ms))
            mem.put_u64le(self.p, at + 36, mem.as_unsigned(count))

    @cython.cfunc
    def copy(self, memory: MemoryAccount) -> ArenaChunk:
        """Return a copy with the same records at the same indexes."""
        shared: cython.bint = self.shared
        other: ArenaChunk = self.frozen_copy(memory)
        other.unshare()
        self.shared = shared
        memory.add(other.accounted_bytes)
        return other

    @cython.cfunc
    def frozen_copy(self, memory: MemoryAccount) -> ArenaChunk:
        """Return a copy that shares the bytes, and is not accounted for."""
        other: ArenaChunk = ArenaChunk.__new__(ArenaChunk)
        other.number = self.number
        other.next_open_chunk_number = self.next_open_chunk_number
        other.memory = memory
        other.accounted_bytes = self.accounted_bytes
        other.buf = self.buf
        other.p = other.buf
        other.cap = self.cap
        other.used_count = self.used_count
        other.live_count = self.live_count
        other.free_head = self.free_head
        other.record_bytes = self.record_bytes
        other.shared = self.shared = True
        return other

    @cython.cfunc
    def check(self) -> cython.void:
        """Assert every invariant."""
        seen: cython.Py_ssize_t = 0
        free: cython.Py_ssize_t = self.free_head
        assert self.record_bytes in (NARROW_RECORD_BYTES, WIDE_RECORD_BYTES)
        assert CHUNK_RECORDS_INITIAL <= self.cap <= CHUNK_RECORDS
        assert len(self.buf) == self.cap * self.record_bytes
        assert self.accounted_bytes == self.cap * (self.record_bytes + memory_account.PENDING_INDEX_BYTES)
        assert 0 <= self.live_count <= self.used_count <= self.cap
        while free > 0:
            seen += 1
            assert free <= self.used_count, f"free index {free - 1} was never used"
            assert seen <= self.used_count, "the free indexes go round in a circle"
            free = mem.u32le(self.p, (free - 1) * self.record_bytes)
        assert seen == self.used_count - self.live_count, (
            f"{seen} free indexes of {self.used_count - self.live_count}"
        )


@cython.final
@cython.no_gc
@cython.nonecheck(False)  # _chunk_of_number() makes sure that a chunk is not None
@cython.cclass
class PendingArena:
    """Records by slot. A slot is valid from allocate() to release()."""

    first_chunk: ArenaChunk | None  # number 0; most groups need no other
    chunks: list[ArenaChunk] | None  # all, if there are several
    open_chunk_number: cython.Py_ssize_t  # of a chunk that is not full, used first; -1: there is none
    live_count: cython.Py_ssize_t
    memory: MemoryAccount

    def __init__(self) -> None:
        self.memory = MemoryAccount()
        self.first_chunk = self.chunks = None
        self.open_chunk_number = NO_SLOT
        self.live_count = 0

    @cython.ccall
    def allocate(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        owner: cython.Py_ssize_t,
        time_ms: cython.longlong,
        count: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Allocate a record for ms-seq without links; return its slot. Arguments: see set_delivery().

        Raises MemoryError if the arena has the maximum number of records.
        """
        if self.open_chunk_number < 0:
            self._add_chunk()
        chunk: ArenaChunk = self._chunk_of_number(self.open_chunk_number)
        if chunk.record_bytes == NARROW_RECORD_BYTES and (
            ms > U48_MAX or seq > U32_MAX or not fits_narrow(owner, time_ms, count)
        ):
            chunk.widen()
        index: cython.Py_ssize_t = chunk.allocate()
        if chunk.live_count == CHUNK_RECORDS:
            self.open_chunk_number = chunk.next_open_chunk_number
        self.live_count += 1
        at: cython.Py_ssize_t = index * chunk.record_bytes
        mem.put_u64le(chunk.p, at, 0)
        if chunk.record_bytes == NARROW_RECORD_BYTES:
            mem.put_u32le(chunk.p, at + 8, seq & U32_MAX)
            _put_u48(chunk.p, at + 12, ms)
        else:
            mem.put_u64le(chunk.p, at + 12, ms)
            mem.put_u64le(chunk.p, at + 20, seq)
        chunk.set_delivery(at, owner, time_ms, count)
        return chunk.number * CHUNK_RECORDS + index

    @cython.ccall
    def release(self, slot: cython.Py_ssize_t) -> cython.void:
        """Free a record; its slot may be reused."""
        chunk: ArenaChunk = self._chunk(slot)
        if chunk.live_count == CHUNK_RECORDS:
            chunk.next_open_chunk_number = self.open_chunk_number
            self.open_chunk_number = chunk.number
        chunk.release(slot & INDEX_MASK)
        self.live_count -= 1
        if self.live_count == 0 and self.chunks is not None:
            for chunk in self.chunks[1:]:
                self.memory.add(-chunk.accounted_bytes)
            self.chunks = None
            chunk = self._chunk_of_number(0)
            chunk.next_open_chunk_number = NO_SLOT
            self.open_chunk_number = 0

    # ---- reading

    @cython.ccall
    def ms_of(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the milliseconds of the ID."""
        chunk: ArenaChunk = self._chunk(slot)
        at: cython.Py_ssize_t = (slot & INDEX_MASK) * chunk.record_bytes + 12
        return _u48(chunk.p, at) if chunk.record_bytes == NARROW_RECORD_BYTES else mem.u64le(chunk.p, at)

    @cython.ccall
    def seq_of(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the sequence number of the ID."""
        chunk: ArenaChunk = self._chunk(slot)
        at: cython.Py_ssize_t = (slot & INDEX_MASK) * chunk.record_bytes
        return (
            mem.u32le(chunk.p, at + 8)
            if chunk.record_bytes == NARROW_RECORD_BYTES
            else mem.u64le(chunk.p, at + 20)
        )

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def precedes(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the ID of the record is before ms-seq."""
        chunk: ArenaChunk = self._chunk(slot)
        at: cython.Py_ssize_t = (slot & INDEX_MASK) * chunk.record_bytes
        here: cython.ulonglong
        if chunk.record_bytes == NARROW_RECORD_BYTES:
            here = _u48(chunk.p, at + 12)
            return here < ms or (here == ms and mem.u32le(chunk.p, at + 8) < seq)
        here = mem.u64le(chunk.p, at + 12)
        return here < ms or (here == ms and mem.u64le(chunk.p, at + 20) < seq)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def has_id(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the record's ID is ms-seq."""
        chunk: ArenaChunk = self._chunk(slot)
        at: cython.Py_ssize_t = (slot & INDEX_MASK) * chunk.record_bytes
        if chunk.record_bytes == NARROW_RECORD_BYTES:
            return _u48(chunk.p, at + 12) == ms and mem.u32le(chunk.p, at + 8) == seq
        return mem.u64le(chunk.p, at + 12) == ms and mem.u64le(chunk.p, at + 20) == seq

    @cython.ccall
    def delivery_time_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return when the entry was delivered last, in Unix milliseconds."""
        chunk: ArenaChunk = self._chunk(slot)
        at: cython.Py_ssize_t = (slot & INDEX_MASK) * chunk.record_bytes
        narrow: cython.bint = chunk.record_bytes == NARROW_RECORD_BYTES
        return mem.as_signed(_u48(chunk.p, at + 18) if narrow else mem.u64le(chunk.p, at + 28))

    @cython.ccall
    def delivery_count_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return how often the entry was delivered."""
        chunk: ArenaChunk = self._chunk(slot)
        at: cython.Py_ssize_t = (slot & INDEX_MASK) * chunk.record_bytes
        narrow: cython.bint = chunk.record_bytes == NARROW_RECORD_BYTES
        return mem.as_signed(mem.u16le(chunk.p, at + 24) if narrow else mem.u64le(chunk.p, at + 36))

    @cython.ccall
    def owner_of(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of the owner; 0: the entry is unowned."""
        chunk: ArenaChunk = self._chunk(slot)
        at: cython.Py_ssize_t = (slot & INDEX_MASK) * chunk.record_bytes
        return (
            mem.u16le(chunk.p, at + 26)
            if chunk.record_bytes == NARROW_RECORD_BYTES
            else mem.u32le(chunk.p, at + 8)
        )

    # ---- changing

    @cython.ccall
    def set_delivery(
        self,
        slot: cython.Py_ssize_t,
        owner: cython.Py_ssize_t,
        time_ms: cython.longlong,
        count: cython.longlong,
    ) -> cython.void:
        """Write the number of the owner, the delivery time (Unix ms) and the delivery count."""
        chunk: ArenaChunk = self._chunk(slot)
        if chunk.record_bytes == NARROW_RECORD_BYTES and not fits_narrow(owner, time_ms, count):
            chunk.widen()
        chunk.set_delivery((slot & INDEX_MASK) * chunk.record_bytes, owner, time_ms, count)

    # ---- links

    @cython.ccall
    def next_of(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the slot linked as the next one; -1: none."""
        return self._linked_slot(slot, NEXT_LINK_AT)

    @cython.ccall
    def previous_of(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the slot linked as the previous one; -1: none."""
        return self._linked_slot(slot, PREVIOUS_LINK_AT)

    @cython.ccall
    def link(self, slot: cython.Py_ssize_t, follower: cython.Py_ssize_t) -> cython.void:
        """Link follower as the next of slot. Either may be -1: then the other is at an end of the list."""
        chunk: ArenaChunk
        if slot >= 0:
            chunk = self._chunk(slot)
            if chunk.shared:
                chunk.unshare()
            mem.put_u32le(chunk.p, (slot & INDEX_MASK) * chunk.record_bytes + NEXT_LINK_AT, follower + 1)
        if follower >= 0:
            chunk = self._chunk(follower)
            if chunk.shared:
                chunk.unshare()
            mem.put_u32le(chunk.p, (follower & INDEX_MASK) * chunk.record_bytes + PREVIOUS_LINK_AT, slot + 1)

    # ---- all records

    @cython.ccall
    def copy(self) -> PendingArena:
        """Return a copy with the same records at the same slots."""
        return self._copy(False)

    @cython.ccall
    def frozen_copy(self) -> PendingArena:
        """Return a copy that must not be changed. It shares memory with this arena, which may change."""
        return self._copy(True)

    @cython.cfunc
    def _copy(self, frozen: cython.bint) -> PendingArena:
        other: PendingArena = PendingArena()
        chunk: ArenaChunk
        chunk_copy: ArenaChunk
        for chunk in self._all_chunks():
            chunk_copy = chunk.frozen_copy(other.memory) if frozen else chunk.copy(other.memory)
            other._append_chunk(chunk_copy)
        other.open_chunk_number = self.open_chunk_number
        other.live_count = self.live_count
        return other

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the arena takes."""
        total: cython.Py_ssize_t = footprint.instance_bytes(PendingArena)
        each: cython.Py_ssize_t = footprint.instance_bytes(ArenaChunk)
        chunk: ArenaChunk
        if self.chunks is not None:
            total += footprint.object_bytes(self.chunks)
        for chunk in self._all_chunks():
            total += each + footprint.object_bytes(chunk.buf)
        return total

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        live: cython.Py_ssize_t = 0
        chunk: ArenaChunk
        open_chunks: set[int] = set()
        number: cython.Py_ssize_t = self.open_chunk_number
        assert self.chunks is None or (len(self.chunks) > 1 and self.chunks[0] is self.first_chunk)
        while number >= 0:
            assert number not in open_chunks, "a chunk is offered twice"
            open_chunks.add(number)
            chunk = self._chunk_of_number(number)
            number = chunk.next_open_chunk_number
        for number, chunk in enumerate(self._all_chunks()):
            chunk.check()
            assert chunk.number == number
            assert (chunk.live_count < CHUNK_RECORDS) == (chunk.number in open_chunks), (
                f"room in chunk {chunk.number}"
            )
            live += chunk.live_count
        assert live == self.live_count, f"{live} records, live says {self.live_count}"

    # ---- inside

    @cython.cfunc
    @cython.inline
    def _chunk_of_number(self, number: cython.Py_ssize_t) -> ArenaChunk:
        """Return the chunk with this number. Raises IndexError if there is none."""
        chunk: ArenaChunk | None = self.first_chunk
        if self.chunks is not None:
            chunk = self.chunks[number]
        if chunk is None or chunk.number != number:
            self._raise_no_record(number << CHUNK_BITS)
        return chunk

    @cython.cfunc
    def _raise_no_record(self, slot: cython.Py_ssize_t) -> NoReturn:
        """Raise IndexError. A function of its own, so that its callers stay short and fast."""
        raise IndexError(f"no record has the slot {slot}")

    @cython.cfunc
    def _all_chunks(self) -> list[ArenaChunk]:
        """Return the chunks by number. The list must not be changed."""
        if self.chunks is not None:
            return self.chunks
        return [] if self.first_chunk is None else [self.first_chunk]

    @cython.cfunc
    def _append_chunk(self, chunk: ArenaChunk) -> cython.void:
        if self.first_chunk is None:
            self.first_chunk = chunk
        elif self.chunks is None:
            self.chunks = [self.first_chunk, chunk]
        else:
            self.chunks.append(chunk)

    @cython.cfunc
    @cython.inline
    def _chunk(self, slot: cython.Py_ssize_t) -> ArenaChunk:
        """Return the chunk of slot. Raises IndexError if the slot was never allocated."""
        chunk: ArenaChunk = self._chunk_of_number(slot >> CHUNK_BITS)
        if (slot & INDEX_MASK) >= chunk.used_count:
            self._raise_no_record(slot)
        return chunk

    @cython.cfunc
    def _linked_slot(self, slot: cython.Py_ssize_t, which: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the slot in the link at offset `which` of a record; -1: none."""
        chunk: ArenaChunk = self._chunk(slot)
        linked: cython.Py_ssize_t = mem.u32le(chunk.p, (slot & INDEX_MASK) * chunk.record_bytes + which)
        return linked - 1

    @cython.cfunc
    def _add_chunk(self) -> cython.void:
        """Add a chunk; all others must be full. Raises MemoryError if there are CHUNKS_MAX."""
        number: cython.Py_ssize_t = len(self._all_chunks())
        if number >= CHUNKS_MAX:
            raise MemoryError("a group cannot have more pending entries")
        self._append_chunk(ArenaChunk(number, self.memory))
        self.open_chunk_number = number


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def fits_narrow(owner: cython.Py_ssize_t, time_ms: cython.longlong, count: cython.longlong) -> cython.bint:
    """Return whether a narrow record can hold these values."""
    return (
        mem.as_unsigned(time_ms) <= U48_MAX
        and mem.as_unsigned(count) <= U16_MAX
        and owner <= OWNER_NARROW_MAX
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u48(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    low: cython.ulonglong = mem.u32le(p, at)
    high: cython.ulonglong = mem.u16le(p, at + 4)
    return low | high << 32


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_u48(p: cython.p_uchar, at: cython.Py_ssize_t, v: cython.ulonglong) -> cython.void:
    mem.put_u32le(p, at, v & U32_MAX)
    mem.put_u16le(p, at + 4, v >> 32)
