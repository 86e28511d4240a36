"""A snapshot that is written between the requests of clients, without a second process.

    image of the keyspace ──▶ steps, in slices between two turns ──▶ encoder thread ──▶ file or pipe
                              references to nodes, copies of         LZF, CRC-64, write, sync
                              groups and short strings

The image is that of the moment when the job starts; it is kept until the thread has read all nodes.

A slice takes about SLICE_MAX_NS at most. While clients send requests, slices take about `snapshot-effort`
percent of the time, and the loop waits in between: a client on the same core can run meanwhile. Without
requests, slices follow each other. The encoder thread works without the lock of the interpreter, so on a
second core it slows requests little.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from headrace import system
from headrace.engine.engine import Engine
from headrace.keyspace.keyspace_image import KeyspaceImage
from headrace.persistence.aof.log_files import describe_error
from headrace.persistence.rdb.encoder_thread import EncoderCancelled, EncoderState, EncoderThread
from headrace.server.loop.event_loop import EventLoop

SLICE_MIN_NS = 50_000
SLICE_MAX_NS = 400_000
ACTIVE_AFTER_REQUEST_NS = 2_000_000  # after a request; then a client may be about to send the next one
PAUSE_MS = 1  # between slices of that time, and while the thread has enough to do
END = -1

StepsFunction = Callable[[KeyspaceImage], Iterator[int]]


class SnapshotJob:
    """One snapshot. Another one may start when the image of this one is released."""

    def __init__(
        self,
        loop: EventLoop,
        engine: Engine,
        effort: int,
        thread: EncoderThread,
        steps: StepsFunction,
        sync: Callable[[], object],
        publish: Callable[[], object],
        now: int,
    ) -> None:
        """Start the job. Called between two turns.

        Args:
            effort: the percentage of the event loop's time that slices take while clients send requests.
            thread: gets the pieces of the snapshot; it ends with this job.
            steps: returns the steps that write an image to the thread.
            sync: makes the complete snapshot durable; runs in the thread.
            publish: then replaces the previous snapshot by it; runs in the thread, but not after kill().
            now: in Unix milliseconds; keys that have expired are left out.
        """
        self.loop = loop
        self.thread = thread
        self.effort = effort
        self.failure_reason = ""  # of a failure, after the end
        self.keys_written = 0
        self.estimated_bytes = engine.keyspace.memory.total  # about what the thread gets
        self.image = engine.keyspace.freeze(now)
        self.key_count = sum(database.key_count for database in self.image.databases)
        self._keyspace = engine.keyspace
        self._sync = sync
        self._publish = publish
        self._ending = threading.Lock()  # held while the snapshot takes its place
        self._killed = False
        self._steps: Iterator[int] | None = steps(self.image)
        self._released = False
        self._failure = ""  # of a step
        self._stats = engine.stats
        self._commands = self._stats.command_count  # at the last slice
        self._active_until = 0
        self._slice_end = system.monotonic_ns()
        loop.background_work = self.run_slice

    def run_slice(self) -> int:
        """Write some more; return in how many ms to call this again.

        When all is written, this is called until the thread has ended: it is one of few moments at which a
        busy event loop, which is compiled, gives the lock of the interpreter to another thread.
        """
        start = system.monotonic_ns()
        commands, self._commands = self._commands, self._stats.command_count
        if commands != self._commands:
            self._active_until = start + ACTIVE_AFTER_REQUEST_NS
        slice_ns, again = SLICE_MAX_NS, 0
        if start < self._active_until:
            share = (start - self._slice_end) * self.effort // max(100 - self.effort, 1)
            slice_ns, again = min(max(share, SLICE_MIN_NS), SLICE_MAX_NS), PAUSE_MS
        more = self._write(start + slice_ns)
        self._slice_end = system.monotonic_ns()
        if self._steps is None and self.thread.has_encoded_all():
            self._release()
        return again if more else PAUSE_MS

    def fraction_done(self) -> float:
        """Return about how much of the snapshot is written, as a fraction from 0 to 1."""
        return min(self.thread.written_raw_bytes() / max(self.estimated_bytes, 1), 1.0)

    def _write(self, until: int) -> bool:
        while self._steps is not None and self.thread.has_room():
            try:
                keys = next(self._steps, END)
                if keys == END:
                    self._steps = None
                    self.thread.finish(self._finish)
                    return False
            except Exception as error:
                self._failure = describe_error(error)
                self._release()
                self.thread.cancel()
                return False
            self.keys_written = keys
            if system.monotonic_ns() >= until:
                return True
        return False

    def _finish(self) -> None:
        self._sync()
        with self._ending:
            if self._killed:
                raise EncoderCancelled("the snapshot was cancelled")
            self._publish()

    def _release(self) -> None:
        """Free the image; no more slices follow. From then on another job may start.

        After a failure the thread may still read nodes that change: what it writes then is discarded.
        """
        self._steps = None
        if not self._released:
            self._released = True
            self._keyspace.release_image(self.image)

    def _leave_loop(self) -> None:
        """Stop the calls of run_slice(), unless another job has replaced this one."""
        if self.loop.background_work == self.run_slice:
            self.loop.background_work = None

    def finish_if_ended(self) -> bool:
        """Return whether the job has ended; if so, release the image.

        Then `failure_reason` is empty after success, else the error.
        """
        if self.thread.state is EncoderState.RUNNING:
            return False
        self._release()
        self._leave_loop()
        try:
            self.thread.size()
        except Exception as error:
            self.failure_reason = self._failure or describe_error(error)
        return True

    def kill(self) -> None:
        """Cancel the job: publish() is not called any more. The thread may write to its file for a moment."""
        with self._ending:
            self._killed = True
        self._release()
        self._leave_loop()
        self.thread.cancel()
        self.failure_reason = "it was cancelled"
