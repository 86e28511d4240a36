"""TLS on one connection: OpenSSL between two buffers, with the turn's own read and write around them.

    descriptor ── read ──▶ incoming ─▶ ┌───────┐ ─▶ requests, in the turn's scratch
                                       │ wire  │
    descriptor ◀─ write ── outgoing ◀─ └───────┘ ◀─ answers

OpenSSL never sees the descriptor, so nothing here waits. Two things are true after every call:

- what can be decrypted has been: no request stays behind inside OpenSSL, where epoll does not know of it;
- what was encrypted and did not fit into the socket is in `rest`, and the answer's bytes that it stands for
  count as unsent, so whoever looks at the answer sees that something is left.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import cython

from headrace import mem
from headrace.server.loop import descriptors

if TYPE_CHECKING:
    import ssl  # loaded by tls.py, when there is a port for it

PIECE = cython.declare(cython.Py_ssize_t, 16 * 1024)  # a record's text; OpenSSL's buffers grow to no more
RECORD_MAX = cython.declare(cython.Py_ssize_t, 16 * 1024 + 256 + 5)  # RFC 8446, 5.2; with its header
WRITE_MAX = cython.declare(cython.Py_ssize_t, 64 * 1024)  # of an answer, in one go

WOULD_BLOCK = cython.declare(cython.Py_ssize_t, -1)  # as in descriptors
BROKEN = cython.declare(cython.Py_ssize_t, -2)
WANT_READ = cython.declare(cython.int, 2)  # ssl.SSL_ERROR_WANT_READ: a record is not whole yet


@cython.final
@cython.cclass
class Secure:
    """The server's end of a TLS connection. It begins with the handshake, which read() carries on."""

    incoming: Any  # ssl.MemoryBIO, and so is outgoing
    outgoing: Any
    wire: Any  # an ssl.SSLObject, whose stub does not know of reading into a buffer
    handshaking: cython.bint
    ended: cython.bint  # the client has said that it sends no more
    fault: str  # why it is broken; empty when the other side is just gone
    rest: bytes  # encrypted, and not taken by the socket yet
    owed: cython.Py_ssize_t  # bytes of the answer that are in it

    def __init__(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, wire: ssl.SSLObject) -> None:
        """The buffers on both sides of it, towards the descriptor."""
        self.incoming = incoming
        self.outgoing = outgoing
        self.wire = wire
        self.handshaking = True
        self.ended = False
        self.fault = ""
        self.rest = b""
        self.owed = 0

    @cython.ccall
    def read(self, fd: cython.int, scratch: bytearray) -> cython.Py_ssize_t:
        """Read what has come and decrypt it to the front of scratch, which has room for it.

        How many bytes there are; 0 when the client has said that it sends no more; WOULD_BLOCK when there is
        nothing yet; BROKEN, and perhaps a fault. A connection cut off without that word is broken: who cuts
        it need not be the client.
        """
        p: cython.p_uchar = scratch
        n: cython.Py_ssize_t = descriptors.read(fd, p, RECORD_MAX, len(scratch) - RECORD_MAX)
        if n <= 0:
            return n if n == WOULD_BLOCK else BROKEN
        filled: cython.Py_ssize_t = 0
        try:
            filled = self._decrypt(scratch, RECORD_MAX + n)
        except (OSError, ValueError, MemoryError) as wrong:  # SSLError is the first, and at times the second
            self.fault = said(wrong)
        if not self._push(fd) or self.fault:  # the handshake's words, or an alert
            return BROKEN
        if filled == 0:
            return 0 if self.ended else WOULD_BLOCK
        return filled

    @cython.cfunc
    def _decrypt(self, scratch: bytearray, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The text of all records that are whole now, to the front of scratch; how many bytes that are.

        What has come stands behind the first RECORD_MAX bytes, up to end. Its text, and that of the part of
        a record that came before, never reaches what is still to be taken from there.
        OSError, ValueError when it is not what the other side can have sent.
        """
        whole = memoryview(scratch)
        filled: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        at: cython.Py_ssize_t = RECORD_MAX
        while at < end and not self.ended:
            self.incoming.write(whole[at : min(at + RECORD_MAX, end)])
            at += RECORD_MAX
            try:
                if self.handshaking:
                    self.wire.do_handshake()
                    self.handshaking = False
                while self.incoming.pending and not self.ended:
                    n = self.wire.read(len(scratch) - filled, whole[filled:])
                    filled += n
                    self.ended = n == 0
            except OSError as wrong:
                if wrong.errno != WANT_READ:
                    raise
        return filled

    @cython.cfunc
    def write(
        self, fd: cython.int, p: cython.p_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Send of the n bytes at p[at:] what the socket takes; how many are sent for good, or BROKEN.

        Those that are not will be the first ones of the next call.
        """
        done: cython.Py_ssize_t = 0
        if self.rest:
            if not self._push(fd):
                return BROKEN
            if self.rest:
                return 0
            done = self.owed
            self.owed = 0
        if self.handshaking or done >= n:
            return done
        pieces: list[bytes] = []
        end: cython.Py_ssize_t = min(n, done + WRITE_MAX)
        begin: cython.Py_ssize_t = done
        size: cython.Py_ssize_t
        try:
            while begin < end:
                size = min(PIECE, end - begin)
                self.wire.write(mem.to_bytes(p, at + begin, size))
                pieces.append(self.outgoing.read())
                begin += size
        except (OSError, ValueError, MemoryError) as wrong:
            self.fault = said(wrong)
            return BROKEN
        self.rest = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if not self._push(fd):
            return BROKEN
        if self.rest:
            self.owed = end - done
            return done
        return end

    @cython.ccall
    def farewell(self, fd: cython.int) -> cython.void:
        """Say that nothing more comes, if all that came before could be said."""
        if self.handshaking or self.fault or self.rest:
            return
        with suppress(OSError, ValueError, MemoryError):  # it has not said the same yet, and need not
            self.wire.unwrap()
        self._push(fd)

    @cython.cfunc
    def _push(self, fd: cython.int) -> cython.bint:
        """Write what is to be written, as far as the socket takes it; whether there still is somebody."""
        if self.outgoing.pending:
            self.rest += self.outgoing.read()
        if not self.rest:
            return True
        size: cython.Py_ssize_t = len(self.rest)
        n: cython.Py_ssize_t = descriptors.write(fd, mem.borrow(self.rest, size), 0, size)
        if n == BROKEN:
            return False
        if n > 0:
            self.rest = self.rest[n:]
        return True


def said(wrong: Exception) -> str:
    """What OpenSSL finds wrong, in its own words without capitals."""
    certificate = getattr(wrong, "verify_message", "")
    if certificate:
        return f"the client's certificate: {certificate}"
    reason = getattr(wrong, "reason", "") or str(wrong) or type(wrong).__name__
    return str(reason).replace("_", " ").lower()
