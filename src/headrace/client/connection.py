"""One connection to a server, opened by redis-py (TLS, login, database).

exchange()        requests out, replies in, decoded by redis-py
RawConnection     the same for the server that owns a stream; or the replies as raw bytes
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Protocol

import redis

from headrace.client.connection_errors import ERROR_REPLY_EXCEPTIONS, as_command_error, error_reply_text
from headrace.client.stream_names import stream_key

Words = Sequence[bytes | str | int]
OK_REPLY = b"+OK\r\n"
ASKING: Words = (b"ASKING",)


def exchange(connection: Any, requests: Sequence[Words]) -> list[Any]:
    """Send all requests at once and return the replies, error replies as exceptions of redis-py among them.

    Any other error closes the connection, because replies may still arrive.
    """
    try:
        connection.send_packed_command(
            connection.pack_commands([encode_numbers(words) for words in requests])
        )
        replies: list[Any] = []
        for _ in requests:
            try:
                replies.append(connection.read_response())
            except ERROR_REPLY_EXCEPTIONS as error:
                replies.append(error)
        return replies
    except BaseException:
        connection.disconnect()
        raise


def encode_numbers(words: Words) -> list[bytes | str]:
    """Return the words of a command, with its integers as decimal digits.

    hiredis 3.5 must not convert them: a signal handler can run meanwhile, and if it raises an exception (as
    Ctrl-C does), hiredis uses the missing text and the process crashes.
    """
    return [b"%d" % word if isinstance(word, int) else word for word in words]


class StreamOwners(Protocol):
    """The servers of one URL, as seen by a RawConnection: client/servers.py implements it."""

    def open_connection(self, stream: str) -> tuple[redis.Connection, bool]:
        """Return a new connection to the stream's owner, and whether each request needs ASKING before it."""

    def raise_if_unavailable(self, stream: str, error: str, follow_ask: bool = True) -> None:
        """Raise ServerUnavailable if an error reply asks for another server, or for the same one later."""


class RawConnection:
    """A connection to the server that owns a stream. It does not retry.

    After one of CONNECTION_ERRORS close it, and open another one with Servers.open_raw().
    """

    def __init__(self, owners: StreamOwners, stream: str) -> None:
        self._owners = owners
        self._stream = stream
        self._connection: Any
        self._connection, self._asking = owners.open_connection(stream)
        self._socket: socket.socket = self._connection._sock
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._asking_reply_bytes = 0  # bytes to come that reply ASKING

    def exchange(self, requests: Sequence[Words], timeout: float | None = None) -> list[Any]:
        """Send requests, and return their replies; error replies are elements of the list.

        timeout: seconds that this and later reads of the connection wait; None: as long as before.
        """
        if timeout is not None:
            self._socket.settimeout(timeout)
        if not self._asking:
            return exchange(self._connection, requests)
        return exchange(self._connection, [words for each in requests for words in (ASKING, each)])[1::2]

    def last_generated_id(self) -> str | None:
        """Return the last ID of the stream; None if the stream does not exist.

        Raises:
            ServerUnavailable: if an error reply means that another connection is needed.
            CommandError: for any other error reply.
        """
        (reply,) = self.exchange([(b"XINFO", b"STREAM", stream_key(self._stream))])
        if isinstance(reply, list):
            return str(dict(zip(reply[::2], reply[1::2], strict=True))[b"last-generated-id"], "ascii")
        if "no such key" in str(reply).lower():
            return None
        self.raise_if_unavailable(error_reply_text(reply))
        raise as_command_error(reply)

    def send(self, *words: bytes | int) -> None:
        """Send one command; its reply is read with receive()."""
        self.send_encoded(*self._connection.pack_command(*encode_numbers(words)))

    def send_encoded(self, *commands: bytes | bytearray | memoryview) -> None:
        """Send encoded commands.

        While a stream moves between the nodes of a cluster this must be one command, or one transaction.
        """
        if self._asking:
            commands = (b"*1\r\n$6\r\nASKING\r\n", *commands)
            self._asking_reply_bytes += len(OK_REPLY)
        self._connection.send_packed_command(commands, check_health=False)

    def wait_readable(self, seconds: float) -> bool:
        """Wait until there is something to receive; return False if there is nothing after `seconds`."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._poll.poll(seconds * 1000))

    def receive(self, buffer: bytearray | memoryview) -> int:
        """Wait for the first byte, and read what has arrived into `buffer`; return the number of bytes.

        Raises redis.ConnectionError if the server has closed the connection.
        """
        while True:
            n = self._socket.recv_into(buffer)
            if n == 0:
                raise redis.ConnectionError("the server closed the connection")
            skipped = min(n, self._asking_reply_bytes)
            if skipped:
                self._asking_reply_bytes -= skipped
                n -= skipped
                buffer[:n] = buffer[skipped : skipped + n]
            if n:
                return n

    def raise_if_unavailable(self, error: object, follow_ask: bool = True) -> None:
        """Raise ServerUnavailable if an error reply means that another connection is needed."""
        self._owners.raise_if_unavailable(self._stream, str(error), follow_ask)

    def close(self) -> None:
        """Close the socket, also when replies may still arrive."""
        self._connection.disconnect()
