"""The connection of a replica to its primary: its socket, with or without TLS.

thread:      resolve the name ─ connect ─ TLS ─┐ wake the event loop
event loop:                                    └▶ on_open ─ on_bytes, a piece in each turn ─ on_lost

Resolving and connecting may take seconds, so a thread does it; everything else runs in the event loop.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.addresses import format_address

if TYPE_CHECKING:
    from headrace.server.network.tls import OutgoingTls

# Read in one turn of the event loop: 1,300 XADDs of 100 bytes, which take about as many microseconds.
TURN_BYTES = 128 * 1024
CLOSED_REASON = "the primary has closed the connection"


class ConnectionEvents(Protocol):
    """The callbacks of a connection to its owner, called within turns of the event loop."""

    def on_open(self) -> None:
        """Begin the handshake of replication: the connection is open."""

    def on_bytes(self, data: bytes) -> None:
        """Handle the next bytes."""

    def on_lost(self, reason: str) -> None:
        """Handle that the connection was lost or could not be made; it is closed already."""


class PrimaryConnection:
    """A connection to a primary. The constructor begins to connect."""

    def __init__(
        self,
        loop: EventLoop,
        events: ConnectionEvents,
        host: str,
        port: int,
        timeout_s: float,
        tls: OutgoingTls | None = None,
    ) -> None:
        """Start to connect; the calls of `events` follow.

        Args:
            timeout_s: for each of resolving, connecting and the TLS handshake.
        """
        self.loop = loop
        self.events = events
        self.tls = tls
        self.would_block_errors: tuple[type[OSError], ...] = (BlockingIOError,)
        if tls is not None:
            self.would_block_errors += tls.would_block_errors
        self.socket: socket.socket | None = None
        self.address = self.local_address = b""  # of the primary's end and of this one
        self.closed = False
        self._reading = False
        self._lock = threading.Lock()  # of `closed` and `_result`, between the thread and the event loop
        self._result: socket.socket | Exception | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._wake, self._on_wake)
        arguments = (host, port, timeout_s)
        threading.Thread(target=self._connect, args=arguments, name="headrace-connect", daemon=True).start()

    # In the thread.

    def _connect(self, host: str, port: int, timeout_s: float) -> None:
        result: socket.socket | Exception
        try:
            result = self._open(host, port, timeout_s)
        except (OSError, ValueError) as error:  # ValueError: no valid host name
            result = error
        with self._lock:
            if not self.closed:
                self._result = result
                os.eventfd_write(self._wake, 1)
            elif isinstance(result, socket.socket):
                result.close()

    def _open(self, host: str, port: int, timeout_s: float) -> socket.socket:
        opened = socket.create_connection((host, port), timeout_s)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self.tls is not None:
                opened = self.tls.context.wrap_socket(opened, server_hostname=host)
            opened.setblocking(False)
            self.address = format_address(opened.getpeername()).encode()
            self.local_address = format_address(opened.getsockname()).encode()
        except BaseException:
            opened.close()
            raise
        return opened

    # In the event loop.

    def _on_wake(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        if self.socket is not None:
            if self._reading:
                self._on_readable()  # bytes that TLS has decrypted, which epoll does not see
            return
        result = self._result
        if isinstance(result, Exception):
            self._lose(describe_error(result))
        elif result is not None:
            self.socket = result
            self.resume_reading()
            self.events.on_open()

    def resume_reading(self) -> None:
        """Read again after pause_reading()."""
        if self.socket is not None and not self._reading:
            self._reading = True
            self.loop.add_reader(self.socket.fileno(), self._on_readable)
            if self.tls is not None:
                os.eventfd_write(self._wake, 1)

    def pause_reading(self) -> None:
        """Read nothing until resume_reading(): further bytes stay in the system's buffer."""
        if self.socket is not None and self._reading:
            self._reading = False
            self.loop.remove_reader(self.socket.fileno())

    def _on_readable(self) -> None:
        assert self.socket is not None
        data, reason = b"", ""
        try:
            if self.tls is None:
                data = self.socket.recv(TURN_BYTES)
                reason = "" if data else CLOSED_REASON
            else:
                data, reason = self._decrypt(self.socket)
        except self.would_block_errors:
            pass
        except OSError as error:
            reason = describe_error(error)
        if data:
            self.events.on_bytes(data)
        if reason and not self.closed:
            self._lose(reason)

    def _decrypt(self, tls: socket.socket) -> tuple[bytes, str]:
        """Return what a turn may read of a TLS connection, and why it has ended, if it has."""
        pieces: list[bytes] = []
        left, reason = TURN_BYTES, ""
        try:
            while left > 0 and not reason:
                piece = tls.recv(left)
                pieces.append(piece)
                left -= len(piece)
                reason = "" if piece else CLOSED_REASON
            if not reason:
                os.eventfd_write(self._wake, 1)  # epoll does not see what is decrypted already
        except self.would_block_errors:
            pass
        except OSError as error:
            reason = describe_error(error)
        return b"".join(pieces), reason

    def send(self, data: bytearray) -> None:
        """Send what the socket accepts at once, and delete that from data. Reading reports errors."""
        if self.socket is not None and data:
            with suppress(OSError):
                del data[: self.socket.send(data)]

    def _lose(self, reason: str) -> None:
        self.close()
        self.events.on_lost(reason)

    def close(self) -> None:
        """Close the connection; `events` is not called any more. May be called twice."""
        if self.closed:
            return
        self.pause_reading()
        self.loop.remove_reader(self._wake)
        with self._lock:
            self.closed = True
            os.close(self._wake)
            if self.socket is None and isinstance(self._result, socket.socket):
                self._result.close()
        if self.socket is not None:
            self.socket.close()


def describe_error(error: Exception) -> str:
    """Return the reason why a connection failed."""
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error) or type(error).__name__).lower()
