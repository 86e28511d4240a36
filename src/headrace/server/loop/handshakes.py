"""Track TLS handshakes: the clients that are in one, and for how long.

A step of a handshake takes OpenSSL up to a millisecond, as long as a hundred requests. So a turn takes only
a few steps; other clients' bytes stay in the socket until the next turn. The timer closes stalled clients.
"""

from __future__ import annotations

import logging

import cython

from headrace.server.loop.connection import Connection
from headrace.server.loop.tls_connection import TlsConnection
from headrace.visibility import Public

STEPS_MAX = cython.declare(cython.int, 4)  # in one turn
SECONDS_MAX = 10  # for a whole handshake, counted from the connection
WOULD_BLOCK = cython.declare(cython.Py_ssize_t, -1)  # as in descriptors
BROKEN = cython.declare(cython.Py_ssize_t, -2)


@cython.final
@cython.cclass
class Handshakes:
    """The handshakes of one event loop."""

    in_progress: dict[int, Connection]  # by descriptor: clients that cannot send requests yet
    steps_in_turn: Public[cython.int]  # taken in this turn

    def __init__(self) -> None:
        self.in_progress = {}
        self.steps_in_turn = 0

    @cython.ccall
    def start(self, connection: Connection) -> cython.void:
        """Register a new TLS client."""
        self.in_progress[connection.fd] = connection

    @cython.ccall
    def close_tls(self, connection: Connection) -> cython.void:
        """Send close_notify if possible, and forget the client. Does not close its socket."""
        tls: TlsConnection | None = connection.tls
        assert tls is not None
        self.in_progress.pop(connection.fd, None)
        tls.close_notify(connection.fd)

    @cython.ccall
    def read(self, connection: Connection, scratch: bytearray) -> cython.Py_ssize_t:
        """Read and decrypt to the front of scratch; return what TlsConnection.read() returns.

        Also returns WOULD_BLOCK when this turn has taken STEPS_MAX handshake steps. Sets connection.eof with
        the last bytes, and completes a handshake that ends here.
        """
        tls: TlsConnection | None = connection.tls
        assert tls is not None
        begins: cython.bint = tls.handshaking
        if begins:
            if self.steps_in_turn == STEPS_MAX:
                return WOULD_BLOCK
            self.steps_in_turn += 1
        n: cython.Py_ssize_t = tls.read(connection.fd, scratch)
        if tls.error:
            address = connection.session.address.decode(errors="replace")
            logging.getLogger("headrace").info("closing %s: TLS: %s", address, tls.error)
        if n == BROKEN:
            return BROKEN
        if begins and not tls.handshaking:
            del self.in_progress[connection.fd]
            tls.on_handshake_done(connection)
        connection.eof = tls.eof  # if it came with a request, no later event reports it
        return n

    def stalled_connections(self, now: cython.longlong) -> list[Connection]:
        """Return the clients whose handshake takes too long."""
        since: cython.longlong = now - 1000 * SECONDS_MAX
        return [c for c in self.in_progress.values() if c.session.created_ms < since]
