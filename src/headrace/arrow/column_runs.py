"""What runs have in common, be they encoded from a node or decoded from a reply: whole columns at a time.

    ids      | ms | seq | ms | seq | ...     u64 each, one pair an entry of the run

A value that is not of its column's type ends a run before its entry: then all columns are cut back to there.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import columns as kinds
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer

RUN_MAX = cython.declare(cython.Py_ssize_t, 1024)  # entries a run, so that notes on it stay in the cache


@cython.cclass
class ColumnRuns:
    """Appends to columns, those of a map's keys and items among them.

    possible  whether the columns are of kinds that can be appended to in runs
    most      entries to try at once: fewer where they differ or are malformed
    """

    columns: list[Column]
    keys: Column
    items: Column
    ids: GrowableBuffer
    possible: cython.bint
    most: cython.Py_ssize_t

    def __init__(self, columns: list[Column], keys: Column, items: Column) -> None:
        self.columns = columns
        self.keys = keys
        self.items = items
        self.ids = GrowableBuffer(64)
        self.possible = len(columns) > 0
        self.most = RUN_MAX
        column: Column
        for column in columns:
            if column.kind == kinds.BOOLEAN or column.kind == kinds.CONVERTED:
                self.possible = False
            if column.convert is not None and column.kind != kinds.INTEGER:
                self.possible = False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append_parts(
        self, rows: cython.Py_ssize_t, column: Column, part: cython.Py_ssize_t, scale: cython.ulonglong
    ) -> cython.Py_ssize_t:
        """Append one of the two numbers of each ID, at byte `part` of the pair."""
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
        """Cut all columns back to so many rows, and append nulls to those the entries have nothing for."""
        row: cython.Py_ssize_t
        column: Column
        for column in self.columns:
            column.found = column.word >= 0
            if not column.found:
                for row in range(before, rows):
                    column.write(self.ids.p, row)
                continue
            column.cut(rows)
            if column.kind == kinds.FIELDS:
                self.keys.cut(mem.u32le(column.offsets.p, 4 * rows))
                self.items.cut(mem.u32le(column.offsets.p, 4 * rows))
            if column.nulls:
                for row in range(before, rows):
                    column.validity.put_bit(row, True)
        return True
