"""Runs: entries one after another that have the same fields, decoded column by column.

Most streams hold little else. What is the same of all entries of a run is found out once, and then each
column takes its value of every entry in one loop:

    notes     | 5 | ID | device | d12 | temp | 21.5 |     the same number of words, the same names
              | 5 | ID | device | d07 | temp | 20.1 |
    columns                       '-> text, 2 rows '-> real, 2 rows

A value that is not of its column's type ends the run before its entry, and all columns are cut back to there:
such an entry, and any that differs from its neighbours, is for ArrowDecoder, who knows what is to be done.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import column_runs
from headrace.arrow import columns as kinds
from headrace.arrow.column_runs import ColumnRuns
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer

DASH = cython.declare(cython.uchar, 45)
RUN_MIN = cython.declare(cython.Py_ssize_t, 4)  # fewer are not worth it
NAMES_MAX = cython.declare(cython.Py_ssize_t, 64)  # of more fields one may be named twice
U64_DIGITS = cython.declare(cython.Py_ssize_t, 19)  # so many always fit


@cython.final
@cython.cclass
class EntryRuns(ColumnRuns):
    """Appends runs of noted entries to the columns of a decoder. (The notes are drawn in page_scanner.)

    size      about how many bytes the entries of the last run had
    """

    token_index: GrowableBuffer
    needs_ids: cython.bint  # whether IDs have to be read
    record_bytes: cython.Py_ssize_t  # from one note of the run to the next
    size: cython.Py_ssize_t

    def __init__(self, notes: GrowableBuffer, columns: list[Column], keys: Column, items: Column) -> None:
        ColumnRuns.__init__(self, columns, keys, items)
        self.token_index = notes
        self.needs_ids = False
        column: Column
        for column in columns:
            if column.kind < kinds.FIELDS:
                self.needs_ids = True
        self.record_bytes = 0
        self.size = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append(
        self,
        p: cython.p_const_uchar,
        note: cython.Py_ssize_t,
        row: cython.Py_ssize_t,
        rows_max: cython.Py_ssize_t,
        size_max: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Append the entries noted from `note` on, as long as they are a run and good.

        Answers how many rows, at most rows_max, there are more than `row` now; 0 when the entry at hand is to
        be decoded by itself.
        """
        if self.most < RUN_MIN:
            self.most *= 2
            return 0
        count: cython.Py_ssize_t = self._run_length(p, note, min(rows_max, self.most), size_max)
        good: cython.Py_ssize_t = count
        if count < RUN_MIN or not self._bind_columns(p, note):
            self.most = 1
            return 0
        if self.needs_ids:
            good = self._read_ids(p, note, good)
        column: Column
        for column in self.columns:
            if good > 0 and column.word >= 0:
                good = self._append_values(p, note, good, column)
        self.finish(row, row + good)
        self.most = min(2 * self.most, column_runs.RUN_MAX) if good == count else self.most // 4
        if good > 0:
            self.size = self._end(note + (good - 1) * self.record_bytes) - self._token_offset(note, 0)
        return good

    @cython.cfunc
    @cython.exceptval(check=False)
    def _end(self, note: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Where the last word of an entry ends."""
        last: cython.Py_ssize_t = note + self.record_bytes - 8
        return mem.u32le(self.token_index.p, last) + mem.u32le(self.token_index.p, last + 4)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _run_length(
        self,
        p: cython.p_const_uchar,
        note: cython.Py_ssize_t,
        most: cython.Py_ssize_t,
        size_max: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """How many entries from this one on have its fields; what they have more than size_max is left."""
        notes: cython.p_const_uchar = self.token_index.p
        words: cython.uint = mem.u32le(notes, note)
        count: cython.Py_ssize_t = 1
        self.record_bytes = 4 + 8 * words
        last: cython.Py_ssize_t = (
            min(note + most * self.record_bytes, self.token_index.used) - self.record_bytes
        )
        end: cython.Py_ssize_t = mem.u32le(notes, note + 4) + size_max
        names: cython.Py_ssize_t = 8 * words
        other: cython.Py_ssize_t = note + self.record_bytes
        i: cython.Py_ssize_t
        n: cython.uint
        while other <= last and mem.u32le(notes, other) == words and self._end(other) < end:
            i = 12
            while i < names:
                n = mem.u32le(notes, note + i + 4)
                if mem.u32le(notes, other + i + 4) != n or not mem.equal_bytes(
                    p, mem.u32le(notes, note + i), p, mem.u32le(notes, other + i), n
                ):
                    return count
                i += 16
            count += 1
            other += self.record_bytes
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _bind_columns(self, p: cython.p_const_uchar, note: cython.Py_ssize_t) -> cython.bint:
        """Tell the columns which word of each entry is theirs; False when a map would have a key twice."""
        words: cython.Py_ssize_t = self.record_bytes // 8  # the ID and the others
        i: cython.Py_ssize_t
        column: Column
        for column in self.columns:
            column.word = -1
            if column.kind == kinds.FIELDS:
                if words > 2 * NAMES_MAX or not self._are_distinct_keys(p, note, words, column.utf8):
                    return False
                column.word = 0
            elif column.kind < kinds.FIELDS:
                column.word = 0
            elif column.kind >= kinds.TEXT:
                for i in range(1, words, 2):  # of a field named twice the last value counts
                    if column.named(p, self._token_offset(note, i), self._token_size(note, i)):
                        column.word = i + 1
            if column.word < 0 and not column.nullable:
                return False
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _token_offset(self, note: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return mem.u32le(self.token_index.p, note + 4 + 8 * i)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _token_size(self, note: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return mem.u32le(self.token_index.p, note + 8 + 8 * i)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _are_distinct_keys(
        self, p: cython.p_const_uchar, note: cython.Py_ssize_t, words: cython.Py_ssize_t, utf8: cython.bint
    ) -> cython.bint:
        """Whether the names are different ones, and UTF-8 if they have to be."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        for i in range(1, words, 2):
            at = self._token_offset(note, i)
            n = self._token_size(note, i)
            if utf8 and not mem.is_utf8(p, at, n):
                return False
            for j in range(1, i, 2):
                if self._token_size(note, j) == n and mem.equal_bytes(
                    p, self._token_offset(note, j), p, at, n
                ):
                    return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_ids(
        self, p: cython.p_const_uchar, note: cython.Py_ssize_t, rows: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read the IDs; how many are good before the first that is none, or past what columns can hold."""
        found: GrowableBuffer = self.ids
        notes: cython.p_const_uchar = self.token_index.p
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
            at = mem.u32le(notes, note + 4)
            end = at + mem.u32le(notes, note + 8)
            note += self.record_bytes
            ms = 0
            first = at
            if end - at > 8 and mem.parse_8_digits(p, at) >= 0:
                ms = mem.parse_8_digits(p, at)
                at += 8
            while at < end and 48 <= p[at] <= 57:
                ms = ms * 10 + (p[at] - 48)
                at += 1
            if at in (first, end) or p[at] != DASH or at - first > U64_DIGITS or ms > kinds.TIMESTAMP_MS_MAX:
                return i
            at += 1
            seq = 0
            first = at
            while at < end and 48 <= p[at] <= 57:
                seq = seq * 10 + (p[at] - 48)
                at += 1
            if at < end or at == first or at - first > U64_DIGITS or seq > kinds.I64_MAX:
                return i
            mem.put_u64le(found.p, 16 * i, ms)
            mem.put_u64le(found.p, 16 * i + 8, seq)
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_values(
        self, p: cython.p_const_uchar, note: cython.Py_ssize_t, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append a column's values; how many there are before the first that is not of its type."""
        if column.kind == kinds.TIMESTAMP:
            return self.append_parts(rows, column, 0, 1000)
        if column.kind == kinds.SEQUENCE:
            return self.append_parts(rows, column, 8, 1)
        if column.kind == kinds.FIELDS:
            return self._append_maps(p, note, rows, column)
        if column.kind == kinds.INTEGER or column.kind == kinds.REAL:
            return self._append_numbers(p, note, rows, column)
        return self._append_texts(p, note, rows, column)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_numbers(
        self, p: cython.p_const_uchar, note: cython.Py_ssize_t, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append integers or reals."""
        values: GrowableBuffer = column.values
        i: cython.Py_ssize_t
        real: cython.bint = column.kind == kinds.REAL
        if values.used + column.width * rows > values.cap:
            values.grow(column.width * rows)
        column.found = True
        column.stored = False
        for i in range(rows):
            column.at = self._token_offset(note, column.word)
            column.n = self._token_size(note, column.word)
            note += self.record_bytes
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
        self, p: cython.p_const_uchar, note: cython.Py_ssize_t, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append words as they are, checked if they have to be UTF-8."""
        values: GrowableBuffer = column.values
        offsets: GrowableBuffer = column.offsets
        checked: cython.bint = column.kind == kinds.TEXT
        notes: cython.p_const_uchar = self.token_index.p
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        note += 4 + 8 * column.word
        for i in range(rows):
            at = mem.u32le(notes, note)
            n = mem.u32le(notes, note + 4)
            note += self.record_bytes
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
        self, p: cython.p_const_uchar, note: cython.Py_ssize_t, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append all pairs of each entry."""
        values: GrowableBuffer = self.items.values
        ends: GrowableBuffer = self.items.offsets
        offsets: GrowableBuffer = column.offsets
        notes: cython.p_const_uchar = self.token_index.p
        pairs: cython.Py_ssize_t = self.record_bytes // 16
        before: cython.Py_ssize_t = ends.used // 4 - 1
        first: cython.Py_ssize_t = note
        checked: cython.bint = column.utf8 and column.utf8_values
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        if ends.used + 4 * rows * pairs > ends.cap:
            ends.grow(4 * rows * pairs)
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        for i in range(rows):
            for j in range(note + 20, note + self.record_bytes, 16):
                at = mem.u32le(notes, j)
                n = mem.u32le(notes, j + 4)
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
            note += self.record_bytes
        self._append_keys(p, first, rows, pairs)
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_keys(
        self,
        p: cython.p_const_uchar,
        note: cython.Py_ssize_t,
        rows: cython.Py_ssize_t,
        pairs: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Append the same names for each row: the second to the last are copies of the first."""
        values: GrowableBuffer = self.keys.values
        ends: GrowableBuffer = self.keys.offsets
        start: cython.Py_ssize_t = values.used
        i: cython.Py_ssize_t
        _: cython.Py_ssize_t
        if rows == 0:
            return 0
        for i in range(1, 2 * pairs, 2):
            self.keys.append_text(p, self._token_offset(note, i), self._token_size(note, i))
        size: cython.Py_ssize_t = values.used - start
        if values.used + size * rows > values.cap:
            values.grow(size * rows)
        if ends.used + 4 * pairs * rows > ends.cap:
            ends.grow(4 * pairs * rows)
        for _ in range(1, rows):
            mem.copy_short(values.p, values.used, values.p, start, size)
            values.used += size
        for _ in range(pairs * (rows - 1)):
            mem.put_u32le(ends.p, ends.used, mem.u32le(ends.p, ends.used - 4 * pairs) + size)
            ends.used += 4
        return rows
