"""Memory used by objects, in bytes, as CPython's allocators allocate it.

    up to 512     from pools, in multiples of 16
    more          from malloc, which adds 8 and rounds up to a multiple of 16

An object that may be part of a cycle is preceded by 16 bytes for the garbage collector. A bytearray is two
blocks: the object and its bytes.
"""

from __future__ import annotations

import sys
from typing import Any

import cython

ALLOCATION_GRANULARITY = cython.declare(cython.Py_ssize_t, 16)
POOLED_BYTES_MAX = cython.declare(cython.Py_ssize_t, 512)
MALLOC_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 8)
HAVE_GC_FLAG = cython.declare(cython.Py_ssize_t, 1 << 14)  # Py_TPFLAGS_HAVE_GC


@cython.ccall
@cython.exceptval(-1, check=False)
def allocated_bytes(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the bytes that the allocator uses for a block of n bytes."""
    if n > POOLED_BYTES_MAX:
        n += MALLOC_HEADER_BYTES
    return (n + ALLOCATION_GRANULARITY - 1) // ALLOCATION_GRANULARITY * ALLOCATION_GRANULARITY


@cython.ccall
@cython.exceptval(-1, check=False)
def instance_bytes(cls: Any) -> cython.Py_ssize_t:
    """Return the bytes that an instance of this type takes, without the objects that it refers to."""
    return allocated_bytes(
        cls.__basicsize__ + (ALLOCATION_GRANULARITY if cls.__flags__ & HAVE_GC_FLAG else 0)
    )


@cython.ccall
@cython.exceptval(-1, check=False)
def object_bytes(value: Any) -> cython.Py_ssize_t:
    """Return the bytes that a bytes object, bytearray, list or dict takes, without the items in it."""
    size: cython.Py_ssize_t = sys.getsizeof(value)
    own: cython.Py_ssize_t
    if type(value) is bytes:
        return allocated_bytes(size)
    own = type(value).__basicsize__ + (ALLOCATION_GRANULARITY if type(value).__flags__ & HAVE_GC_FLAG else 0)
    return allocated_bytes(own) + allocated_bytes(size - own)
