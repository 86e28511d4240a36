"""Encode runs, consecutive entries of a node with its master entry's fields, one column at a time.

Most streams consist of runs. First the offsets of the values of each entry are recorded. Then one loop for
each column appends its value of every entry:

    offsets   | at | device | temp | site | after |     u32 each: entry, values, end of entry
              | at | device | temp | site | after |
    columns          '-> text, 2 rows '-> real, 2 rows

A value that does not fit its column ends the run before its entry, and all columns are truncated to there.
RangeEncoder encodes such an entry, and skips deleted entries and handles those with other fields.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import columns as kinds
from headrace.arrow import run_appender
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.arrow.run_appender import RunAppender
from headrace.streams.node import Node
from headrace.structures import listpack_walk, stream_id

SAME_FIELDS_FLAG = cython.declare(cython.longlong, 2)  # the flags of an entry of a run, which is not deleted
RUN_MIN = cython.declare(cython.Py_ssize_t, 4)  # shorter runs are encoded entry by entry
CELL_WORK = cython.declare(cython.Py_ssize_t, 16)


@cython.final
@cython.cclass
class NodeRunAppender(RunAppender):
    """Appends runs to the columns of an encoder.

    can_append    whether entries with the fields of the current node can be a run; set by bind()
    run_end, ms, seq  after append(): where the last entry of the run ends, and its ID
    work          after append(): the cost of the run
    """

    key_bytes: GrowableBuffer  # the names of the node's fields, concatenated; empty without a map
    key_ends: GrowableBuffer  # 0, and where each name ends
    value_offsets: GrowableBuffer
    pair_count: cython.Py_ssize_t  # fields of an entry
    can_append: cython.bint
    run_end: cython.Py_ssize_t
    ms: cython.ulonglong
    seq: cython.ulonglong
    work: cython.Py_ssize_t

    def __init__(self, columns: list[Column], keys: Column, items: Column) -> None:
        RunAppender.__init__(self, columns, keys, items)
        self.key_bytes = self.key_ends = keys.values
        self.value_offsets = GrowableBuffer(64)
        self.pair_count = 0
        self.can_append = False
        self.run_end = 0
        self.ms = 0
        self.seq = 0
        self.work = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def bind(self, bound: list[Column], texts: Column, are_utf8: cython.bint) -> cython.bint:
        """Set the columns and names of the fields of the entries to come."""
        i: cython.Py_ssize_t
        column: Column
        self.pair_count = len(bound)
        self.key_bytes = texts.values
        self.key_ends = texts.offsets
        self.can_append = self.supports_columns
        for column in self.columns:
            column.token_number = 0 if column.kind < kinds.CORRUPT_KIND else -1
        for i in range(self.pair_count):  # of a field named twice the last value counts
            column = bound[i]
            column.token_number = i
        for column in self.columns:
            if column.token_number < 0 and not column.nullable:
                self.can_append = False
            elif column.kind == kinds.FIELDS_KIND:
                once: cython.bint = texts.offsets.used // 4 - 1 == self.pair_count
                if not once or (column.utf8_names and not are_utf8):
                    self.can_append = False
        return self.can_append

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
        """Append the run of the node's entries that begins at `at`, up to to_ms-to_seq, after `row` rows.

        Returns how many rows, at most rows_max, were appended; 0 if the entry must be encoded separately.
        """
        if self.max_entries < RUN_MIN:
            self.max_entries *= 2
            return 0
        p: cython.p_const_uchar = node.pack.p
        max_entries: cython.Py_ssize_t = min(self.max_entries, rows_max)
        count: cython.Py_ssize_t = self._find_values(node, p, at, max_entries, work_max, to_ms, to_seq)
        good: cython.Py_ssize_t = count
        if count < RUN_MIN:
            return 0
        column: Column
        for column in self.columns:
            if good > 0 and column.token_number >= 0:
                good = self._append_values(p, good, column)
        self.finish(row, row + good)
        self.max_entries = (
            min(2 * self.max_entries, run_appender.RUN_MAX)
            if good == count
            else max(self.max_entries // 4, 1)
        )
        if good > 0:
            self.run_end = self._value_offset(good - 1, self.pair_count + 1)
            self.ms = mem.u64le(self.ids.p, 16 * good - 16)
            self.seq = mem.u64le(self.ids.p, 16 * good - 8)
            self.work = self.run_end - at + good * self._row_work()
        return good

    @cython.cfunc
    @cython.exceptval(check=False)
    def _row_work(self) -> cython.Py_ssize_t:
        """Return the cost of a row in addition to its entry's bytes. A map repeats the names in each row."""
        return CELL_WORK * len(self.columns) + self.key_bytes.used

    @cython.cfunc
    @cython.exceptval(check=False)
    def _value_offset(self, i: cython.Py_ssize_t, j: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return mem.u32le(self.value_offsets.p, 4 * (i * (self.pair_count + 2) + j))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _find_values(
        self,
        node: Node,
        p: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        max_entries: cython.Py_ssize_t,
        work_max: cython.Py_ssize_t,
        to_ms: cython.ulonglong,
        to_seq: cython.ulonglong,
    ) -> cython.Py_ssize_t:
        """Record the offsets of each entry's values, and its ID; return how many entries the run has."""
        value_offsets: GrowableBuffer = self.value_offsets
        ids: GrowableBuffer = self.ids
        stop: cython.Py_ssize_t = node.pack.used
        size: cython.Py_ssize_t = 4 * (self.pair_count + 2)
        row_work: cython.Py_ssize_t = self._row_work()
        begin: cython.Py_ssize_t = at
        count: cython.Py_ssize_t = 0
        offset: cython.Py_ssize_t = 0
        _: cython.Py_ssize_t
        ms: cython.ulonglong
        seq: cython.ulonglong
        if ids.cap < 16 * max_entries:
            ids.grow(16 * max_entries)
        while count < max_entries and at < stop and p[at] == SAME_FIELDS_FLAG:
            if offset + size > value_offsets.cap:
                value_offsets.used = offset
                value_offsets.grow(size)
            mem.put_u32le(value_offsets.p, offset, at)
            at += 2
            ms = mem.add_u64(node.ms, mem.as_unsigned(listpack_walk.integer(p, at)))
            at = _next_element(p, at)
            seq = mem.add_u64(node.seq, mem.as_unsigned(listpack_walk.integer(p, at)))
            at = _next_element(p, at)
            if (
                ms > kinds.TIMESTAMP_MS_MAX
                or seq > kinds.I64_MAX
                or stream_id.is_before(to_ms, to_seq, ms, seq)
            ):
                break
            for _ in range(self.pair_count):
                offset += 4
                mem.put_u32le(value_offsets.p, offset, at)
                at = _next_element(p, at)
            at = _next_element(p, at)  # the number of the entry's elements
            mem.put_u32le(value_offsets.p, offset + 4, at)
            offset += 8
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
        """Append a column's values; return how many precede the first that does not fit."""
        if column.kind == kinds.TIMESTAMP_KIND:
            return self.append_id_parts(rows, column, 0, 1000)
        if column.kind == kinds.SEQUENCE_KIND:
            return self.append_id_parts(rows, column, 8, 1)
        if column.kind == kinds.ID_KIND:
            return self._append_ids(rows, column)
        if column.kind == kinds.FIELDS_KIND:
            return self._append_maps(p, rows, column)
        if column.kind == kinds.INTEGER_KIND or column.kind == kinds.REAL_KIND:
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
        """Append integers or reals; return how many precede the first that does not fit."""
        values: GrowableBuffer = column.values
        i: cython.Py_ssize_t
        real: cython.bint = column.kind == kinds.REAL_KIND
        if values.used + column.width * rows > values.cap:
            values.grow(column.width * rows)
        for i in range(rows):
            column.locate_element_value(p, self._value_offset(i, column.token_number + 1))
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
        """Append texts; return how many precede the first that is not UTF-8, if that is required."""
        values: GrowableBuffer = column.values
        offsets: GrowableBuffer = column.offsets
        checked: cython.bint = column.kind == kinds.TEXT_KIND
        offset: cython.Py_ssize_t = 4 * (column.token_number + 1)
        i: cython.Py_ssize_t
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        for i in range(rows):
            if not _put_element(values, p, mem.u32le(self.value_offsets.p, offset), checked):
                return i
            offset += 4 * (self.pair_count + 2)
            mem.put_u32le(offsets.p, offsets.used, values.used)
            offsets.used += 4
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_maps(
        self, p: cython.p_const_uchar, rows: cython.Py_ssize_t, column: Column
    ) -> cython.Py_ssize_t:
        """Append all pairs of each entry; return how many entries precede the first that does not fit."""
        values: GrowableBuffer = self.items.values
        ends: GrowableBuffer = self.items.offsets
        offsets: GrowableBuffer = column.offsets
        before: cython.Py_ssize_t = ends.used // 4 - 1
        checked: cython.bint = column.utf8_names and column.utf8_values
        offset: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        _: cython.Py_ssize_t
        if ends.used + 4 * rows * self.pair_count > ends.cap:
            ends.grow(4 * rows * self.pair_count)
        if offsets.used + 4 * rows > offsets.cap:
            offsets.grow(4 * rows)
        for i in range(rows):
            offset += 4
            for _ in range(self.pair_count):
                if not _put_element(values, p, mem.u32le(self.value_offsets.p, offset), checked):
                    self._append_keys(i)
                    return i
                offset += 4
                mem.put_u32le(ends.p, ends.used, values.used)
                ends.used += 4
            offset += 4
            mem.put_u32le(offsets.p, offsets.used, before + (i + 1) * self.pair_count)
            offsets.used += 4
        self._append_keys(rows)
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_keys(self, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the names, which are the same in each row."""
        start: cython.Py_ssize_t = self.keys.values.used
        i: cython.Py_ssize_t
        if rows == 0:
            return 0
        self.keys.values.put(self.key_bytes.p, 0, self.key_bytes.used)
        for i in range(1, self.pair_count + 1):
            self.keys.offsets.put_u32(start + mem.u32le(self.key_ends.p, 4 * i))
        return self.repeat_keys(start, self.pair_count, rows - 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _next_element(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the offset of the next element. The two most common encodings need no call."""
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
    """Append the text of the element at `at`; return False if it must be UTF-8 and is not."""
    n: cython.Py_ssize_t = p[at] & 0x3F
    if 0x80 <= p[at] < 0xC0:
        at += 1
    elif listpack_walk.is_integer(p, at):
        values.put_decimal(listpack_walk.integer(p, at))
        return True
    else:
        n = listpack_walk.text_size(p, at)
        at = listpack_walk.text_start(p, at)
    if checked and not mem.is_utf8(p, at, n):
        return False
    if values.used + n > values.cap:
        values.grow(n)
    mem.copy_short(values.p, values.used, p, at, n)
    values.used += n
    return True
