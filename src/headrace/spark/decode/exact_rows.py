"""The column `_exact`: the entries that the other columns of their rows do not give back byte for byte.

    row      n = 7, t = "x"       the sink's encoder writes    $1 n $1 7   $1 t $1 x
    reply    *4 ...               the server sent              $1 n $3 007 $1 t $1 x

Both are words of the protocol, so a row is exact if the two runs of bytes are the same. Of any other row the
names and values are kept as they are, in their order, names that come twice included. What text a typed value
is written as is said by the sink's encoder alone.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.spark.sink.encoder import ArrowCells

Buffers = tuple[int, "bytearray | None", bytearray, bytearray]


@cython.final
@cython.cclass
class ExactColumnBuilder:
    """Compares rows with their entries; take() gives the buffers of the column, its names and its values."""

    entries: Column
    names: Column
    values: Column
    scratch: GrowableBuffer  # what the encoder writes for one row

    def __init__(self) -> None:
        self.entries = Column("fields")
        self.names = Column("binary")
        self.values = Column("binary")
        self.scratch = GrowableBuffer(1 << 10)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def compare(
        self,
        replies: GrowableBuffer,
        notes: GrowableBuffer,
        row_notes: GrowableBuffer,
        cells: list[ArrowCells],
    ) -> cython.Py_ssize_t:
        """Append a value for each row: null if its cells are written as the entry is. Returns how many rows.

        Args:
            replies: the bytes received, in which the entries lie.
            notes: where the words of each entry are; page_scanner draws them.
            row_notes: for each row where the note of its entry is.
            cells: the columns that become fields again.
        """
        rows: cython.Py_ssize_t = row_notes.used // 4
        row: cython.Py_ssize_t
        note: cython.Py_ssize_t
        entries: Column = self.entries
        for row in range(rows):
            note = mem.u32le(row_notes.p, 4 * row)
            entries.found = not self._is_same(replies.p, notes.p, note, row, cells)
            if entries.write_validity(row):
                self._append_entry(replies.p, notes.p, note)
            entries.offsets.put_u32(self.names.offsets.used // 4 - 1)
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_same(
        self,
        p: cython.p_const_uchar,
        notes: cython.p_const_uchar,
        note: cython.Py_ssize_t,
        row: cython.Py_ssize_t,
        cells: list[ArrowCells],
    ) -> cython.bint:
        """Whether the cells of the row are written as the words of the entry, heads of words included."""
        out: GrowableBuffer = self.scratch
        words: cython.Py_ssize_t = mem.u32le(notes, note)
        last: cython.Py_ssize_t = note + 8 * words - 4
        column: ArrowCells
        out.used = 0
        for column in cells:
            if column.field_count(row) > 0:
                column.write_fields(out, row)
        if words < 2:
            return out.used == 0
        start: cython.Py_ssize_t = mem.u32le(notes, note + 12) - _head_bytes(mem.u32le(notes, note + 16))
        end: cython.Py_ssize_t = mem.u32le(notes, last) + mem.u32le(notes, last + 4) + 2
        return out.used == end - start and mem.compare(out.p, 0, p, start, out.used) == 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_entry(
        self, p: cython.p_const_uchar, notes: cython.p_const_uchar, note: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the names and values of an entry."""
        end: cython.Py_ssize_t = note + 4 + 8 * mem.u32le(notes, note)
        at: cython.Py_ssize_t = note + 12
        while at < end:
            self.names.append_text(p, mem.u32le(notes, at), mem.u32le(notes, at + 4))
            self.values.append_text(p, mem.u32le(notes, at + 8), mem.u32le(notes, at + 12))
            at += 16
        return at

    def take(self) -> tuple[Buffers, Buffers, Buffers]:
        """The buffers of the lists, of their names and of their values."""
        return self.entries.take(), self.names.take(), self.values.take()


@cython.cfunc
@cython.exceptval(check=False)
def _head_bytes(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """How long `$<n>\\r\\n` is."""
    size: cython.Py_ssize_t = 4
    while n >= 10:
        n //= 10
        size += 1
    return size
