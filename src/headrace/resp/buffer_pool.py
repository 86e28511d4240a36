"""A large block for who needs much room for a moment: one busy client after the other.

A pipeline's requests, and its answers, take tens of KiB for the length of one turn. If they were allocated
and freed turn by turn, the entries stored meanwhile would get into the holes, the next turn's block would
need a new place, and a quarter of the memory would be holes that nothing fits. So the block stays, and is
lent:

    ReadBuffer, ReplyWriter                     BufferPool
    its own, small   -- needs more ------>   large        they are swapped
    large            <- is empty again ---   small        and swapped back
"""

from __future__ import annotations

import cython

from headrace import mem

KEPT_MAX = cython.declare(cython.Py_ssize_t, 4096)  # what a client with nothing pending may keep
BLOCK_MAX = cython.declare(cython.Py_ssize_t, 256 * 1024)  # a larger one is freed


@cython.final
@cython.cclass
class BufferPool:
    """At most one block, large or small. For one thread."""

    block: bytearray | None

    def __init__(self) -> None:
        self.block = None

    @cython.cfunc
    def more(self, own: bytearray, used: cython.Py_ssize_t, cap: cython.Py_ssize_t) -> bytearray | None:
        """A block of cap bytes or more with the first `used` of own, for own; None when there is none."""
        lent: bytearray | None = self.block
        if lent is None or len(lent) < cap:
            return None
        p: cython.p_uchar = lent
        source: cython.p_const_uchar = own
        mem.copy(p, 0, source, 0, used)
        self.block = own
        return lent

    @cython.cfunc
    def back(self, large: bytearray) -> bytearray:
        """A small block, it may be an empty one, for one that is not needed any more."""
        small: bytearray | None = self.block
        if len(large) > BLOCK_MAX or (small is not None and len(small) >= len(large)):
            return bytearray()
        self.block = large
        return bytearray() if small is None or len(small) > KEPT_MAX else small
