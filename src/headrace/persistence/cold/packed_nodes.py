"""Pack the nodes of a cold run into one piece of bytes, which is then compressed: see cold_file.py.

keys, 16 bytes each | sizes, u32 big-endian each | listpacks
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import cython

from headrace import mem

KEY_BYTES = cython.declare(cython.Py_ssize_t, 16)
SIZE_BYTES = cython.declare(cython.Py_ssize_t, 4)
LISTPACK_BYTES_MIN = cython.declare(cython.Py_ssize_t, 7)
LISTPACK_END = cython.declare(cython.uchar, 0xFF)
NODE_BYTES_MIN = 27  # of the three parts of a node


def join(nodes: Sequence[tuple[bytes, bytes | bytearray]]) -> bytes:
    """Pack one node or more, given as (key, listpack), into one piece of bytes."""
    keys = b"".join([key for key, _ in nodes])
    assert len(keys) == 16 * len(nodes) > 0
    sizes = struct.pack(f">{len(nodes)}I", *[len(block) for _, block in nodes])
    return b"".join([keys, sizes, *[block for _, block in nodes]])


@cython.ccall
def split(raw: bytes, count: cython.Py_ssize_t) -> list[tuple[bytes, bytearray]]:
    """Return the keys and listpacks of `count` nodes. Of a listpack only size and end are checked.

    Raises:
        ValueError: if sizes or keys are wrong; its text says what is.
    """
    nodes: list[tuple[bytes, bytearray]] = []
    p: cython.p_const_uchar = raw
    end: cython.Py_ssize_t = len(raw)
    at: cython.Py_ssize_t = (KEY_BYTES + SIZE_BYTES) * count  # of the next listpack
    size: cython.Py_ssize_t
    key: bytes
    last: bytes = b""
    i: cython.Py_ssize_t
    sizes: tuple[Any, ...]
    if count <= 0 or count > end // (KEY_BYTES + SIZE_BYTES):
        raise ValueError(f"{end} bytes are too few for {count} nodes")
    sizes = struct.unpack_from(f">{count}I", raw, KEY_BYTES * count)
    if sum(sizes) != end - at:
        raise ValueError("the sizes of the nodes do not add up to that of the run")
    for i in range(count):
        key = mem.to_bytes(p, KEY_BYTES * i, KEY_BYTES)
        if key <= last:
            raise ValueError("the keys of the nodes do not ascend")
        last = key
        size = sizes[i]
        if (
            not LISTPACK_BYTES_MIN <= size <= end - at
            or mem.u32le(p, at) != size
            or p[at + size - 1] != LISTPACK_END
        ):
            raise ValueError(f"node {i + 1} of {count} is not a listpack of {size} bytes")
        nodes.append((key, bytearray(raw[at : at + size])))
        at += size
    return nodes
