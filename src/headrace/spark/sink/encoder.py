r"""Encode rows as XADD requests directly from Arrow's buffers, without a Python object for each cell.

    *7\r\n                    the number of arguments, which differs by row: a null has no field
    $4\r\nXADD\r\n            the same in every row of a stream: command, key, trimming
    $6\r\norders\r\n
    $1\r\n*\r\n               the ID
    $4\r\nitem\r\n$3\r\ntea\r\n    a field and its value, for each column that has one
    $5\r\ncount\r\n$2\r\n12\r\n

Numbers are written in the form that the source reads: integers in decimal, doubles with the fewest digits
that identify them (like repr()), times as whole milliseconds or seconds, rounded down.

An exactly-once write also needs a digest of its rows, to recognise them when they are read again. It covers
the ID and the fields of each row in order, not the command, the key and the trimming:

    digest after row n  =  hash of (digest after row n - 1, bytes of row n, their number)

So it is a single number after each row, however the rows are split into batches and chunks. It protects
against accidents, not against forged rows.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.errors import UsageError
from headrace.resp.request import bulk

CR = cython.declare(cython.uchar, 13)
LF = cython.declare(cython.uchar, 10)
ARRAY = cython.declare(cython.uchar, 42)  # *
BULK = cython.declare(cython.uchar, 36)  # $
MINUS = cython.declare(cython.uchar, 45)
POINT = cython.declare(cython.uchar, 46)
ZERO = cython.declare(cython.uchar, 48)
ID_SHOWN_BYTES_MAX = cython.declare(cython.Py_ssize_t, 60)  # bytes of a wrong ID in a message
HEADER_BYTES_MAX = cython.declare(cython.Py_ssize_t, 32)  # kind, 20 digits, two line ends
NUMBER_BYTES_MAX = cython.declare(cython.Py_ssize_t, 64)  # bytes of a number as a bulk string
DECIMALS_MAX = cython.declare(cython.Py_ssize_t, 6)  # numbers with more decimals are left to repr()
NO_EXPONENT_MIN = cython.declare(cython.double, 1e-4)  # below this repr() writes an exponent
# Up to 15 digits identify one double.
EXACT_DECIMALS_MAX = cython.declare(cython.longlong, 1_000_000_000_000_000)

NO_ROWS_DIGEST = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
DIGEST_FACTOR = cython.declare(cython.ulonglong, 0xD6E8FEB86659FD93)  # odd, so a factor loses no bits
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
WORD_BYTES = cython.declare(cython.Py_ssize_t, 8)

# The layouts of a column's buffers.
LAYOUT_NUMBERS = {
    name: form for form, name in enumerate(("text", "fixed", "integer", "boolean", "real", "map"))
}
TEXT_LAYOUT = cython.declare(cython.int, 0)
FIXED_LAYOUT = cython.declare(cython.int, 1)
INTEGER_LAYOUT = cython.declare(cython.int, 2)
BOOLEAN_LAYOUT = cython.declare(cython.int, 3)
REAL_LAYOUT = cython.declare(cython.int, 4)
MAP_LAYOUT = cython.declare(cython.int, 5)


@cython.final
@cython.cclass
class ArrowCells:
    """One Arrow column, read in place. `memory_owners` keep its memory alive; __init__ checks all sizes.

    layout      one of LAYOUT_NUMBERS: text (offsets of `width` 4 or 8 bytes), fixed (bytes of one width),
                integer (little-endian, `width` bytes, divided by `scale`), boolean (bits), real (a double),
                map (offsets into two further columns, keys and items)
    name        the field it is written to, as a bulk string: `$4\\r\\nitem\\r\\n`; or empty
    start rows  the range of values to read: a slice does not begin at 0
    validity    one bit for each value, or None if no value is null
    """

    layout: cython.int
    name: bytes
    start: cython.Py_ssize_t
    rows: cython.Py_ssize_t
    width: cython.Py_ssize_t
    divisor: cython.longlong
    signed: cython.bint
    has_nulls: cython.bint
    values_bytes: cython.Py_ssize_t  # bytes of values
    validity: cython.p_const_uchar
    offsets: cython.p_const_uchar
    values: cython.p_const_uchar
    memory_owners: tuple[object, object, object]
    keys: ArrowCells | None
    items: ArrowCells | None

    def __init__(
        self,
        form: str,
        name: bytes,
        start: int,
        rows: int,
        validity: object = None,
        offsets: object = None,
        values: object = None,
        *,
        width: int = 8,
        scale: int = 1,
        signed: bool = True,
        keys: ArrowCells | None = None,
        items: ArrowCells | None = None,
    ) -> None:
        if start < 0 or rows < 0 or scale < 1 or width < 1:
            raise ValueError("a column with a negative size")
        self.layout = LAYOUT_NUMBERS[form]
        self.name = name
        self.start = start
        self.rows = rows
        self.width = width
        self.divisor = scale
        self.signed = signed
        self.keys = keys
        self.items = items
        self.memory_owners = (validity, offsets, values)
        end: cython.Py_ssize_t = self.start + self.rows
        nothing: bytes = b""
        self.validity = nothing
        self.offsets = nothing
        self.values = nothing
        self.values_bytes = 0
        self.has_nulls = validity is not None
        if validity is not None:
            self.validity = mem.borrow(validity, (end + 7) // 8)
        if rows == 0:
            return
        if self.layout in (TEXT_LAYOUT, MAP_LAYOUT):
            if width not in (4, 8):
                raise ValueError("offsets of a strange width")
            self.offsets = mem.borrow(offsets, (end + 1) * self.width)
        if self.layout == TEXT_LAYOUT:
            self.values_bytes = 0 if values is None else memoryview(values).nbytes  # type: ignore[arg-type]
        elif self.layout == BOOLEAN_LAYOUT:
            self.values_bytes = (end + 7) // 8
        elif self.layout != MAP_LAYOUT:
            if form != "fixed" and width > 8:
                raise ValueError("a number of a strange width")
            self.values_bytes = end * self.width
        elif keys is None or items is None or keys.rows != items.rows:
            raise ValueError("a map without keys and items")
        if self.values_bytes > 0:
            self.values = mem.borrow(values, self.values_bytes)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_null(self, row: cython.Py_ssize_t) -> cython.bint:
        i: cython.Py_ssize_t = self.start + row
        return self.has_nulls and not self.validity[i >> 3] >> (i & 7) & 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _offset(self, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return offset i, whose presence __init__ checked."""
        offset: cython.longlong
        if self.width == 4:
            offset = mem.u32le(self.offsets, 4 * i)
        else:
            offset = mem.as_signed(mem.u64le(self.offsets, 8 * i))
        if offset < 0:
            raise ValueError("a negative offset in an Arrow column")
        return offset

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def field_count(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return how many fields the row gets from this column. The row must be below `rows`."""
        if self._is_null(row):
            return 0
        if self.layout != MAP_LAYOUT:
            return 1
        items: ArrowCells | None = self.items
        assert items is not None
        at: cython.Py_ssize_t = self._offset(self.start + row)
        end: cython.Py_ssize_t = self._offset(self.start + row + 1)
        fields: cython.Py_ssize_t = 0
        if not at <= end <= items.rows:
            raise ValueError("a map with offsets past its items")
        while at < end:
            if not items._is_null(at):
                fields += 1
            at += 1
        return fields

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_fields(self, out: GrowableBuffer, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the names and values of the row's fields."""
        if self.layout != MAP_LAYOUT:
            out.put(self.name, 0, len(self.name))
            return self.write_value(out, row)
        keys: ArrowCells | None = self.keys
        items: ArrowCells | None = self.items
        assert keys is not None and items is not None
        at: cython.Py_ssize_t = self._offset(self.start + row)
        end: cython.Py_ssize_t = self._offset(self.start + row + 1)
        while at < end:
            if not items._is_null(at):
                keys.write_value(out, at)
                items.write_value(out, at)
            at += 1
        return out.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_value(self, out: GrowableBuffer, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append one value, which is not null, as a bulk string."""
        i: cython.Py_ssize_t = self.start + row
        if self.layout == TEXT_LAYOUT:
            at: cython.Py_ssize_t = self._text_start(i)
            return _put_bulk(out, self.values, at, self._offset(i + 1) - at)
        if self.layout == FIXED_LAYOUT:
            return _put_bulk(out, self.values, i * self.width, self.width)
        if self.layout == INTEGER_LAYOUT:
            return self._write_integer(out, i)
        if self.layout == BOOLEAN_LAYOUT:
            if self.values[i >> 3] >> (i & 7) & 1:
                return out.put(b"$4\r\ntrue\r\n", 0, 10)
            return out.put(b"$5\r\nfalse\r\n", 0, 11)
        return _put_real(out, mem.f64le(self.values, 8 * i))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _text_start(self, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return where text i begins. It ends at offset i + 1, which is within the bytes."""
        at: cython.Py_ssize_t = self._offset(i)
        if not at <= self._offset(i + 1) <= self.values_bytes:
            raise ValueError("a text with offsets past its bytes")
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def check_id(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Raise UsageError for a text that is not an ID: XADD would read MAXLEN as an option."""
        i: cython.Py_ssize_t = self.start + row
        at: cython.Py_ssize_t = i * self.width
        end: cython.Py_ssize_t = at + self.width
        if self.layout == TEXT_LAYOUT:
            at = self._text_start(i)
            end = self._offset(i + 1)
        elif self.layout != FIXED_LAYOUT:
            return 0
        if at == end or not (ZERO <= self.values[at] <= ZERO + 9 or self.values[at] == ARRAY):
            text: str = mem.to_bytes(self.values, at, min(end - at, ID_SHOWN_BYTES_MAX)).decode(
                errors="replace"
            )
            raise UsageError(f"{text!r} is not an entry ID, like 1763676000000-0.")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_integer(self, out: GrowableBuffer, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        at: cython.Py_ssize_t = i * self.width
        bits: cython.ulonglong = 0
        byte: cython.ulonglong
        j: cython.Py_ssize_t
        if self.width == 8:
            bits = mem.u64le(self.values, at)
        else:
            for j in range(self.width):
                byte = self.values[at + j]
                bits |= byte << 8 * j
            if self.signed and bits >> (8 * self.width - 1):
                byte = 1
                bits = mem.sub_u64(bits, byte << 8 * self.width)  # extend the sign to 64 bits
        if self.divisor != 1:
            number: cython.longlong = mem.as_signed(bits)
            bits = mem.as_unsigned(number // self.divisor)
        negative: cython.bint = self.signed and bits >> 63 != 0
        if negative:
            bits = mem.sub_u64(0, bits)
        if out.used + NUMBER_BYTES_MAX > out.cap:
            out.grow(NUMBER_BYTES_MAX)
        begin: cython.Py_ssize_t = out.used + 5  # after `$NN\r\n`
        at = begin
        if negative:
            out.p[at] = MINUS
            at += 1
        at += mem.put_decimal(out.p, at, bits)
        return _end_number(out, begin, at)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _put_bulk(
    out: GrowableBuffer, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Append the n bytes at `at` of source as a bulk string."""
    if out.used + n + HEADER_BYTES_MAX > out.cap:
        out.grow(n + HEADER_BYTES_MAX)
    _put_head(out, BULK, n)
    mem.copy(out.p, out.used, source, at, n)
    out.used += n
    return _end_line(out)


@cython.cfunc
@cython.exceptval(check=False)
def _put_head(out: GrowableBuffer, kind: cython.uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Append `<kind><n>\\r\\n`. The buffer must have space for it."""
    out.p[out.used] = kind
    out.used += 1
    out.used += mem.put_decimal(out.p, out.used, n)
    return _end_line(out)


@cython.cfunc
@cython.exceptval(check=False)
def _end_line(out: GrowableBuffer) -> cython.Py_ssize_t:
    """Append the end of a line. The buffer must have space for it."""
    out.p[out.used] = CR
    out.p[out.used + 1] = LF
    out.used += 2
    return out.used


@cython.cfunc
@cython.exceptval(check=False)
def _end_number(out: GrowableBuffer, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Make a bulk string of the digits at [begin, end), which are 5 bytes after the end of the output."""
    n: cython.Py_ssize_t = end - begin
    _put_head(out, BULK, n)
    if out.used != begin:
        mem.move(out.p, out.used, begin, n)
    out.used += n
    return _end_line(out)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _put_real(out: GrowableBuffer, v: cython.double) -> cython.Py_ssize_t:
    """Append a double as repr() writes it.

    A decimal of up to 15 digits identifies at most one double, so the first one that converts back to the
    number is the shortest. The digits and the power of ten are exact, so the division rounds like a parser.
    """
    size: cython.double = -v if v < 0 else v
    power: cython.double = 1
    whole: cython.longlong = 0
    unit: cython.longlong = 1
    back: cython.double
    decimals: cython.Py_ssize_t = 0
    found: cython.bint = False
    if size >= NO_EXPONENT_MIN and size < EXACT_DECIMALS_MAX:
        while decimals <= DECIMALS_MAX:
            back = size * power + 0.5
            if back >= EXACT_DECIMALS_MAX:
                break
            whole = mem.truncate(back)
            back = whole
            back /= power
            if back == size:
                found = True
                break
            decimals += 1
            power *= 10
            unit *= 10
    if not found:
        text: bytes = repr(v).encode()
        return _put_bulk(out, text, 0, len(text))
    if out.used + NUMBER_BYTES_MAX > out.cap:
        out.grow(NUMBER_BYTES_MAX)
    begin: cython.Py_ssize_t = out.used + 5
    at: cython.Py_ssize_t = begin
    if v < 0:
        out.p[at] = MINUS
        at += 1
    at += mem.put_decimal(out.p, at, whole // unit)
    out.p[at] = POINT
    at += 1
    if decimals == 0:
        out.p[at] = ZERO
        return _end_number(out, begin, at + 1)
    whole %= unit
    while decimals > 0:
        unit //= 10
        out.p[at] = (ZERO + whole // unit) & 0xFF
        whole %= unit
        at += 1
        decimals -= 1
    return _end_number(out, begin, at)


@cython.cfunc
@cython.exceptval(check=False)
def _mix(digest: cython.ulonglong, word: cython.ulonglong) -> cython.ulonglong:
    """Return the digest with one more word."""
    digest = (digest ^ word) * DIGEST_FACTOR & U64_MAX
    return digest ^ digest >> 32


@cython.cfunc
@cython.exceptval(check=False)
def _add_to_digest(
    digest: cython.ulonglong, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.ulonglong:
    """Return the digest with the row whose bytes are p[at:end], at least one word."""
    size: cython.ulonglong = end - at
    while at + WORD_BYTES <= end:
        digest = _mix(digest, mem.u64le(p, at))
        at += WORD_BYTES
    if at < end:
        digest = _mix(digest, mem.u64le(p, end - WORD_BYTES))
    return _mix(digest, size)


@cython.final
@cython.cclass
class XaddEncoder:
    """Encodes the columns of one batch: set_batch(), then for each stream set_prefix(), encode() and take().

    out                    the requests so far
    cells                  the columns that become fields
    id_cells                    the column of the IDs; None if the server assigns them
    prefix                 `XADD`, key and trimming arguments, encoded
    prefix_argument_count  their number
    computes_digest        whether a digest of the rows is computed
    rows_digest            the digest of the rows since start_digest()
    """

    out: GrowableBuffer
    cells: list[ArrowCells]
    id_cells: ArrowCells | None
    rows: cython.Py_ssize_t
    prefix: bytes
    prefix_argument_count: cython.Py_ssize_t
    computes_digest: cython.bint
    rows_digest: cython.ulonglong

    def __init__(self) -> None:
        self.computes_digest = False
        self.rows_digest = NO_ROWS_DIGEST
        self.out = GrowableBuffer(1 << 16)
        self.cells = []
        self.id_cells = None
        self.rows = 0
        self.prefix = b""
        self.prefix_argument_count = 0

    def set_batch(self, rows: int, cells: list[ArrowCells], ids: ArrowCells | None) -> None:
        """Set the columns of a batch, each with `rows` rows."""
        column: ArrowCells
        for column in cells:
            if column.rows != rows:
                raise ValueError("columns of different lengths")
        if ids is not None and (ids.rows != rows or ids.layout == MAP_LAYOUT):
            raise ValueError("IDs that do not fit their rows")
        self.rows = rows
        self.cells = cells
        self.id_cells = ids

    def set_prefix(self, words: list[bytes]) -> None:
        """Begin every request with these arguments: XADD, the stream, how to trim it."""
        self.prefix = b"".join(map(bulk, words))
        self.prefix_argument_count = len(words)

    def start_digest(self, digest: int | None) -> None:
        """Compute the digest of the rows from now on.

        Args:
            digest: the digest of the rows before them; None if there are none.
        """
        self.computes_digest = True
        self.rows_digest = NO_ROWS_DIGEST
        if digest is not None:
            self.rows_digest = digest

    def digest(self) -> int:
        """Return the digest, 64 bits: of the rows since start_digest(), chained to the digest given to it."""
        return self.rows_digest

    def encode(
        self,
        rows: list[int] | None,
        at: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        size_max: cython.Py_ssize_t,
    ) -> int:
        """Append a request for each row until the output has size_max bytes, which the last row may exceed.

        Args:
            rows: the rows to encode are rows[at:stop]; None: the rows [at, stop).

        Returns:
            The index after the last encoded row.

        Raises:
            UsageError: if all fields of a row are null, or its ID is not an entry ID.
        """
        row: cython.Py_ssize_t
        if at < 0 or stop > (self.rows if rows is None else len(rows)):
            raise ValueError("rows out of range")
        while at < stop and self.out.used < size_max:
            row = at
            if rows is not None:
                row = rows[at]
            if row < 0 or row >= self.rows:
                raise ValueError("a row out of range")
            self._append(row)
            at += 1
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        out: GrowableBuffer = self.out
        column: ArrowCells
        fields: cython.Py_ssize_t = 0
        for column in self.cells:
            fields += column.field_count(row)
        if fields == 0:
            raise UsageError("All columns of a row are null, but an entry needs a field: remove such rows.")
        if out.used + HEADER_BYTES_MAX > out.cap:
            out.grow(HEADER_BYTES_MAX)
        _put_head(out, ARRAY, self.prefix_argument_count + 1 + 2 * fields)
        out.put(self.prefix, 0, len(self.prefix))
        begin: cython.Py_ssize_t = out.used
        if self.id_cells is not None and not self.id_cells._is_null(row):
            self.id_cells.check_id(row)
            self.id_cells.write_value(out, row)
        else:
            out.put(b"$1\r\n*\r\n", 0, 7)
        for column in self.cells:
            if column.field_count(row) > 0:
                column.write_fields(out, row)
        if self.computes_digest:
            self.rows_digest = _add_to_digest(self.rows_digest, out.p, begin, out.used)
        return out.used

    def discard(self) -> None:
        """Drop the requests; the digest keeps their rows."""
        self.out.used = 0

    def take(self) -> bytes | bytearray:
        """Return the requests, and start an empty buffer."""
        out: GrowableBuffer = self.out
        few: bytes
        if out.used * 4 > out.cap:
            return out.take()
        few = mem.to_bytes(out.p, 0, out.used)  # a copy is cheaper than a new large buffer
        out.used = 0
        return few
