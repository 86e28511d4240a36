"""The HTTP server for scrapers: one request at a time. Imported only when metrics are enabled."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import TYPE_CHECKING

from headrace.console.exposition import CONTENT_TYPE
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.server.observe.metrics import Metrics

HTTP_SECONDS = 10.0  # for a scraper's whole request and response: others wait meanwhile
TEXT = "text/plain; charset=utf-8"


def listen(metrics: Metrics, address: str, port: int) -> TCPServer:
    """Return a server at the address for these metrics. Raises OSError if the address is not available."""
    handler = type("Handler", (ScrapeHandler,), {"metrics": metrics})
    return (Server6 if ":" in address else Server4)((address, port), handler)


class Server4(TCPServer):
    """The server of an IPv4 address. Unlike http.server's class it does not look up this machine's name."""

    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Log an error of a scraper, such as a closed connection, at debug level."""
        logging.getLogger("headrace").debug("metrics: %s", client_address, exc_info=True)


class Server6(Server4):
    """The same for an IPv6 address."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        """Leave the port's IPv4 addresses to others."""
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


class ScrapeHandler(BaseHTTPRequestHandler):
    """One request of a scraper."""

    metrics: Metrics  # set in a class of its own for each server
    deadline: threading.Timer
    server_version = "headrace"
    sys_version = ""

    def setup(self) -> None:
        """Start a timer for the whole request: a timeout for each read would not limit it."""
        super().setup()
        self.deadline = threading.Timer(HTTP_SECONDS, self._disconnect)
        self.deadline.start()

    def finish(self) -> None:
        """Stop the timer."""
        self.deadline.cancel()
        super().finish()

    def _disconnect(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Serve /metrics and /healthz."""
        if not self.metrics.allows(self.client_address[0]):
            self._respond(403, "protected-mode: only clients on the server's machine are served\n")
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
