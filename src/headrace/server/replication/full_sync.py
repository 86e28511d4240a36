"""Full synchronisation: a job writes a snapshot (disk/snapshot_job.py), the server sends it to replicas.

    job ── pipe ──▶ server ──▶ every replica of the group       $EOF:<mark> <snapshot> <mark>
    job ── file ──▶ server ──▶ each replica at its own pace     $<bytes> <snapshot>

The first form needs no disk, but the replicas must have announced `capa eof`. The snapshot has the data at
one position of the stream; the replicas continue in the stream from there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress

from headrace.persistence.aof.log_files import describe_error
from headrace.persistence.descriptor_writer import DescriptorWriter
from headrace.persistence.rdb.encoder_thread import EncoderThread
from headrace.replication.primary import RECEIVES, Replica
from headrace.server.disk.snapshot_job import SnapshotJob
from headrace.server.loop.event_loop import EventLoop

READ_BYTES = 64 * 1024
UNREAD_BYTES_MAX = 256 * 1024  # that one replica has not read: then the others wait for it
FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
EOF_MARK_RANDOM_BYTES = 20  # sent as 40 hexadecimal digits


class FullSync:
    """One snapshot for a group of replicas. Call tick() until `done`."""

    def __init__(
        self,
        loop: EventLoop,
        replicas: list[Replica],
        start: Callable[[EncoderThread], SnapshotJob],
        path: str,
        complete: Callable[[Replica], None],
        wake: Callable[[], None],
    ) -> None:
        """Start the snapshot.

        Args:
            start: starts the snapshot of the present data, which the thread writes.
            path: of the temporary file; empty: use a pipe.
            complete: called for each replica to which the whole snapshot was sent.
            wake: makes the event loop run a turn; called from the thread.

        Raises:
            OSError: if the file, the pipe or the thread cannot be created.
        """
        self.loop = loop
        self.replicas = replicas
        self.on_snapshot_sent = complete
        self.done = False
        self.sent_bytes = 0  # bytes passed on through the pipe
        self.eof_mark = b""
        self._path = path
        self._reading = False
        self._ended = False  # the pipe
        self._read_end = -1
        descriptor = os.open(path, FILE_FLAGS, 0o600) if path else self._open_pipe()
        writer = DescriptorWriter(descriptor)
        try:
            thread = EncoderThread(
                writer.write,
                unblock=writer.cancel,
                close=lambda: os.close(descriptor),
                on_end=wake,
            )
        except RuntimeError as error:
            os.close(descriptor)
            self._close_pipe()
            raise OSError(str(error)) from None
        self.job = start(thread)
        if path:
            return
        os.set_blocking(self._read_end, False)
        self.eof_mark = os.urandom(EOF_MARK_RANDOM_BYTES).hex().encode()
        for replica in replicas:
            replica.state = RECEIVES
            replica.connection.output_source = self
            self._send(replica, b"$EOF:%s\r\n" % self.eof_mark)
        self._set_reading(True)

    def _open_pipe(self) -> int:
        """Open the pipe; return the end that is written to."""
        self._read_end, write_end = os.pipe()
        return write_end

    @property
    def is_diskless(self) -> bool:
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
        self.sent_bytes += len(data)
        for replica in self.replicas:
            self._send(replica, data)
        if not data:
            self._ended = True
            self._set_reading(False)
            self.loop.run_timer_now()
        elif any(self._is_behind(replica) for replica in self.replicas):
            self._set_reading(False)

    def _is_behind(self, replica: Replica) -> bool:
        return not replica.connection.closed and replica.session.reply.pending_bytes() > UNREAD_BYTES_MAX

    def fill_output_buffer(self) -> None:
        """Read the pipe again if no replica is far behind. Called when a replica has read something."""
        if self._read_end >= 0 and not self._ended and not any(map(self._is_behind, self.replicas)):
            self._set_reading(True)

    def on_connection_closed(self) -> None:
        """Do nothing: tick() notices that a replica was closed."""

    # The end.

    def tick(self) -> None:
        """Finish when the snapshot is written; cancel it when all replicas are closed."""
        if self.done or (self.is_diskless and not self._ended) or not self.job.finish_if_ended():
            if not self.done and all(replica.connection.closed for replica in self.replicas):
                self.cancel()
            return
        self._close_pipe()
        if self.job.failure_reason:
            self._fail(self.job.failure_reason)
        elif self.is_diskless:
            for replica in self.replicas:
                self._send(replica, self.eof_mark)
        else:
            try:
                self._start_sending_file()
            except OSError as error:
                self._fail(describe_error(error))
        self.done = True
        for replica in self.replicas:
            if not replica.connection.closed and self.is_diskless:
                self.on_snapshot_sent(replica)

    def _start_sending_file(self) -> None:
        """Unlink the file, and send it to each replica through a descriptor of its own. Raises OSError."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.unlink(self._path)
            size = os.fstat(descriptor).st_size
            for replica in self.replicas:
                if replica.connection.closed:
                    continue
                replica.state = RECEIVES
                replica.connection.output_source = SnapshotFileSender(self, replica, os.dup(descriptor), size)
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
        """Cancel the snapshot and close the replicas that wait for it."""
        if self.done:
            return
        self.done = True
        self.job.kill()
        self._close_pipe()
        self._remove_file()
        for replica in self.replicas:
            if not replica.connection.closed:
                self.loop.drop(replica.connection)


class SnapshotFileSender:
    """Sends a snapshot's file to one replica: fill_output_buffer() puts the next part into its buffer."""

    def __init__(self, sync: FullSync, replica: Replica, descriptor: int, size: int) -> None:
        self.full_sync = sync
        self.replica = replica
        self.descriptor = descriptor
        self.size = size
        self.sent_bytes = 0  # bytes put into the replica's buffer

    def fill_output_buffer(self) -> None:
        """Put the next bytes into the replica's buffer if it has room; after the last, end the snapshot."""
        room = UNREAD_BYTES_MAX - self.replica.session.reply.pending_bytes()
        if self.descriptor < 0 or room <= 0:
            return
        data = os.pread(self.descriptor, room, self.sent_bytes)
        if not data and self.sent_bytes < self.size:
            self.full_sync.loop.drop_with_reason(self.replica.connection, "its snapshot's file was truncated")
            return
        self.replica.session.reply.raw(data)
        self.sent_bytes += len(data)
        if self.sent_bytes >= self.size:
            self._close_file()
            self.full_sync.on_snapshot_sent(self.replica)

    def on_connection_closed(self) -> None:
        """Close the file, which is not read further."""
        self._close_file()

    def _close_file(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
