"""XADD: add an entry to a stream.

XADD key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [IDMPAUTO pid | IDMP pid iid] [IFLAST id]
    [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value …]

XADD key <DELAY ms | DUE unix-ms> * field value [field value …]

IFLAST and scheduled entries are extensions of Headrace. IFLAST adds the entry only if the stream's last ID is
the given one. A scheduled entry is added to the stream `{key}:scheduled`, with its time as its last field;
the engine moves it to its stream when it is due (streams/schedule.py).
"""

from __future__ import annotations

import cython

from headrace import companion_keys, mem
from headrace.commands import arguments, redis7_equivalents
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.stream import idempotency
from headrace.commands.stream.trim import TrimOptions
from headrace.errors import (
    CommandError,
    DamagedColdRun,
    IdsExhausted,
    IdTooSmall,
    InvalidStreamId,
    StreamFull,
    WrongArgumentCount,
    to_text,
)
from headrace.keyspace import watermark
from headrace.limits import ID_TEXT_MAX
from headrace.streams import idempotency as idempotent_requests
from headrace.streams import retention
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.rules import StreamRules
from headrace.streams.schedule import DUE_FIELD
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

TIME_DIGITS_MAX = 17
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
STAR = cython.declare(cython.uchar, 42)
DASH = cython.declare(cython.uchar, 45)

# How the ID is chosen.
ID_FROM_CLIENT = cython.declare(cython.int, 0)  # `ms-seq` or `ms`
ID_FROM_CLOCK = cython.declare(cython.int, 1)  # `*`
# `ms-*`: the client gives the milliseconds, the server the rest.
ID_WITH_NEXT_SEQUENCE = cython.declare(cython.int, 2)
ID_WHEN_DUE = cython.declare(cython.int, 3)  # when the entry is due


class IdZero(CommandError):
    text = "ERR The ID specified in XADD must be greater than 0-0"


class TwoIdmp(CommandError):
    text = "ERR syntax error, IDMP/IDMPAUTO specified multiple times"


class NoProducer(CommandError):
    def __init__(self, option: str) -> None:
        super().__init__(f"ERR syntax error, {option} requires a non-empty producer ID")


class NoIid(CommandError):
    text = "ERR syntax error, IDMP requires a non-empty idempotent ID"


class TwoIfLast(CommandError):
    text = "ERR syntax error, IFLAST specified multiple times"


class BadScheduledAdd(CommandError):
    text = "ERR syntax error, DELAY and DUE are the only option of their XADD, and its ID must be *"


class TimeOutOfRange(CommandError):
    text = "ERR DELAY and DUE must be milliseconds of at most 17 digits"


class IdmpOfChosenId(CommandError):
    text = "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"


@cython.final
@cython.no_gc
@cython.freelist(8)
@cython.cclass
class XAddRequest:
    """A parsed XADD. The key is argv[1]; the field-value pairs follow the ID."""

    make_stream: cython.bint
    trim: TrimOptions | None  # None if there are no options
    id_source: cython.int
    ms: cython.ulonglong
    seq: cython.ulonglong
    id_at: cython.Py_ssize_t
    pid_at: cython.Py_ssize_t  # index of the producer ID of an idempotent request; 0: not idempotent
    iid_at: cython.Py_ssize_t  # 0: the iid is computed from the pairs
    if_last_at: cython.Py_ssize_t  # index of IFLAST; 0: not given

    def __init__(self) -> None:
        self.make_stream = True
        self.trim = None
        self.id_source = ID_FROM_CLIENT
        self.ms = 0
        self.seq = 0
        self.id_at = 2
        self.pid_at = 0
        self.iid_at = 0
        self.if_last_at = 0

    @cython.cfunc
    def read_id(self, word: bytes) -> cython.void:
        """Parse the ID: the first argument that is not an option."""
        p: cython.p_const_uchar = word
        n: cython.Py_ssize_t = len(word)
        if n == 1 and p[0] == STAR:
            self.id_source = ID_FROM_CLOCK
            return
        if 2 < n <= ID_TEXT_MAX and p[n - 1] == STAR and p[n - 2] == DASH:
            word = mem.to_bytes(p, 0, n - 2)
            if b"-" in word:  # the first dash separates
                raise InvalidStreamId()
            self.id_source = ID_WITH_NEXT_SEQUENCE
        wanted: StreamId = stream_id.parse(word, 0)
        self.ms = wanted.ms
        self.seq = wanted.seq

    @cython.cfunc
    def read_option(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the option at `at` unless it is a trim option; return the index after it, or `at` for none."""
        left: cython.Py_ssize_t = len(argv) - at - 1
        word: bytes = argv[at]
        if arguments.is_keyword(word, b"NOMKSTREAM"):
            self.make_stream = False
            return at + 1
        if left >= 2 and arguments.is_keyword(word, b"IDMP"):
            self._set_producer(argv, at + 1, "IDMP")
            if not argv[at + 2]:
                raise NoIid()
            self.iid_at = at + 2
            return at + 3
        if left >= 1 and arguments.is_keyword(word, b"IDMPAUTO"):
            self._set_producer(argv, at + 1, "IDMPAUTO")
            return at + 2
        if left >= 1 and arguments.is_keyword(word, b"IFLAST"):
            if self.if_last_at != 0:
                raise TwoIfLast()
            stream_id.parse(argv[at + 1], 0)
            self.if_last_at = at
            return at + 2
        return at

    @cython.cfunc
    def _set_producer(self, argv: list[bytes], at: cython.Py_ssize_t, option: str) -> cython.void:
        if self.pid_at != 0:
            raise TwoIdmp()
        if not argv[at]:
            raise NoProducer(option)
        self.pid_at = at

    @cython.cfunc
    def iid(self, argv: list[bytes]) -> bytes:
        """Return the request's idempotent ID: the producer's, or one computed from the pairs."""
        return (
            argv[self.iid_at]
            if self.iid_at != 0
            else idempotent_requests.iid_from_content(argv, self.id_at + 1)
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_expected_last(self, argv: list[bytes], stream: Stream) -> cython.bint:
        """Return whether the stream's last ID is that of the option IFLAST; a new stream has 0-0."""
        wanted: StreamId = stream_id.parse(argv[self.if_last_at + 1], 0)
        return wanted.ms == stream.last_ms and wanted.seq == stream.last_seq

    @cython.cfunc
    def choose_id(self, stream: Stream, now: cython.longlong) -> cython.void:
        """Determine ms and seq. Raises IdTooSmall or IdsExhausted unless they exceed the stream's last ID."""
        if stream.last_ms == U64_MAX and stream.last_seq == U64_MAX:
            raise IdsExhausted()
        if self.id_source == ID_FROM_CLOCK:
            self._set_id_from_clock(stream, mem.as_unsigned(max(now, 0)))
            return
        if self.id_source == ID_WITH_NEXT_SEQUENCE and self.ms == stream.last_ms:
            if stream.last_seq == U64_MAX:
                raise IdTooSmall()
            self.seq = stream.last_seq + 1
        if not stream_id.is_before(stream.last_ms, stream.last_seq, self.ms, self.seq):
            raise IdTooSmall()

    @cython.cfunc
    @cython.exceptval(check=False)
    def _set_id_from_clock(self, stream: Stream, now: cython.ulonglong) -> cython.void:
        """Set the ID for `*`: the time, or the successor of the last ID if that is greater."""
        if now > stream.last_ms:
            self.ms = now
            self.seq = 0
        elif stream.last_seq < U64_MAX:
            self.ms = stream.last_ms
            self.seq = stream.last_seq + 1
        else:
            self.ms = stream.last_ms + 1
            self.seq = 0


@cython.cfunc
def parse(call: Call) -> XAddRequest:
    """Parse the request. All errors are raised before anything is changed."""
    argv: list[bytes] = call.argv
    n: cython.Py_ssize_t = len(argv)
    request: XAddRequest = XAddRequest()
    if _is_no_option(argv[2]):
        request.read_id(argv[2])
    elif is_scheduled(argv):
        request.id_source = ID_WHEN_DUE
        return request
    else:
        request.id_at = _read_options(request, call, argv)
    pairs: cython.Py_ssize_t = n - request.id_at - 1
    if pairs < 2 or pairs % 2 != 0:
        raise WrongArgumentCount("xadd")
    if request.id_source == ID_FROM_CLIENT and request.ms == 0 and request.seq == 0:
        raise IdZero()
    return request


@cython.cfunc
def _is_no_option(word: bytes) -> cython.bint:
    """Return True if the argument is empty or begins like an ID, with a character up to `9`."""
    p: cython.p_const_uchar = word
    return len(word) == 0 or p[0] <= 57


@cython.cfunc
def _read_options(request: XAddRequest, call: Call, argv: list[bytes]) -> cython.Py_ssize_t:
    """Read the options and the ID after them; return the ID's index, or the end if there is none."""
    n: cython.Py_ssize_t = len(argv)
    at: cython.Py_ssize_t = 2
    after: cython.Py_ssize_t
    trim: TrimOptions = TrimOptions()
    while at < n and not _is_no_option(argv[at]):
        after = trim.read(argv, at)
        if after == at:
            after = request.read_option(argv, at)
        if after == at:
            break
        at = after
    if at < n:
        request.read_id(argv[at])
    trim.check_options(False, call.keyspace.settings.stream_node_max_entries, call.replayed())
    if request.pid_at != 0 and request.id_source != ID_FROM_CLOCK and at < n and not call.replayed():
        raise IdmpOfChosenId()
    request.trim = trim
    return at


def run(call: Call) -> None:
    """XADD: append the entry, reply with its ID, trim the stream; record it with the ID and an exact trim.

    The reply is null, and nothing is added, if NOMKSTREAM or IFLAST prevents it.
    """
    request: XAddRequest = parse(call)
    argv: list[bytes] = call.argv
    key: bytes = argv[1]
    if request.id_source == ID_WHEN_DUE:
        schedule(call)
        return
    found: Stream | None = call.database.stream(key)
    stream: Stream
    if found is not None:
        stream = found
    elif request.make_stream:
        stream = idempotency.new_stream(call)
    else:
        call.reply.null()
        return
    iid: bytes = b""
    if request.pid_at != 0:
        iid = request.iid(argv)
        if _reply_if_duplicate(call, request, iid, stream):
            return
    if request.if_last_at != 0 and not request.is_expected_last(argv, stream):
        call.reply.null()
        return
    if stream.rules is not None and not call.replayed():
        check_stream_not_full(call, key, stream, stream.rules)
    request.choose_id(stream, call.now)
    if stream.rules is not None and request.trim is not None:
        request.trim.check_strict_add(call, key, stream, request.ms, request.seq)
    if request.trim is not None:
        request.trim.require_cold_run(call, stream, 1)
    stream.append(
        request.ms,
        request.seq,
        argv,
        request.id_at + 1,
        call.keyspace.settings.stream_node_max_bytes,
        call.keyspace.settings.stream_node_max_entries,
    )
    if found is None:
        call.database.put(key, stream)
    call.reply.stream_id(request.ms, request.seq)
    if request.pid_at != 0:
        memory: IdempotencyStore = idempotency.ensure_idempotency(call, stream)
        memory.record(argv[request.pid_at], iid, request.ms, request.seq, stream.idmp_maxsize)
    trimmed: cython.longlong = 0 if request.trim is None else _trim(call, request.trim, stream)
    effect: list[bytes] | None = _effect(request, argv, stream) if call.effects.recording else None
    if effect is not None and request.trim is not None and request.trim.deletions is not None:
        redis7_equivalents.add_trim_equivalent(call, effect, stream, request.trim.deletions)
    call.finish_change_and_retry_waiters(key, "t", b"xadd", effect)
    if trimmed > 0:
        call.notify("t", b"xtrim", key)


@cython.cfunc
@cython.exceptval(-1, check=True)
def _trim(call: Call, trim: TrimOptions, stream: Stream) -> cython.longlong:
    """Trim the stream after the entry was added; return how many entries were removed."""
    try:
        return trim.apply(call, stream)
    except DamagedColdRun:  # it could be read before the entry was added; the next trim reports it
        return 0


@cython.cfunc
def is_scheduled(argv: list[bytes]) -> cython.bint:
    """Return whether the entry is to be scheduled: the first option is DELAY or DUE."""
    return arguments.is_keyword(argv[2], b"DELAY") or arguments.is_keyword(argv[2], b"DUE")


def schedule(call: Call) -> None:
    """Add the entry to the stream of scheduled entries; reply with its ID there."""
    argv = call.argv
    if len(argv) < 5 or argv[4] != b"*":
        raise BadScheduledAdd()
    if not argv[3].isdigit() or len(argv[3]) > TIME_DIGITS_MAX:
        raise TimeOutOfRange()
    call.database.stream(argv[1])  # raises WrongType
    due = int(argv[3]) + (max(call.now, 0) if argv[2].upper() == b"DELAY" else 0)
    key = companion_keys.schedule_name(argv[1])
    call.argv = [argv[0], key, *argv[4:], DUE_FIELD, b"%d" % due]
    run(call)
    stream = call.database.stream(key)
    if stream is not None:
        call.keyspace.rule_registry.mark_changed(stream)


def check_stream_not_full(call: Call, key: bytes, stream: Stream, rules: StreamRules) -> None:
    """Raise StreamFull, and count the rejection, if the rules of the stream do not let it grow."""
    archived = watermark.archived_id(call.database, key, stream) if rules.keep_unarchived else None
    limit = retention.reached_limit_name(stream, rules, archived)
    if limit:
        ruled = call.keyspace.rule_registry.streams.get(stream)
        if ruled is not None:
            ruled.rejected_count += 1
        most = rules.max_len if limit == "MAX-LEN" else rules.max_bytes
        raise StreamFull(f"FULL stream '{to_text(key)}' is at its limit: {limit} {most}")


@cython.cfunc
def _reply_if_duplicate(call: Call, request: XAddRequest, iid: bytes, stream: Stream) -> cython.bint:
    """Reply with the ID of the existing entry and return True if the producer has sent the request before.

    The result of a replayed request does not depend on what the stream still remembers: a request logged with
    an ID was new; a duplicate is logged unchanged, with `*`.
    """
    memory: IdempotencyStore | None = stream.idempotency
    known: StreamId | None = None
    if memory is not None:
        known = memory.lookup(call.argv[request.pid_at], iid)
    if request.id_source != ID_FROM_CLOCK or (known is None and not call.replayed()):
        return False
    if memory is not None:
        memory.duplicate_count += 1
    if known is None:
        call.reply.null()
    else:
        call.reply.stream_id(known.ms, known.seq)
    call.count_and_record_changes(1)
    return True


@cython.cfunc
def _effect(request: XAddRequest, argv: list[bytes], stream: Stream) -> list[bytes]:
    """Return the XADD that repeats this one, independently of the clock."""
    if request.id_source == ID_FROM_CLIENT and request.trim is None:
        return argv
    words: list[bytes] = argv[:]
    if request.id_source != ID_FROM_CLIENT:
        words[request.id_at] = stream_id.text_of(request.ms, request.seq)
    if request.trim is not None:
        request.trim.replace_by_exact_trim(stream, words)
    if request.if_last_at != 0:
        del words[request.if_last_at : request.if_last_at + 2]
    return words


COMMANDS = [
    Command(
        "xadd",
        -5,
        run,
        "write denyoom fast schedules",
        keys="1: RW update",
        tips="nondeterministic_output",
        group="stream",
        since="5.0.0",
        summary="Appends an entry to a stream, and optionally trims the stream.",
        complexity="O(1), and O(n) for the n entries that a trim removes",
        syntax="key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [IDMPAUTO pid | IDMP pid iid]"
        " [IFLAST id] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id>"
        " field value [field value ...] | key <DELAY milliseconds | DUE unix-milliseconds> * field value"
        " [field value ...]",
    ),
]
