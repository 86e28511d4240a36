"""Base class that appends runs to columns: consecutive entries with the same fields, one column at a time.

    ids      | ms | seq | ms | seq | ...     u64 each, one pair for each entry of the run

A value that does not fit its column ends the run before its entry: all columns are truncated to there.
node_run_appender reads runs from a node, spark/decode/entry_run_appender from a reply.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import columns as kinds
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer

RUN_MAX = cython.declare(cython.Py_ssize_t, 1024)  # entries of a run, so that its index stays in the cache


@cython.cclass
class RunAppender:
    """Appends runs to columns, including the keys and items of a map.

    supports_columns  whether runs can be appended to columns of these kinds
    max_entries       entries to try at once: fewer after entries that differ or are malformed
    """

    columns: list[Column]
    keys: Column
    items: Column
    ids: GrowableBuffer
    supports_columns: cython.bint
    max_entries: cython.Py_ssize_t

    def __init__(self, columns: list[Column], keys: Column, items: Column) -> None:
        self.columns = columns
        self.keys = keys
        self.items = items
        self.ids = GrowableBuffer(64)
        self.supports_columns = len(columns) > 0
        self.max_entries = RUN_MAX
        column: Column
        for column in columns:
            if column.kind == kinds.BOOLEAN_KIND or column.kind == kinds.CONVERTED_KIND:
                self.supports_columns = False
            if column.convert is not None and column.kind != kinds.INTEGER_KIND:
                self.supports_columns = False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append_id_parts(
        self, rows: cython.Py_ssize_t, column: Column, part: cython.Py_ssize_t, scale: cython.ulonglong
    ) -> cython.Py_ssize_t:
        """Append one of the two numbers of each ID, the one at byte `part` of the pair, times `scale`."""
        values: GrowableBuffer = column.values
        i: cython.Py_ssize_t
        if values.used + 8 * rows > values.cap:
            values.grow(8 * rows)
        for i in range(rows):
            mem.put_u64le(values.p, values.used + 8 * i, scale * mem.u64le(self.ids.p, 16 * i + part))
        values.used += 8 * rows
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish(self, before: cython.Py_ssize_t, rows: cython.Py_ssize_t) -> cython.bint:
        """Truncate all columns to `rows` rows, and append nulls to columns without a field in the run."""
        row: cython.Py_ssize_t
        column: Column
        for column in self.columns:
            column.has_value = column.token_number >= 0
            if not column.has_value:
                for row in range(before, rows):
                    column.write(self.ids.p, row)
                continue
            column.truncate(rows)
            if column.kind == kinds.FIELDS_KIND:
                self.keys.truncate(mem.u32le(column.offsets.p, 4 * rows))
                self.items.truncate(mem.u32le(column.offsets.p, 4 * rows))
            if column.nulls:
                for row in range(before, rows):
                    column.validity.put_bit(row, True)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def repeat_keys(
        self, start: cython.Py_ssize_t, pairs: cython.Py_ssize_t, rows: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the last entry's keys, which begin at byte `start`, again for each of `rows` rows."""
        values: GrowableBuffer = self.keys.values
        ends: GrowableBuffer = self.keys.offsets
        size: cython.Py_ssize_t = values.used - start
        _: cython.Py_ssize_t
        if values.used + size * rows > values.cap:
            values.grow(size * rows)
        if ends.used + 4 * pairs * rows > ends.cap:
            ends.grow(4 * pairs * rows)
        for _ in range(rows):
            mem.copy_short(values.p, values.used, values.p, start, size)
            values.used += size
        for _ in range(pairs * rows):
            mem.put_u32le(ends.p, ends.used, mem.u32le(ends.p, ends.used - 4 * pairs) + size)
            ends.used += 4
        return rows
