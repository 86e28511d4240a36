"""The HTTP server for scrapers: a thread for each request. Imported only when metrics are enabled.

A request must arrive within REQUEST_SECONDS and be answered within RESPONSE_SECONDS. Beyond CONNECTIONS_MAX
connections the one that has waited longest for the rest of its request is closed, so that silent connections
cannot keep scrapers out.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Protocol

from headrace.console.exposition import CONTENT_TYPE
from headrace.errors import HeadraceError

REQUEST_SECONDS = 2.0  # for a scraper to send its request
RESPONSE_SECONDS = 10.0  # for the response
CONNECTIONS_MAX = 32  # of one address
TEXT = "text/plain; charset=utf-8"


class MetricsSource(Protocol):
    """The source of what a scraper gets, implemented by server/observe/metrics.py.

    scrape() and check_health() raise OSError or HeadraceError if the server does not reply.
    """

    def allows(self, address: str) -> bool:
        """Return whether a client of this address may read the metrics."""

    def scrape(self) -> str:
        """Return the text of /metrics."""

    def check_health(self) -> None:
        """Check that the server replies: return nothing if it does, else raise."""


def listen(metrics: MetricsSource, address: str, port: int) -> MetricsServerIPv4:
    """Return a server at the address for these metrics. Raises OSError if the address is not available."""
    handler = type("Handler", (ScrapeHandler,), {"metrics": metrics})
    return (MetricsServerIPv6 if ":" in address else MetricsServerIPv4)((address, port), handler)


class MetricsServerIPv4(ThreadingMixIn, TCPServer):
    """The server of an IPv4 address. Unlike http.server's class it does not look up this machine's name."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[ScrapeHandler]) -> None:
        self.lock = threading.Lock()
        self.handlers: dict[ScrapeHandler, None] = {}  # oldest first
        super().__init__(address, handler)

    def add_handler(self, handler: ScrapeHandler) -> None:
        """Register a running handler.

        If there are too many, disconnect the oldest one whose request has not arrived, else this one.
        """
        with self.lock:
            self.handlers[handler] = None
            if len(self.handlers) > CONNECTIONS_MAX:
                reading = (one for one in self.handlers if one.is_reading)
                next(reading, handler).disconnect()

    def remove_handler(self, handler: ScrapeHandler) -> None:
        """Remove a handler that has ended."""
        with self.lock:
            self.handlers.pop(handler, None)

    def disconnect_all(self) -> None:
        """End all handlers that run."""
        with self.lock:
            for handler in self.handlers:
                handler.disconnect()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log an error of a scraper, such as a closed connection, at debug level."""
        logging.getLogger("headrace").debug("metrics: %s", client_address, exc_info=True)


class MetricsServerIPv6(MetricsServerIPv4):
    """The server of an IPv6 address."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        """Bind for IPv6 only: the server of an IPv4 address may use the same port."""
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


class ScrapeHandler(BaseHTTPRequestHandler):
    """One request of a scraper."""

    metrics: MetricsSource  # set in a class of its own for each server
    server: MetricsServerIPv4
    deadline_timer: threading.Timer
    is_reading: bool  # the request has not arrived yet
    server_version = "headrace"
    sys_version = ""

    def setup(self) -> None:
        """Start a timer for the whole request: a timeout for each read would not limit it."""
        super().setup()
        self.is_reading = True
        self._start_timer(REQUEST_SECONDS)
        self.server.add_handler(self)

    def finish(self) -> None:
        """Stop the timer, and remove this handler from the server."""
        self.server.remove_handler(self)
        self.deadline_timer.cancel()
        super().finish()

    def disconnect(self) -> None:
        """End the connection. Thread-safe."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _start_timer(self, seconds: float) -> None:
        self.deadline_timer = threading.Timer(seconds, self.disconnect)
        self.deadline_timer.daemon = True
        self.deadline_timer.start()

    def do_GET(self) -> None:
        """Serve /metrics and /healthz."""
        self.is_reading = False
        self.deadline_timer.cancel()
        self._start_timer(RESPONSE_SECONDS)
        if not self.metrics.allows(self.client_address[0]):
            self._respond(403, "protected-mode: only clients on the server's machine are served\n")
            return
        path = self.path.partition("?")[0]
        status, text, kind = 404, "there are /metrics and /healthz\n", TEXT
        try:
            if path == "/metrics":
                status, text, kind = 200, self.metrics.scrape(), CONTENT_TYPE
            elif path == "/healthz":
                self.metrics.check_health()
                status, text = 200, "ok\n"
        except (OSError, HeadraceError) as wrong:
            status, text = 503, f"{wrong}\n"
        self._respond(status, text, kind)

    do_HEAD = do_GET

    def _respond(self, status: int, text: str, kind: str = TEXT) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log a request at debug level."""
        logging.getLogger("headrace").debug("metrics: " + format, *arguments)
