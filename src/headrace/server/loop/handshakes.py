"""Clients that encrypt, on their way in and out: who shakes hands, for how long, and who they turn out to be.

A step of a handshake takes OpenSSL up to a millisecond, a hundred requests' time, so a turn takes only a few:
the others find their words still in the socket in the next turn. Who stalls is closed by the timer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import cython

from headrace.server.loop.connection import Connection
from headrace.server.loop.tls_connection import Secure
from headrace.visibility import Public

STEPS_MAX = cython.declare(cython.int, 4)  # in one turn
SECONDS_MAX = 10  # for a handshake, from its first byte or none to its last
WOULD_BLOCK = cython.declare(cython.Py_ssize_t, -1)  # as in descriptors
BROKEN = cython.declare(cython.Py_ssize_t, -2)


@cython.final
@cython.cclass
class Handshakes:
    """Those of one turn."""

    going: dict[int, Connection]  # by descriptor: they may not ask for anything yet
    steps: Public[cython.int]  # taken in this turn
    introduce: Public[Callable[[Connection], None] | None]  # what to do with one whose handshake is over

    def __init__(self) -> None:
        self.going = {}
        self.steps = 0
        self.introduce = None

    @cython.ccall
    def begin(self, connection: Connection) -> cython.void:
        """A client has come."""
        self.going[connection.fd] = connection

    @cython.ccall
    def part(self, connection: Connection) -> cython.void:
        """It goes: it is told so, if it can be."""
        secure: Secure | None = connection.secure
        assert secure is not None
        self.going.pop(connection.fd, None)
        secure.farewell(connection.fd)

    @cython.ccall
    def read(self, connection: Connection, scratch: bytearray) -> cython.Py_ssize_t:
        """As descriptors.read() to the front of scratch, decrypted; `ended` is set with the last bytes."""
        secure: Secure | None = connection.secure
        assert secure is not None
        begins: cython.bint = secure.handshaking
        if begins:
            if self.steps == STEPS_MAX:
                return WOULD_BLOCK
            self.steps += 1
        n: cython.Py_ssize_t = secure.read(connection.fd, scratch)
        if secure.fault:
            address = connection.session.address.decode(errors="replace")
            logging.getLogger("headrace").info("closing %s: TLS: %s", address, secure.fault)
        if n == BROKEN:
            return BROKEN
        if begins and not secure.handshaking:
            del self.going[connection.fd]
            if self.introduce is not None:
                self.introduce(connection)
        connection.ended = secure.ended  # said behind a request, it is not heard again
        return n

    def stalled(self, now: cython.longlong) -> list[Connection]:
        """Those who have had their time."""
        since: cython.longlong = now - 1000 * SECONDS_MAX
        return [c for c in self.going.values() if c.session.created_ms < since]
