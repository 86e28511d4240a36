"""Encode and write a snapshot in a thread of its own.

    engine's thread                     encoder's thread
    put(piece)   -> queue of pieces ->  encode -> write; a cold run (RunPiece) is read before
    finish(done) -> end of the queue -> done(), for example fsync and rename -> DONE

The thread holds the GIL only for moments: neither encoding nor writing needs it. It never removes a file:
after a failure or cancel(), the caller removes what was written so far. At its end it drops all callbacks, so
that callbacks of the owner of this object do not leave a reference cycle.
"""

from __future__ import annotations

import enum
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue

from headrace.errors import HeadraceError, copy_error
from headrace.persistence.rdb.encoder import RdbEncoder
from headrace.persistence.rdb.output import RdbPiece
from headrace.persistence.rdb.run_piece import RunExpander, RunPiece

QUEUE_BYTES = 4 << 20
NICENESS = 5  # added to that of the process: a quarter of a core that others want, too


class EncoderState(enum.Enum):
    """What the thread does. DONE and FAILED are final."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class EncoderCancelled(HeadraceError):
    """The snapshot was cancelled."""


class EncoderThread:
    """Encodes pieces and passes them to write(), in a daemon thread that starts at once.

    Only one thread may call put(), wait_for_room() and finish().
    """

    def __init__(
        self,
        write: Callable[[memoryview | bytes], object],
        *,
        unblock: Callable[[], object] | None = None,
        close: Callable[[], object] | None = None,
        on_end: Callable[[], object] | None = None,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        """Start the thread.

        Args:
            write: writes all of its argument, which is valid during the call. Runs in the thread.
            unblock: makes a write() that waits raise an error; called by cancel(). Not needed for files;
                for a pipe or socket see DescriptorWriter.
            close: runs in the thread at its end, also after a failure; for example closes the file.
            on_end: called in the thread when it has ended. Must neither wait nor raise.
            queue_bytes: has_room() is False from here on; shared strings count a quarter.

        Raises:
            RuntimeError: if the process cannot start another thread.
        """
        self.encoder = RdbEncoder()
        self._write: Callable[[memoryview | bytes], object] | None = write
        self._unblock = unblock
        self._close = close
        self._on_end = on_end
        self._queue_cost = queue_bytes
        self._queue: SimpleQueue[RdbPiece | RunPiece | bytes | None] = (
            SimpleQueue()
        )  # None: finished or cancelled
        self._put_bytes = 0  # set by the caller only
        self._written_raw_bytes = 0  # set by the thread only
        self._put_cost = self._written_cost = 0  # of these pieces, see _queue_cost()
        self._progress = threading.Condition()  # only waiting callers use it: put() shares no lock
        self._at_end: Callable[[], object] | None = None
        self._expander: RunExpander | None = None  # once there is a cold run
        self._cancelled = False
        self.state = EncoderState.RUNNING
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-encoder", daemon=True)
        self._thread.start()

    # ---- called by the thread that walks the data

    def written_raw_bytes(self) -> int:
        """Return the size, before encoding, of the pieces that were encoded and written."""
        return self._written_raw_bytes

    def has_encoded_all(self) -> bool:
        """Return whether no piece is left to encode or write, so that the thread reads no shared strings."""
        return self._written_raw_bytes == self._put_bytes

    def has_room(self) -> bool:
        """Return whether the queue has room for a piece. True after a failure, which put() then raises."""
        return self._put_cost - self._written_cost < self._queue_cost or self.state is EncoderState.FAILED

    def wait_for_room(self, timeout: float | None = None) -> bool:
        """Wait until has_room() is True, at most timeout seconds; return has_room()."""
        if self.has_room():
            return True
        with self._progress:
            return self._progress.wait_for(self.has_room, timeout)

    def put(self, piece: RdbPiece | RunPiece | bytes) -> None:
        """Append a piece to the queue. Never waits; ask has_room() before.

        Args:
            piece: bytes are written as they are, and count neither for the CRC nor for the size.

        Raises:
            Exception: what the thread failed with.
        """
        self._check()
        self._put_bytes += len(piece)
        self._put_cost += _queue_cost(piece)
        self._queue.put(piece)

    def finish(self, at_end: Callable[[], object] | None = None) -> None:
        """Declare that no more pieces follow; does not wait.

        Args:
            at_end: runs in the thread when all is written, for example fsync and rename. If it raises, the
                state is FAILED.

        Raises:
            Exception: what the thread failed with; then at_end does not run.
        """
        self._check()
        self._at_end = at_end
        self._queue.put(None)

    def cancel(self) -> None:
        """Let the thread end soon, in state FAILED; does not wait.

        If at_end has begun, it is not interrupted, and the state may become DONE: call wait() before you
        read it.
        """
        if self.state is EncoderState.RUNNING:
            self._cancelled = True
            self._queue.put(None)
            unblock = self._unblock  # the thread may end meanwhile and drop it
            if unblock is not None:
                unblock()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the thread has ended, at most timeout seconds; return whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def size(self) -> int:
        """Return the size of the encoded pieces; after the end, the size of the whole file.

        Raises:
            Exception: what the thread failed with.
        """
        self._check()
        return self.encoder.size

    def _check(self) -> None:
        if self._error is not None:
            raise copy_error(self._error)

    # ---- the thread

    def _run(self) -> None:
        _lower_priority()
        try:
            try:
                self._work()
            finally:
                if self._close is not None:
                    self._close()
            state = EncoderState.DONE
        except BaseException as error:
            cancelled = EncoderCancelled("the snapshot was cancelled")
            self._error = cancelled if self._cancelled else copy_error(error)
            state = EncoderState.FAILED
        on_end = self._on_end
        self._write = self._unblock = self._close = self._at_end = self._on_end = None
        self._expander = None
        self._queue = SimpleQueue()  # drops the pieces that are left after a failure
        self.state = state
        self._notify_waiters()
        if on_end is not None:
            on_end()

    def _work(self) -> None:
        """Write what comes out of the queue until its end."""
        while (piece := self._queue.get()) is not None and not self._cancelled:
            size, cost = len(piece), _queue_cost(piece)
            assert self._write is not None
            if isinstance(piece, bytes):
                self._write(piece)
            elif isinstance(piece, RunPiece):
                if self._expander is None:
                    self._expander = RunExpander(piece.compress)
                for part in self._expander.expand(piece):
                    self._write_encoded(part)
            else:
                self._write_encoded(piece)
            self._written_raw_bytes += size
            self._written_cost += cost
            self._notify_waiters()
        if self._cancelled:
            raise EncoderCancelled
        if self._at_end is not None:
            self._at_end()

    def _write_encoded(self, piece: RdbPiece) -> None:
        data = self.encoder.encode(piece)
        piece.recycle()
        assert self._write is not None
        self._write(data)

    def _notify_waiters(self) -> None:
        """Wake up threads that wait for room."""
        with self._progress:
            self._progress.notify_all()


def _queue_cost(piece: RdbPiece | RunPiece | bytes) -> int:
    """Return what a piece counts in the queue: shared strings take no memory, only time."""
    return len(piece) if isinstance(piece, bytes) else piece.queue_cost()


def _lower_priority() -> None:
    """Let all other threads run first, where a thread can have a priority of its own."""
    if sys.platform == "linux":
        try:
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + NICENESS  # 0: the calling thread
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(niceness, 19))
        except OSError:
            pass  # a sandbox may forbid it; then the thread competes with the others
