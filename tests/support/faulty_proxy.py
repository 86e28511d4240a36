"""A proxy for HTTP in which requests fail as a test asks for.

    python faulty_proxy.py STORE_PORT      prints its own port

Each line of its input is a fault as a JSON object, which replaces the one before, or null. It answers each
with all requests so far.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Fault:
    """What happens to requests.

    Attributes:
        pattern: Which ones: a regular expression that the method and the path must contain.
        status: The status to answer with; 0 for a connection that is closed without an answer.
        code: The code in the answer, such as SlowDown.
        performed: Whether the store receives the request, and only its answer is lost.
        seconds: How long the proxy waits before anything else.
        after: How many requests of the pattern pass before.
        times: How many have the fault then.
        without: A header that the store does not get; then the request has no other fault.
        partial: Only half of the answer of the store arrives, and the connection is closed.
    """

    pattern: str
    status: int = 0
    code: str = ""
    performed: bool = False
    seconds: float = 0
    after: int = 0
    times: int = 1_000_000
    without: str = ""
    partial: bool = False

    def concerns(self, request: str) -> bool:
        """Return whether this request has the fault, and count it."""
        if not re.search(self.pattern, request):
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return self.times >= 0


class Proxy(ThreadingHTTPServer):
    """The proxy; each connection has its thread."""

    daemon_threads = True

    def __init__(self, store_port: int) -> None:
        self.store_port = store_port
        self.fault = Fault("never", times=0)
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), Connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: clients leave while they wait for an answer."""


class Connection(BaseHTTPRequestHandler):
    """A connection of a client."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def answer(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        request, fault = f"{self.command} {self.path}", self.server.fault
        self.server.requests.append(request)
        if not fault.concerns(request):
            self.send(*self.forward(body))
            return
        time.sleep(fault.seconds)
        if fault.without:
            del self.headers[fault.without]
            self.send(*self.forward(body))
            return
        if fault.partial:
            self.send(*self.forward(body), partial=True)
            return
        if fault.performed:
            self.forward(body)
        if fault.status:
            text = f"<Error><Code>{fault.code}</Code><Message>{fault.code} by the test</Message></Error>"
            self.send(fault.status, {"content-type": "application/xml"}, text.encode())
            return
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

    def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Return the answer of the store."""
        store = http.client.HTTPConnection("127.0.0.1", self.server.store_port, timeout=60)
        try:
            store.request(self.command, self.path, body, dict(self.headers.items()))
            answer = store.getresponse()
            return answer.status, dict(answer.headers.items()), answer.read()
        finally:
            store.close()

    def send(self, status: int, headers: dict[str, str], body: bytes, partial: bool = False) -> None:
        """Send an answer, or half of it."""
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers.items()}.get("content-length")
        size = length if self.command == "HEAD" and length is not None else str(len(body))
        self.send_header("content-length", size)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if partial else body)
        self.close_connection = self.close_connection or partial


def main() -> None:
    """Serve until the input ends."""
    proxy = Proxy(int(sys.argv[1]))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(proxy.server_address[1], flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        if given is not None:
            proxy.fault = Fault(**given)
        print(json.dumps(proxy.requests), flush=True)


if __name__ == "__main__":
    main()
