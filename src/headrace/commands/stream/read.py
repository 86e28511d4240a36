"""XLEN, XRANGE, XREVRANGE and XREAD: reads without a group.

XLEN key
XRANGE key start end [COUNT count]
XREVRANGE key end start [COUNT count]
XREAD [COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK milliseconds] STREAMS key [key …] id [id …]
"""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.stream import entries, read_options
from headrace.commands.stream.read_options import ReadOptions, ReplyBudget
from headrace.errors import CommandError, InvalidSyntax, WrongType
from headrace.keyspace.keyspace import Database
from headrace.resp.writer import ReplyWriter
from headrace.streams import cold_reads
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

NO_COUNT = cython.declare(cython.longlong, -1)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


class NewOnlyForGroups(CommandError):
    text = (
        "ERR The > ID can be specified only when calling XREADGROUP"
        " using the GROUP <group> <consumer> option."
    )


def run_length(call: Call) -> None:
    """XLEN: reply with the number of entries."""
    stream: Stream | None = call.database.stream(call.argv[1])
    call.reply.integer(0 if stream is None else stream.length)


def run_range(call: Call) -> None:
    """XRANGE: reply with the entries between two IDs, oldest first."""
    first: StreamId = stream_id.parse_start(call.argv[2])
    last: StreamId = stream_id.parse_end(call.argv[3])
    _write_range(call, first, last, False)


def run_reverse_range(call: Call) -> None:
    """XREVRANGE: as XRANGE, newest first, with the bounds swapped."""
    first: StreamId = stream_id.parse_start(call.argv[3])
    last: StreamId = stream_id.parse_end(call.argv[2])
    _write_range(call, first, last, True)


@cython.cfunc
def _write_range(call: Call, first: StreamId, last: StreamId, reverse: cython.bint) -> cython.void:
    count: cython.longlong = _parse_range_count(call.argv)
    stream: Stream | None = call.database.stream(call.argv[1])
    if stream is None:
        call.reply.array(0)
    elif count == 0:
        call.reply.null_array()
    else:
        if count != NO_COUNT and not reverse:
            cold_reads.raise_unless_range_loaded(stream, first.ms, first.seq, last.ms, count)
        walk: StreamIterator = StreamIterator(stream, first.ms, first.seq, last.ms, last.seq, reverse)
        entries.write_entries(call.reply, walk, 0 if count == NO_COUNT else count)


@cython.cfunc
def _parse_range_count(argv: list[bytes]) -> cython.longlong:
    """Return the last COUNT after the bounds, 0 for a negative one; NO_COUNT if there is none."""
    count: cython.longlong = NO_COUNT
    at: cython.Py_ssize_t = 4
    while at < len(argv):
        if at + 1 == len(argv) or not arguments.is_keyword(argv[at], b"COUNT"):
            raise InvalidSyntax()
        count = arguments.parse_i64(argv[at + 1])
        if count < 0:
            count = 0
        at += 2
    return count


@cython.final
@cython.cclass
class XReadRequest:
    """A parsed XREAD. It is also the waiter: `serve` runs again when a key has new data."""

    options: ReadOptions
    keys: list[bytes]
    after_ids: list[StreamId | None]  # for each key; None is `+`: the ID before the last entry at that time
    lowest_ids: dict[
        bytes, StreamId | None
    ]  # for each key the lowest of its IDs, once the session is blocked

    def __init__(self, argv: list[bytes], now: cython.longlong) -> None:
        self.options = ReadOptions(False)
        self.options.read(argv, now)
        self.keys = []
        self.after_ids = []
        self.lowest_ids = {}

    @cython.cfunc
    def resolve(self, call: Call) -> cython.void:
        """Parse keys and IDs. `$` becomes an ID here, once: it must not change during the wait."""
        argv: list[bytes] = call.argv
        at: cython.Py_ssize_t = self.options.streams_at
        pairs: cython.Py_ssize_t = (len(argv) - at) // 2
        i: cython.Py_ssize_t
        stream: Stream | None
        word: bytes
        for i in range(at, at + pairs):
            stream = call.database.stream(argv[i])
            word = argv[i + pairs]
            self.keys.append(argv[i])
            if word == b"$":
                self.after_ids.append(StreamId(0, 0) if stream is None else stream.last_id())
            elif word == b"+":
                self.after_ids.append(None)
            elif word == b">":
                raise NewOnlyForGroups()
            else:
                self.after_ids.append(stream_id.parse(word, 0))

    @cython.ccall
    def serve(self, call: Call) -> cython.bint:
        """Write the streams that have entries above their ID; return False, and write nothing, if none has.

        Retried for a blocked session. A key that now has another type does not wake the session by itself.
        But if another key has entries, WrongType is raised.
        """
        answered: cython.Py_ssize_t = 0
        wrong_type: cython.bint = False
        mark: cython.Py_ssize_t = call.reply.open_array()
        budget: ReplyBudget = ReplyBudget(self.options, call.reply)
        i: cython.Py_ssize_t
        value: object
        for i in range(len(self.keys)):
            if budget.stream_limit() == 0:
                break
            value = call.database.find(self.keys[i])
            if isinstance(value, Stream):
                answered += self._write_stream(call.reply, value, i, budget)
            elif value is not None:
                wrong_type = True
        if answered == 0:
            call.reply.rewind(mark)
            return False
        if wrong_type:
            raise WrongType()
        if call.reply.protocol == 2:
            call.reply.close_array(mark, answered)
        else:
            call.reply.close_map(mark, answered)
        return True

    @cython.cfunc
    def index_lowest_ids(self) -> cython.void:
        """Compute `lowest_ids`, for may_be_served()."""
        i: cython.Py_ssize_t
        after: StreamId | None
        lowest: StreamId | None
        for i in range(len(self.keys)):
            after = self.after_ids[i]
            if self.keys[i] in self.lowest_ids and after is not None:
                lowest = self.lowest_ids[self.keys[i]]
                if lowest is None or stream_id.is_before(lowest.ms, lowest.seq, after.ms, after.seq):
                    continue
            self.lowest_ids[self.keys[i]] = after

    @cython.ccall
    def may_be_served(self, database: Database, key: bytes) -> cython.bint:
        """Return whether the stream at the key has an ID above the lowest one waited for."""
        stream: Stream
        after: StreamId | None
        value: object = database.values.find(key) if database.contains(key) else None
        if not isinstance(value, Stream):
            return False
        stream = value
        after = self.lowest_ids[key]
        return after is None or stream_id.is_before(after.ms, after.seq, stream.last_ms, stream.last_seq)

    @cython.cfunc
    def _write_stream(
        self, reply: ReplyWriter, stream: Stream, i: cython.Py_ssize_t, budget: ReplyBudget
    ) -> cython.Py_ssize_t:
        """Write the i-th key and its entries; return 1, or 0 and write nothing if there are none."""
        after: StreamId | None = self.after_ids[i]
        if after is None:
            after = stream.last_entry_id()
            if after is None:
                return 0
            after = after.predecessor()
        elif not stream_id.is_before(after.ms, after.seq, stream.last_ms, stream.last_seq):
            return 0  # the usual case of a client that polls; also the greatest ID
        if self.options.count > 0 and self.options.maxsize == 0:
            cold_reads.raise_unless_range_loaded(stream, after.ms, after.seq, U64_MAX, budget.stream_limit())
        mark: cython.Py_ssize_t = reply.mark()
        if reply.protocol == 2:
            reply.array(2)
        reply.bulk(self.keys[i])
        if entries.write_entries_after(reply, stream, after, budget) > 0:
            return 1
        reply.rewind(mark)
        return 0


def run_read(call: Call) -> None:
    """XREAD: reply with the entries above the IDs, or wait for some."""
    request: XReadRequest = XReadRequest(call.argv, call.now)
    request.resolve(call)
    if request.serve(call):
        return
    if request.options.block_ms == read_options.NO_BLOCK or not call.policy.may_block:
        call.reply.null_array()
    else:
        request.index_lowest_ids()
        deadline: cython.longlong = request.options.deadline(call.now)
        call.wait(request.keys, deadline, request.serve, "null_array", None, request.may_be_served)


def stream_key_positions(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys in an XREAD or XREADGROUP. Raises CommandError if it is malformed."""
    skip = {b"BLOCK": 2, b"COUNT": 2, b"MAXCOUNT": 2, b"MAXSIZE": 2, b"CLAIM": 2, b"GROUP": 3, b"NOACK": 1}
    at = 1
    while at < len(argv):
        word = argv[at].upper()
        if word == b"STREAMS":
            words = len(argv) - at - 1
            if words == 0 or words % 2 != 0:
                break
            return list(range(at + 1, at + 1 + words // 2))
        if word not in skip:
            break
        at += skip[word]
    raise CommandError("ERR Invalid arguments specified for command")


COMMANDS = [
    Command(
        "xlen",
        2,
        run_length,
        "readonly fast",
        keys="1: RO",
        group="stream",
        since="5.0.0",
        summary="Returns the number of entries of a stream.",
        syntax="key",
    ),
    Command(
        "xrange",
        -4,
        run_range,
        "readonly",
        keys="1: RO access",
        group="stream",
        since="5.0.0",
        summary="Reads the entries of a stream between two IDs, oldest first.",
        complexity="O(n) for the n entries returned",
        syntax="key start end [COUNT count]",
    ),
    Command(
        "xrevrange",
        -4,
        run_reverse_range,
        "readonly",
        keys="1: RO access",
        group="stream",
        since="5.0.0",
        summary="Reads the entries of a stream between two IDs, newest first.",
        complexity="O(n) for the n entries returned",
        syntax="key end start [COUNT count]",
    ),
    Command(
        "xread",
        -4,
        run_read,
        "readonly blocking",
        keys="STREAMS 1: RO access",
        find_keys=stream_key_positions,
        group="stream",
        since="5.0.0",
        summary="Reads the entries above an ID from one or more streams; can wait for the first.",
        complexity="O(n) for the n entries returned, and O(k) for k keys to wait for",
        syntax="[COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK milliseconds]"
        " STREAMS key [key ...] id [id ...]",
    ),
]
