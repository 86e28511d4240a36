"""XNACK: a consumer returns pending entries to the group without acknowledging them.

XNACK key group <SILENT | FAIL | FATAL> IDS numids id [id …] [RETRYCOUNT count] [FORCE]

Returned entries have no owner, and a reader with CLAIM gets them first.
"""

from __future__ import annotations

import cython

from headrace.commands import arguments, redis7_equivalents
from headrace.commands.call import Call
from headrace.commands.group import members
from headrace.commands.spec import Command
from headrace.errors import CommandError
from headrace.streams import cold_reads
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
NOT_GIVEN = cython.declare(cython.longlong, -1)

SILENT = cython.declare(cython.int, 0)  # the delivery does not count
FAIL = cython.declare(cython.int, 1)  # the delivery counts
FATAL = cython.declare(cython.int, 2)  # the delivery count becomes the maximum


class BadMode(CommandError):
    text = "ERR mode must be SILENT, FAIL, or FATAL"


class BadNumids(CommandError):
    text = "ERR numids must be a positive integer"


class NumidsMismatch(CommandError):
    text = "ERR number of IDs doesn't match numids"


class RetryCountNegative(CommandError):
    text = "ERR Invalid RETRYCOUNT value, must be >= 0"


class NoIdsKeyword(CommandError):
    text = "ERR syntax error, expected IDS keyword"


@cython.final
@cython.cclass
class XNackRequest:
    """A parsed XNACK."""

    mode: cython.int
    id_count: cython.Py_ssize_t  # how many IDs
    ids_at: cython.Py_ssize_t
    retry_count: cython.longlong  # NOT_GIVEN: depends on the mode
    force: cython.bint  # also entries that are not pending

    def __init__(self, argv: list[bytes]) -> None:
        self.mode = _mode_of(argv[3])
        self.id_count = 0
        self.ids_at = 0
        self.retry_count = NOT_GIVEN
        self.force = False
        at: cython.Py_ssize_t = 4
        while at < len(argv):
            at = self._read_option(argv, at)
        if self.id_count == 0:
            raise NoIdsKeyword()

    @cython.cfunc
    def _read_option(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the option at `at`; return the index after it."""
        if arguments.is_keyword(argv[at], b"FORCE"):
            self.force = True
            return at + 1
        if at + 1 < len(argv) and arguments.is_keyword(argv[at], b"IDS"):
            self.id_count = arguments.parse_id_count(argv, at + 1, BadNumids, NumidsMismatch)
            self.ids_at = at + 2
            return self.ids_at + self.id_count
        if at + 1 < len(argv) and arguments.is_keyword(argv[at], b"RETRYCOUNT"):
            self.retry_count = arguments.parse_i64(argv[at + 1])
            if self.retry_count < 0:
                raise RetryCountNegative()
            return at + 2
        raise members.UnrecognizedOption("XNACK", argv[at])

    @cython.cfunc
    @cython.exceptval(check=False)
    def delivery_count_after(self, deliveries: cython.longlong) -> cython.longlong:
        """Return the delivery count of a returned entry; `deliveries` is its count before."""
        if self.retry_count >= 0:
            return self.retry_count
        if self.mode == FATAL:
            return I64_MAX
        return deliveries - 1 if self.mode == SILENT and deliveries > 0 else deliveries


@cython.cfunc
def _mode_of(word: bytes) -> cython.int:
    if arguments.is_keyword(word, b"SILENT"):
        return SILENT
    if arguments.is_keyword(word, b"FAIL"):
        return FAIL
    if arguments.is_keyword(word, b"FATAL"):
        return FATAL
    raise BadMode()


def run(call: Call) -> None:
    """XNACK: return entries; reply how many. An entry named twice counts twice, and moves to the end."""
    argv: list[bytes] = call.argv
    stream: Stream = members.stream_of_group(call)
    group: Group | None = stream.group(argv[2])
    assert group is not None
    request: XNackRequest = XNackRequest(argv)
    ids: list[StreamId] = [
        stream_id.parse(word, 0) for word in argv[request.ids_at : request.ids_at + request.id_count]
    ]
    pending: PendingEntries = group.pending
    if request.force:
        cold_reads.ensure_entries_loaded(stream, [one for one in ids if pending.find(one.ms, one.seq) < 0])
    words: list[bytes] = []  # of the returned entries, if they are needed
    given_back: cython.longlong = 0
    slot: cython.Py_ssize_t
    wanted: StreamId
    for wanted in ids:
        slot = pending.find(wanted.ms, wanted.seq)
        if slot >= 0:
            pending.assign(slot, None, 0, request.delivery_count_after(pending.delivery_count_of(slot)))
        elif request.force and stream.contains(wanted.ms, wanted.seq):
            pending.add(wanted.ms, wanted.seq, None, 0, request.delivery_count_after(0))
        else:
            continue
        given_back += 1
        if call.effects.needs_redis7_equivalents:
            words.append(wanted.text())
    if given_back > 0:
        if call.effects.needs_redis7_equivalents:
            redis7_equivalents.add_nack_equivalent(call, stream, group, words)
        call.count_and_record_changes(given_back)
        call.database.signal_ready(argv[1])
    call.reply.integer(given_back)


COMMANDS = [
    Command(
        "xnack",
        -7,
        run,
        "write fast",
        keys="1: RW update",
        group="stream",
        since="8.8.0",
        summary="Returns pending entries to the group, for other consumers to claim.",
        complexity="O(log n) for each ID, for n pending entries",
        syntax="key group <SILENT | FAIL | FATAL> IDS numids id [id ...] [RETRYCOUNT count] [FORCE]",
    ),
]
