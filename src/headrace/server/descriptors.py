"""read(2) and write(2) on raw descriptors, as the interpreter runs them; descriptors.pxd says the same in C.

Never compiled itself. Both take a non-blocking descriptor and a place in a buffer, and raise nothing: what
cannot be done is a negative count.
"""

from __future__ import annotations

import os

WOULD_BLOCK = -1  # nothing there to read, no room to write
BROKEN = -2  # the connection is of no use any more


def read(fd: int, buf: bytearray, at: int, n: int) -> int:
    """Read up to n bytes to buf[at:]; how many, 0 when the other side has sent its last, or a negative."""
    try:
        with memoryview(buf) as whole, whole[at : at + n] as part:
            return os.readv(fd, [part])
    except BlockingIOError:
        return WOULD_BLOCK
    except OSError:
        return BROKEN


def write(fd: int, buf: bytearray, at: int, n: int) -> int:
    """Write up to n bytes of buf[at:]; how many, or a negative."""
    try:
        with memoryview(buf) as whole, whole[at : at + n] as part:
            return os.write(fd, part)
    except BlockingIOError:
        return WOULD_BLOCK
    except OSError:
        return BROKEN
