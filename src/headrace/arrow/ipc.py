r"""Write a record batch as an Arrow IPC message, without a library.

    | FF FF FF FF | size i32 | metadata ... | body ...          size: of the metadata, with padding
    | continuation |                        | at a multiple of 64 bytes, like every buffer in it

The metadata is a flatbuffer that always has the same structure, so all offsets but two are constants. A table
begins with the distance back to its vtable, which has the offsets of its fields. References are relative to
their own offset:

      0  u32  16                           the Message is at 16
      4  u16  12, 20, 4, 6, 16, 8          its vtable: two sizes; version, kind, header, length
     16  i32  12                           the Message: its vtable is 12 before
     20  i16  4                            version: V5
     22  u8   3, pad                       kind: RecordBatch
     24  i64  bytes of the body
     32  u32  16                           header: the RecordBatch is at 48
     36  u16  10, 20, 8, 4, 16, pad        its vtable: two sizes; length, nodes, buffers
     48  i32  12                           the RecordBatch: its vtable is 12 before
     52  u32  16                           nodes: the vector is at 68
     56  i64  rows
     64  u32  12 + 16 n                    buffers: the vector is at 76 + 16 n
     68  u32  n                            nodes
     72  i64 rows, i64 nulls               n times, a column before its children
         u32  0                            padding: the vector begins at 4 modulo 8
         u32  m                            buffers
         i64 offset, i64 bytes             m times; offset from the start of the body

Buffers of a string: validity, offsets, values; of a number: validity, values; of a map: validity, offsets,
the (absent) validity of its pairs, its keys, its items. A column without nulls has a validity of 0 bytes. The
reader must know the schema: there is no schema message. (Arrow columnar format, "Serialization and
interprocess communication", and the schemas Message.fbs and Schema.fbs.)
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer

CONTINUATION = cython.declare(cython.uint, 0xFFFFFFFF)
ALIGNMENT = cython.declare(cython.Py_ssize_t, 64)
PREFIX_BYTES = cython.declare(cython.Py_ssize_t, 8)
METADATA_VERSION = cython.declare(cython.uint, 4)  # V5
RECORD_BATCH_HEADER_TYPE = cython.declare(cython.uint, 3)
MESSAGE_VTABLE_OFFSET = cython.declare(cython.Py_ssize_t, 4)
MESSAGE_OFFSET = cython.declare(cython.Py_ssize_t, 16)
BATCH_VTABLE_OFFSET = cython.declare(cython.Py_ssize_t, 36)
BATCH_OFFSET = cython.declare(cython.Py_ssize_t, 48)
NODES_OFFSET = cython.declare(cython.Py_ssize_t, 68)


@cython.final
@cython.cclass
class BatchMessage:
    """Builds the message from the columns of a batch, which must not change until it is written."""

    field_nodes: GrowableBuffer  # (rows, nulls) i64 each
    buffer_spans: GrowableBuffer  # (offset, bytes) i64 each
    body_buffers: list[GrowableBuffer]  # the buffers of the body; empty ones are only in spans
    body_bytes: cython.Py_ssize_t  # of the body

    def __init__(self) -> None:
        self.field_nodes = GrowableBuffer(64)
        self.buffer_spans = GrowableBuffer(128)
        self.body_buffers = []
        self.body_bytes = 0

    @cython.ccall
    def add(self, column: Column, rows: cython.Py_ssize_t) -> cython.void:
        """Add a column that is not a map, or the keys or items of one."""
        self._add_node(rows, column.nulls)
        self._add_buffer(column.validity if column.nulls else None)
        if column.has_offsets():
            self._add_buffer(column.offsets)
        self._add_buffer(column.values)

    @cython.ccall
    def add_map(self, column: Column, rows: cython.Py_ssize_t, keys: Column, items: Column) -> cython.void:
        """Add a map and its pairs."""
        pairs: cython.Py_ssize_t = keys.offsets.used // 4 - 1
        self._add_node(rows, column.nulls)
        self._add_buffer(column.validity if column.nulls else None)
        self._add_buffer(column.offsets)
        self._add_node(pairs, 0)
        self._add_buffer(None)
        self.add(keys, pairs)
        self.add(items, pairs)

    @cython.ccall
    def head(self, rows: cython.Py_ssize_t) -> bytearray:
        """Return everything before the body."""
        metadata: cython.Py_ssize_t = NODES_OFFSET + 12 + self.field_nodes.used + self.buffer_spans.used
        size: cython.Py_ssize_t = padded(PREFIX_BYTES + metadata)
        head: bytearray = bytearray(size)
        p: cython.p_uchar = head
        mem.put_u32le(p, 0, CONTINUATION)
        mem.put_u32le(p, 4, size - PREFIX_BYTES)
        self._put_head(p, rows)
        at: cython.Py_ssize_t = PREFIX_BYTES + NODES_OFFSET
        mem.put_u32le(p, at, self.field_nodes.used // 16)
        mem.copy(p, at + 4, self.field_nodes.p, 0, self.field_nodes.used)
        at += 4 + self.field_nodes.used + 4
        mem.put_u32le(p, at, self.buffer_spans.used // 16)
        mem.copy(p, at + 4, self.buffer_spans.p, 0, self.buffer_spans.used)
        return head

    def to_bytes(self, rows: int) -> bytes:
        """Return the whole message: its head and its pieces, each padded."""
        parts = [bytes(self.head(rows))]
        piece: GrowableBuffer
        for piece in self.body_buffers:
            parts.append(mem.to_bytes(piece.p, 0, piece.used))
            parts.append(bytes(padded(piece.used) - piece.used))
        return b"".join(parts)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put_head(self, p: cython.p_uchar, rows: cython.Py_ssize_t) -> cython.void:
        """Write the metadata before the vectors; p is the message, filled with zeros."""
        message: cython.Py_ssize_t = PREFIX_BYTES + MESSAGE_OFFSET
        batch: cython.Py_ssize_t = PREFIX_BYTES + BATCH_OFFSET
        mem.put_u32le(p, PREFIX_BYTES, MESSAGE_OFFSET)
        _put_vtable(p, PREFIX_BYTES + MESSAGE_VTABLE_OFFSET, 12, 4, 6, 16)
        mem.put_u16le(p, PREFIX_BYTES + MESSAGE_VTABLE_OFFSET + 10, 8)
        mem.put_u32le(p, message, MESSAGE_OFFSET - MESSAGE_VTABLE_OFFSET)
        mem.put_u16le(p, message + 4, METADATA_VERSION)
        p[message + 6] = RECORD_BATCH_HEADER_TYPE
        mem.put_u64le(p, message + 8, self.body_bytes)
        mem.put_u32le(p, message + 16, BATCH_OFFSET - MESSAGE_OFFSET - 16)
        _put_vtable(p, PREFIX_BYTES + BATCH_VTABLE_OFFSET, 10, 8, 4, 16)
        mem.put_u32le(p, batch, BATCH_OFFSET - BATCH_VTABLE_OFFSET)
        mem.put_u32le(p, batch + 4, NODES_OFFSET - BATCH_OFFSET - 4)
        mem.put_u64le(p, batch + 8, rows)
        mem.put_u32le(p, batch + 16, NODES_OFFSET + 8 + self.field_nodes.used - BATCH_OFFSET - 16)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add_node(self, rows: cython.Py_ssize_t, nulls: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return _put_two_int64(self.field_nodes, rows, nulls)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add_buffer(self, piece: GrowableBuffer | None) -> cython.Py_ssize_t:
        """Add a buffer to the body; None for a validity that is not needed."""
        if piece is None or piece.used == 0:
            return _put_two_int64(self.buffer_spans, self.body_bytes, 0)
        _put_two_int64(self.buffer_spans, self.body_bytes, piece.used)
        self.body_buffers.append(piece)
        self.body_bytes += padded(piece.used)
        return self.body_bytes


@cython.cfunc
@cython.exceptval(check=False)
def padded(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Round n up to a multiple of ALIGNMENT."""
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


@cython.cfunc
@cython.exceptval(check=False)
def _put_vtable(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    size: cython.uint,
    first: cython.uint,
    second: cython.uint,
    third: cython.uint,
) -> cython.void:
    """Write a vtable of that size for a table of 20 bytes, with its first three fields at these offsets."""
    mem.put_u16le(p, at, size)
    mem.put_u16le(p, at + 2, 20)
    mem.put_u16le(p, at + 4, first)
    mem.put_u16le(p, at + 6, second)
    mem.put_u16le(p, at + 8, third)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _put_two_int64(to: GrowableBuffer, a: cython.Py_ssize_t, b: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Append two i64."""
    if to.used + 16 > to.cap:
        to.grow(16)
    mem.put_u64le(to.p, to.used, a)
    mem.put_u64le(to.p, to.used + 8, b)
    to.used += 16
    return to.used
