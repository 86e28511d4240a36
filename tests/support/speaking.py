"""The protocol as tests speak it: the bytes of a request, and a client that is a plain socket."""

from __future__ import annotations

import socket

from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.resp.request import request

SECONDS_MAX = 30.0  # only a test that fails waits so long for an answer


def encoded(*words: bytes | str | int) -> bytes:
    """A request as clients send it, and as a log keeps it."""
    return request(*(word if isinstance(word, bytes) else str(word).encode() for word in words))


class Client:
    """A socket that speaks the protocol when asked to, and sends anything else as well."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.parser = ReplyParser()
        sock.settimeout(SECONDS_MAX)

    @classmethod
    def to(cls, port: int, receive_bytes: int = 0) -> Client:
        """A client of the server on this port; its kernel keeps so many unread bytes, if it is told so."""
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(SECONDS_MAX)
        try:
            sock.connect(("127.0.0.1", port))
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self.sock.sendall(data)

    def request(self, *words: bytes | str | int) -> object:
        """The answer to a request; a refusal is a CommandError."""
        self.send(encoded(*words))
        return self.reply()

    def ask(self, line: str) -> object:
        """The same, of words between blanks."""
        return self.request(*line.split())

    def reply(self) -> object:
        """The next answer."""
        while (reply := self.parser.next()) is INCOMPLETE:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the server closed the connection")
            self.parser.feed(data)
        return reply

    def is_silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for so long."""
        self.sock.settimeout(seconds)
        try:
            self.reply()
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(SECONDS_MAX)
        return False

    def is_closed(self) -> bool:
        """Whether the server closes the connection without another word."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def info(self, section: str = "all") -> dict[str, str]:
        """The fields of INFO."""
        text = self.request("INFO", section)
        assert isinstance(text, bytes), text
        return dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)

    def close(self) -> None:
        """Hang up."""
        self.sock.close()
