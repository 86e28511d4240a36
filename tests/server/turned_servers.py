"""Servers in this process whose turns the test takes itself, and sockets to talk to them in between."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.server.config.config import Config
from headrace.server.main import Server
from support.speaking import SECONDS_MAX, encoded


class TurnedServers:
    """Some servers; every wait here runs turns of all of them."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.stack = ExitStack()

    def open(self, directory: Path, *words: str) -> Server:
        """Start one more on a free port; it has a log and saves nothing unless the words say so."""
        directory.mkdir(exist_ok=True)
        config = Config()
        config.read_arguments(["--port", "free", "--bind", "127.0.0.1", "--dir", str(directory)])
        config.read_arguments(["--appendonly", "yes", "--save", "", "--repl-diskless-sync-delay", "0"])
        config.read_arguments(["--appendfsync", "no", *words])
        server = Server(config)
        self.stack.callback(server.close)
        server.open()
        self.servers.append(server)
        return server

    def turn(self, count: int = 1) -> None:
        """Run turns of each server."""
        for _ in range(count):
            for server in self.servers:
                server.parts.timers.run(server.parts.clock.now_ms())
                work = server.parts.loop.background_work
                if work is not None:
                    work()
                server.parts.loop.run_tasks()
                server.parts.loop.run_once(0)

    def until(self, condition: Callable[[], object]) -> None:
        """Run turns until the condition is true."""
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            self.turn()

    def dial(self, server: Server) -> TurnedClient:
        """Return a client of the server; the caller closes it."""
        return TurnedClient(self, server)

    def close(self) -> None:
        """Close all servers."""
        self.stack.close()


class TurnedClient:
    """A client that runs turns of the servers while it waits for replies."""

    def __init__(self, servers: TurnedServers, server: Server) -> None:
        self.servers = servers
        self.sock: socket.socket | ssl.SSLSocket = socket.create_connection(
            ("127.0.0.1", server.parts.listeners.announced_port)
        )
        self.sock.setblocking(False)
        self.parser = ReplyParser()

    def __enter__(self) -> TurnedClient:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Shake hands."""
        self.sock = context.wrap_socket(self.sock, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        while True:
            try:
                self.sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.servers.turn()

    def send(self, *words: bytes | str | int) -> None:
        """Send a request, and let the servers read it."""
        self.sock.sendall(encoded(*words))
        self.servers.turn(2)

    def request(self, *words: bytes | str | int) -> object:
        """Return the reply to a request; an error reply as an exception object."""
        self.send(*words)
        return self.reply()

    def ask(self, line: str) -> object:
        """Do the same with words between blanks."""
        return self.request(*line.split())

    def reply(self) -> object:
        """Return the next reply."""
        deadline = time.monotonic() + SECONDS_MAX
        while (reply := self.parser.next()) is INCOMPLETE:
            assert time.monotonic() < deadline, "no reply"
            self.servers.turn()
            try:
                data = self.sock.recv(1 << 16)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            if not data:
                raise EOFError("the server closed the connection")
            self.parser.feed(data)
        return reply

    def close(self) -> None:
        """Close the socket, and let the servers notice it."""
        self.sock.close()
        self.servers.turn(2)
