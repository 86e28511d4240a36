"""Runs: entries of a node one after another that have its master entry's fields, encoded column by column.

Most streams hold little else. Where the values of each entry of a run are is noted first; then each column
takes its value of every entry in one loop:

    offsets   | at | device | temp | site | after |     u32 each: entry, values, end of entry
              | at | device | temp | site | after |
    columns          '-> text, 2 rows '-> real, 2 rows

A value that is not of its column's type ends the run before its entry, and all columns are cut back to there:
such an entry, and any of other fields or deleted, is for RangeEncoder, who knows what is to be done.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import column_runs
from headrace.arrow import columns as kinds
from headrace.arrow.column_runs import ColumnRuns
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.streams.node import Node
from headrace.structures import listpack_walk, stream_id

SAME_FIELDS = cython.declare(cython.longlong, 2)  # all flags of an entry of a run: it is not deleted
RUN_MIN = cython.declare(cython.Py_ssize_t, 4)  # fewer are not worth it
CELL_WORK = cython.declare(cython.Py_ssize_t, 16)


@cython.final
@cython.cclass
class NodeRuns(ColumnRuns):
    """Appends runs to the columns of an encoder.

    fits      whether entries with the fields of the node at hand can be a run; set by bind()
    end       after append(): where the last entry taken ends, its ID, and what the run has cost
    """

    key_bytes: GrowableBuffer  # the names of the node's fields, end to end; none without a map to put them in
    key_ends: GrowableBuffer  # 0, and where each ends
    value_offsets: GrowableBuffer
    pairs: cython.Py_ssize_t  # fields of an entry
    fits: cython.bint
    end: cython.Py_ssize_t
    ms: cython.ulonglong
    seq: cython.ulonglong
    work: cython.Py_ssize_t

    def __init__(self, columns: list[Column], keys: Column, items: Column) -> None:
        ColumnRuns.__init__(self, columns, keys, items)
        self.key_bytes = self.key_ends = keys.values
        self.value_offsets = GrowableBuffer(64)
        self.pairs = 0
        self.fits = False
        self.end = 0
        self.ms = 0
        self.seq = 0
        self.work = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def bind(self, bound: list[Column], texts: Column, are_text: cython.bint) -> cython.bint:
        """The entries to come have fields that belong to these columns, and these names."""
        i: cython.Py_ssize_t
        column: Column
        self.pairs = len(bound)
        self.key_bytes = texts.values
        self.key_ends = texts.offsets
        self.fits = self.possible
        for column in self.columns:
            column.word = 0 if column.kind < kinds.CORRUPT else -1
        for i in range(self.pairs):  # of a field named twice the last value counts
            column = bound[i]
            column.word = i
        for column in self.columns:
            if column.word < 0 and not column.nullable:
                self.fits = False
            elif column.kind == kinds.FIELDS:
                once: cython.bint = texts.offsets.used // 4 - 1 == self.pairs
                if not once or (column.utf8 and not are_text):
                    self.fits = False
        return self.fits

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append(
        self,
        node: Node,
        at: cython.Py_ssize_t,
        row: cython.Py_ssize_t,
        rows_max: cython.longlong,
        work_max: cython.Py_ssize_t,
        to_ms: cython.ulonglong,
        to_seq: cython.ulonglong,
    ) -> cython.Py_ssize_t:
        """Append the entries of the node from `at` on, as long as they are a run, good, and not after `to`.

        Answers how many rows, at most rows_max, there are more than `row` now; 0 when the entry at hand is to
        be encoded by itself.
        """
        if self.most < RUN_MIN:
            self.most *= 2
            return 0
        p: cython.p_const_uchar = node.pack.p
        most: cython.Py_ssize_t = min(self.most, rows_max)
        count: cython.Py_ssize_t = self._find_values(node, p, at, most, work_max, to_ms, to_seq)
        good: cython.Py_ssize_t = count
        if count < RUN_MIN:
            return 0
        column: Column
        for column in self.columns:
            if good > 0 and column.word >= 0:
                good = self._append_values(p, good, column)
        self.finish(row, row + good)
        self.most = min(2 * self.most, column_runs.RUN_MAX) if good == count else max(self.most // 4, 1)
        if good > 0:
            self.end = self._value_offset(good - 1, self.pairs + 1)
            self.ms = mem.u64le(self.ids.p, 16 * good - 16)
            self.seq = mem.u64le(self.ids.p, 16 * good - 8)
            self.work = self.end - at + good * self._row_work()
        return good

    @cython.cfunc
    @cython.exceptval(check=False)
    def _row_work(self) -> cython.Py_ssize_t:
        """What a row costs beside its entry's bytes; a map has the names in it, which the entry has not."""
        return CELL_WORK * len(self.columns) + self.key_bytes.used

    @cython.cfunc
    @cython.exceptval(check=False)
    def _value_offset(self, i: cython.Py_ssize_t, j: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return mem.u32le(self.value_offsets.p, 4 * (i * (self.pairs + 2) + j))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _find_values(
        self,
        node: Node,
        p: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        most: cython.Py_ssize_t,
        work_max: cython.Py_ssize_t,
        to_ms: cython.ulonglong,
        to_seq: cython.ulonglong,
    ) -> cython.Py_ssize_t:
        """Note where the values of each entry are, and its ID; how many entries the run has."""
        value_offsets: GrowableBuffer = self.value_offsets
        ids: GrowableBuffer = self.ids
        stop: cython.Py_ssize_t = node.pack.used
        size: cython.Py_ssize_t = 4 * (self.pairs + 2)
        row_work: cython.Py_ssize_t = self._row_work()
        begin: cython.Py_ssize_t = at
        count: cython.Py_ssize_t = 0
        mark: cython.Py_ssize_t = 0
        _: cython.Py_ssize_t
        ms: cython.ulonglong
        seq: cython.ulonglong
        if ids.cap < 16 * most:
            ids.grow(16 * most)
        while count < most and at < stop and p[at] == SAME_FIELDS:
            if mark + size > value_offsets.cap:
                value_offsets.used = mark
                value_offsets.grow(size)
            mem.put_u32le(value_offsets.p, mark, at)
            at += 2
            ms = mem.add_u64(node.ms, mem.as_unsigned(listpack_walk.integer(p, at)))
            at = _after(p, at)
            seq = mem.add_u64(node.seq, mem.as_unsigned(listpack_walk.integer(p, at)))
            at = _after(p, at)
            if ms > kinds.TIMESTAMP_MS_MAX or seq > kinds.I64_MAX or stream_id.before(to_ms, to_seq, ms, seq):
                break
            for _ in range(self.pairs):
                mark += 4
                mem.put_u32le(value_offsets.p, mark, at)
                at = _after(p, at)
            at = _after(p, at)  # the number of the entry's elements
            mem.put_u32le(value_offsets.p, mark + 4, at)
            mark += 8
            mem.put_u64le(ids.p, 16 * count, ms)
            mem.put_u64le(ids.p, 16 * count + 8, seq)
            count += 1
            if at - begin + count * row_work >= work_max:
                break
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_values(
        self, p: cython.p_const_uchar, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append a column's values; how many there are before the first that is not of its type."""
        if column.kind == kinds.TIMESTAMP:
            return self.append_parts(rows, column, 0, 1000)
        if column.kind == kinds.SEQUENCE:
            return self.append_parts(rows, column, 8, 1)
        if column.kind == kinds.ID:
            return self._append_ids(rows, column)
        if column.kind == kinds.FIELDS:
            return self._append_maps(p, rows, column)
        if column.kind == kinds.INTEGER or column.kind == kinds.REAL:
            return self._append_numbers(p, rows, column)
        return self._append_texts(p, rows, column)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_ids(self, rows: cython.Py_ssize_t, column: Column) -> cython.Py_ssize_t:
        """Append the IDs as text."""
        offsets: GrowableBuffer = column.offsets
        i: cython.Py_ssize_t
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        for i in range(rows):
            mem.put_u32le(
                offsets.p,
                offsets.used,
                column.values.put_id(mem.u64le(self.ids.p, 16 * i), mem.u64le(self.ids.p, 16 * i + 8)),
            )
            offsets.used += 4
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_numbers(
        self, p: cython.p_const_uchar, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append integers or reals."""
        values: GrowableBuffer = column.values
        i: cython.Py_ssize_t
        real: cython.bint = column.kind == kinds.REAL
        if values.used + column.width * rows > values.cap:
            values.grow(column.width * rows)
        for i in range(rows):
            column.read_element(p, self._value_offset(i, column.word + 1))
            if not column.parse(p):
                return i
            if real:
                column._write_real()
            else:
                column._write_integer()
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_texts(
        self, p: cython.p_const_uchar, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append texts as they are, checked if they have to be UTF-8."""
        values: GrowableBuffer = column.values
        offsets: GrowableBuffer = column.offsets
        checked: cython.bint = column.kind == kinds.TEXT
        mark: cython.Py_ssize_t = 4 * (column.word + 1)
        i: cython.Py_ssize_t
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        for i in range(rows):
            if not _put_element(values, p, mem.u32le(self.value_offsets.p, mark), checked):
                return i
            mark += 4 * (self.pairs + 2)
            mem.put_u32le(offsets.p, offsets.used, values.used)
            offsets.used += 4
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_maps(
        self, p: cython.p_const_uchar, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append all pairs of each entry."""
        values: GrowableBuffer = self.items.values
        ends: GrowableBuffer = self.items.offsets
        offsets: GrowableBuffer = column.offsets
        before: cython.Py_ssize_t = ends.used // 4 - 1
        checked: cython.bint = column.utf8 and column.utf8_values
        mark: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        _: cython.Py_ssize_t
        if ends.used + 4 * rows * self.pairs > ends.cap:
            ends.grow(4 * rows * self.pairs)
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        for i in range(rows):
            mark += 4
            for _ in range(self.pairs):
                if not _put_element(values, p, mem.u32le(self.value_offsets.p, mark), checked):
                    self._append_keys(i)
                    return i
                mark += 4
                mem.put_u32le(ends.p, ends.used, values.used)
                ends.used += 4
            mark += 4
            mem.put_u32le(offsets.p, offsets.used, before + (i + 1) * self.pairs)
            offsets.used += 4
        self._append_keys(rows)
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_keys(self, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the names of the fields for each row."""
        values: GrowableBuffer = self.keys.values
        ends: GrowableBuffer = self.keys.offsets
        size: cython.Py_ssize_t = self.key_bytes.used
        _: cython.Py_ssize_t
        i: cython.Py_ssize_t
        if values.used + size * rows > values.cap:
            values.grow(size * rows)
        if ends.used + 4 * self.pairs * rows > ends.cap:
            ends.grow(4 * self.pairs * rows)
        for _ in range(rows):
            for i in range(1, self.pairs + 1):
                mem.put_u32le(ends.p, ends.used, values.used + mem.u32le(self.key_ends.p, 4 * i))
                ends.used += 4
            mem.copy_short(values.p, values.used, self.key_bytes.p, 0, size)
            values.used += size
        return rows


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _after(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The offset past the element at `at`; the commonest two kinds without a call."""
    if p[at] < 0x80:
        return at + 2
    if p[at] < 0xC0:
        return at + 2 + (p[at] & 0x3F)
    return listpack_walk.next_at(p, at)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _put_element(
    values: GrowableBuffer, p: cython.p_const_uchar, at: cython.Py_ssize_t, checked: cython.bint
) -> cython.bint:
    """Append the text of the element at `at`; False if it is checked to be UTF-8 and is not."""
    n: cython.Py_ssize_t = p[at] & 0x3F
    if 0x80 <= p[at] < 0xC0:
        at += 1
    elif listpack_walk.is_integer(p, at):
        values.put_decimal(listpack_walk.integer(p, at))
        return True
    else:
        n = listpack_walk.text_size(p, at)
        at = listpack_walk.text_at(p, at)
    if checked and not mem.is_utf8(p, at, n):
        return False
    if values.used + n > values.cap:
        values.grow(n)
    mem.copy_short(values.p, values.used, p, at, n)
    values.used += n
    return True
