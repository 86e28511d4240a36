"""A connection to a redis-server that returns the bytes of each reply."""

from __future__ import annotations

import socket
from typing import Self

from conformance.peer import reply_end

SECONDS_MAX = 60.0  # only a test that fails waits so long


class RawRedis:
    """One client, whose requests have one reply each."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def send(self, *words: str | bytes) -> None:
        """Send a request."""
        raw = [word.encode() if isinstance(word, str) else word for word in words]
        self.socket.sendall(b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in raw))

    def receive(self) -> bytes:
        """Return the next reply; empty if the connection was closed."""
        data = b""
        while reply_end(data) < 0:
            found = self.socket.recv(65536)
            if not found:
                assert not data
                return b""
            data += found
        assert reply_end(data) == len(data)
        return data

    def ask(self, *words: str | bytes) -> bytes:
        """Return the reply to a request."""
        self.send(*words)
        return self.receive()
