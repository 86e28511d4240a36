"""Servers with a TLS port, and clients of theirs."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from headrace.server.config.config import Config
from headrace.server.main import Server
from support.certificates import Authority, Certificate

SECONDS_MAX = 30.0


class Town:
    """An authority with a server's and a client's certificate, and another authority nobody trusts."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.certify("server")
        self.ann = self.authority.certify("ann")
        self.others = Authority(folder / "others", "others")
        self.mallory = self.others.certify("mallory")

    def server_words(self) -> list[str]:
        """The arguments of a server that shows its certificate and asks for one of the authority's."""
        return [*self.server.server_words(), "--tls-ca-cert-file", str(self.authority.file)]

    def context(self, shown: Certificate | None = None) -> ssl.SSLContext:
        """What ann begins with, or whoever shows that certificate."""
        return self.authority.trusted(shown or self.ann)

    def nameless(self) -> ssl.SSLContext:
        """What a client begins with that shows none."""
        return self.authority.trusted()


class Wire:
    """A client's end with OpenSSL's records in its own hands: what is sent when is the test's to say."""

    def __init__(self, port: int, context: ssl.SSLContext, sock: socket.socket | None = None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.wire = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        if sock is None:
            sock = socket.socket()
            sock.settimeout(SECONDS_MAX)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(("127.0.0.1", port))
        self.sock = sock

    def shake(self) -> None:
        """The whole handshake."""
        self._until(self.wire.do_handshake)

    def record(self, text: bytes) -> bytes:
        """One record with that text, not sent yet."""
        self.wire.write(text)
        return self.outgoing.read()

    def close_notify(self) -> bytes:
        """The record that says that nothing more comes, not sent yet."""
        with suppress(ssl.SSLWantReadError):
            self.wire.unwrap()
        return self.outgoing.read()

    def read(self, n: int) -> bytes:
        """That many bytes of text, or fewer at the end."""
        text = b""
        while len(text) < n and (piece := self._until(partial(self.wire.read, n - len(text)))):
            text += piece
        return text

    def _until(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                done = step()
            except ssl.SSLZeroReturnError:  # both sides have said their last word
                return b""
            except ssl.SSLWantReadError:
                self._flush()
                data = self.sock.recv(1 << 16)
                if not data:
                    raise EOFError("the server closed the connection") from None
                self.incoming.write(data)
            else:
                self._flush()
                return done

    def _flush(self) -> None:
        if self.outgoing.pending:
            self.sock.sendall(self.outgoing.read())

    def close(self) -> None:
        self.sock.close()


@contextmanager
def by_hand(folder: Path, *words: str) -> Iterator[Server]:
    """A server with a TLS port whose turns the test takes itself."""
    config = Config()
    config.read_arguments(["--port", "0", "--tls-port", "free", "--bind", "127.0.0.1", "--dir", str(folder)])
    config.read_arguments(["--appendonly", "no", *words])
    server = Server(config)
    server.open()
    try:
        yield server
    finally:
        server.close()
