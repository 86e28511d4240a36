"""Decode XRANGE replies into Arrow buffers, without a Python object for each field.

page_tokenizer indexes the tokens of an entry in the received bytes. Here they become a row: first each column
locates and parses its value. The values are appended only if all of them fit, or the mode allows nulls. So a
row never has to be removed. Entries like their neighbours are decoded faster, by entry_run_appender.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import columns as kinds
from headrace.arrow import field_names, growable_buffer, malformed
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.arrow.malformed import MODES
from headrace.errors import ProtocolError
from headrace.spark.decode.entry_run_appender import EntryRunAppender
from headrace.spark.decode.exact_column import ExactColumnBuilder
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.sink.encoder import ArrowCells

ColumnBuffers = tuple[int, "bytearray | None", bytearray, bytearray]

DASH = cython.declare(cython.uchar, 45)
ID_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 20)
U64_TENTH = cython.declare(cython.ulonglong, 1844674407370955161)  # ten times this and 5 is the last u64
# Up to here comparing names is cheaper than a dict.
PAIRWISE_COMPARISON_PAIRS_MAX = cython.declare(cython.Py_ssize_t, 16)

FIELD_ORDER_MAX = cython.declare(cython.Py_ssize_t, 1024)  # fields whose order is remembered

PERMISSIVE = cython.declare(cython.int, 0)
DROPMALFORMED = cython.declare(cython.int, 1)
FAILFAST = cython.declare(cython.int, 2)


@cython.final
@cython.cclass
class ArrowDecoder:
    """Decodes the indexed entries of one stream into column buffers.

    After every scan call decode() until it returns True, and take() whenever it returns False.

    row_count, size  the rows in the columns, and about how many bytes they have
    dropped_entries  malformed entries that were omitted so far
    """

    tokenizer: ReplyPageTokenizer
    token_index: GrowableBuffer  # the tokenizer's
    columns: list[Column]
    map_column: Column | None  # the map of all fields, its pairs in keys and items
    keys: Column
    items: Column
    corrupt_column: Column | None
    run_appender: EntryRunAppender
    tracks_rows: cython.bint  # whether to record the entry of each row, for take_exact_column_buffers()
    row_records: GrowableBuffer  # where the record of each row's entry is, u32 each
    must_escape: cython.bint  # whether the current entry's map of text must be escaped
    reads_fields: cython.bint  # whether any column is read from a field
    reads_id: cython.bint  # whether any column is a part of the ID, which is then:
    ms: cython.ulonglong
    seq: cython.ulonglong
    field_order: list[Column]  # the columns in the order the last entry had its fields
    last_pair_by_name: dict[bytes, cython.Py_ssize_t]
    stream: str
    mode: cython.int
    row_count: cython.Py_ssize_t
    size: cython.Py_ssize_t
    dropped_entries: cython.Py_ssize_t

    def __init__(
        self,
        tokenizer: ReplyPageTokenizer,
        columns: list[Column],
        stream: str,
        mode: str = "PERMISSIVE",
        tracks_rows: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.token_index = tokenizer.token_index
        self.columns = columns
        self.map_column = None
        self.corrupt_column = None
        self.keys = Column("text")
        self.items = Column("text")
        self.tracks_rows = tracks_rows
        self.row_records = GrowableBuffer(64)
        self.must_escape = False
        self.reads_fields = False
        self.reads_id = False
        self.ms = 0
        self.seq = 0
        column: Column
        for column in columns:
            if column.kind == kinds.FIELDS_KIND:
                self.map_column = column
            elif column.kind == kinds.CORRUPT_KIND:
                self.corrupt_column = column
            elif column.kind >= kinds.TEXT_KIND:
                self.reads_fields = True
            else:
                self.reads_id = True
        self.run_appender = EntryRunAppender(self.token_index, columns, self.keys, self.items)
        self.field_order = []
        self.last_pair_by_name = {}
        self.stream = stream
        self.mode = MODES[mode]
        self.row_count = 0
        self.size = 0
        self.dropped_entries = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _token_offset(self, record: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the offset of token i of an entry; token 0 is the ID."""
        return mem.u32le(self.token_index.p, record + 4 + 8 * i)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _token_size(self, record: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the size of token i of an entry."""
        return mem.u32le(self.token_index.p, record + 8 + 8 * i)

    @cython.cfunc
    def _token(self, p: cython.p_const_uchar, record: cython.Py_ssize_t, i: cython.Py_ssize_t) -> bytes:
        """Return token i of an entry, for messages and other rare needs."""
        return mem.to_bytes(p, self._token_offset(record, i), self._token_size(record, i))

    @cython.ccall
    def decode(self, rows_max: cython.Py_ssize_t, size_max: cython.Py_ssize_t) -> cython.bint:
        """Decode indexed entries, up to rows_max rows or size_max bytes; return True if no record is left."""
        scanner: ReplyPageTokenizer = self.tokenizer
        p: cython.p_const_uchar = scanner.buffer.buf
        end: cython.Py_ssize_t = self.token_index.used
        record: cython.Py_ssize_t = scanner.next_record
        words: cython.Py_ssize_t
        appender: EntryRunAppender = self.run_appender
        rows: cython.Py_ssize_t
        while record < end and self.row_count < rows_max and self.size < size_max:
            if appender.supports_columns:
                rows = appender.append(
                    p, record, self.row_count, rows_max - self.row_count, size_max - self.size
                )
                if rows:
                    if self.tracks_rows:
                        self._record_run(record, rows)
                    self.row_count += rows
                    self.size += appender.run_bytes
                    record += rows * appender.record_bytes
                    scanner.next_record = record
                    continue
            words = mem.u32le(self.token_index.p, record)
            if self._append(p, record, words // 2) and self.tracks_rows:
                self.row_records.put_u32(record)
            self.size += (
                self._token_offset(record, words - 1)
                + self._token_size(record, words - 1)
                - self._token_offset(record, 0)
            )
            record += 4 + 8 * words
            scanner.next_record = record
        return record == end

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, pairs: cython.Py_ssize_t
    ) -> cython.bint:
        """Append the row of one entry: locate and parse all its values, then write them."""
        column: Column
        good: cython.bint = True
        for column in self.columns:
            column.has_value = False
        if self.reads_id:
            self._read_id(p, record)
        if self.reads_fields:
            self._locate_values(p, record, pairs)
        for column in self.columns:
            if column.kind >= kinds.TEXT_KIND:
                if column.has_value and not column.parse(p):
                    column.misfit_count += 1
                    good = self._handle_malformed(p, record, column)
            elif column.kind == kinds.FIELDS_KIND:
                column.has_value = True
                self.must_escape = column.utf8_names and not self._is_utf8(
                    p, record, pairs, column.utf8_values
                )
                if self.must_escape:
                    good = self._handle_not_utf8(p, record, pairs, column)
            elif column.kind != kinds.CORRUPT_KIND and not self._assign_id(p, record, column):
                good = False
            if not column.has_value and not column.nullable:
                good = self._handle_malformed(p, record, column)
        if not good and self.mode == DROPMALFORMED:
            self.dropped_entries += 1
            return False
        if not good and self.corrupt_column is not None:
            self.corrupt_column.converted_value = self._entry_json(p, record, pairs)
            self.corrupt_column.has_value = True
        for column in self.columns:
            if column.kind == kinds.FIELDS_KIND:
                self._write_pairs(p, record, pairs, column)
            else:
                column.write(p, self.row_count)
        self.row_count += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _record_run(self, record: cython.Py_ssize_t, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Record the entries of a run's rows."""
        _: cython.Py_ssize_t
        for _ in range(rows):
            self.row_records.put_u32(record)
            record += self.run_appender.record_bytes
        return record

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _locate_values(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, pairs: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Locate the values of the columns. Try the order of the last entry's fields first."""
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        known: cython.Py_ssize_t = len(self.field_order)
        column: Column
        for i in range(pairs):
            at = self._token_offset(record, 1 + 2 * i)
            n = self._token_size(record, 1 + 2 * i)
            if i < known:
                column = self.field_order[i]
                if not column.matches_name(p, at, n):
                    column = self._column_of_field(p, at, n)
                    self.field_order[i] = column
            else:
                column = self._column_of_field(p, at, n)
                if i < FIELD_ORDER_MAX:
                    self.field_order.append(column)
            column.has_value = True  # the last value of a repeated field counts
            column.text_offset = self._token_offset(record, 2 + 2 * i)
            column.text_size = self._token_size(record, 2 + 2 * i)
        return pairs

    @cython.cfunc
    def _column_of_field(
        self, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> Column:
        """Return the column of this field; one that is never written if the schema has none."""
        column: Column
        for column in self.columns:
            if column.kind >= kinds.TEXT_KIND and column.matches_name(p, at, n):
                return column
        return Column("ignored", mem.to_bytes(p, at, n))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _handle_malformed(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, column: Column
    ) -> cython.bint:
        """Raise, or make the value null, for an entry without a fitting value. Return False."""
        column.has_value = False
        if self.mode == FAILFAST or (self.mode == PERMISSIVE and not column.nullable):
            raise malformed.missing_value_error(self.stream, self._token(p, record, 0).decode(), column.name)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_id(self, p: cython.p_const_uchar, record: cython.Py_ssize_t) -> cython.bint:
        """Read the two numbers of the ID."""
        at: cython.Py_ssize_t = self._token_offset(record, 0)
        end: cython.Py_ssize_t = at + self._token_size(record, 0)
        dash: cython.Py_ssize_t = mem.find(p, at, end, DASH)
        if dash < 0:
            raise ProtocolError(f"{mem.to_bytes(p, at, end - at)!r} is not an entry ID")
        self.ms = self._parse_u64(p, at, dash)
        self.seq = self._parse_u64(p, dash + 1, end)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _assign_id(self, p: cython.p_const_uchar, record: cython.Py_ssize_t, column: Column) -> cython.bint:
        """Set the column's value to its part of the ID; return False, or raise, if it is too large."""
        if not column.read_id(self.ms, self.seq):
            column.misfit_count += 1
            column.has_value = False
            if self.mode == FAILFAST or (self.mode == PERMISSIVE and not column.nullable):
                part: str = "sequence" if column.kind == kinds.SEQUENCE_KIND else "time"
                raise malformed.id_part_error(self.stream, self._token(p, record, 0).decode(), part)
            return False
        if column.kind == kinds.ID_KIND:
            column.text_offset = self._token_offset(record, 0)
            column.text_size = self._token_size(record, 0)
        return True

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def _parse_u64(
        self, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.ulonglong:
        """Return the u64 with the digits p[at:end]."""
        number: cython.ulonglong = 0
        digit: cython.uint
        if not 0 < end - at <= ID_DIGITS_MAX:
            raise ProtocolError("an entry ID that is not a pair of numbers")
        while at < end:
            if not 48 <= p[at] <= 57:
                raise ProtocolError("an entry ID that is not a pair of numbers")
            digit = p[at] - 48
            if number > U64_TENTH or (number == U64_TENTH and digit > 5):
                raise ProtocolError("an entry ID past 64 bits")
            number = number * 10 + digit
            at += 1
        return number

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_utf8(
        self,
        p: cython.p_const_uchar,
        record: cython.Py_ssize_t,
        pairs: cython.Py_ssize_t,
        with_values: cython.bint,
    ) -> cython.bint:
        """Return whether all names of the entry are UTF-8, and also all values if `with_values` is set."""
        step: cython.Py_ssize_t = 1 if with_values else 2
        i: cython.Py_ssize_t = 2 * pairs if with_values else 2 * pairs - 1
        while i > 0 and mem.is_utf8(p, self._token_offset(record, i), self._token_size(record, i)):
            i -= step
        return i <= 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _handle_not_utf8(
        self,
        p: cython.p_const_uchar,
        record: cython.Py_ssize_t,
        pairs: cython.Py_ssize_t,
        column: Column,
    ) -> cython.bint:
        """Raise, or let the map be written with escapes. Return False: the entry is malformed."""
        size: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        column.misfit_count += 1
        if self.mode == FAILFAST:
            raise malformed.not_utf8_error(self.stream, self._token(p, record, 0).decode())
        for i in range(1, 2 * pairs + 1):
            size += self._token_size(record, i)
        if size > field_names.ESCAPED_BYTES_MAX:
            self._handle_malformed(p, record, column)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_pairs(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, pairs: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append all pairs as one map, which has each key once: the last value of a repeated field counts."""
        keys: GrowableBuffer = self.keys.offsets
        i: cython.Py_ssize_t
        if not column.write_validity(self.row_count):
            pairs = 0
        escape: cython.bint = self.must_escape and column.utf8_values
        if self.must_escape and not self._is_utf8(p, record, pairs, False):
            return self._write_escaped(p, record, pairs, column)
        if pairs > PAIRWISE_COMPARISON_PAIRS_MAX:
            self.last_pair_by_name.clear()
            for i in range(pairs):
                self.last_pair_by_name[self._token(p, record, 1 + 2 * i)] = i
        for i in range(pairs):
            if not self._is_repeated(p, record, i, pairs):
                self.keys.append_text(
                    p, self._token_offset(record, 1 + 2 * i), self._token_size(record, 1 + 2 * i)
                )
                if escape:
                    self.items.values.put_escaped(
                        p, self._token_offset(record, 2 + 2 * i), self._token_size(record, 2 + 2 * i)
                    )
                    self.items.offsets.put_u32(self.items.values.used)
                else:
                    self.items.append_text(
                        p, self._token_offset(record, 2 + 2 * i), self._token_size(record, 2 + 2 * i)
                    )
        return column.offsets.put_u32(keys.used // 4 - 1)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_escaped(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, pairs: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append all pairs if some names are not UTF-8. Names with the same escaped text are one key."""
        items: GrowableBuffer = self.items.values
        i: cython.Py_ssize_t
        names: list[bytes] = [
            growable_buffer.escaped(self._token(p, record, 1 + 2 * i)) for i in range(pairs)
        ]
        self.last_pair_by_name = {name: i for i, name in enumerate(names)}
        for i in range(pairs):
            if self.last_pair_by_name[names[i]] != i:
                continue
            self.keys.append_text(names[i], 0, len(names[i]))
            if column.utf8_values:
                items.put_escaped(
                    p, self._token_offset(record, 2 + 2 * i), self._token_size(record, 2 + 2 * i)
                )
            else:
                items.put(p, self._token_offset(record, 2 + 2 * i), self._token_size(record, 2 + 2 * i))
            self.items.offsets.put_u32(items.used)
        return column.offsets.put_u32(self.keys.offsets.used // 4 - 1)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_repeated(
        self,
        p: cython.p_const_uchar,
        record: cython.Py_ssize_t,
        i: cython.Py_ssize_t,
        pairs: cython.Py_ssize_t,
    ) -> cython.bint:
        """Return whether a later pair has the name of pair i."""
        if pairs > PAIRWISE_COMPARISON_PAIRS_MAX:
            return self.last_pair_by_name[self._token(p, record, 1 + 2 * i)] != i
        at: cython.Py_ssize_t = self._token_offset(record, 1 + 2 * i)
        n: cython.Py_ssize_t = self._token_size(record, 1 + 2 * i)
        j: cython.Py_ssize_t
        for j in range(i + 1, pairs):
            if (
                self._token_size(record, 1 + 2 * j) == n
                and mem.compare(p, at, p, self._token_offset(record, 1 + 2 * j), n) == 0
            ):
                return True
        return False

    @cython.cfunc
    def _entry_json(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, pairs: cython.Py_ssize_t
    ) -> bytes:
        """Return the whole entry, for the column of corrupt records."""
        i: cython.Py_ssize_t
        words: list[bytes] = []
        for i in range(2 * pairs):
            words.append(self._token(p, record, 1 + i))
        return malformed.entry_json(self._token(p, record, 0).decode(), words)

    def take_exact_column_buffers(
        self, cells: list[ArrowCells]
    ) -> tuple[ColumnBuffers, ColumnBuffers, ColumnBuffers]:
        """Return the column `_exact` for the rows of the last take(), whose replies must still be buffered.

        Args:
            cells: the columns of these rows that the sink writes as fields.
        """
        found: ExactColumnBuilder = ExactColumnBuilder()
        found.append_rows(self.tokenizer.buffer, self.token_index, self.row_records, cells)
        self.row_records.used = 0
        return found.take()

    def misfit_counts(self) -> list[int]:
        """Return for each column how many values have not fitted its type so far."""
        return [column.misfit_count for column in self.columns]

    def take(self) -> tuple[int, list[tuple[int, bytearray | None, bytearray, bytearray]]]:
        """Return the number of rows and the buffers, and empty the columns.

        Returns:
            For each column (nulls, validity, offsets, values). If there is a map, its keys and its items
            follow the columns.
        """
        buffers = [column.take() for column in self.columns]
        if self.map_column is not None:
            buffers += [self.keys.take(), self.items.take()]
        rows = self.row_count
        self.row_count = 0
        self.size = 0
        return rows, buffers
