"""/metrics and /healthz over HTTP, on a port of their own.

    scraper ── HTTP ── a thread here ── socket pair ── the turn, as any client

The thread asks as a client would, through INFO, SCAN and XINFO in short pipelines: nothing is locked, no data
are touched beside the turn, and the turn's own fairness keeps a scrape from holding up other clients. One
scrape is answered at a time.

There are no passwords here, and names of keys are shown: the addresses are those of `bind`, and with
protected-mode only this machine is answered.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

from headrace.console.exposition import CONTENT_TYPE, exposition
from headrace.console.figures import Words, collect
from headrace.errors import HeadraceError
from headrace.resp.replies import INCOMPLETE, ReplyParser
from headrace.server.config import Config
from headrace.server.listeners import is_local
from headrace.server.turn import Turn

NAME = b"metrics:0"  # the address that CLIENT LIST shows
ANSWER_SECONDS = 5.0  # for the turn to answer a pipeline
HTTP_SECONDS = 10.0  # for a scraper to ask and to take its answer: while one stalls, others wait
CLOSE_SECONDS = 1.0  # for a thread to end
READ_BYTES = 1 << 16
TEXT = "text/plain; charset=utf-8"


class Metrics:
    """The HTTP servers, one for each address, and the way from their threads to the turn."""

    def __init__(self, config: Config, turn: Turn, wake: Callable[[], None]) -> None:
        self.config = config
        self.turn = turn
        self.wake = wake
        self.arrivals: deque[socket.socket] = deque()  # clients that the turn is yet to let in
        self.scraping = threading.Lock()
        self.closed = False
        self.servers: list[HTTPServer] = []
        self.threads: list[threading.Thread] = []
        self.port = 0

    def open(self) -> None:
        """Listen, if metrics-port says so; HeadraceError when an address cannot be had."""
        shown = self.config.shown("metrics-port")
        if shown == "0":
            return
        self.port = 0 if shown == "free" else int(shown)
        words = self.config.values["bind"]
        assert isinstance(words, list)
        for word in words:
            address = {"*": "0.0.0.0", "::*": "::"}.get(word.removeprefix("-"), word.removeprefix("-"))
            try:
                self._listen(address)
            except OSError as wrong:
                if word.startswith("-") and wrong.errno != errno.EADDRINUSE:
                    continue
                raise HeadraceError(
                    f"cannot listen on {address}, port {self.port}, for metrics: {wrong.strerror or wrong}"
                ) from None
        self.config.adjust("metrics-port", self.port)
        for server in self.servers:
            thread = threading.Thread(target=self._serve, args=[server], name="metrics", daemon=True)
            self.threads.append(thread)
            thread.start()

    def _listen(self, address: str) -> None:
        handler = type("Handler", (Request,), {"metrics": self})
        kind = Server6 if ":" in address else Server4
        server = kind((address, self.port), handler)
        self.servers.append(server)
        self.port = server.server_address[1]

    def close(self) -> None:
        """Listen no more. To be called after the turn is closed: a scrape under way then ends at once."""
        self.closed = True
        while self.arrivals:
            self.arrivals.popleft().close()
        for server in self.servers:
            with suppress(OSError):
                server.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits at it
        for thread in self.threads:
            thread.join(CLOSE_SECONDS)
        for server in self.servers:
            server.server_close()
        self.servers.clear()
        self.threads.clear()

    def _serve(self, server: HTTPServer) -> None:
        while not self.closed:
            server.handle_request()

    def let_in(self) -> None:
        """In the turn: make clients of those that have arrived."""
        while self.arrivals:
            client = self.arrivals.popleft()
            client.setblocking(False)
            session = self.turn.add(client.detach(), NAME, NAME).session
            session.identity = session.access = None  # one of our own: no user's rules hold it back
            session.authenticated, session.stranger = True, False

    def allows(self, address: str) -> bool:
        """Whether a scraper at this address is answered."""
        return is_local(address) or not self.config.flag("protected-mode")

    def scrape(self) -> str:
        """The text of /metrics. OSError and HeadraceError when the server does not answer or refuses."""
        with self.scraping, self._conversation() as turn:
            return exposition(collect(turn.ask))

    def health(self) -> None:
        """Nothing, when the server answers and would serve a client; else OSError or HeadraceError."""
        with self._conversation() as turn:
            answer = turn.ask([["PING"]])[0]
        if answer != "PONG":
            raise HeadraceError(str(answer))

    def _conversation(self) -> Conversation:
        if self.closed:
            raise ConnectionError("the server is closing")
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_SECONDS)
        self.arrivals.append(theirs)
        self.wake()
        return Conversation(ours)


class Conversation:
    """Our end of a socket pair: requests out, replies in."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.parser = ReplyParser()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *failure: object) -> None:
        self.end.close()

    def ask(self, requests: list[Words]) -> list[object]:
        """The answers to a pipeline, a refusal as a ReplyError. OSError when they do not come in time."""
        self.end.sendall(b"".join(request(words) for words in requests))
        return [self._reply() for _ in requests]

    def _reply(self) -> object:
        while (reply := self.parser.next()) is INCOMPLETE:
            data = self.end.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self.parser.feed(data)
        return reply


class Server4(HTTPServer):
    """One address. What goes wrong with a scraper, such as that it goes away, is no news of the server."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Only for who wants to see everything."""
        logging.getLogger("headrace").debug("metrics: %s", client_address, exc_info=True)


class Server6(Server4):
    """The same at an IPv6 address."""

    address_family = socket.AF_INET6


class Request(BaseHTTPRequestHandler):
    """One request of a scraper."""

    metrics: Metrics  # set in a class of its own for each server
    bell: threading.Timer
    server_version = "headrace"
    sys_version = ""

    def setup(self) -> None:
        """Begin, and be thrown out when it takes too long: a timeout a read would be no end."""
        super().setup()
        self.bell = threading.Timer(HTTP_SECONDS, self._throw_out)
        self.bell.start()

    def finish(self) -> None:
        """End."""
        self.bell.cancel()
        super().finish()

    def _throw_out(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answer /metrics and /healthz."""
        if not self.metrics.allows(self.client_address[0]):
            self._answer(403, "protected-mode: only clients on the server's machine are answered\n")
            return
        path = self.path.partition("?")[0]
        status, text, kind = 404, "there are /metrics and /healthz\n", TEXT
        try:
            if path == "/metrics":
                status, text, kind = 200, self.metrics.scrape(), CONTENT_TYPE
            elif path == "/healthz":
                self.metrics.health()
                status, text = 200, "ok\n"
        except (OSError, HeadraceError) as wrong:
            status, text = 503, f"{wrong}\n"
        self._answer(status, text, kind)

    do_HEAD = do_GET

    def _answer(self, status: int, text: str, kind: str = TEXT) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Only for who wants to see everything."""
        logging.getLogger("headrace").debug("metrics: " + format, *arguments)


def request(words: Words) -> bytes:
    """A request as bytes."""
    raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw)
