"""Column: the Arrow buffers of one column, to which decoders of replies and encoders of nodes append.

    a string column                              a map column

    validity  |1 1 0 ...|   one bit per row      offsets   |0|2|4| ...   i32, in pairs
    offsets   |0|3|6|6|     i32, rows + 1        keys      a string column, one row per pair
    values    |d12d47| ...  concatenated bytes   items     a string column, one row per pair

Numbers have values of one width, little-endian, and no offsets; booleans are bits. A column without nulls has
no validity buffer. (Arrow columnar format, "Physical memory layout".)
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace import mem
from headrace.arrow import growable_buffer
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.structures import listpack, listpack_walk

PLUS = cython.declare(cython.uchar, 43)
MINUS = cython.declare(cython.uchar, 45)
POINT = cython.declare(cython.uchar, 46)
LETTER_E = cython.declare(cython.int, 101)
DIGITS_MAX = cython.declare(cython.Py_ssize_t, 19)  # nineteen digits always fit a u64
I64_MAX = cython.declare(cython.ulonglong, 9223372036854775807)
TIMESTAMP_MS_MAX = cython.declare(cython.ulonglong, 9223372036854775)  # the maximum as microseconds
# 2**53: up to here a double is exact.
EXACT_DOUBLE_INTEGER_MAX = cython.declare(cython.ulonglong, 9007199254740992)
# 10**22 is the last power of ten that a double represents.
EXACT_POWER_MAX = cython.declare(cython.longlong, 22)

# The first five kinds are parts of the whole entry; the others are read from one field.
KIND_NUMBERS = {
    name: kind
    for kind, name in enumerate(
        ("id", "timestamp", "sequence", "fields", "corrupt")
        + ("text", "binary", "integer", "real", "boolean", "converted", "ignored")
    )
}
ID_KIND = cython.declare(cython.int, 0)
TIMESTAMP_KIND = cython.declare(cython.int, 1)
SEQUENCE_KIND = cython.declare(cython.int, 2)
FIELDS_KIND = cython.declare(cython.int, 3)
CORRUPT_KIND = cython.declare(cython.int, 4)
TEXT_KIND = cython.declare(cython.int, 5)
BINARY_KIND = cython.declare(cython.int, 6)
INTEGER_KIND = cython.declare(cython.int, 7)
REAL_KIND = cython.declare(cython.int, 8)
BOOLEAN_KIND = cython.declare(cython.int, 9)
CONVERTED_KIND = cython.declare(cython.int, 10)

TRUE_WORDS = (b"true", b"1", b"yes")
FALSE_WORDS = (b"false", b"0", b"no")
NON_FINITE_WORDS = (b"inf", b"infinity", b"nan")


@cython.final
@cython.cclass
class Column:
    """The buffers of one column, and its value in the current entry.

    kind          a key of KIND_NUMBERS
    name          the field that it is read from
    width         bytes of one value, for numbers and converted values
    nullable      whether an entry may have no fitting value
    low, high     the range of an integer, which is then multiplied by scale (times are integers, too)
    convert       converts a text to width bytes, or raises ValueError. For the kind "integer" it is called
                  only with texts that are not integers; for the kind "text" it only checks the text
    utf8_names    whether the names of a map are text, in which bytes that are not UTF-8 are escaped
    utf8_values   the same for its values
    misfit_count  how many values did not fit the type; for a map, how many entries had to be escaped
    """

    kind: cython.int
    name: bytes
    width: cython.Py_ssize_t
    nullable: cython.bint
    utf8_names: cython.bint
    utf8_values: cython.bint
    low: cython.longlong
    high: cython.longlong
    scale: cython.longlong
    convert: Callable[[bytes], bytes] | None
    validity: GrowableBuffer
    offsets: GrowableBuffer
    values: GrowableBuffer
    nulls: cython.Py_ssize_t
    misfit_count: cython.Py_ssize_t
    has_value: cython.bint  # whether the current entry has a fitting value, which is then:
    text_offset: cython.Py_ssize_t  # the offset and size of its text
    text_size: cython.Py_ssize_t
    is_integer: cython.bint  # whether the listpack stores an integer, in `number`, instead of a text
    number: cython.longlong  # integers, times, booleans
    real: cython.double
    converted_value: bytes  # converted values
    token_number: cython.Py_ssize_t  # in runs of entries: the number of the value's token; -1 for none

    def __init__(
        self,
        kind: str,
        name: bytes = b"",
        *,
        width: int = 8,
        nullable: bool = True,
        utf8_names: bool = True,
        utf8_values: bool = True,
        low: int = -(1 << 63),
        high: int = (1 << 63) - 1,
        scale: int = 1,
        convert: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.kind = KIND_NUMBERS[kind]
        self.name = name
        self.width = width
        self.nullable = nullable
        self.utf8_names = utf8_names
        self.utf8_values = utf8_values
        self.low = low
        self.high = high
        self.scale = scale
        self.convert = convert
        self.validity = growable_buffer.acquire()
        self.offsets = growable_buffer.acquire()
        self.values = growable_buffer.acquire()
        self.offsets.put_u32(0)
        self.nulls = 0
        self.misfit_count = 0
        self.has_value = False
        self.text_offset = 0
        self.text_size = 0
        self.is_integer = False
        self.number = 0
        self.real = 0
        self.converted_value = b""
        self.token_number = -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def matches_name(
        self, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.bint:
        """Return whether the n bytes at `at` are the column's name."""
        return len(self.name) == n and mem.compare(self.name, 0, p, at, n) == 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def name_is_element(self, p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.bint:
        """Return whether the listpack element at `at` is the column's name."""
        return listpack.element_equals(p, at, self.name, 0, len(self.name))

    @cython.cfunc
    @cython.exceptval(check=False)
    def locate_element_value(self, p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Locate the value in the element of a listpack at `at`; return the offset of the next element."""
        first: cython.uint = p[at]
        self.has_value = True
        self.is_integer = False
        if 0x80 <= first < 0xC0:  # a short string, as most are
            self.text_offset = at + 1
            self.text_size = first & 0x3F
            return at + 2 + self.text_size
        if first < 0x80:
            self.is_integer = True
            self.number = first
            return at + 2
        self.is_integer = listpack_walk.is_integer(p, at)
        if self.is_integer:
            self.number = listpack_walk.integer(p, at)
        else:
            self.text_offset = listpack_walk.text_start(p, at)
            self.text_size = listpack_walk.text_size(p, at)
        return listpack_walk.next_at(p, at)

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Read the value, a sequence number or a time, from an ID; return False if it is too large."""
        self.has_value = True
        if self.kind == SEQUENCE_KIND:
            if seq > I64_MAX:
                return False
            self.number = mem.as_signed(seq)
        elif self.kind == TIMESTAMP_KIND:
            if ms > TIMESTAMP_MS_MAX:
                return False
            self.number = mem.as_signed(ms * 1000)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse(self, p: cython.p_const_uchar) -> cython.bint:
        """Parse the located value; return False if it does not fit the type."""
        if self.is_integer and self.kind != CONVERTED_KIND:
            if self.kind == TEXT_KIND and self.convert is not None:
                return self._converts(str(self.number).encode())
            return self._parse_stored_integer()
        if self.kind == TEXT_KIND:
            if self.convert is not None and not self._converts(
                mem.to_bytes(p, self.text_offset, self.text_size)
            ):
                return False
            return mem.is_utf8(p, self.text_offset, self.text_size)
        if self.kind == INTEGER_KIND:
            good: cython.bint = self._parse_integer(p)
            if good or self.convert is None:
                return good
        if self.kind == REAL_KIND:
            return self._parse_real(p)
        if self.kind == BOOLEAN_KIND:
            word: bytes = mem.to_bytes(p, self.text_offset, self.text_size).lower()
            self.number = 1 if word in TRUE_WORDS else 0
            return word in TRUE_WORDS or word in FALSE_WORDS
        if self.convert is not None and (self.kind == CONVERTED_KIND or self.kind == INTEGER_KIND):
            text: bytes = (
                str(self.number).encode()
                if self.is_integer
                else mem.to_bytes(p, self.text_offset, self.text_size)
            )
            try:
                self.converted_value = self.convert(text)
            except (ValueError, ArithmeticError):
                return False
            assert len(self.converted_value) == self.width, "a converted value of a wrong width"
            if self.kind == INTEGER_KIND:
                self.number = mem.as_signed(mem.u64le(self.converted_value, 0))
        return True

    def _converts(self, text: bytes) -> bool:
        """Return whether `convert` accepts the text."""
        try:
            if self.convert is not None:
                self.convert(text)
        except (ValueError, ArithmeticError):
            return False
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _parse_stored_integer(self) -> cython.bint:
        """Parse an integer of a listpack directly, with the same result as its digits."""
        if self.kind == INTEGER_KIND:
            return self._scale()
        if self.kind == REAL_KIND:
            self.real = self.number
        elif self.kind == BOOLEAN_KIND:
            return self.number == 0 or self.number == 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _scale(self) -> cython.bint:
        """Multiply the number by scale; return False if it is not between low and high."""
        if self.number < self.low or self.number > self.high:
            return False
        self.number *= self.scale
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _parse_integer(self, p: cython.p_const_uchar) -> cython.bint:
        at: cython.Py_ssize_t = self.text_offset
        end: cython.Py_ssize_t = at + self.text_size
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
        return self._scale()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _parse_real(self, p: cython.p_const_uchar) -> cython.bint:
        """Parse few digits as an integer divided by a power of ten, which is exact; else call float()."""
        at: cython.Py_ssize_t = self.text_offset
        end: cython.Py_ssize_t = at + self.text_size
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
        if at < end or digits > DIGITS_MAX or size > EXACT_DOUBLE_INTEGER_MAX or decimals > EXACT_POWER_MAX:
            return self._parse_general_real(p)
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

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _parse_general_real(self, p: cython.p_const_uchar) -> cython.bint:
        """Parse exponents, long mantissas and infinities; unlike float(), reject spaces and underscores."""
        at: cython.Py_ssize_t = self.text_offset
        end: cython.Py_ssize_t = at + self.text_size
        text: bytes
        while at < end and (48 <= p[at] <= 57 or PLUS <= p[at] <= POINT or p[at] | 32 == LETTER_E):
            at += 1
        try:
            if at == end:
                self.real = mem.parse_f64(p, self.text_offset, self.text_size)
                return True
            text = mem.to_bytes(p, self.text_offset, self.text_size)
            if text.lstrip(b"+-").lower() not in NON_FINITE_WORDS:
                return False
            self.real = float(text)
        except ValueError:
            return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write(self, p: cython.p_const_uchar, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the value, or a null."""
        self.write_validity(row)
        if self.kind == INTEGER_KIND or self.kind == TIMESTAMP_KIND or self.kind == SEQUENCE_KIND:
            return self._write_integer()
        if self.kind == REAL_KIND:
            return self._write_real()
        if self.kind == BOOLEAN_KIND:
            return self.values.put_bit(row, self.has_value and self.number != 0)
        if self.kind == CONVERTED_KIND:
            raw: bytes = self.converted_value if self.has_value else bytes(self.width)
            return self.values.put(raw, 0, self.width)
        if self.kind == CORRUPT_KIND:
            if self.has_value:
                self.values.put(self.converted_value, 0, len(self.converted_value))
        elif self.has_value and self.is_integer:
            self.values.put_decimal(self.number)
        elif self.has_value:
            self.values.put(p, self.text_offset, self.text_size)
        return self.offsets.put_u32(self.values.used)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_validity(self, row: cython.Py_ssize_t) -> cython.bint:
        """Append whether there is a value. The buffer is empty until the first null; most have none."""
        i: cython.Py_ssize_t
        if not self.has_value:
            if self.nulls == 0:
                for i in range(row):
                    self.validity.put_bit(i, True)
            self.nulls += 1
        if self.nulls:
            self.validity.put_bit(row, self.has_value)
        return self.has_value

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_id(
        self, ms: cython.ulonglong, seq: cython.ulonglong, row: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the text of an ID."""
        self.write_validity(row)
        return self.offsets.put_u32(self.values.put_id(ms, seq))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_integer(self) -> cython.Py_ssize_t:
        values: GrowableBuffer = self.values
        bits: cython.ulonglong = mem.as_unsigned(self.number) if self.has_value else 0
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
        values: GrowableBuffer = self.values
        real: cython.double = self.real if self.has_value else 0
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
        """Append a string that needs no check: a key or an item of a map."""
        return self.offsets.put_u32(self.values.put(p, at, n))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append_element(self, p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the text of the element of a listpack at `at`, which needs no check."""
        values: GrowableBuffer = self.values
        n: cython.Py_ssize_t
        if 0x80 <= p[at] < 0xC0:
            n = p[at] & 0x3F
            if values.used + n > values.cap:
                values.grow(n)
            mem.copy(values.p, values.used, p, at + 1, n)
            values.used += n
        elif listpack_walk.is_integer(p, at):
            values.put_decimal(listpack_walk.integer(p, at))
        else:
            values.put(p, listpack_walk.text_start(p, at), listpack_walk.text_size(p, at))
        return self.offsets.put_u32(values.used)

    @cython.cfunc
    @cython.exceptval(check=False)
    def has_offsets(self) -> cython.bint:
        """Return whether its values have different sizes."""
        if (
            self.kind == INTEGER_KIND
            or self.kind == REAL_KIND
            or self.kind == BOOLEAN_KIND
            or self.kind == CONVERTED_KIND
        ):
            return False
        return self.kind != TIMESTAMP_KIND and self.kind != SEQUENCE_KIND

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def truncate(self, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Remove the values after the first `rows`, but no validity bits. Not for booleans: they are bits."""
        if self.has_offsets():
            self.offsets.used = 4 * rows + 4
            if self.kind != FIELDS_KIND:
                self.values.used = mem.u32le(self.offsets.p, 4 * rows)
        else:
            self.values.used = self.width * rows
        return rows

    def take(self) -> tuple[int, bytearray | None, bytearray, bytearray]:
        """Return (nulls, validity if there are nulls, offsets, values), and empty the column."""
        nulls = self.nulls
        validity = self.validity.take()
        buffers = (nulls, validity if nulls else None, self.offsets.take(), self.values.take())
        self.nulls = 0
        self.offsets.put_u32(0)
        return buffers

    @cython.ccall
    def close(self) -> cython.void:
        """Return the buffers to the pool. The column must not be used afterwards."""
        growable_buffer.release(self.validity)
        growable_buffer.release(self.offsets)
        growable_buffer.release(self.values)
