"""XCFGSET: options and rules of a stream.

XCFGSET key [MKSTREAM] [IDMP-DURATION seconds] [IDMP-MAXSIZE count] [rule value …]

The rules are those of streams/rules.py. MKSTREAM creates an empty stream if there is none. Both are
extensions of Headrace.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands import arguments, rule_effects, strict_rules
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.stream import idempotency
from headrace.errors import CommandError, InvalidSyntax, NoSuchKey
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.rules import HOT_RULES, NO_STREAM_RULES, InvalidRule, StreamRules
from headrace.streams.stream import Stream

IDMP_DURATION_MAX_S = cython.declare(cython.longlong, 86400)  # seconds: a day
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


@cython.final
@cython.cclass
class XCfgSetRequest:
    """The options of an XCFGSET."""

    duration_s: cython.longlong
    maxsize: cython.longlong
    iids_added: cython.longlong  # the lifetime counters: set only by a log
    iids_duplicates: cython.longlong
    rules: list[bytes]  # names and values of rules, in turns
    make_stream: cython.bint

    def __init__(self) -> None:
        self.duration_s = NOT_GIVEN
        self.maxsize = NOT_GIVEN
        self.iids_added = NOT_GIVEN
        self.iids_duplicates = NOT_GIVEN
        self.rules = []
        self.make_stream = False

    @cython.cfunc
    def read(self, argv: list[bytes], replayed: cython.bint) -> cython.void:
        """Read the options from left to right; each may be given once."""
        at: cython.Py_ssize_t = 2
        if len(argv) > 2 and arguments.is_keyword(argv[2], b"MKSTREAM"):
            self.make_stream = True
            at = 3
        while at < len(argv):
            if at + 1 == len(argv):
                raise InvalidSyntax()
            if arguments.is_keyword(argv[at], b"IDMP-DURATION"):
                if self.duration_s != NOT_GIVEN:
                    raise DuplicateParameter("IDMP-DURATION")
                self.duration_s = arguments.parse_i64(argv[at + 1])
                if not 1 <= self.duration_s <= IDMP_DURATION_MAX_S:
                    raise DurationOutOfRange()
            elif arguments.is_keyword(argv[at], b"IDMP-MAXSIZE"):
                if self.maxsize != NOT_GIVEN:
                    raise DuplicateParameter("IDMP-MAXSIZE")
                self.maxsize = arguments.parse_i64(argv[at + 1])
                if not 1 <= self.maxsize <= MAXSIZE_MAX:
                    raise MaxsizeOutOfRange()
            elif replayed and arguments.is_keyword(argv[at], b"IIDS-ADDED"):
                self.iids_added = arguments.parse_i64(argv[at + 1])
            elif replayed and arguments.is_keyword(argv[at], b"IIDS-DUPLICATES"):
                self.iids_duplicates = arguments.parse_i64(argv[at + 1])
            elif StreamRules.has_rule(argv[at]):
                self.rules += argv[at : at + 2]
            else:
                raise InvalidSyntax()
            at += 2
        given: cython.bint = self.duration_s != NOT_GIVEN or self.maxsize != NOT_GIVEN
        if not given and not self.rules and not replayed:
            raise NothingToSet()


def run(call: Call) -> None:
    """XCFGSET: set options and rules. If an option changes, all remembered requests are removed.

    A rewritten log may also contain IIDS-ADDED and IIDS-DUPLICATES: the lifetime numbers of remembered
    requests and of duplicates.
    """
    found: Stream | None = call.database.stream(call.argv[1])
    request: XCfgSetRequest = XCfgSetRequest()
    if found is None and (len(call.argv) < 3 or not arguments.is_keyword(call.argv[2], b"MKSTREAM")):
        raise NoSuchKey()
    request.read(call.argv, call.replayed())
    stream: Stream = idempotency.new_stream(call) if found is None else found
    before: StreamRules = stream.rules or NO_STREAM_RULES
    rules: StreamRules = before.with_changes(request.rules)
    strict_rules.check_strict_may_be_set(call, call.argv[1], rules)
    if rules.limits_memory() and not before.limits_memory() and not call.replayed():
        open_cold_storage(call)
    start: cython.Py_ssize_t = call.effects.next_index()
    if found is None:
        store_empty_stream(call, stream)
    if request.iids_added != NOT_GIVEN or request.iids_duplicates != NOT_GIVEN:
        restore_iid_counters(call, stream, request)
    set_idempotency_options(call, stream, request)
    if rules != before:
        stream.rules = rules if rules != NO_STREAM_RULES else None
        rule_effects.record_rules(call, [b"XCFGSET", call.argv[1], *request.rules])
        call.keyspace.rule_registry.on_rules_changed(call.database.index, call.argv[1], stream, None)
    call.effects.make_atomic(start)
    call.reply.ok()


def open_cold_storage(call: Call) -> None:
    """Open the cold storage for HOT-BYTES or HOT-AGE. Raises CommandError if that is not possible."""
    opener = call.keyspace.rule_registry.open_cold_storage
    if opener is None:
        raise InvalidRule(
            f"{' and '.join(HOT_RULES)} need a data directory, and these data are in memory only"
        )
    opener()


def store_empty_stream(call: Call, stream: Stream) -> None:
    """Store a new stream; the effects, XADD with a trim and XSETID, are known to all servers."""
    key: bytes = call.argv[1]
    call.database.put(key, stream)
    call.database.mark_modified(key)
    call.record([b"XADD", key, b"MAXLEN", b"=", b"0", b"0-1", b"x", b"y"])
    call.record([b"XSETID", key, b"0-0", b"ENTRIESADDED", b"0", b"MAXDELETEDID", b"0-0"])


@cython.cfunc
def set_idempotency_options(call: Call, stream: Stream, request: XCfgSetRequest) -> cython.void:
    """Set how idempotent requests are remembered. A change removes those that are remembered."""
    if request.duration_s == NOT_GIVEN:
        request.duration_s = stream.idmp_duration_s
    if request.maxsize == NOT_GIVEN:
        request.maxsize = stream.idmp_maxsize
    if request.duration_s == stream.idmp_duration_s and request.maxsize == stream.idmp_maxsize:
        return
    stream.idmp_duration_s = request.duration_s
    stream.idmp_maxsize = request.maxsize
    memory: IdempotencyStore | None = stream.idempotency
    if memory is not None:
        memory.duration_s = request.duration_s
        memory.clear()
    if request.rules:  # which are recorded in another form
        call.argv = [b"XCFGSET", call.argv[1], b"IDMP-DURATION", b"%d" % request.duration_s]
        call.argv += [b"IDMP-MAXSIZE", b"%d" % request.maxsize]
    call.count_and_record_changes(1)


@cython.cfunc
def restore_iid_counters(call: Call, stream: Stream, request: XCfgSetRequest) -> cython.void:
    """Restore the lifetime counters of a stream from a rewritten log."""
    memory: IdempotencyStore = idempotency.ensure_idempotency(call, stream)
    memory.added_count = mem.as_unsigned(request.iids_added)
    memory.duplicate_count = mem.as_unsigned(request.iids_duplicates)
    call.count_and_record_changes(1)


COMMANDS = [
    Command(
        "xcfgset",
        -2,
        run,
        "write fast",
        keys="1: RW update",
        group="stream",
        since="8.6.0",
        summary="Sets how a stream remembers idempotent requests, and its rules.",
        complexity="O(1), and O(n) for the n requests forgotten when an option changes",
        syntax="key [MKSTREAM] [IDMP-DURATION seconds] [IDMP-MAXSIZE count] [rule value ...]",
    ),
]
