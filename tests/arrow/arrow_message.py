"""Parse an Arrow IPC message by the rules of the format, in plain Python, for comparisons in tests."""

from __future__ import annotations

import struct
from typing import Any

Node = tuple[int, int]


def table_field(data: bytes, table: int, field: int) -> int | None:
    """Return the offset of a field of a flatbuffer's table; None if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    if 4 + 2 * field >= size:
        return None
    at = struct.unpack_from("<H", data, vtable + 4 + 2 * field)[0]
    return table + at if at else None


def reference(data: bytes, at: int | None) -> int:
    assert at is not None
    return int(at + struct.unpack_from("<I", data, at)[0])


def pairs(data: bytes, at: int) -> list[tuple[int, int]]:
    """Parse a vector of structs of two i64."""
    count = struct.unpack_from("<I", data, at)[0]
    assert (at + 4) % 8 == 0, "structs of i64 must be at multiples of 8"
    return [struct.unpack_from("<qq", data, at + 4 + 16 * i) for i in range(count)]


def scalar(data: bytes, at: int | None, form: str) -> int:
    assert at is not None and at % struct.calcsize(form) == 0
    return int(struct.unpack_from(form, data, at)[0])


def take_apart(message: bytes) -> tuple[int, list[Node], list[bytes]]:
    """Rows, nodes (rows, nulls) and buffers."""
    continuation, size = struct.unpack_from("<Ii", message)
    assert continuation == 0xFFFFFFFF and (8 + size) % 64 == 0
    data, body = message[8 : 8 + size], message[8 + size :]
    root = reference(data, 0)
    assert scalar(data, table_field(data, root, 0), "<h") == 4  # V5
    assert scalar(data, table_field(data, root, 1), "<B") == 3  # RecordBatch
    assert scalar(data, table_field(data, root, 3), "<q") == len(body)
    batch = reference(data, table_field(data, root, 2))
    nodes = pairs(data, reference(data, table_field(data, batch, 1)))
    spans = pairs(data, reference(data, table_field(data, batch, 2)))
    end = 0
    buffers = []
    for offset, length in spans:
        assert offset == end and offset % 64 == 0
        end = offset + (length + 63) // 64 * 64
        buffers.append(body[offset : offset + length])
        assert not any(body[offset + length : end]), "padding is zeros"
    assert end == len(body)
    return scalar(data, table_field(data, batch, 0), "<q"), nodes, buffers


def columns(message: bytes, kinds: list[str]) -> tuple[int, list[Any]]:
    """Rows, and for each column what Column.take() gives; the keys and items of a map at the end."""
    rows, nodes, buffers = take_apart(message)
    node, buffer = iter(nodes), iter(buffers)
    found: list[Any] = []
    last: list[Any] = []

    def column(texts: bool, many: int) -> Any:
        length, nulls = next(node)
        assert length == many
        validity = next(buffer)
        assert (len(validity) == (many + 7) // 8) if nulls else validity == b""
        return nulls, validity or None, next(buffer) if texts else None, next(buffer)

    for kind in kinds:
        if kind == "map":
            length, nulls = next(node)
            validity, offsets = next(buffer), next(buffer)
            many, none = next(node)
            assert length == rows and none == 0 and next(buffer) == b""
            found.append((nulls, validity or None, offsets, b""))
            last = [column(True, many), column(True, many)]
        else:
            found.append(column(kind == "text", rows))
    assert next(node, None) is None and next(buffer, None) is None
    return rows, found + last
