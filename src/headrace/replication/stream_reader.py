r"""The commands in the stream of a primary, and how far they were applied.

    chunks    |  received 1   |  received 2   |  received 3 |
                    ^               ^         ^             ^
                  start           offset    parsed         end

    start     up to here the chunks were taken for the replicas of this server: take_applied_bytes()
    offset    up to here the stream was applied
    parsed    the end of the last command that next() returned: within a transaction it is after the offset
    end       what the parser was given

The offset counts the bytes of the stream. It advances when a command has been applied, and for a transaction
when its EXEC has: a replica that reconnects asks for the whole transaction again.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace.errors import HeadraceError, ProtocolError
from headrace.resp.parser import RequestParser
from headrace.visibility import Public

BULK_MAX = cython.declare(cython.longlong, 1 << 62)  # the primary has checked the lengths of arguments
ERROR_EXCERPT_BYTES_MAX = 128  # of received bytes that an error quotes


class LinkError(HeadraceError):
    """The link cannot continue: close the connection and try again later. The text says why."""


@cython.final
@cython.cclass
class ReplicationReader:
    """Parses the stream: feed() received bytes, then call next() until it returns None."""

    applied_offset: Public[cython.longlong]
    parsed_offset: cython.longlong
    received_end_offset: Public[cython.longlong]
    is_open: Public[cython.bint]  # the data are those of the offset: commands may be applied
    _on_getack: Callable[[], None] | None  # the primary asks for an acknowledgement
    _parser: RequestParser
    _chunks: list[bytes]
    _start: cython.longlong
    _in_transaction: cython.bint

    def __init__(self, offset: cython.longlong, on_getack: Callable[[], None]) -> None:
        self.applied_offset = offset
        self.is_open = False
        self._on_getack = on_getack
        self._parser = RequestParser()
        self._parser.bulk_max = BULK_MAX
        self._chunks = []
        self._in_transaction = False
        self.begin(offset)

    @cython.ccall
    def begin(self, offset: cython.longlong) -> cython.void:
        """Set the offset at which the stream begins. Nothing may have been fed before."""
        self.applied_offset = self.received_end_offset = self._start = self.parsed_offset = offset

    @cython.ccall
    def close(self) -> cython.void:
        """Make next() return None from now on; drop the reference to the link."""
        self.is_open = False
        self._on_getack = None

    @cython.ccall
    def feed(self, data: bytes) -> cython.void:
        """Append received bytes of the stream."""
        if len(data) > 0:
            self.received_end_offset += len(data)
            self._chunks.append(data)
            self._parser.feed(data)

    @cython.ccall
    def next(self) -> list[bytes] | None:
        """Return the next command; None if it is incomplete, or if the reader is not open.

        The call marks the previous command as applied, unless that is within a transaction. PING and
        REPLCONF are handled here.

        Raises:
            LinkError: if the bytes are not commands.
        """
        argv: list[bytes] | None
        word: bytes
        count: cython.Py_ssize_t
        if not self.is_open:
            return None
        while True:
            if not self._in_transaction:
                self.applied_offset = self.parsed_offset
            argv = self._parse()
            if argv is None:
                return None
            self.parsed_offset = self.received_end_offset - self._parser.pending_bytes()
            count = len(argv)
            if count == 1:
                word = argv[0].upper()
                if word == b"PING":
                    continue
                if word == b"MULTI":
                    self._in_transaction = True
                elif word == b"EXEC":
                    self._in_transaction = False
            elif count == 3 and len(argv[0]) == 8 and argv[0].upper() == b"REPLCONF":
                if argv[1].upper() == b"GETACK" and self._on_getack is not None:
                    self._on_getack()
                continue
            return argv

    @cython.cfunc
    def _parse(self) -> list[bytes] | None:
        try:
            return self._parser.next()
        except ProtocolError as error:
            received = b"".join(self._chunks)[self.applied_offset - self._start :]
            text = (
                f"the stream is damaged after offset {self.applied_offset} ({error}): {shown_bytes(received)}"
            )
            raise LinkError(text) from None

    @cython.ccall
    def take_applied_bytes(self) -> bytes:
        """Return the bytes of the stream that were applied since the last call."""
        count: cython.Py_ssize_t = self.applied_offset - self._start
        if count == 0:
            return b""
        received: bytes = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._start = self.applied_offset
        if count == len(received):
            self._chunks = []
            return received
        self._chunks = [received[count:]]
        return received[:count]


def shown_bytes(data: bytes | bytearray) -> str:
    """Return the beginning of received bytes for a message."""
    text = repr(bytes(data[:ERROR_EXCERPT_BYTES_MAX]))[1:]
    more = len(data) - ERROR_EXCERPT_BYTES_MAX
    return f"{text} and {more} more bytes" if more > 0 else text
