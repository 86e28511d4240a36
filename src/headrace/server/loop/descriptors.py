"""read(2), write(2) and epoll_wait(2) on raw descriptors, where the package is not compiled.

This module is never compiled; descriptors.pxd has the same functions in C. read() and write() take a
non-blocking descriptor and an offset in a buffer. They raise nothing: an error is a negative count. wait()
leaves the events in a buffer, EVENT_BYTES for each; event_fd() and event_mask() read them.
"""

from __future__ import annotations

import os
import select
import struct

WOULD_BLOCK = -1  # nothing to read, or the socket's buffer is full
BROKEN = -2  # the connection is unusable
EVENT_BYTES = 16  # at least the size of struct epoll_event

# Never removed: a deleted object would close the descriptor, which belongs to the caller's poller. It holds
# only the number, so it fits the next poller with that number. A duplicate would need a free descriptor.
_pollers: dict[int, select.epoll] = {}


def read(fd: int, buf: bytearray, at: int, n: int) -> int:
    """Read up to n bytes into buf[at:].

    Returns the number of bytes, 0 at the end of the stream, or WOULD_BLOCK or BROKEN.
    """
    try:
        with memoryview(buf) as whole, whole[at : at + n] as part:
            return os.readv(fd, [part])
    except BlockingIOError:
        return WOULD_BLOCK
    except OSError:
        return BROKEN


def write(fd: int, buf: bytes | bytearray, at: int, n: int) -> int:
    """Write up to n bytes of buf[at:]; return the number of bytes, or WOULD_BLOCK or BROKEN."""
    try:
        with memoryview(buf) as whole, whole[at : at + n] as part:
            return os.write(fd, part)
    except BlockingIOError:
        return WOULD_BLOCK
    except OSError:
        return BROKEN


def wait(poller: int, events: bytearray, most: int, timeout_ms: int) -> int:
    """Wait for at most `most` events of an epoll descriptor; return how many there are.

    Returns 0 after timeout_ms (negative: never). After a signal the wait continues, unless the signal's
    handler raises an exception, which is raised here. The C function returns 0 after a signal.
    Raises OSError if there is no such descriptor.
    """
    poll = _pollers.get(poller)
    if poll is None:
        os.fstat(poller)  # check that it exists: the next line does not
        poll = _pollers[poller] = select.epoll.fromfd(poller)
    found = poll.poll(timeout_ms / 1000 if timeout_ms >= 0 else None, most)
    for i, (fd, mask) in enumerate(found):
        struct.pack_into("<iI", events, i * EVENT_BYTES, fd, mask)
    return len(found)


def event_fd(events: bytearray, i: int) -> int:
    """Return the descriptor of the i-th event."""
    fd: int = struct.unpack_from("<i", events, i * EVENT_BYTES)[0]
    return fd


def event_mask(events: bytearray, i: int) -> int:
    """Return the epoll bits of the i-th event."""
    mask: int = struct.unpack_from("<I", events, i * EVENT_BYTES + 4)[0]
    return mask
