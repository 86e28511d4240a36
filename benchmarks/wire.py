"""A plain connection to a server under measurement: requests as bytes out, answers in."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from itertools import islice

from headrace.resp.replies import INCOMPLETE, ReplyError, ReplyParser

ANSWER_SECONDS_MAX = 120.0  # also for the slowest: a server that loads, or runs under valgrind
CHUNK = 1000  # requests of a preparation, sent at once


class Wire:
    """One blocking connection; the server may be about to start."""

    def __init__(self, port: int) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                self.sock = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX)
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.parser = ReplyParser()
        self.received = 0  # bytes of all answers so far

    def exchange(self, requests: Iterable[bytes]) -> list[object]:
        """Send the requests, a chunk at a time, and return the answers; ReplyError when one is an error."""
        answers: list[object] = []
        left = iter(requests)
        while chunk := list(islice(left, CHUNK)):
            self.sock.sendall(b"".join(chunk))
            answers += [self.answer() for _ in chunk]
        return answers

    def answer(self) -> object:
        while (answer := self.parser.next()) is INCOMPLETE:
            data = self.sock.recv(1 << 20)
            if not data:
                raise EOFError("the server closed the connection")
            self.received += len(data)
            self.parser.feed(data)
        if isinstance(answer, ReplyError):
            raise answer
        return answer

    def close(self) -> None:
        self.sock.close()
