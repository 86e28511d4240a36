"""Write to a pipe or socket from a thread that another thread can stop."""

from __future__ import annotations

import os
import select
import weakref

from headrace.errors import HeadraceError


class WriteCancelled(HeadraceError):
    """The writer was cancelled; a part of the data may be written."""


class DescriptorWriter:
    """Writes to a descriptor, which it makes non-blocking and does not close.

    write() waits while the reader does not read. cancel(), from another thread, makes it raise: it writes to
    a pipe that write() also polls.
    """

    def __init__(self, descriptor: int) -> None:
        """Make the descriptor non-blocking. Raises OSError if the process has too many descriptors."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._cancelled, self._cancel = os.pipe()
        # Closed with the object and not earlier: cancel() must not find another file under the same number.
        for end in (self._cancelled, self._cancel):
            weakref.finalize(self, os.close, end)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of data.

        Raises:
            OSError: if the reader has closed its end, or the descriptor fails otherwise.
            WriteCancelled: if it would wait, and cancel() was called.
        """
        at = 0
        with memoryview(data) as view:
            while at < len(view):
                try:
                    with view[at:] as rest:
                        at += os.write(self._descriptor, rest)
                except BlockingIOError:
                    self._wait()

    def cancel(self) -> None:
        """Make a waiting write() raise WriteCancelled, and each later one that would have to wait."""
        os.write(self._cancel, b"x")

    def _wait(self) -> None:
        """Wait until the descriptor takes more bytes."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.register(self._cancelled, select.POLLIN)
        if any(descriptor == self._cancelled for descriptor, _ in poll.poll()):
            raise WriteCancelled
