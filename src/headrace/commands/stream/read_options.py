"""Options that XREAD and XREADGROUP share, and the limits of one reply.

[COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK milliseconds], and for groups
GROUP group consumer [CLAIM min-idle-time] [NOACK], in any order; the last of repeated options counts.
"""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.errors import CommandError, InvalidSyntax, NotAnInteger
from headrace.resp.writer import ReplyWriter

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
NO_BLOCK = cython.declare(cython.longlong, -1)
NO_CLAIM = cython.declare(cython.longlong, -1)


class IdleNotAnInteger(CommandError):
    text = "ERR min-idle-time is not an integer or out of range"


class IdleNegative(CommandError):
    text = "ERR min-idle-time must be a positive integer"


class UnbalancedKeysAndIds(CommandError):
    """The keys and IDs do not pair up."""

    def __init__(self, grouped: bool) -> None:
        command, ids = ("xreadgroup", "an ID or '>'") if grouped else ("xread", "an ID, '+', or '$'")
        super().__init__(
            f"ERR Unbalanced '{command}' list of streams: for each stream key {ids} must be specified."
        )


class OptionOnlyForGroups(CommandError):
    """An option of XREADGROUP was given to XREAD."""

    def __init__(self, option: str) -> None:
        super().__init__(
            f"ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
        )


class GroupMissing(CommandError):
    text = "ERR Missing GROUP option for XREADGROUP"


class LimitNotPositive(CommandError):
    """MAXCOUNT or MAXSIZE is zero or less."""

    def __init__(self, option: str) -> None:
        super().__init__(f"ERR {option} must be a positive integer")


class CountAboveMaxcount(CommandError):
    text = "ERR MAXCOUNT must be greater than or equal to COUNT"


@cython.final
@cython.freelist(8)
@cython.cclass
class ReadOptions:
    """The options of one XREAD or, if grouped, XREADGROUP."""

    is_group_read: cython.bint
    count: cython.longlong  # maximum entries of one stream; 0: no limit
    maxcount: cython.longlong  # maximum entries of all streams; 0: no limit
    maxsize: cython.longlong  # bytes of the reply; 0: no limit
    block_ms: cython.longlong  # milliseconds; 0: without a limit; NO_BLOCK: not at all
    # Minimum idle time in milliseconds of entries to claim; NO_CLAIM: do not claim.
    claim_idle_ms: cython.longlong
    noack: cython.bint
    group: bytes | None
    consumer: bytes | None
    streams_at: cython.Py_ssize_t  # index of the first key

    def __init__(self, grouped: cython.bint) -> None:
        self.is_group_read = grouped
        self.count = 0
        self.maxcount = 0
        self.maxsize = 0
        self.block_ms = NO_BLOCK
        self.claim_idle_ms = NO_CLAIM
        self.noack = False
        self.group = None
        self.consumer = None
        self.streams_at = 0

    @cython.ccall
    def read(self, argv: list[bytes], now: cython.longlong) -> cython.void:
        """Read all arguments up to STREAMS; keys and IDs follow it."""
        at: cython.Py_ssize_t = 1
        while self.streams_at == 0:
            if at >= len(argv):
                raise InvalidSyntax()
            at = self._read_option(argv, at, now)
        if self.is_group_read and self.group is None:
            raise GroupMissing()
        if self.maxcount > 0 and self.count > self.maxcount:
            raise CountAboveMaxcount()

    @cython.cfunc
    def _read_option(
        self, argv: list[bytes], at: cython.Py_ssize_t, now: cython.longlong
    ) -> cython.Py_ssize_t:
        """Read the option at `at`; return the index after it."""
        word: bytes = argv[at]
        left: cython.Py_ssize_t = len(argv) - at - 1
        if left >= 1 and arguments.is_keyword(word, b"STREAMS"):
            if left % 2 != 0:
                raise UnbalancedKeysAndIds(self.is_group_read)
            self.streams_at = at + 1
        elif left >= 1 and arguments.is_keyword(word, b"COUNT"):
            self.count = max(0, arguments.parse_i64(argv[at + 1]))
        elif left >= 1 and arguments.is_keyword(word, b"BLOCK"):
            self.block_ms = arguments.parse_timeout(argv[at + 1], now)
        elif left >= 2 and arguments.is_keyword(word, b"GROUP"):
            self._require_group_read("GROUP")
            self.group = argv[at + 1]
            self.consumer = argv[at + 2]
            return at + 3
        elif arguments.is_keyword(word, b"NOACK"):
            self._require_group_read("NOACK")
            self.noack = True
            return at + 1
        elif left >= 1 and arguments.is_keyword(word, b"MAXCOUNT"):
            self.maxcount = _parse_limit(argv[at + 1], "MAXCOUNT")
        elif left >= 1 and arguments.is_keyword(word, b"MAXSIZE"):
            self.maxsize = _parse_limit(argv[at + 1], "MAXSIZE")
        elif left >= 1 and arguments.is_keyword(word, b"CLAIM"):
            self._require_group_read("CLAIM")
            self.claim_idle_ms = _parse_idle(argv[at + 1])
        else:
            raise InvalidSyntax()
        return at + 2

    @cython.cfunc
    def _require_group_read(self, option: str) -> cython.void:
        if not self.is_group_read:
            raise OptionOnlyForGroups(option)

    @cython.ccall
    @cython.exceptval(check=False)
    def deadline(self, now: cython.longlong) -> cython.longlong:
        """Return the deadline of a wait that begins now, in milliseconds since 1970; 0 means never."""
        return now + self.block_ms if self.block_ms > 0 else 0


@cython.cfunc
def _parse_limit(word: bytes, option: str) -> cython.longlong:
    limit: cython.longlong = arguments.parse_i64(word)
    if limit <= 0:
        raise LimitNotPositive(option)
    return limit


@cython.cfunc
def _parse_idle(word: bytes) -> cython.longlong:
    try:
        idle: cython.longlong = arguments.parse_i64(word)
    except NotAnInteger:
        raise IdleNotAnInteger() from None
    if idle < 0:
        raise IdleNegative()
    return idle


@cython.final
@cython.freelist(8)
@cython.cclass
class ReplyBudget:
    """The limits of one reply, and what was used of them. The first entry always fits, however large."""

    reply: ReplyWriter
    written_count: cython.longlong  # entries so far
    _entries_left: cython.longlong
    _entries_per_stream_max: cython.longlong
    _maxsize: cython.longlong
    _start: cython.Py_ssize_t

    def __init__(self, options: ReadOptions, reply: ReplyWriter) -> None:
        self.reply = reply
        self.written_count = 0
        self._entries_left = options.maxcount if options.maxcount > 0 else I64_MAX
        self._entries_per_stream_max = options.count if options.count > 0 else I64_MAX
        self._maxsize = options.maxsize
        self._start = reply.mark()

    @cython.cfunc
    @cython.exceptval(check=False)
    def stream_limit(self) -> cython.longlong:
        """Return how many entries the next stream may add; 0 if the reply is full."""
        if self.is_full():
            return 0
        return (
            self._entries_per_stream_max
            if self._entries_per_stream_max < self._entries_left
            else self._entries_left
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_full(self) -> cython.bint:
        """Return whether the reply is full, by size or by count."""
        if self._entries_left <= 0:
            return True
        if self._maxsize == 0 or self.written_count == 0:
            return False
        return self.reply.mark() - self._start >= self._maxsize

    @cython.cfunc
    @cython.exceptval(check=False)
    def count_entry(self) -> cython.void:
        """Count one more entry."""
        self.written_count += 1
        self._entries_left -= 1
