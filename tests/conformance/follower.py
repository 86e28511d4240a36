"""A pretended replica of the real server: it receives the effects of each request."""

from __future__ import annotations

import socket


class Follower:
    """The effects that a real server sends to its replicas, as lists of arguments."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(b"SYNC\r\n")
        line = b"\n"
        while line == b"\n":  # the server keeps the line busy while it writes its snapshot
            line = self.file.readline()
        self.file.read(int(line[1:]))

    def until(self, last: list[bytes]) -> list[list[bytes]]:
        """All that came before the request `last`."""
        told = []
        while (words := self.request()) != last:
            if words[0].upper() not in (b"PING", b"SELECT"):
                told.append(words)
        return told

    def request(self) -> list[bytes]:
        words = []
        for _ in range(int(self.file.readline()[1:])):
            size = int(self.file.readline()[1:])
            words.append(self.file.read(size + 2)[:-2])
        return words

    def close(self) -> None:
        self.file.close()
        self.socket.close()
