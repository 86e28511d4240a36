"""/metrics and /healthz over HTTP, on a port of their own.

    scraper ── HTTP ── a thread ── socket pair ── the event loop, as any client

The thread requests data as a client, by INFO, SCAN, XINFO, SLOWLOG and LATENCY in short pipelines. Nothing is
locked, and the event loop's fairness keeps a scrape from delaying other clients. One scrape is made at a
time; /healthz does not wait for it.

There are no passwords here, and names of keys are shown. The addresses are those of `bind`, and with
protected-mode only local scrapers are served.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.console.exposition import exposition
from headrace.console.operation_stats import read_operation_stats
from headrace.console.server_stats import Request, collect_stats
from headrace.errors import HeadraceError
from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.resp.request import request
from headrace.server.config.config import Config
from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.addresses import for_each_address, is_loopback

if TYPE_CHECKING:
    from headrace.server.observe.metrics_http_server import MetricsServerIPv4

CLIENT_ADDRESS = b"metrics:0"  # the address in CLIENT LIST
EVENT_LOOP_TIMEOUT_S = 5.0  # for the event loop to answer a pipeline
CLOSE_TIMEOUT_S = 1.0  # for a thread to end
READ_BYTES = 1 << 16


class MetricsEndpoint:
    """The HTTP servers, one for each address, and the connection from their threads to the event loop."""

    def __init__(self, config: Config, loop: EventLoop, wake: Callable[[], None]) -> None:
        self.config = config
        self.loop = loop
        self.wake = wake
        self.pending_clients: deque[socket.socket] = deque()  # sockets for the event loop to add
        self.scrape_lock = threading.Lock()
        self.closed = False
        self.servers: list[MetricsServerIPv4] = []
        self.threads: list[threading.Thread] = []
        self.port = 0

    def open(self) -> None:
        """Listen on metrics-port, if it is set. Raises HeadraceError if an address is not available."""
        shown = self.config.formatted_value("metrics-port")
        if shown == "0":
            return
        self.port = 0 if shown == "free" else int(shown)
        for_each_address(self.config, f"port {self.port}, for metrics", self._listen)
        self.config.override("metrics-port", self.port)
        for server in self.servers:
            thread = threading.Thread(target=self._serve, args=[server], name="metrics", daemon=True)
            self.threads.append(thread)
            thread.start()

    def _listen(self, address: str) -> None:
        from headrace.server.observe import (
            metrics_http_server,  # importing HTTP takes a seventh of the start-up time
        )

        server = metrics_http_server.listen(self, address, self.port)
        self.servers.append(server)
        self.port = server.server_address[1]

    def close(self) -> None:
        """Stop listening. Call it after the event loop is closed: then a running scrape ends at once."""
        self.closed = True
        while self.pending_clients:
            self.pending_clients.popleft().close()
        for server in self.servers:
            with suppress(OSError):
                server.socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits on it
            server.disconnect_all()
        for thread in self.threads:
            thread.join(CLOSE_TIMEOUT_S)
        for server in self.servers:
            server.server_close()
        self.servers.clear()
        self.threads.clear()

    def _serve(self, server: MetricsServerIPv4) -> None:
        while not self.closed:
            server.handle_request()

    def accept_pending(self) -> None:
        """Add pending sockets as clients; called by the event loop's thread."""
        while self.pending_clients:
            client = self.pending_clients.popleft()
            client.setblocking(False)
            session = self.loop.add_connection(client.detach(), CLIENT_ADDRESS, CLIENT_ADDRESS).session
            session.user = session.restricted_user = None  # internal: ACL rules do not apply
            session.authenticated, session.must_authenticate = True, False

    def allows(self, address: str) -> bool:
        """Return whether a scraper at this address is served."""
        return is_loopback(address) or not self.config.flag("protected-mode")

    def scrape(self) -> str:
        """Return the text of /metrics. Raises OSError or HeadraceError if the server fails."""
        with self.scrape_lock, self._connect() as loop:
            stats = collect_stats(loop.ask)
            stats.operations = read_operation_stats(loop.ask)
            return exposition(stats)

    def check_health(self) -> None:
        """Check that the server would serve a client. Raises OSError or HeadraceError if not."""
        with self._connect() as loop:
            answer = loop.ask([["PING"]])[0]
        if answer != "PONG":
            raise HeadraceError(str(answer))

    def _connect(self) -> MetricsClient:
        if self.closed:
            raise ConnectionError("the server is closing")
        ours, theirs = socket.socketpair()
        ours.settimeout(EVENT_LOOP_TIMEOUT_S)
        self.pending_clients.append(theirs)
        self.wake()
        return MetricsClient(ours)


class MetricsClient:
    """The thread's end of a socket pair: requests out, replies in."""

    def __init__(self, end: socket.socket) -> None:
        self.sock = end
        self.parser = ReplyParser()

    def __enter__(self) -> MetricsClient:
        return self

    def __exit__(self, *failure: object) -> None:
        self.sock.close()

    def ask(self, requests: list[Request]) -> list[object]:
        """Send a pipeline; return its replies, errors as CommandError. Raises OSError after a timeout."""
        self.sock.sendall(b"".join(request(*map(argument_bytes, words)) for words in requests))
        return [self._reply() for _ in requests]

    def _reply(self) -> object:
        while (reply := self.parser.next()) is INCOMPLETE:
            data = self.sock.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self.parser.feed(data)
        return reply


def argument_bytes(word: bytes | str | int) -> bytes:
    """Return an argument of a request as bytes."""
    return word if isinstance(word, bytes) else str(word).encode()
