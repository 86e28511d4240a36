"""Lend a large block of memory to busy clients, one after another.

The requests of a pipeline, and its replies, need tens of KiB for one turn of the event loop. If these were
allocated and freed each turn, the entries stored in between would fill the holes, the next turn's block
would need new memory, and a quarter of the memory would be unusable holes. So the block is kept and lent:

    ReadBuffer, ReplyWriter                     BufferPool
    own small block  -- needs more ------>   large        they are swapped
    large            <- is empty again ---   small        and swapped back
"""

from __future__ import annotations

import cython

from headrace import mem

IDLE_BYTES_MAX = cython.declare(cython.Py_ssize_t, 4096)  # the most that an idle client keeps
POOLED_BLOCK_BYTES_MAX = cython.declare(cython.Py_ssize_t, 256 * 1024)  # a larger one is freed


@cython.final
@cython.cclass
class BufferPool:
    """Holds at most one block. Not thread-safe."""

    block: bytearray | None

    def __init__(self) -> None:
        self.block = None

    @cython.cfunc
    def borrow(self, own: bytearray, used: cython.Py_ssize_t, cap: cython.Py_ssize_t) -> bytearray | None:
        """Swap `own` for the pooled block, and copy the first `used` bytes of `own` to that block; return it.

        Returns None if there is no block, or if the block has less than cap bytes.
        """
        lent: bytearray | None = self.block
        if lent is None or len(lent) < cap:
            return None
        p: cython.p_uchar = lent
        source: cython.p_const_uchar = own
        mem.copy(p, 0, source, 0, used)
        self.block = own
        return lent

    @cython.cfunc
    def give_back(self, large: bytearray) -> bytearray:
        """Take back a large block that is no longer needed; return a small, possibly empty one."""
        small: bytearray | None = self.block
        if len(large) > POOLED_BLOCK_BYTES_MAX or (small is not None and len(small) >= len(large)):
            return bytearray()
        self.block = large
        return bytearray() if small is None or len(small) > IDLE_BYTES_MAX else small


@cython.cfunc
def resized(
    buf: bytearray, used: cython.Py_ssize_t, cap: cython.Py_ssize_t, pool: BufferPool | None
) -> bytearray:
    """Resize buf to cap bytes or more, keeping its first `used` bytes.

    Returns buf, or a block of the pool. cap 0 gives buf back to the pool and returns a small block.
    """
    block: bytearray | None = None
    if pool is not None:
        if cap == 0:
            block = pool.give_back(buf)
        elif cap > IDLE_BYTES_MAX:
            block = pool.borrow(buf, used, cap)
    if block is None:
        mem.resize(buf, cap)
        block = buf
    return block
