"""Priority queues by deadline: TimerHeap for numbers, TimerQueue for objects. Any deadline can be changed.

    cells, a binary heap: the children of cell i are the cells 2i + 1 and 2i + 2, neither is before it

     0          8      16     24
    +----------+------+-----+--------+----------+------+-----+--------+- - -
    | deadline | high | low | number | deadline | high | low | number |         28 bytes each
    | i64      | u64  | u64 | u32    |          |      |     |        |
    +----------+------+-----+--------+----------+------+-----+--------+- - -

    places     +---+---+---+---+- - -
               | 2 | 0 | 1 | 3 |           u32 by number: the index of its cell plus one; 0: no deadline
               +---+---+---+---+- - -

All numbers are little-endian. Equal deadlines are in order of (high, low). Numbers should be small, such as
slots, because every number up to the highest one has a place. Setting, changing or removing a deadline costs
O(log n), so no cell is ever stale. Both blocks grow by doubling. The cells shrink with the count, and the
last removal frees both blocks.

A TimerQueue assigns the numbers: `items` has the object of each number. Equal deadlines are in the order in
which they were added.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem
from headrace.structures import footprint

CELL_BYTES = cython.declare(cython.Py_ssize_t, 28)
HIGH_AT = cython.declare(cython.Py_ssize_t, 8)
LOW_AT = cython.declare(cython.Py_ssize_t, 16)
NUMBER_AT = cython.declare(cython.Py_ssize_t, 24)
PLACE_BYTES = cython.declare(cython.Py_ssize_t, 4)
CELLS_INITIAL = cython.declare(cython.Py_ssize_t, 4)  # the initial capacity
NUMBERS_MAX = cython.declare(cython.Py_ssize_t, (1 << 32) - 2)  # an index plus one must fit into a place
NO_NUMBER = cython.declare(cython.Py_ssize_t, -1)
NEVER = cython.declare(cython.longlong, -1)


@cython.final
@cython.no_gc
@cython.cclass
class TimerHeap:
    """Numbers from 0 on, each with at most one deadline."""

    count: cython.Py_ssize_t
    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t  # in cells
    cell_indexes: bytearray
    cell_indexes_p: cython.p_uchar
    number_capacity: cython.Py_ssize_t  # capacity of places; higher numbers have no deadline

    def __init__(self) -> None:
        self._clear()

    @cython.cfunc
    def _clear(self) -> cython.void:
        """Free both blocks."""
        self.count = self.cap = self.number_capacity = 0
        self.buf = bytearray()
        self.p = self.buf
        self.cell_indexes = bytearray()
        self.cell_indexes_p = self.cell_indexes

    @cython.ccall
    def set(
        self,
        number: cython.Py_ssize_t,
        deadline: cython.longlong,
        high: cython.ulonglong = 0,
        low: cython.ulonglong = 0,
    ) -> cython.void:
        """Set or replace the deadline of a number, and its order (high, low) among equal deadlines.

        Raises ValueError if the number is negative or too large.
        """
        at: cython.Py_ssize_t = self._index(number)
        if at < 0:
            self._reserve(number)
            at = self.count
            self.count += 1
        self._put(at, deadline, high, low, number)

    @cython.ccall
    def change_deadline(self, number: cython.Py_ssize_t, deadline: cython.longlong) -> cython.void:
        """Replace a number's deadline, but not its order among equal ones. Raises KeyError if it has none."""
        at: cython.Py_ssize_t = self._existing_index(number)
        p: cython.p_uchar = self.p
        self._put(
            at,
            deadline,
            mem.u64le(p, at * CELL_BYTES + HIGH_AT),
            mem.u64le(p, at * CELL_BYTES + LOW_AT),
            number,
        )

    @cython.ccall
    def remove(self, number: cython.Py_ssize_t) -> cython.void:
        """Remove the deadline of a number, if it has one."""
        at: cython.Py_ssize_t = self._index(number)
        if at < 0:
            return
        p: cython.p_uchar = self.p
        last: cython.Py_ssize_t = (self.count - 1) * CELL_BYTES
        self.count -= 1
        mem.put_u32le(self.cell_indexes_p, number * PLACE_BYTES, 0)
        if self.count == 0:
            self._clear()
            return
        if at < self.count:
            deadline: cython.longlong = mem.as_signed(mem.u64le(p, last))
            other: cython.Py_ssize_t = mem.u32le(p, last + NUMBER_AT)
            self._put(at, deadline, mem.u64le(p, last + HIGH_AT), mem.u64le(p, last + LOW_AT), other)
        if self.cap > CELLS_INITIAL and self.count * 4 <= self.cap:
            self._resize(self.cap // 2)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def contains(self, number: cython.Py_ssize_t) -> cython.bint:
        """Return whether the number has a deadline."""
        return self._index(number) >= 0

    @cython.ccall
    def deadline_of(self, number: cython.Py_ssize_t) -> cython.longlong:
        """Return the deadline of a number. Raises KeyError if it has none."""
        return mem.as_signed(mem.u64le(self.p, self._existing_index(number) * CELL_BYTES))

    @cython.ccall
    @cython.exceptval(check=False)
    def first(self) -> cython.Py_ssize_t:
        """Return the number with the earliest deadline; -1 if there is none."""
        if self.count == 0:
            return NO_NUMBER
        number: cython.Py_ssize_t = mem.u32le(self.p, NUMBER_AT)
        return number

    @cython.ccall
    @cython.exceptval(check=False)
    def first_deadline(self) -> cython.longlong:
        """Return the earliest deadline; -1 if there is none."""
        return NEVER if self.count == 0 else mem.as_signed(mem.u64le(self.p, 0))

    @cython.ccall
    @cython.exceptval(check=False)
    def count_due(self, now: cython.longlong) -> cython.Py_ssize_t:
        """Return how many deadlines are not after now. It takes about a nanosecond for each deadline."""
        at: cython.Py_ssize_t
        found: cython.Py_ssize_t = 0
        if self.first_deadline() > now:
            return 0
        for at in range(self.count):
            if mem.as_signed(mem.u64le(self.p, at * CELL_BYTES)) <= now:
                found += 1
        return found

    @cython.ccall
    @cython.exceptval(check=False)
    def block_bytes(self) -> cython.Py_ssize_t:
        """Return the size of the two blocks, in bytes."""
        return self.cap * CELL_BYTES + self.number_capacity * PLACE_BYTES

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the heap takes."""
        total: cython.Py_ssize_t = footprint.instance_bytes(TimerHeap)
        return total + footprint.object_bytes(self.buf) + footprint.object_bytes(self.cell_indexes)

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        at: cython.Py_ssize_t
        number: cython.Py_ssize_t
        parent: cython.Py_ssize_t
        p: cython.p_uchar = self.p
        assert 0 <= self.count <= self.cap
        assert (
            len(self.buf) == self.cap * CELL_BYTES
            and len(self.cell_indexes) == self.number_capacity * PLACE_BYTES
        )
        for at in range(self.count):
            number = mem.u32le(p, at * CELL_BYTES + NUMBER_AT)
            assert self._index(number) == at
            parent = (at - 1) // 2
            assert at == 0 or not self._is_before(
                at * CELL_BYTES,
                mem.as_signed(mem.u64le(p, parent * CELL_BYTES)),
                mem.u64le(p, parent * CELL_BYTES + HIGH_AT),
                mem.u64le(p, parent * CELL_BYTES + LOW_AT),
            ), f"cell {at} is before its parent"
        placed: list[int] = [
            at for at in range(self.number_capacity) if mem.u32le(self.cell_indexes_p, at * PLACE_BYTES)
        ]
        assert len(placed) == self.count

    # ---- inside

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _index(self, number: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the index of the number's cell; -1 if it has none."""
        if not 0 <= number < self.number_capacity:
            return NO_NUMBER
        place: cython.Py_ssize_t = mem.u32le(self.cell_indexes_p, number * PLACE_BYTES)
        return place - 1

    @cython.cfunc
    def _existing_index(self, number: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the index of the number's cell. Raises KeyError if it has none."""
        at: cython.Py_ssize_t = self._index(number)
        if at < 0:
            raise KeyError(number)
        return at

    @cython.cfunc
    def _reserve(self, number: cython.Py_ssize_t) -> cython.void:
        """Make room for one more cell and for the number's place. Raises ValueError as set() does."""
        known: cython.Py_ssize_t = max(self.number_capacity, CELLS_INITIAL)
        if number < 0 or number > NUMBERS_MAX:
            raise ValueError(f"no number of a timer: {number}")
        if self.count == self.cap:
            self._resize(max(2 * self.cap, CELLS_INITIAL))
        while known <= number:
            known *= 2
        if known > self.number_capacity:
            self.cell_indexes.extend(bytes((known - self.number_capacity) * PLACE_BYTES))
            self.cell_indexes_p = self.cell_indexes
            self.number_capacity = known

    @cython.cfunc
    def _resize(self, cap: cython.Py_ssize_t) -> cython.void:
        mem.resize(self.buf, cap * CELL_BYTES)
        self.p = self.buf
        self.cap = cap

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _is_before(
        self,
        at: cython.Py_ssize_t,
        deadline: cython.longlong,
        high: cython.ulonglong,
        low: cython.ulonglong,
    ) -> cython.bint:
        """Return whether the cell at that offset is before these values."""
        p: cython.p_uchar = self.p
        here: cython.longlong = mem.as_signed(mem.u64le(p, at))
        if here != deadline:
            return here < deadline
        word: cython.ulonglong = mem.u64le(p, at + HIGH_AT)
        if word != high:
            return word < high
        return mem.u64le(p, at + LOW_AT) < low

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put(
        self,
        at: cython.Py_ssize_t,
        deadline: cython.longlong,
        high: cython.ulonglong,
        low: cython.ulonglong,
        number: cython.uint,
    ) -> cython.void:
        """Put these values into the cell with the index `at`, or where they belong: up or down from it.

        The cell's own values are overwritten.
        """
        p: cython.p_uchar = self.p
        next_at: cython.Py_ssize_t
        while at > 0:
            next_at = (at - 1) >> 1
            if self._is_before(next_at * CELL_BYTES, deadline, high, low):
                break
            self._copy_cell(next_at, at)
            at = next_at
        while True:
            next_at = 2 * at + 1
            if next_at >= self.count:
                break
            if next_at + 1 < self.count and self._is_before(
                (next_at + 1) * CELL_BYTES,
                mem.as_signed(mem.u64le(p, next_at * CELL_BYTES)),
                mem.u64le(p, next_at * CELL_BYTES + HIGH_AT),
                mem.u64le(p, next_at * CELL_BYTES + LOW_AT),
            ):
                next_at += 1
            if not self._is_before(next_at * CELL_BYTES, deadline, high, low):
                break
            self._copy_cell(next_at, at)
            at = next_at
        mem.put_u64le(p, at * CELL_BYTES, mem.as_unsigned(deadline))
        mem.put_u64le(p, at * CELL_BYTES + HIGH_AT, high)
        mem.put_u64le(p, at * CELL_BYTES + LOW_AT, low)
        mem.put_u32le(p, at * CELL_BYTES + NUMBER_AT, number)
        mem.put_u32le(self.cell_indexes_p, number * PLACE_BYTES, at + 1)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _copy_cell(self, source: cython.Py_ssize_t, target: cython.Py_ssize_t) -> cython.void:
        """Copy a cell, and record its new index in its place."""
        p: cython.p_uchar = self.p
        number: cython.Py_ssize_t = mem.u32le(p, source * CELL_BYTES + NUMBER_AT)
        mem.copy(p, target * CELL_BYTES, p, source * CELL_BYTES, CELL_BYTES)
        mem.put_u32le(self.cell_indexes_p, number * PLACE_BYTES, target + 1)


@cython.final
@cython.cclass
class TimerQueue:
    """Objects by deadline, in Unix milliseconds. Each is identified by the number that add() returned."""

    heap: TimerHeap
    items: list[Any]  # by number; None: the number is free
    free_numbers: list[int]
    serial: cython.ulonglong  # of the last object added

    def __init__(self) -> None:
        self.heap = TimerHeap()
        self.items = []
        self.free_numbers = []
        self.serial = 0

    def __len__(self) -> int:
        return self.heap.count

    @cython.ccall
    def add(self, deadline: cython.longlong, item: Any) -> cython.Py_ssize_t:
        """Add an object, which is not None; return its number, which is valid until it is removed."""
        number: cython.Py_ssize_t
        if self.free_numbers:
            number = self.free_numbers.pop()
            self.items[number] = item
        else:
            number = len(self.items)
            self.items.append(item)
        self.serial += 1
        self.heap.set(number, deadline, self.serial)
        return number

    @cython.ccall
    def remove(self, number: cython.Py_ssize_t) -> cython.void:
        """Remove the object with this number, which must exist."""
        self.heap.remove(number)
        if self.heap.count == 0:
            self.items = []
            self.free_numbers = []
        else:
            self.items[number] = None
            self.free_numbers.append(number)

    @cython.ccall
    def change_deadline(self, number: cython.Py_ssize_t, deadline: cython.longlong) -> cython.void:
        """Change the deadline of the object with this number. Raises KeyError if there is none."""
        self.heap.change_deadline(number, deadline)

    @cython.ccall
    def deadline_of(self, number: cython.Py_ssize_t) -> cython.longlong:
        """Return the deadline of the object with this number. Raises KeyError if there is none."""
        return self.heap.deadline_of(number)

    @cython.ccall
    @cython.exceptval(check=False)
    def next_deadline(self) -> cython.longlong:
        """Return the earliest deadline; -1 if there is none."""
        return self.heap.first_deadline()

    @cython.ccall
    def first_due(self, now: cython.longlong) -> Any:
        """Return the first object whose deadline is not after now; None if there is none."""
        if self.heap.count == 0 or self.heap.first_deadline() > now:
            return None
        return self.items[self.heap.first()]

    @cython.ccall
    def all(self) -> list[Any]:
        """Return all objects, unordered."""
        return [item for item in self.items if item is not None]

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the queue takes, without the objects."""
        total: cython.Py_ssize_t = footprint.instance_bytes(TimerQueue) + self.heap.memory_bytes()
        return total + footprint.object_bytes(self.items) + footprint.object_bytes(self.free_numbers)

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        number: cython.Py_ssize_t
        self.heap.check()
        for number in range(len(self.items)):
            assert (self.items[number] is not None) == self.heap.contains(number)
            assert self.heap.contains(number) == (number not in self.free_numbers)
        assert len(self.free_numbers) == len(self.items) - self.heap.count
