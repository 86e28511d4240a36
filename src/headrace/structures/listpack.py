"""A listpack: many small strings and integers in one block of bytes.

0          4          6                                  used
+----------+----------+-----------+-----+-----------+------+
| total    | count    | element   | ... | element   | 0xFF |
| u32 le   | u16 le   |           |     |           |      |
+----------+----------+-----------+-----+-----------+------+

total includes the header and the end byte. count is 65535 if there are more than 65534 elements: they
must then be counted by walking. `Listpack.count` is always exact.

listpack_walk.py shows the encoding of an element. Each value has exactly one encoding: bytes that are the
canonical decimal form of a signed 64-bit integer are stored as that integer, in the shortest form.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem
from headrace.errors import ElementsTooLarge
from headrace.structures import listpack_walk

HEADER_BYTES = cython.declare(cython.Py_ssize_t, 6)
END_BYTE = cython.declare(cython.uchar, 0xFF)
COUNT_UNKNOWN = cython.declare(cython.uint, 65535)
TOTAL_BYTES_MAX = cython.declare(cython.Py_ssize_t, 0xFFFFFFFF)  # the header stores it in 32 bits
INTEGER_BYTES_MAX = cython.declare(cython.Py_ssize_t, 10)
TRANSFER_BYTES_MAX = cython.declare(cython.Py_ssize_t, 16384)  # a larger block is not transferred
DECIMAL_BYTES_MAX = cython.declare(cython.Py_ssize_t, 20)
MAGNITUDE_MAX = cython.declare(cython.ulonglong, 0x8000000000000000)  # of a negative 64-bit integer
MINUS = cython.declare(cython.uchar, 45)


@cython.final
@cython.no_gc
@cython.cclass
class Listpack:
    """A listpack that can be changed. It owns its bytes in `buf`; `p` points to them.

    `at` must be the offset of an element; compiled, it is not checked. Appending keeps offsets valid; any
    other change moves the elements after it. A method that would grow the listpack above 4 GiB raises
    ElementsTooLarge.
    """

    buf: Any  # from mem.alloc, or the bytearray given to from_trusted
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t  # the offset of the end byte
    count: cython.uint

    def __init__(self, cap: cython.Py_ssize_t = 64) -> None:
        self.cap = max(cap, HEADER_BYTES + 1)
        self.buf = mem.alloc(self.cap)
        self.p = self.buf
        self.used = HEADER_BYTES
        self.count = 0
        self._seal()

    @staticmethod
    def from_bytes(data: bytes | bytearray) -> Listpack:
        """Copy a stored listpack. Raises ValueError if it is damaged."""
        count: cython.Py_ssize_t = listpack_walk.validate_and_count(data)
        pack: Listpack = Listpack(len(data))
        source: cython.p_const_uchar = data
        pack._copy_elements(source, len(data) - 1)
        pack.count = count
        pack._seal()
        pack.shrink()
        return pack

    # ---- adding at the end

    @cython.ccall
    def append(self, value: bytes) -> cython.Py_ssize_t:
        """Append value and return its offset."""
        p: cython.p_const_uchar = value
        return self.append_slice(p, 0, len(value))

    @cython.ccall
    def append_int(self, v: cython.longlong) -> cython.Py_ssize_t:
        """Append the integer v and return its offset."""
        at: cython.Py_ssize_t = self.used
        if at + INTEGER_BYTES_MAX >= self.cap:
            self.reserve(INTEGER_BYTES_MAX)
        self.used = _put_integer(self.p, at, v)
        self.count += 1
        self._seal()
        return at

    @cython.cfunc
    def append_slice(
        self, source: cython.p_const_uchar, source_at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the n bytes of source at source_at as one element; return its offset.

        source must not be the buffer of this listpack.
        """
        at: cython.Py_ssize_t = self.used
        first: cython.uchar
        if 0 < n <= DECIMAL_BYTES_MAX:
            first = source[source_at]
            if first <= 57 and (first >= 48 or first == MINUS) and is_decimal(source, source_at, n):
                return self.append_int(parse_decimal(source, source_at, n))
        if at + n + 10 >= self.cap:
            self.reserve(n + 10)
        self.used = _put_string(self.p, at, source, source_at, n)
        self.count += 1
        self._seal()
        return at

    @cython.ccall
    def reserve(self, n: cython.Py_ssize_t) -> cython.void:
        """Reserve n more bytes, so that appending them cannot fail.

        A block that is too small grows by at least half, up to 4 GiB. Raises ElementsTooLarge if the listpack
        would exceed 4 GiB.
        """
        if self.used + n + 1 > self.cap:
            self._resize(max(self.used + n + 1, min(self.cap + self.cap // 2, TOTAL_BYTES_MAX)))

    # ---- changing

    @cython.ccall
    def insert(self, at: cython.Py_ssize_t, value: bytes) -> cython.void:
        """Insert value before the element at `at`."""
        self._splice(at, 0, value)
        self.count += 1
        self._seal()

    @cython.ccall
    def replace(self, at: cython.Py_ssize_t, value: bytes) -> cython.void:
        """Replace the element at `at` by value."""
        self._splice(at, listpack_walk.next_at(self.p, at) - at, value)
        self._seal()

    @cython.ccall
    def replace_int(self, at: cython.Py_ssize_t, v: cython.longlong) -> cython.void:
        """Replace the element at `at` by the integer v."""
        if 0 <= v <= 127 and self.p[at] <= 127:
            self.p[at] = v
            return
        self._resize_gap(at, listpack_walk.next_at(self.p, at) - at, 1 + integer_size(v))
        _put_integer(self.p, at, v)
        self._seal()

    @cython.ccall
    def delete(self, at: cython.Py_ssize_t) -> cython.void:
        """Delete the element at `at`; the next one, if any, is then at `at`."""
        self._resize_gap(at, listpack_walk.next_at(self.p, at) - at, 0)
        self.count -= 1
        self._seal()

    @cython.ccall
    def shrink(self) -> cython.void:
        """Free unused capacity."""
        if self.cap > self.used + 1:
            self._resize(self.used + 1)

    @cython.ccall
    def transfer_buffer(self) -> Listpack:
        """Return a new, empty listpack that takes over this one's block.

        This one keeps its bytes in a new block of exactly their size.

        A block above TRANSFER_BYTES_MAX is not passed on: it is shrunk, and the new listpack has a new block.
        Filling listpacks one after the other this way allocates the full ones at their final size, next to
        each other, without the holes that growing blocks leave.
        """
        successor: Listpack
        if self.cap > TRANSFER_BYTES_MAX:
            successor = Listpack()
            self.shrink()
            return successor
        successor = from_trusted(self.buf, 0)
        self.buf = mem.alloc(self.used + 1)
        self.p = self.buf
        self.cap = self.used + 1
        mem.copy(self.p, 0, successor.p, 0, self.cap)
        successor.used = HEADER_BYTES
        successor._seal()
        return successor

    @cython.ccall
    def unshare_block(self) -> cython.void:
        """Replace the block by a copy: a snapshot still reads the old one, which must not change."""
        buf: Any = mem.alloc(self.cap)
        p: cython.p_uchar = buf
        mem.copy(p, 0, self.p, 0, self.used + 1)
        self.buf = buf
        self.p = self.buf

    # ---- reading

    @cython.ccall
    def get(self, at: cython.Py_ssize_t) -> bytes:
        """Return the element at `at` as bytes; an integer in its decimal form."""
        p: cython.p_uchar = self.p
        digits: bytearray
        room: cython.p_uchar
        if listpack_walk.is_integer(p, at):
            digits = bytearray(DECIMAL_BYTES_MAX)
            room = digits
            return mem.to_bytes(room, 0, listpack_walk.put_integer_text(room, listpack_walk.integer(p, at)))
        return mem.to_bytes(p, listpack_walk.text_start(p, at), listpack_walk.text_size(p, at))

    @cython.ccall
    def first_at(self) -> cython.Py_ssize_t:
        """Return the offset of the first element; -1 if there is none."""
        return HEADER_BYTES if self.count > 0 else -1

    @cython.ccall
    def last_at(self) -> cython.Py_ssize_t:
        """Return the offset of the last element; -1 if there is none."""
        return listpack_walk.previous_at(self.p, self.used)

    @cython.ccall
    def next_at(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the offset of the element after the one at `at`; -1 after the last."""
        at = listpack_walk.next_at(self.p, at)
        return at if at < self.used else -1

    @cython.ccall
    def previous_at(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the offset of the element before the one at `at`; -1 before the first."""
        return listpack_walk.previous_at(self.p, at)

    @cython.ccall
    def to_bytes(self) -> bytes:
        """Return the listpack as it is stored and sent."""
        return mem.to_bytes(self.p, 0, self.used + 1)

    @cython.ccall
    def copy(self) -> Listpack:
        """Return a copy without unused capacity."""
        other: Listpack = Listpack(self.used + 1)
        mem.copy(other.p, 0, self.p, 0, self.used + 1)
        other.used = self.used
        other.count = self.count
        return other

    def __len__(self) -> int:
        return self.count

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        assert self.cap == len(self.buf) > self.used, "the end byte is outside the buffer"
        counted: cython.Py_ssize_t = listpack_walk.validate_and_count(self.to_bytes())
        count: cython.Py_ssize_t = self.count
        assert counted == count, f"{counted} elements, count says {count}"

    # ---- inside

    @cython.cfunc
    def _splice(self, at: cython.Py_ssize_t, old: cython.Py_ssize_t, value: bytes) -> cython.void:
        """Replace the `old` bytes at `at` by value, encoded as an element."""
        source: cython.p_const_uchar = value
        n: cython.Py_ssize_t = len(value)
        v: cython.longlong
        if is_decimal(source, 0, n):
            v = parse_decimal(source, 0, n)
            self._resize_gap(at, old, 1 + integer_size(v))
            _put_integer(self.p, at, v)
        else:
            self._resize_gap(at, old, string_header_size(n) + n + _trail_size(string_header_size(n) + n))
            _put_string(self.p, at, source, 0, n)

    @cython.cfunc
    def _resize_gap(
        self, at: cython.Py_ssize_t, old: cython.Py_ssize_t, new: cython.Py_ssize_t
    ) -> cython.void:
        """Replace the `old` bytes at `at` by a gap of `new` bytes."""
        end: cython.Py_ssize_t = self.used + new - old
        if end + 1 > self.cap:
            self._resize(end + 1)  # no extra capacity: full nodes have none and stay so
        mem.move(self.p, at + new, at + old, self.used - at - old)
        self.used = end

    @cython.cfunc
    def _resize(self, cap: cython.Py_ssize_t) -> cython.void:
        if cap > TOTAL_BYTES_MAX:
            raise ElementsTooLarge()
        buf: Any = mem.alloc(cap)
        p: cython.p_uchar = buf
        mem.copy(p, 0, self.p, 0, min(self.used + 1, self.cap))
        self.buf = buf
        self.p = self.buf
        self.cap = cap

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _seal(self) -> cython.void:
        """Write the header and the end byte from the attributes."""
        p: cython.p_uchar = self.p
        p[self.used] = END_BYTE
        mem.put_u32le(p, 0, self.used + 1)
        mem.put_u16le(p, 4, self.count if self.count < COUNT_UNKNOWN else COUNT_UNKNOWN)

    @cython.cfunc
    def _copy_elements(self, source: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.void:
        """Append the elements of a valid listpack up to `end`; write trailing lengths in Redis's form."""
        at: cython.Py_ssize_t = HEADER_BYTES
        rest: cython.Py_ssize_t = HEADER_BYTES  # where the bytes not yet copied begin
        size: cython.Py_ssize_t
        trail: cython.Py_ssize_t
        while at < end:
            size = listpack_walk.encoded_size(source, at)
            trail = at + size
            at = listpack_walk.next_at(source, at)
            if at - trail != _trail_size(size):  # Valkey's, a byte shorter
                self.reserve(trail - rest + _trail_size(size))
                mem.copy(self.p, self.used, source, rest, trail - rest)
                self.used = _put_trail(self.p, self.used + trail - rest, size)
                rest = at
        self.reserve(end - rest)
        mem.copy(self.p, self.used, source, rest, end - rest)
        self.used += end - rest


@cython.cfunc
def from_trusted(data: Any, count: cython.Py_ssize_t) -> Listpack:
    """Wrap data, a valid listpack of count elements with trailing lengths in Redis's form, without a copy.

    data is a bytearray, or comes from mem.alloc; the listpack owns it from now on.
    """
    pack: Listpack = Listpack.__new__(Listpack)
    pack.buf = data
    pack.p = pack.buf
    pack.cap = len(data)
    pack.used = pack.cap - 1
    pack.count = count
    return pack


# ---- one element's bytes


@cython.cfunc
@cython.exceptval(check=False)
def is_decimal(p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Return whether n bytes are an i64 in canonical decimal form: no plus, space, leading zero or -0."""
    end: cython.Py_ssize_t = at + n
    if n <= 0 or n > DECIMAL_BYTES_MAX:
        return False
    limit: cython.ulonglong = MAGNITUDE_MAX - 1
    if p[at] == MINUS:
        at += 1
        n -= 1
        limit = MAGNITUDE_MAX
        if n == 0 or p[at] == 48:
            return False
    if p[at] == 48:
        return n == 1
    value: cython.ulonglong = 0
    digit: cython.uint
    while at < end:
        if not 48 <= p[at] <= 57:
            return False
        digit = p[at] - 48
        if value > limit // 10:
            return False
        value = value * 10 + digit
        if value > limit:
            return False
        at += 1
    return True


@cython.cfunc
@cython.exceptval(check=False)
def parse_decimal(p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.longlong:
    """Parse n bytes for which is_decimal() is true."""
    end: cython.Py_ssize_t = at + n
    negative: cython.bint = p[at] == MINUS
    if negative:
        at += 1
    value: cython.ulonglong = 0
    digit: cython.uint
    while at < end:
        digit = p[at] - 48
        value = value * 10 + digit
        at += 1
    return mem.as_signed(mem.sub_u64(0, value)) if negative else mem.as_signed(value)


@cython.cfunc
@cython.exceptval(check=False)
def element_equals(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    q: cython.p_const_uchar,
    q_at: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether the element of p at `at` equals the n bytes of q at q_at."""
    if listpack_walk.is_integer(p, at):
        return is_decimal(q, q_at, n) and parse_decimal(q, q_at, n) == listpack_walk.integer(p, at)
    if listpack_walk.text_size(p, at) != n:
        return False
    return mem.compare(p, listpack_walk.text_start(p, at), q, q_at, n) == 0


@cython.cfunc
@cython.exceptval(check=False)
def integer_size(v: cython.longlong) -> cython.Py_ssize_t:
    """Return the size of v's shortest encoding, without the trailing length (one byte)."""
    if 0 <= v <= 0x7F:
        return 1
    if -0x1000 <= v <= 0xFFF:
        return 2
    if -0x8000 <= v <= 0x7FFF:
        return 3
    if -0x800000 <= v <= 0x7FFFFF:
        return 4
    if -0x7FFFFFFF - 1 <= v <= 0x7FFFFFFF:
        return 5
    return 9


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def string_header_size(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the number of bytes before the text of a string of n bytes."""
    if n < 64:
        return 1
    return 2 if n < 4096 else 5


@cython.cfunc
@cython.exceptval(check=False)
def _put_integer(p: cython.p_uchar, at: cython.Py_ssize_t, v: cython.longlong) -> cython.Py_ssize_t:
    """Write v as an element at `at`; return the offset after it."""
    if 0 <= v <= 0x7F:
        p[at] = v
        p[at + 1] = 1
        return at + 2
    size: cython.Py_ssize_t = integer_size(v)
    bits: cython.ulonglong = mem.as_unsigned(v)
    if size == 2:
        p[at] = 0xC0 | bits >> 8 & 0x1F
        p[at + 1] = bits & 0xFF
    elif size == 9:
        p[at] = 0xF4
        mem.put_u64le(p, at + 1, bits)
    else:
        p[at] = 0xF1 + size - 3
        mem.put_u16le(p, at + 1, bits & 0xFFFF)
        if size == 4:
            p[at + 3] = bits >> 16 & 0xFF
        elif size == 5:
            mem.put_u16le(p, at + 3, bits >> 16 & 0xFFFF)
    p[at + size] = size
    return at + size + 1


@cython.cfunc
@cython.exceptval(check=False)
def _put_string(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_const_uchar,
    source_at: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the n bytes at source_at as a string element at `at`; return the offset after it."""
    if n < 64:
        p[at] = 0x80 | n
        mem.copy(p, at + 1, source, source_at, n)
        p[at + 1 + n] = 1 + n
        return at + 2 + n
    head: cython.Py_ssize_t = string_header_size(n)
    if head == 2:
        p[at] = 0xE0 | n >> 8
        p[at + 1] = n & 0xFF
    else:
        p[at] = 0xF0
        mem.put_u32le(p, at + 1, n)
    mem.copy(p, at + head, source, source_at, n)
    return _put_trail(p, at + head + n, head + n)


@cython.cfunc
@cython.exceptval(check=False)
def _trail_size(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return how many bytes Redis writes for the trailing length `size`."""
    if size <= 127:
        return 1
    if size < 16383:
        return 2
    if size < 2097151:
        return 3
    return 4 if size < 268435455 else 5


@cython.cfunc
@cython.exceptval(check=False)
def _put_trail(p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Write `size` as a trailing length at `at`; return the offset after it."""
    n: cython.Py_ssize_t = _trail_size(size)
    i: cython.Py_ssize_t
    for i in range(n):
        p[at + n - 1 - i] = size >> 7 * i & 0x7F | (0x80 if i < n - 1 else 0)
    return at + n
