"""TLS on one connection: OpenSSL between two buffers, with the event loop's own read and write around them.

    descriptor ── read ──▶ incoming ─▶ ┌────────────┐ ─▶ requests, in the loop's scratch buffer
                                       │ ssl_object │
    descriptor ◀─ write ── outgoing ◀─ └────────────┘ ◀─ replies

OpenSSL never sees the descriptor, so nothing here waits. Two things are true after every call:

- All complete records are decrypted: no request stays inside OpenSSL, where epoll does not see it.
- Encrypted bytes that did not fit into the socket are in `unsent_encrypted`. The reply bytes that they
  contain still count as unsent, so that the event loop sees that something is left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import cython

from headrace import mem
from headrace.server.loop import descriptors

if TYPE_CHECKING:
    import ssl  # loaded by tls.py, when there is a port for it

# Plaintext of a record; OpenSSL's buffers grow no larger.
RECORD_PLAINTEXT_MAX = cython.declare(cython.Py_ssize_t, 16 * 1024)
RECORD_MAX = cython.declare(cython.Py_ssize_t, 16 * 1024 + 256 + 5)  # RFC 8446, 5.2; with its header
WRITE_MAX = cython.declare(cython.Py_ssize_t, 64 * 1024)  # of replies, in one call
COPIED_MAX = cython.declare(cython.Py_ssize_t, 2048)  # so few bytes are copied faster than a view is made

WOULD_BLOCK = cython.declare(cython.Py_ssize_t, -1)  # as in descriptors
BROKEN = cython.declare(cython.Py_ssize_t, -2)
WANT_READ = cython.declare(cython.int, 2)  # ssl.SSL_ERROR_WANT_READ: a record is incomplete


@cython.final
@cython.cclass
class TlsConnection:
    """The server's end of a TLS connection. It begins with the handshake, which read() continues."""

    incoming_bio: Any  # ssl.MemoryBIO, and so is outgoing
    outgoing_bio: Any
    ssl_object: Any  # an ssl.SSLObject
    # What reads and writes for it: its own read() and write() are functions of Python that only pass on their
    # arguments, which costs some percent of a small request.
    raw_ssl_object: Any
    handshaking: cython.bint
    eof: cython.bint  # the client has sent close_notify
    error: str  # why it is broken; empty if the client just disconnected
    unsent_encrypted: bytes  # encrypted bytes that the socket has not accepted yet
    unsent_plaintext_bytes: cython.Py_ssize_t  # bytes of replies that are in `unsent_encrypted`
    on_handshake_done: Any  # called with the Connection when the handshake is complete

    def __init__(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        ssl_object: ssl.SSLObject,
        on_complete: Callable[[Any], None],
    ) -> None:
        """Take OpenSSL's object and the buffers between it and the descriptor.

        Args:
            on_complete: called with the Connection when the handshake is complete.
        """
        self.on_handshake_done = on_complete
        self.incoming_bio = incoming
        self.outgoing_bio = outgoing
        self.ssl_object = ssl_object
        self.raw_ssl_object = getattr(ssl_object, "_sslobj", ssl_object)
        self.handshaking = True
        self.eof = False
        self.error = ""
        self.unsent_encrypted = b""
        self.unsent_plaintext_bytes = 0

    @cython.ccall
    def read(self, fd: cython.int, scratch: bytearray) -> cython.Py_ssize_t:
        """Read and decrypt to the front of scratch, which is large enough.

        Returns the number of bytes; 0 after close_notify; WOULD_BLOCK when there is nothing yet; BROKEN,
        perhaps with `error` set. A connection that ends without close_notify is BROKEN: an attacker may
        have cut it.
        """
        p: cython.p_uchar = scratch
        n: cython.Py_ssize_t = descriptors.read(fd, p, RECORD_MAX, len(scratch) - RECORD_MAX)
        if n <= 0:
            return n if n == WOULD_BLOCK else BROKEN
        filled: cython.Py_ssize_t = 0
        try:
            filled = self._decrypt(scratch, RECORD_MAX + n)
        except (
            OSError,
            ValueError,
            MemoryError,
        ) as wrong:  # SSLError is an OSError, and at times a ValueError
            self.error = describe_error(wrong)
        if not self._flush(fd) or self.error:  # handshake messages, or an alert
            return BROKEN
        if filled == 0:
            return 0 if self.eof else WOULD_BLOCK
        return filled

    @cython.cfunc
    def _decrypt(self, scratch: bytearray, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Decrypt all complete records to the front of scratch; return the number of bytes.

        The received bytes are at scratch[RECORD_MAX:end]. Decrypted text, with that of an earlier partial
        record, never overwrites bytes that are yet to be decrypted. Raises OSError or ValueError on
        invalid data.
        """
        p: cython.p_uchar = scratch
        filled: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        size: cython.Py_ssize_t
        at: cython.Py_ssize_t = RECORD_MAX
        while at < end and not self.eof:
            size = min(RECORD_MAX, end - at)
            self.incoming_bio.write(
                mem.to_bytes(p, at, size) if size <= COPIED_MAX else memoryview(scratch)[at : at + size]
            )
            at += size
            try:
                if self.handshaking:
                    self.ssl_object.do_handshake()
                    self.handshaking = False
                while self.incoming_bio.pending and not self.eof:
                    n = self.raw_ssl_object.read(
                        len(scratch) - filled, scratch if filled == 0 else memoryview(scratch)[filled:]
                    )
                    filled += n
                    self.eof = n == 0
            except OSError as wrong:
                if wrong.errno != WANT_READ:
                    raise
        return filled

    @cython.cfunc
    def write(
        self, fd: cython.int, p: cython.p_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Encrypt the n bytes at p[at:], and send as much as the socket accepts.

        Returns how many bytes were sent, or BROKEN. The next call must begin with the first unsent byte:
        that one and some after it may be encrypted already, in `unsent_encrypted`.
        """
        done: cython.Py_ssize_t = 0
        if self.unsent_encrypted or self.unsent_plaintext_bytes > 0:  # read() may have sent all of it
            if not self._flush(fd):
                return BROKEN
            if self.unsent_encrypted:
                return 0
            done = self.unsent_plaintext_bytes
            self.unsent_plaintext_bytes = 0
        if self.handshaking or done >= n:
            return done
        pieces: list[bytes] = []
        end: cython.Py_ssize_t = min(n, done + WRITE_MAX)
        begin: cython.Py_ssize_t = done
        size: cython.Py_ssize_t
        try:
            while begin < end:
                size = min(RECORD_PLAINTEXT_MAX, end - begin)
                self.raw_ssl_object.write(mem.to_bytes(p, at + begin, size))
                pieces.append(self.outgoing_bio.read())
                begin += size
        except (OSError, ValueError, MemoryError) as wrong:
            self.error = describe_error(wrong)
            return BROKEN
        self.unsent_encrypted = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if not self._flush(fd):
            return BROKEN
        if self.unsent_encrypted:
            self.unsent_plaintext_bytes = end - done
            return done
        return end

    @cython.ccall
    def close_notify(self, fd: cython.int) -> cython.void:
        """Send close_notify, if everything before it could be sent."""
        if self.handshaking or self.error or self.unsent_encrypted:
            return
        with suppress(OSError, ValueError, MemoryError):  # the client has not sent its own yet, and need not
            self.ssl_object.unwrap()
        self._flush(fd)

    @cython.cfunc
    def _flush(self, fd: cython.int) -> cython.bint:
        """Write pending bytes as far as the socket accepts them; return False if the connection is broken."""
        if self.outgoing_bio.pending:
            self.unsent_encrypted += self.outgoing_bio.read()
        if not self.unsent_encrypted:
            return True
        size: cython.Py_ssize_t = len(self.unsent_encrypted)
        n: cython.Py_ssize_t = descriptors.write(fd, mem.borrow(self.unsent_encrypted, size), 0, size)
        if n == BROKEN:
            return False
        if n > 0:
            self.unsent_encrypted = self.unsent_encrypted[n:]
        return True


def describe_error(wrong: Exception) -> str:
    """Return what is wrong with the client's certificate; otherwise OpenSSL's reason in lower case."""
    certificate = getattr(wrong, "verify_message", "")
    if certificate:
        return f"the client's certificate: {certificate}"
    reason = getattr(wrong, "reason", "") or str(wrong) or type(wrong).__name__
    return str(reason).replace("_", " ").lower()
