"""The column `_exact`: entries that the other columns of their rows do not represent byte for byte.

    row      n = 7, t = "x"       the sink's encoder writes    $1 n $1 7   $1 t $1 x
    reply    *4 ...               the server sent              $1 n $3 007 $1 t $1 x

Both are bulk strings, so a row is exact if their bytes are the same. For any other row all names and values
are stored in their order, including repeated names. Only the sink's encoder defines the texts of values.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.spark.sink.encoder import ArrowCells

ColumnBuffers = tuple[int, "bytearray | None", bytearray, bytearray]


@cython.final
@cython.cclass
class ExactColumnBuilder:
    """Compares rows with their entries; take() returns the buffers of the column, its names and values."""

    entries: Column
    names: Column
    values: Column
    scratch: GrowableBuffer  # the encoder's output for one row

    def __init__(self) -> None:
        self.entries = Column("fields")
        self.names = Column("binary")
        self.values = Column("binary")
        self.scratch = GrowableBuffer(1 << 10)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def append_rows(
        self,
        replies: GrowableBuffer,
        index: GrowableBuffer,
        row_records: GrowableBuffer,
        cells: list[ArrowCells],
    ) -> cython.Py_ssize_t:
        """Append a value for each row: null if its cells are written like the entry. Return how many rows.

        Args:
            replies: the received bytes with the entries.
            index: the token index of page_tokenizer.
            row_records: for each row, the offset of its entry's index record.
            cells: the columns that the sink writes as fields.
        """
        rows: cython.Py_ssize_t = row_records.used // 4
        row: cython.Py_ssize_t
        record: cython.Py_ssize_t
        entries: Column = self.entries
        for row in range(rows):
            record = mem.u32le(row_records.p, 4 * row)
            entries.has_value = not self._is_same(replies.p, index.p, record, row, cells)
            if entries.write_validity(row):
                self._append_entry(replies.p, index.p, record)
            entries.offsets.put_u32(self.names.offsets.used // 4 - 1)
        return rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_same(
        self,
        p: cython.p_const_uchar,
        index: cython.p_const_uchar,
        record: cython.Py_ssize_t,
        row: cython.Py_ssize_t,
        cells: list[ArrowCells],
    ) -> cython.bint:
        """Return whether the cells of the row are encoded as the bytes of the entry's fields."""
        out: GrowableBuffer = self.scratch
        words: cython.Py_ssize_t = mem.u32le(index, record)
        last: cython.Py_ssize_t = record + 8 * words - 4
        column: ArrowCells
        out.used = 0
        for column in cells:
            if column.field_count(row) > 0:
                column.write_fields(out, row)
        if words < 2:
            return out.used == 0
        start: cython.Py_ssize_t = mem.u32le(index, record + 12) - _bulk_header_size(
            mem.u32le(index, record + 16)
        )
        end: cython.Py_ssize_t = mem.u32le(index, last) + mem.u32le(index, last + 4) + 2
        return out.used == end - start and mem.compare(out.p, 0, p, start, out.used) == 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_entry(
        self, p: cython.p_const_uchar, index: cython.p_const_uchar, record: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append the names and values of an entry."""
        end: cython.Py_ssize_t = record + 4 + 8 * mem.u32le(index, record)
        at: cython.Py_ssize_t = record + 12
        while at < end:
            self.names.append_text(p, mem.u32le(index, at), mem.u32le(index, at + 4))
            self.values.append_text(p, mem.u32le(index, at + 8), mem.u32le(index, at + 12))
            at += 16
        return at

    def take(self) -> tuple[ColumnBuffers, ColumnBuffers, ColumnBuffers]:
        """Return the buffers of the lists, of their names and of their values."""
        return self.entries.take(), self.names.take(), self.values.take()


@cython.cfunc
@cython.exceptval(check=False)
def _bulk_header_size(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the size of `$<n>\\r\\n`."""
    size: cython.Py_ssize_t = 4
    while n >= 10:
        n //= 10
        size += 1
    return size
