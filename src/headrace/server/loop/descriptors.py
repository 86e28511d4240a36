"""read(2), write(2) and epoll_wait(2) on raw descriptors, as the interpreter runs them.

Never compiled itself; descriptors.pxd says the same in C. read() and write() take a non-blocking descriptor
and a place in a buffer, and raise nothing: what cannot be done is a negative count. wait() leaves the events
in a buffer, EVENT_BYTES for each, from which event_fd() and event_what() tell them.
"""

from __future__ import annotations

import os
import select
import struct

WOULD_BLOCK = -1  # nothing there to read, no room to write
BROKEN = -2  # the connection is of no use any more
EVENT_BYTES = 16  # at least what the system's own record takes

# Kept for good: an object that goes would close the descriptor, which is another's. It knows no more than
# the number, so it is as right for the next poller that gets it; a copy would need a free descriptor.
_pollers: dict[int, select.epoll] = {}


def read(fd: int, buf: bytearray, at: int, n: int) -> int:
    """Read up to n bytes to buf[at:]; how many, 0 when the other side has sent its last, or a negative."""
    try:
        with memoryview(buf) as whole, whole[at : at + n] as part:
            return os.readv(fd, [part])
    except BlockingIOError:
        return WOULD_BLOCK
    except OSError:
        return BROKEN


def write(fd: int, buf: bytes | bytearray, at: int, n: int) -> int:
    """Write up to n bytes of buf[at:]; how many, or a negative."""
    try:
        with memoryview(buf) as whole, whole[at : at + n] as part:
            return os.write(fd, part)
    except BlockingIOError:
        return WOULD_BLOCK
    except OSError:
        return BROKEN


def wait(poller: int, events: bytearray, most: int, timeout_ms: int) -> int:
    """Wait for events of an epoll descriptor, most of them at most; how many there are.

    None after timeout_ms (negative: never), or when a signal came; its handler has run then, and what that
    raises is raised. OSError when there is no such descriptor.
    """
    poll = _pollers.get(poller)
    if poll is None:
        os.fstat(poller)  # there must be one: the next line would make it
        poll = _pollers[poller] = select.epoll.fromfd(poller)
    found = poll.poll(timeout_ms / 1000 if timeout_ms >= 0 else None, most)
    for i, (fd, what) in enumerate(found):
        struct.pack_into("<iI", events, i * EVENT_BYTES, fd, what)
    return len(found)


def event_fd(events: bytearray, i: int) -> int:
    """The descriptor of the i-th event."""
    fd: int = struct.unpack_from("<i", events, i * EVENT_BYTES)[0]
    return fd


def event_what(events: bytearray, i: int) -> int:
    """What happened to it, in epoll's bits."""
    what: int = struct.unpack_from("<I", events, i * EVENT_BYTES + 4)[0]
    return what


def run_signal_handlers() -> None:
    """Run the handlers of signals that came; the interpreter does that by itself."""
