"""What objects take of the memory, in bytes: as CPython's allocators hand it out.

    up to 512     from pools, in multiples of 16
    more          from malloc, which adds 8 and rounds up to a multiple of 16

In front of an object that may be in a cycle stand 16 bytes for the collector. A bytearray is two blocks: the
object, and its bytes.
"""

from __future__ import annotations

import sys
from typing import Any

import cython

GRAIN = cython.declare(cython.Py_ssize_t, 16)
POOLED_MAX = cython.declare(cython.Py_ssize_t, 512)
MALLOC_HEAD = cython.declare(cython.Py_ssize_t, 8)
COLLECTED = cython.declare(cython.Py_ssize_t, 1 << 14)  # Py_TPFLAGS_HAVE_GC


@cython.ccall
@cython.exceptval(-1, check=False)
def taken(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """What one block of n bytes takes."""
    if n > POOLED_MAX:
        n += MALLOC_HEAD
    return (n + GRAIN - 1) // GRAIN * GRAIN


@cython.ccall
@cython.exceptval(-1, check=False)
def of_kind(kind: Any) -> cython.Py_ssize_t:
    """What an object of this type takes, beside all it refers to."""
    return taken(kind.__basicsize__ + (GRAIN if kind.__flags__ & COLLECTED else 0))


@cython.ccall
@cython.exceptval(-1, check=False)
def of(thing: Any) -> cython.Py_ssize_t:
    """What bytes, a bytearray, a list or a dictionary take; of the latter, without what is in them."""
    size: cython.Py_ssize_t = sys.getsizeof(thing)
    own: cython.Py_ssize_t
    if type(thing) is bytes:
        return taken(size)
    own = type(thing).__basicsize__ + (GRAIN if type(thing).__flags__ & COLLECTED else 0)
    return taken(own) + taken(size - own)
