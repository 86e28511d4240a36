"""The backlog: the last bytes of the replication stream, kept once for all replicas.

    start                                                    end
    |··|  block, 64 KiB  |  block, 64 KiB  |  block, growing |
             ^ replica A                           ^ replica B

A position counts the bytes of the stream before it. Each replica is a position, so that n replicas cost one
copy. Old blocks are dropped if they are beyond the configured size and all replicas have passed them.
"""

from __future__ import annotations

from collections import deque

import cython

from headrace.persistence.aof.encoded_effects import EncodedEffects
from headrace.visibility import Public

BLOCK_BYTES = cython.declare(cython.Py_ssize_t, 64 * 1024)


@cython.final
@cython.cclass
class Backlog:
    """The bytes of the stream from `start` to `end`. All blocks but the last have BLOCK_BYTES bytes."""

    start: Public[cython.longlong]  # position of the oldest byte that is kept
    end: Public[cython.longlong]
    _blocks: deque[bytearray]
    _first_position: cython.longlong  # position of the first block's first byte

    def __init__(self, position: cython.longlong) -> None:
        """Begin an empty backlog at this position."""
        self.start = self.end = self._first_position = position
        self._blocks = deque()

    @cython.ccall
    def append(self, data: memoryview) -> cython.void:
        """Append bytes of the stream: all of them, or none after a MemoryError."""
        n: cython.Py_ssize_t = len(data)
        at: cython.Py_ssize_t = 0
        room: cython.Py_ssize_t
        start: cython.Py_ssize_t
        index: cython.Py_ssize_t
        offset: cython.longlong = self.end - self._first_position
        while at < n:
            index = offset // BLOCK_BYTES
            start = offset % BLOCK_BYTES
            if index == len(self._blocks):
                self._blocks.append(bytearray())
            block = self._blocks[index]
            if len(block) > start:  # an interrupted call has left something
                del block[start:]
            room = min(BLOCK_BYTES - start, n - at)
            block += data[at : at + room]
            at += room
            offset += room
        self.end = self._first_position + offset

    @cython.ccall
    def append_effects(self, data: memoryview, encoded: EncodedEffects) -> cython.void:
        """Append `data`, the bytes of the effects, to the stream, and mark the effects as fed.

        Both happen in compiled code, so that no signal handler can raise in between. After a MemoryError the
        stream has none of them.
        """
        self.append(data)
        encoded.mark_fed()

    @cython.ccall
    def read(self, position: cython.longlong, most: cython.Py_ssize_t) -> bytes:
        """Return up to `most` bytes from a position between start and end."""
        assert self.start <= position <= self.end, "not in the backlog"
        found: list[bytes] = []
        offset: cython.longlong = position - self._first_position
        index: cython.Py_ssize_t = offset // BLOCK_BYTES
        at: cython.Py_ssize_t = offset % BLOCK_BYTES
        left: cython.Py_ssize_t = min(most, self.end - position)
        while left > 0:
            part = bytes(self._blocks[index][at : at + left])
            found.append(part)
            left -= len(part)
            index += 1
            at = 0
        return found[0] if len(found) == 1 else b"".join(found)

    @cython.ccall
    def trim(self, size: cython.longlong, needed: cython.longlong) -> cython.void:
        """Drop blocks that are neither among the last `size` bytes nor at or after position `needed`."""
        keep: cython.longlong = min(self.end - size, needed)
        while self._blocks and self._first_position + BLOCK_BYTES <= keep:
            self._blocks.popleft()
            self._first_position += BLOCK_BYTES
        self.start = max(self.start, self._first_position)

    @cython.ccall
    def size(self) -> cython.longlong:
        """Return the number of bytes kept."""
        return self.end - self.start

    @cython.ccall
    def contains(self, position: cython.longlong) -> cython.bint:
        """Return whether a replica at this position can continue."""
        return self.start <= position <= self.end
