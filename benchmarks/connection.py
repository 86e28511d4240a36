"""A blocking connection to a measured server: sends encoded requests, parses replies."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from itertools import islice

from headrace.errors import CommandError
from headrace.resp.reply_parser import INCOMPLETE, ReplyParser

REPLY_SECONDS_MAX = 120.0  # enough for a server that is loading, or runs under valgrind
CHUNK = 1000  # requests sent at once


class Connection:
    """A blocking connection; waits for a server that is starting."""

    def __init__(self, port: int) -> None:
        deadline = time.monotonic() + REPLY_SECONDS_MAX
        while True:
            try:
                self.sock = socket.create_connection(("127.0.0.1", port), timeout=REPLY_SECONDS_MAX)
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.parser = ReplyParser()
        self.received = 0  # bytes of all replies so far

    def exchange(self, requests: Iterable[bytes]) -> list[object]:
        """Send the requests, CHUNK at a time, and return the replies. CommandError if one is an error."""
        replies: list[object] = []
        left = iter(requests)
        while chunk := list(islice(left, CHUNK)):
            self.sock.sendall(b"".join(chunk))
            replies += [self.read_reply() for _ in chunk]
        return replies

    def read_reply(self) -> object:
        """Return the next reply. CommandError if it is an error."""
        while (reply := self.parser.next()) is INCOMPLETE:
            data = self.sock.recv(1 << 20)
            if not data:
                raise EOFError("the server closed the connection")
            self.received += len(data)
            self.parser.feed(data)
        if isinstance(reply, CommandError):
            raise reply
        return reply

    def close(self) -> None:
        self.sock.close()
