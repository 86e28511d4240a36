"""Decode runs, consecutive entries of a reply with the same fields, one column at a time.

Most streams consist of runs. The fields are compared with the columns once for each run. Then one loop for
each column appends its value of every entry:

    index     | 5 | ID | device | d12 | temp | 21.5 |     the same number of tokens, the same names
              | 5 | ID | device | d07 | temp | 20.1 |
    columns                       '-> text, 2 rows '-> real, 2 rows

A value that does not fit its column ends the run before its entry, and all columns are truncated to there.
ArrowDecoder decodes such an entry, and any that differs from its neighbours.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import columns as kinds
from headrace.arrow import run_appender
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.arrow.run_appender import RunAppender

DASH = cython.declare(cython.uchar, 45)
RUN_MIN = cython.declare(cython.Py_ssize_t, 4)  # shorter runs are decoded entry by entry
# With more fields, duplicates are not looked for.
DUPLICATE_CHECK_NAMES_MAX = cython.declare(cython.Py_ssize_t, 64)
U64_SAFE_DIGITS = cython.declare(cython.Py_ssize_t, 19)  # this many digits always fit


@cython.final
@cython.cclass
class EntryRunAppender(RunAppender):
    """Appends runs of indexed entries to the columns of a decoder (page_tokenizer shows the index).

    run_bytes  about how many bytes the entries of the last run had
    """

    token_index: GrowableBuffer
    needs_ids: cython.bint  # whether IDs have to be read
    record_bytes: cython.Py_ssize_t  # size of each index record of the run
    run_bytes: cython.Py_ssize_t

    def __init__(self, index: GrowableBuffer, columns: list[Column], keys: Column, items: Column) -> None:
        RunAppender.__init__(self, columns, keys, items)
        self.token_index = index
        self.needs_ids = False
        column: Column
        for column in columns:
            if column.kind < kinds.FIELDS_KIND:
                self.needs_ids = True
        self.record_bytes = 0
        self.run_bytes = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append(
        self,
        p: cython.p_const_uchar,
        record: cython.Py_ssize_t,
        row: cython.Py_ssize_t,
        rows_max: cython.Py_ssize_t,
        size_max: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Append the run of entries that begins at `record`, after `row` rows.

        Returns how many rows, at most rows_max, were appended; 0 if the entry must be decoded separately.
        """
        if self.max_entries < RUN_MIN:
            self.max_entries *= 2
            return 0
        count: cython.Py_ssize_t = self._run_length(p, record, min(rows_max, self.max_entries), size_max)
        good: cython.Py_ssize_t = count
        if count < RUN_MIN or not self._bind_columns(p, record):
            self.max_entries = 1
            return 0
        if self.needs_ids:
            good = self._read_ids(p, record, good)
        column: Column
        for column in self.columns:
            if good > 0 and column.token_number >= 0:
                good = self._append_values(p, record, good, column)
        self.finish(row, row + good)
        self.max_entries = (
            min(2 * self.max_entries, run_appender.RUN_MAX) if good == count else self.max_entries // 4
        )
        if good > 0:
            self.run_bytes = self._entry_end(record + (good - 1) * self.record_bytes) - self._token_offset(
                record, 0
            )
        return good

    @cython.cfunc
    @cython.exceptval(check=False)
    def _entry_end(self, record: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return where the last token of an entry ends."""
        last: cython.Py_ssize_t = record + self.record_bytes - 8
        return mem.u32le(self.token_index.p, last) + mem.u32le(self.token_index.p, last + 4)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _run_length(
        self,
        p: cython.p_const_uchar,
        record: cython.Py_ssize_t,
        most: cython.Py_ssize_t,
        size_max: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Return how many entries from this one on have its fields, within size_max bytes."""
        index: cython.p_const_uchar = self.token_index.p
        words: cython.uint = mem.u32le(index, record)
        count: cython.Py_ssize_t = 1
        self.record_bytes = 4 + 8 * words
        last: cython.Py_ssize_t = (
            min(record + most * self.record_bytes, self.token_index.used) - self.record_bytes
        )
        end: cython.Py_ssize_t = mem.u32le(index, record + 4) + size_max
        names: cython.Py_ssize_t = 8 * words
        other: cython.Py_ssize_t = record + self.record_bytes
        i: cython.Py_ssize_t
        n: cython.uint
        while other <= last and mem.u32le(index, other) == words and self._entry_end(other) < end:
            i = 12
            while i < names:
                n = mem.u32le(index, record + i + 4)
                if mem.u32le(index, other + i + 4) != n or not mem.equal_bytes(
                    p, mem.u32le(index, record + i), p, mem.u32le(index, other + i), n
                ):
                    return count
                i += 16
            count += 1
            other += self.record_bytes
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _bind_columns(self, p: cython.p_const_uchar, record: cython.Py_ssize_t) -> cython.bint:
        """Set the token number of each column; return False if the entries must be decoded one by one."""
        words: cython.Py_ssize_t = self.record_bytes // 8  # including the ID
        i: cython.Py_ssize_t
        column: Column
        for column in self.columns:
            column.token_number = -1
            if column.kind == kinds.FIELDS_KIND:
                if words > 2 * DUPLICATE_CHECK_NAMES_MAX or not self._are_distinct_keys(
                    p, record, words, column.utf8_names
                ):
                    return False
                column.token_number = 0
            elif column.kind < kinds.FIELDS_KIND:
                column.token_number = 0
            elif column.kind >= kinds.TEXT_KIND:
                for i in range(1, words, 2):  # of a field named twice the last value counts
                    if column.matches_name(p, self._token_offset(record, i), self._token_size(record, i)):
                        column.token_number = i + 1
            if column.token_number < 0 and not column.nullable:
                return False
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _token_offset(self, record: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return mem.u32le(self.token_index.p, record + 4 + 8 * i)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _token_size(self, record: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return mem.u32le(self.token_index.p, record + 8 + 8 * i)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _are_distinct_keys(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, words: cython.Py_ssize_t, utf8: cython.bint
    ) -> cython.bint:
        """Return whether all names differ, and are UTF-8 if required."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        for i in range(1, words, 2):
            at = self._token_offset(record, i)
            n = self._token_size(record, i)
            if utf8 and not mem.is_utf8(p, at, n):
                return False
            for j in range(1, i, 2):
                if self._token_size(record, j) == n and mem.equal_bytes(
                    p, self._token_offset(record, j), p, at, n
                ):
                    return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_ids(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, rows: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read the IDs; return how many precede the first wrong one, or one too large for the columns."""
        found: GrowableBuffer = self.ids
        index: cython.p_const_uchar = self.token_index.p
        at: cython.Py_ssize_t
        end: cython.Py_ssize_t
        first: cython.Py_ssize_t
        ms: cython.ulonglong
        seq: cython.ulonglong
        i: cython.Py_ssize_t
        found.used = 0
        if found.cap < 16 * rows:
            found.grow(16 * rows)
        for i in range(rows):
            at = mem.u32le(index, record + 4)
            end = at + mem.u32le(index, record + 8)
            record += self.record_bytes
            ms = 0
            first = at
            if end - at > 8 and mem.parse_8_digits(p, at) >= 0:
                ms = mem.parse_8_digits(p, at)
                at += 8
            while at < end and 48 <= p[at] <= 57:
                ms = ms * 10 + (p[at] - 48)
                at += 1
            if (
                at in (first, end)
                or p[at] != DASH
                or at - first > U64_SAFE_DIGITS
                or ms > kinds.TIMESTAMP_MS_MAX
            ):
                return i
            at += 1
            seq = 0
            first = at
            while at < end and 48 <= p[at] <= 57:
                seq = seq * 10 + (p[at] - 48)
                at += 1
            if at < end or at == first or at - first > U64_SAFE_DIGITS or seq > kinds.I64_MAX:
                return i
            mem.put_u64le(found.p, 16 * i, ms)
            mem.put_u64le(found.p, 16 * i + 8, seq)
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_values(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append a column's values; return how many precede the first that does not fit."""
        if column.kind == kinds.TIMESTAMP_KIND:
            return self.append_id_parts(rows, column, 0, 1000)
        if column.kind == kinds.SEQUENCE_KIND:
            return self.append_id_parts(rows, column, 8, 1)
        if column.kind == kinds.FIELDS_KIND:
            return self._append_maps(p, record, rows, column)
        if column.kind == kinds.INTEGER_KIND or column.kind == kinds.REAL_KIND:
            return self._append_numbers(p, record, rows, column)
        return self._append_texts(p, record, rows, column)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_numbers(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append integers or reals; return how many precede the first that does not fit."""
        values: GrowableBuffer = column.values
        i: cython.Py_ssize_t
        real: cython.bint = column.kind == kinds.REAL_KIND
        if values.used + column.width * rows > values.cap:
            values.grow(column.width * rows)
        column.has_value = True
        column.is_integer = False
        for i in range(rows):
            column.text_offset = self._token_offset(record, column.token_number)
            column.text_size = self._token_size(record, column.token_number)
            record += self.record_bytes
            if real:
                if not column._parse_real(p):
                    return i
                column._write_real()
            else:
                if not column._parse_integer(p):
                    return i
                column._write_integer()
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_texts(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append texts; return how many precede the first that is not UTF-8, if that is required."""
        values: GrowableBuffer = column.values
        offsets: GrowableBuffer = column.offsets
        checked: cython.bint = column.kind == kinds.TEXT_KIND
        index: cython.p_const_uchar = self.token_index.p
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        record += 4 + 8 * column.token_number
        for i in range(rows):
            at = mem.u32le(index, record)
            n = mem.u32le(index, record + 4)
            record += self.record_bytes
            if checked and not mem.is_utf8(p, at, n):
                return i
            if values.used + n > values.cap:
                values.grow(n)
            mem.copy_short(values.p, values.used, p, at, n)
            values.used += n
            mem.put_u32le(offsets.p, offsets.used, values.used)
            offsets.used += 4
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_maps(
        self, p: cython.p_const_uchar, record: cython.Py_ssize_t, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append all pairs of each entry; return how many entries precede the first that does not fit."""
        values: GrowableBuffer = self.items.values
        ends: GrowableBuffer = self.items.offsets
        offsets: GrowableBuffer = column.offsets
        index: cython.p_const_uchar = self.token_index.p
        pairs: cython.Py_ssize_t = self.record_bytes // 16
        before: cython.Py_ssize_t = ends.used // 4 - 1
        first: cython.Py_ssize_t = record
        checked: cython.bint = column.utf8_names and column.utf8_values
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        if ends.used + 4 * rows * pairs > ends.cap:
            ends.grow(4 * rows * pairs)
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        for i in range(rows):
            for j in range(record + 20, record + self.record_bytes, 16):
                at = mem.u32le(index, j)
                n = mem.u32le(index, j + 4)
                if checked and not mem.is_utf8(p, at, n):
                    self._append_keys(p, first, i, pairs)
                    return i
                if values.used + n > values.cap:
                    values.grow(n)
                mem.copy_short(values.p, values.used, p, at, n)
                values.used += n
                mem.put_u32le(ends.p, ends.used, values.used)
                ends.used += 4
            mem.put_u32le(offsets.p, offsets.used, before + (i + 1) * pairs)
            offsets.used += 4
            record += self.record_bytes
        self._append_keys(p, first, rows, pairs)
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_keys(
        self,
        p: cython.p_const_uchar,
        record: cython.Py_ssize_t,
        rows: cython.Py_ssize_t,
        pairs: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Append the names, which are the same in each row."""
        start: cython.Py_ssize_t = self.keys.values.used
        i: cython.Py_ssize_t
        if rows == 0:
            return 0
        for i in range(1, 2 * pairs, 2):
            self.keys.append_text(p, self._token_offset(record, i), self._token_size(record, i))
        return self.repeat_keys(start, pairs, rows - 1)
