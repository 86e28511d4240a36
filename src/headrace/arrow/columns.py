"""Arrow buffers that grow value by value: what the decoder appends to.

    a string column                              a map column

    validity  |1 1 0 ...|   a bit a row          offsets   |0|2|4| ...   i32, counted in pairs
    offsets   |0|3|6|6|     i32, rows + 1        keys      a string column of one row a pair
    values    |d12d47| ...  bytes, end to end    items     a string column of one row a pair

Numbers have values of one width, little-endian, and no offsets; booleans are bits. A column without a null
has no validity buffer.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace import mem

PLUS = cython.declare(cython.uchar, 43)
MINUS = cython.declare(cython.uchar, 45)
POINT = cython.declare(cython.uchar, 46)
DIGITS_MAX = cython.declare(cython.Py_ssize_t, 19)  # nineteen digits always fit an u64
I64_MAX = cython.declare(cython.ulonglong, 9223372036854775807)
EXACT_MAX = cython.declare(cython.ulonglong, 9007199254740992)  # 2**53: up to here a double is exact
POWER_MAX = cython.declare(cython.longlong, 22)  # 10**22 is the last power of ten a double holds exactly

# What a column is made of: the first five of the entry as a whole, the others of one field.
KINDS = {
    name: kind
    for kind, name in enumerate(
        ("id", "timestamp", "sequence", "fields", "corrupt")
        + ("text", "binary", "integer", "real", "boolean", "converted", "ignored")
    )
}
ID = cython.declare(cython.int, 0)
TIMESTAMP = cython.declare(cython.int, 1)
SEQUENCE = cython.declare(cython.int, 2)
FIELDS = cython.declare(cython.int, 3)
CORRUPT = cython.declare(cython.int, 4)
TEXT = cython.declare(cython.int, 5)
BINARY = cython.declare(cython.int, 6)
INTEGER = cython.declare(cython.int, 7)
REAL = cython.declare(cython.int, 8)
BOOLEAN = cython.declare(cython.int, 9)
CONVERTED = cython.declare(cython.int, 10)

TRUE = (b"true", b"1", b"yes")
FALSE = (b"false", b"0", b"no")
NOT_FINITE = (b"inf", b"infinity", b"nan")


@cython.final
@cython.cclass
class Growing:
    """Bytes that are appended to, and then given away whole."""

    __slots__ = ("buf", "cap", "p", "used")

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t

    def __init__(self, cap: cython.Py_ssize_t) -> None:
        self.buf = bytearray(cap)
        self.p = self.buf
        self.cap = cap
        self.used = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow(self, extra: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Make room for extra bytes; p is borrowed anew."""
        while self.cap < self.used + extra:
            self.cap *= 2
        mem.resize(self.buf, self.cap)
        self.p = self.buf
        return self.cap

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append n bytes of source; return how many bytes there are now."""
        if self.used + n > self.cap:
            self.grow(n)
        mem.copy(self.p, self.used, source, at, n)
        self.used += n
        return self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_u32(self, v: cython.uint) -> cython.Py_ssize_t:
        """Append a little-endian u32."""
        if self.used + 4 > self.cap:
            self.grow(4)
        mem.put_u32le(self.p, self.used, v)
        self.used += 4
        return self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_bit(self, row: cython.Py_ssize_t, on: cython.bint) -> cython.Py_ssize_t:
        """Append the bit of a row; rows come in order, without a gap."""
        if row & 7 == 0:
            if self.used + 1 > self.cap:
                self.grow(1)
            self.p[self.used] = 0
            self.used += 1
        if on:
            self.p[row >> 3] |= 1 << (row & 7)
        return self.used

    @cython.cfunc
    def take(self) -> bytearray:
        """The bytes, which are the caller's from now on."""
        full: bytearray = self.buf
        mem.resize(full, self.used)
        self.buf = bytearray(self.cap)  # as large as last time: batches resemble each other
        self.p = self.buf
        self.used = 0
        return full


@cython.final
@cython.cclass
class Column:
    """The buffers of one column, and the value the entry at hand has for it.

    kind      a key of KINDS
    name      the field it is read from
    width     bytes of one value, for numbers and converted values
    nullable  False: an entry without a good value is an error
    low high  the range of an integer, after which it is multiplied by scale (times are integers, too)
    convert   for "converted": the text to exactly width bytes; ValueError when it is malformed
    utf8      whether the words of a map must be UTF-8
    """

    __slots__ = (
        "at",
        "convert",
        "found",
        "high",
        "kind",
        "low",
        "n",
        "name",
        "nullable",
        "nulls",
        "number",
        "offsets",
        "raw",
        "real",
        "scale",
        "utf8",
        "validity",
        "values",
        "width",
    )

    kind: cython.int
    name: bytes
    width: cython.Py_ssize_t
    nullable: cython.bint
    utf8: cython.bint
    low: cython.longlong
    high: cython.longlong
    scale: cython.longlong
    convert: Callable[[bytes], bytes] | None
    validity: Growing
    offsets: Growing
    values: Growing
    nulls: cython.Py_ssize_t
    found: cython.bint  # whether the entry at hand has a good value, which is then:
    at: cython.Py_ssize_t  # text: where it lies in the received bytes
    n: cython.Py_ssize_t
    number: cython.longlong  # integers, times, booleans
    real: cython.double
    raw: bytes  # converted values

    def __init__(
        self,
        kind: str,
        name: bytes = b"",
        *,
        width: int = 8,
        nullable: bool = True,
        utf8: bool = True,
        low: int = -(1 << 63),
        high: int = (1 << 63) - 1,
        scale: int = 1,
        convert: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.kind = KINDS[kind]
        self.name = name
        self.width = width
        self.nullable = nullable
        self.utf8 = utf8
        self.low = low
        self.high = high
        self.scale = scale
        self.convert = convert
        self.validity = Growing(64)
        self.offsets = Growing(64)
        self.values = Growing(64)
        self.offsets.put_u32(0)
        self.nulls = 0
        self.found = False
        self.at = 0
        self.n = 0
        self.number = 0
        self.real = 0
        self.raw = b""

    @cython.cfunc
    @cython.exceptval(check=False)
    def named(self, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Whether this is the column of the field whose name lies there."""
        return len(self.name) == n and mem.compare(self.name, 0, p, at, n) == 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse(self, p: cython.p_const_uchar) -> cython.bint:
        """Read the value at `at`; False when it is not of this column's type."""
        if self.kind == TEXT:
            return mem.is_utf8(p, self.at, self.n)
        if self.kind == INTEGER:
            return self._parse_integer(p)
        if self.kind == REAL:
            return self._parse_real(p)
        if self.kind == BOOLEAN:
            word: bytes = mem.take(p, self.at, self.n).lower()
            self.number = 1 if word in TRUE else 0
            return word in TRUE or word in FALSE
        if self.kind == CONVERTED and self.convert is not None:
            try:
                self.raw = self.convert(mem.take(p, self.at, self.n))
            except (ValueError, ArithmeticError):
                return False
            assert len(self.raw) == self.width, "a converted value of another width"
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _parse_integer(self, p: cython.p_const_uchar) -> cython.bint:
        at: cython.Py_ssize_t = self.at
        end: cython.Py_ssize_t = at + self.n
        limit: cython.ulonglong = I64_MAX
        size: cython.ulonglong = 0
        digit: cython.uint
        if at < end and (p[at] == MINUS or p[at] == PLUS):
            if p[at] == MINUS:
                limit += 1
            at += 1
        if not 0 < end - at <= DIGITS_MAX:
            return False
        while at < end:
            if not 48 <= p[at] <= 57:
                return False
            digit = p[at] - 48
            size = size * 10 + digit
            at += 1
        if size > limit:
            return False
        if limit > I64_MAX:
            size = mem.sub_u64(0, size)
        self.number = mem.as_signed(size)
        if self.number < self.low or self.number > self.high:
            return False
        self.number *= self.scale
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _parse_real(self, p: cython.p_const_uchar) -> cython.bint:
        """Few digits are exact as an integer divided by a power of ten; for all else ask float()."""
        at: cython.Py_ssize_t = self.at
        end: cython.Py_ssize_t = at + self.n
        negative: cython.bint = at < end and p[at] == MINUS
        size: cython.ulonglong = 0
        digits: cython.Py_ssize_t = 0
        decimals: cython.Py_ssize_t = 0
        point: cython.bint = False
        digit: cython.uint
        if at < end and (p[at] == MINUS or p[at] == PLUS):
            at += 1
        while at < end:
            if 48 <= p[at] <= 57:
                digit = p[at] - 48
                digits += 1
                decimals += point
                if digits <= DIGITS_MAX:
                    size = size * 10 + digit
            elif p[at] == POINT and not point:
                point = True
            else:
                break
            at += 1
        if at < end or digits > DIGITS_MAX or size > EXACT_MAX or decimals > POWER_MAX:
            return self._parse_hard_real(mem.take(p, self.at, self.n))
        if digits == 0:
            return False
        power: cython.double = 1
        while decimals > 0:
            power *= 10
            decimals -= 1
        self.real = size
        self.real /= power
        if negative:
            self.real = -self.real
        return True

    def _parse_hard_real(self, text: bytes) -> bool:
        """Exponents, long mantissas, infinities; float() alone would let spaces and underscores pass."""
        if text.strip(b"0123456789+-.eE") and text.lstrip(b"+-").lower() not in NOT_FINITE:
            return False
        try:
            self.real = float(text)
        except ValueError:
            return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write(self, p: cython.p_const_uchar, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the value found, or a null."""
        self.validity.put_bit(row, self.found)
        if not self.found:
            self.nulls += 1
        if self.kind == INTEGER or self.kind == TIMESTAMP or self.kind == SEQUENCE:
            return self._write_integer()
        if self.kind == REAL:
            return self._write_real()
        if self.kind == BOOLEAN:
            return self.values.put_bit(row, self.found and self.number != 0)
        if self.kind == CONVERTED:
            raw: bytes = self.raw if self.found else bytes(self.width)
            return self.values.put(raw, 0, self.width)
        if self.kind == CORRUPT:
            if self.found:
                self.values.put(self.raw, 0, len(self.raw))
        elif self.found:
            self.values.put(p, self.at, self.n)
        return self.offsets.put_u32(self.values.used)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_integer(self) -> cython.Py_ssize_t:
        values: Growing = self.values
        bits: cython.ulonglong = mem.as_unsigned(self.number) if self.found else 0
        at: cython.Py_ssize_t = values.used
        i: cython.Py_ssize_t
        if at + self.width > values.cap:
            values.grow(self.width)
        if self.width == 8:
            mem.put_u64le(values.p, at, bits)
        else:
            for i in range(self.width):
                values.p[at + i] = bits >> 8 * i & 0xFF
        values.used += self.width
        return values.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_real(self) -> cython.Py_ssize_t:
        values: Growing = self.values
        real: cython.double = self.real if self.found else 0
        if values.used + self.width > values.cap:
            values.grow(self.width)
        if self.width == 8:
            mem.put_f64le(values.p, values.used, real)
        else:
            mem.put_f32le(values.p, values.used, real)
        values.used += self.width
        return values.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append_text(
        self, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append a string that is known to be there and good: the keys and the items of a map."""
        return self.offsets.put_u32(self.values.put(p, at, n))

    def take(self) -> tuple[int, bytearray | None, bytearray, bytearray]:
        """(nulls, validity if there are nulls, offsets, values); the column starts anew."""
        nulls = self.nulls
        validity = self.validity.take()
        buffers = (nulls, validity if nulls else None, self.offsets.take(), self.values.take())
        self.nulls = 0
        self.offsets.put_u32(0)
        return buffers
