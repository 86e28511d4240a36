"""A snapshot for replicas: a child process writes it; the server passes it on.

    child ── pipe ──▶ server ──▶ every replica of the group       $EOF:<mark> <snapshot> <mark>
    child ── file ──▶ server ──▶ each replica at its own pace     $<bytes> <snapshot>

The first form needs no disk, and replicas that announced `capa eof`. The snapshot is that of one position
of the stream: the stream continues there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress

from headrace.persistence.aof.log_files import describe_error
from headrace.replication.primary import RECEIVES, Replica
from headrace.server.disk.child_process import Child
from headrace.server.loop.event_loop import EventLoop

READ_BYTES = 64 * 1024
AHEAD_BYTES = 256 * 1024  # that one replica has not read: then the others wait for it
MARK_BYTES = 20  # shown as 40 hexadecimal digits

Sink = Callable[[bytes | memoryview], object]


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes to a blocking descriptor."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class FullSync:
    """One snapshot for a group of replicas. Call tick() until `done`."""

    def __init__(
        self,
        loop: EventLoop,
        replicas: list[Replica],
        write: Callable[[Sink], object],
        path: str,
        complete: Callable[[Replica], None],
    ) -> None:
        """Fork the child.

        Args:
            write: writes the snapshot of the present data to a sink; called in the child.
            path: of the temporary file; empty: use a pipe.
            complete: called for each replica to which the whole snapshot was sent.

        Raises:
            OSError: if there can be no child or no file.
        """
        self.loop = loop
        self.replicas = replicas
        self.complete = complete
        self.done = False
        self.sent = 0  # bytes passed on through the pipe
        self.mark = b""
        self._path = path
        self._reading = False
        self._ended = False  # the pipe
        if path:
            self._read_end = -1
            self.child = Child(lambda: self._write_file(write))
            return
        self._read_end, write_end = os.pipe()
        try:
            self.child = Child(lambda: write(lambda data: write_all(write_end, data)), keep=write_end)
        except OSError:
            os.close(self._read_end)
            raise
        finally:
            os.close(write_end)
        os.set_blocking(self._read_end, False)
        self.mark = os.urandom(MARK_BYTES).hex().encode()
        for replica in replicas:
            replica.state = RECEIVES
            replica.connection.source = self
            self._send(replica, b"$EOF:%s\r\n" % self.mark)
        self._set_reading(True)

    def _write_file(self, write: Callable[[Sink], object]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        write(lambda data: write_all(descriptor, data))
        os.close(descriptor)

    @property
    def through_pipe(self) -> bool:
        """Whether the snapshot is not written to a file."""
        return not self._path

    def _send(self, replica: Replica, data: bytes) -> None:
        if not replica.connection.closed:
            replica.session.reply.raw(data)
            self.loop.schedule_flush(replica.connection)

    # The pipe.

    def _set_reading(self, on: bool) -> None:
        if on != self._reading:
            self._reading = on
            if on:
                self.loop.add_reader(self._read_end, self._on_readable)
            else:
                self.loop.remove_reader(self._read_end)

    def _on_readable(self) -> None:
        data = os.read(self._read_end, READ_BYTES)
        self.sent += len(data)
        for replica in self.replicas:
            self._send(replica, data)
        if not data:
            self._ended = True
            self._set_reading(False)
            self.loop.run_timer_now()
        elif any(self._is_behind(replica) for replica in self.replicas):
            self._set_reading(False)

    def _is_behind(self, replica: Replica) -> bool:
        return not replica.connection.closed and replica.session.reply.pending() > AHEAD_BYTES

    def fill(self) -> None:
        """Read on, if all replicas have read what was passed on. Called when one has."""
        if self._read_end >= 0 and not self._ended and not any(map(self._is_behind, self.replicas)):
            self._set_reading(True)

    def close(self) -> None:
        """Do nothing: tick() notices that a replica was closed."""

    # The end.

    def tick(self) -> None:
        """Finish when the child has ended."""
        if self.done or (self.through_pipe and not self._ended) or not self.child.has_ended():
            if not self.done and all(replica.connection.closed for replica in self.replicas):
                self.cancel()
            return
        self._close_pipe()
        if self.child.reason:
            self._fail(self.child.reason)
        elif self.through_pipe:
            for replica in self.replicas:
                self._send(replica, self.mark)
        else:
            try:
                self._open_file()
            except OSError as error:
                self._fail(describe_error(error))
        self.done = True
        for replica in self.replicas:
            if not replica.connection.closed and self.through_pipe:
                self.complete(replica)

    def _open_file(self) -> None:
        """Let each replica read the file; it has no name any more."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.unlink(self._path)
            size = os.fstat(descriptor).st_size
            for replica in self.replicas:
                if replica.connection.closed:
                    continue
                replica.state = RECEIVES
                replica.connection.source = SnapshotFile(self, replica, os.dup(descriptor), size)
                self._send(replica, b"$%d\r\n" % size)
        finally:
            os.close(descriptor)

    def _fail(self, reason: str) -> None:
        logging.getLogger("headrace").error("the snapshot for replicas failed: %s", reason)
        self._remove_file()
        for replica in self.replicas:
            if not replica.connection.closed:
                self.loop.drop_with_reason(replica.connection, "its snapshot could not be made")

    def _remove_file(self) -> None:
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)

    def _close_pipe(self) -> None:
        if self._read_end >= 0:
            self._set_reading(False)
            os.close(self._read_end)
            self._read_end = -1

    def cancel(self) -> None:
        """Kill the child and close the replicas that wait for its snapshot."""
        if self.done:
            return
        self.done = True
        self.child.kill()
        self._close_pipe()
        self._remove_file()
        for replica in self.replicas:
            if not replica.connection.closed:
                self.loop.drop(replica.connection)


class SnapshotFile:
    """The bytes of a snapshot's file that one replica has still to get."""

    def __init__(self, sync: FullSync, replica: Replica, descriptor: int, size: int) -> None:
        self.sync = sync
        self.replica = replica
        self.descriptor = descriptor
        self.size = size
        self.sent = 0  # bytes put into the replica's buffer

    def fill(self) -> None:
        """Put the next bytes into the replica's buffer if it has read the last ones."""
        room = AHEAD_BYTES - self.replica.session.reply.pending()
        if self.descriptor < 0 or room <= 0:
            return
        data = os.pread(self.descriptor, room, self.sent)
        if not data and self.sent < self.size:
            self.sync.loop.drop_with_reason(self.replica.connection, "its snapshot's file was truncated")
            return
        self.replica.session.reply.raw(data)
        self.sent += len(data)
        if self.sent >= self.size:
            self.close()
            self.sync.complete(self.replica)

    def close(self) -> None:
        """Close the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
