"""XCFGSET and XIDMPRECORD: how a stream remembers idempotent requests, and how a log restores them.

XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE count]
XIDMPRECORD key pid iid id
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, NoSuchKey
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

DURATION_MAX = cython.declare(cython.longlong, 86400)  # seconds: a day
MAXSIZE_MAX = cython.declare(cython.longlong, 10_000)
NOT_GIVEN = cython.declare(cython.longlong, 0)


class DuplicateParameter(CommandError):
    def __init__(self, parameter: str) -> None:
        super().__init__(f"ERR {parameter} specified multiple times")


class DurationOutOfRange(CommandError):
    text = "ERR IDMP-DURATION must be between 1 and 86400 seconds"


class MaxsizeOutOfRange(CommandError):
    text = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"


class NothingToSet(CommandError):
    text = "ERR At least one parameter must be specified"


class EmptyProducer(CommandError):
    text = "ERR producer ID must be non-empty"


class EmptyIid(CommandError):
    text = "ERR idempotent ID must be non-empty"


class NoSuchEntry(CommandError):
    text = "ERR No such message in stream"


class IidTaken(CommandError):
    text = "ERR IID already exists for this producer with a different stream ID"


@cython.cfunc
def new_stream(call: Call) -> Stream:
    """Create an empty stream with the present settings for idempotent requests."""
    stream: Stream = Stream()
    stream.compaction = call.keyspace.compaction
    stream.idmp_duration_s = call.keyspace.settings.stream_idmp_duration
    stream.idmp_maxsize = call.keyspace.settings.stream_idmp_maxsize
    return stream


@cython.cfunc
def ensure_idempotency(call: Call, stream: Stream) -> IdempotencyStore:
    """Return the stream's record of idempotent requests, created if needed."""
    memory: IdempotencyStore | None = stream.idempotency
    if memory is None:
        memory = IdempotencyStore(stream.idmp_duration_s, call.keyspace.idempotency_sweeper)
        stream.set_idempotency(memory)
    return memory


@cython.final
@cython.cclass
class XCfgSetRequest:
    """The options of an XCFGSET."""

    duration_s: cython.longlong
    maxsize: cython.longlong
    added: cython.longlong  # the lifetime counters: set only by a log
    duplicates: cython.longlong

    def __init__(self) -> None:
        self.duration_s = NOT_GIVEN
        self.maxsize = NOT_GIVEN
        self.added = NOT_GIVEN
        self.duplicates = NOT_GIVEN

    @cython.cfunc
    def read(self, argv: list[bytes], replayed: cython.bint) -> cython.void:
        """Read the options from left to right; each may be given once."""
        at: cython.Py_ssize_t = 2
        while at < len(argv):
            if at + 1 == len(argv):
                raise InvalidSyntax()
            if arguments.is_keyword(argv[at], b"IDMP-DURATION"):
                if self.duration_s != NOT_GIVEN:
                    raise DuplicateParameter("IDMP-DURATION")
                self.duration_s = arguments.parse_i64(argv[at + 1])
                if not 1 <= self.duration_s <= DURATION_MAX:
                    raise DurationOutOfRange()
            elif arguments.is_keyword(argv[at], b"IDMP-MAXSIZE"):
                if self.maxsize != NOT_GIVEN:
                    raise DuplicateParameter("IDMP-MAXSIZE")
                self.maxsize = arguments.parse_i64(argv[at + 1])
                if not 1 <= self.maxsize <= MAXSIZE_MAX:
                    raise MaxsizeOutOfRange()
            elif replayed and arguments.is_keyword(argv[at], b"IIDS-ADDED"):
                self.added = arguments.parse_i64(argv[at + 1])
            elif replayed and arguments.is_keyword(argv[at], b"IIDS-DUPLICATES"):
                self.duplicates = arguments.parse_i64(argv[at + 1])
            else:
                raise InvalidSyntax()
            at += 2
        if self.duration_s == NOT_GIVEN and self.maxsize == NOT_GIVEN and not replayed:
            raise NothingToSet()


def run_configure(call: Call) -> None:
    """XCFGSET: set the options; if a value changes, all remembered requests are forgotten.

    A rewritten log may also contain IIDS-ADDED and IIDS-DUPLICATES: the lifetime numbers of remembered
    requests and of duplicates.
    """
    stream: Stream | None = call.database.stream(call.argv[1])
    if stream is None:
        raise NoSuchKey()
    request: XCfgSetRequest = XCfgSetRequest()
    request.read(call.argv, call.replayed())
    if request.added != NOT_GIVEN or request.duplicates != NOT_GIVEN:
        restore_counters(call, stream, request)
    if request.duration_s == NOT_GIVEN:
        request.duration_s = stream.idmp_duration_s
    if request.maxsize == NOT_GIVEN:
        request.maxsize = stream.idmp_maxsize
    if request.duration_s != stream.idmp_duration_s or request.maxsize != stream.idmp_maxsize:
        stream.idmp_duration_s = request.duration_s
        stream.idmp_maxsize = request.maxsize
        memory: IdempotencyStore | None = stream.idempotency
        if memory is not None:
            memory.duration_s = request.duration_s
            memory.clear()
        call.count_changes(1)
    call.reply.ok()


@cython.cfunc
def restore_counters(call: Call, stream: Stream, request: XCfgSetRequest) -> cython.void:
    """Restore the lifetime counters of a stream from a rewritten log."""
    memory: IdempotencyStore = ensure_idempotency(call, stream)
    memory.added = mem.as_unsigned(request.added)
    memory.duplicates = mem.as_unsigned(request.duplicates)
    call.count_changes(1)


def run_record(call: Call) -> None:
    """XIDMPRECORD: remember a request for an existing entry, to restore a stream.

    In a replay it always succeeds, as it did before: the entry or the iid may be gone since, which a log does
    not say.
    """
    argv: list[bytes] = call.argv
    pid: bytes = argv[2]
    iid: bytes = argv[3]
    entry: StreamId = stream_id.parse(argv[4], 0)
    if not pid:
        raise EmptyProducer()
    if not iid:
        raise EmptyIid()
    stream: Stream | None = call.database.stream(argv[1])
    if stream is None:
        raise NoSuchKey()
    if not call.replayed() and not stream.contains(entry.ms, entry.seq):
        raise NoSuchEntry()
    memory: IdempotencyStore = ensure_idempotency(call, stream)
    known: StreamId | None = memory.lookup(pid, iid)
    same: cython.bint = known is not None and known.ms == entry.ms and known.seq == entry.seq
    if known is not None and not same and not call.replayed():
        raise IidTaken()
    if not same or call.replayed():
        memory.record(pid, iid, entry.ms, entry.seq, stream.idmp_maxsize)
        call.count_changes(1)
    call.reply.ok()


COMMANDS = [
    Command(
        "xcfgset",
        -2,
        run_configure,
        "write fast",
        keys=(1, 1, 1),
        group="stream",
        since="8.6.0",
        summary="Sets how many idempotent requests a stream remembers, and for how long.",
        complexity="O(1), and O(n) for the n requests forgotten when a value changes",
        syntax="key [IDMP-DURATION seconds] [IDMP-MAXSIZE count]",
    ),
    Command(
        "xidmprecord",
        5,
        run_record,
        "write denyoom fast",
        keys=(1, 1, 1),
        group="stream",
        since="8.6.2",
        summary="Makes a stream remember an idempotent request; used to restore streams.",
        complexity="O(1)",
        syntax="key pid iid id",
    ),
]
