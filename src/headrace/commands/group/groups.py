"""XGROUP: a stream's consumer groups, and their consumers.

XGROUP CREATE key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]
XGROUP SETID key group <id | $> [ENTRIESREAD entries-read]
XGROUP DESTROY key group
XGROUP CREATECONSUMER key group consumer
XGROUP DELCONSUMER key group consumer
XGROUP CFGSET key group rule value …                          configure.py
XGROUP HELP
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.command_rows import help_row
from headrace.commands.group import configure, loss_log
from headrace.commands.spec import Command
from headrace.commands.stream import idempotency
from headrace.commands.stream.info import NoSuchGroupForKey
from headrace.errors import CommandError, GroupExists, KeyRequired, UnknownSubcommand, to_text
from headrace.streams import cold_reads, delivery
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

ENTRIES_READ_UNKNOWN = cython.declare(cython.longlong, -1)  # entries-read is unknown


HAND_OVER_IDS_PER_EFFECT_MAX = cython.declare(cython.Py_ssize_t, 500)  # in one effect


class EntriesReadNegative(CommandError):
    text = "ERR value for ENTRIESREAD must be positive or -1"


class NoOtherConsumer(CommandError):
    """The last consumer of a group with ORDERED-BY has pending entries."""

    def __init__(self, name: bytes, count: int) -> None:
        super().__init__(
            f"ERR consumer '{to_text(name)}' has {count} pending entries, and the group no other consumer to"
            " process them in order; acknowledge them or remove ORDERED-BY first"
        )


@cython.final
@cython.cclass
class GroupOptions:
    """The options of CREATE and SETID after the ID."""

    make_stream: cython.bint
    entries_read: cython.longlong
    entries_read_at: cython.Py_ssize_t  # index of entries_read in argv; 0: not given
    loss_counters: list[
        int
    ]  # passed, lost_unread_base and lost_pending of the group; only in a rewritten log

    def __init__(self) -> None:
        self.make_stream = False
        self.entries_read = ENTRIES_READ_UNKNOWN
        self.entries_read_at = 0
        self.loss_counters = []

    @cython.cfunc
    def read(self, argv: list[bytes], creating: cython.bint, replayed: cython.bint) -> cython.void:
        """Read all arguments after the ID."""
        at: cython.Py_ssize_t = 5
        while at < len(argv):
            if creating and arguments.is_keyword(argv[at], b"MKSTREAM"):
                self.make_stream = True
                at += 1
            elif at + 1 < len(argv) and arguments.is_keyword(argv[at], b"ENTRIESREAD"):
                self.entries_read = arguments.parse_i64(argv[at + 1])
                self.entries_read_at = at + 1
                if self.entries_read < ENTRIES_READ_UNKNOWN:
                    raise EntriesReadNegative()
                at += 2
            elif at + 3 < len(argv) and replayed and arguments.is_keyword(argv[at], b"LOSSES"):
                self.loss_counters = [arguments.parse_i64(word) for word in argv[at + 1 : at + 4]]
                at += 4
            else:
                raise UnknownSubcommand("XGROUP", argv[1])

    @cython.cfunc
    def cap_entries_read(self, call: Call, stream: Stream) -> cython.void:
        """Limit entries_read to the number of entries ever added, also in argv, which is recorded.

        A value from a log is not limited. It was valid when it was logged; an XSETID may have lowered the
        number of entries since.
        """
        most: cython.longlong = max(ENTRIES_READ_UNKNOWN, mem.as_signed(stream.entries_added))
        if self.entries_read > most and not call.replayed():
            self.entries_read = most
            call.argv = call.argv.copy()
            call.argv[self.entries_read_at] = b"%d" % most


@cython.cfunc
def stream_at(call: Call) -> Stream:
    """Return the stream that the subcommand names. Raises KeyRequired if it does not exist."""
    stream: Stream | None = call.database.stream(call.argv[2])
    if stream is None:
        raise KeyRequired()
    return stream


@cython.cfunc
def group_at(call: Call) -> Group:
    """Return the group that the subcommand names. Raises KeyRequired or NoSuchGroupForKey."""
    group: Group | None = stream_at(call).group(call.argv[3])
    if group is None:
        raise NoSuchGroupForKey(call.argv[3], call.argv[2])
    return group


@cython.cfunc
def record_group_change(call: Call, event: bytes) -> cython.void:
    """Count a change of a group, record the request and publish the event."""
    call.count_and_record_changes(1)
    call.notify("t", event, call.argv[2])


def run_create(call: Call) -> None:
    """XGROUP CREATE: create a group, with MKSTREAM also its stream."""
    argv: list[bytes] = call.argv
    key: bytes = argv[2]
    options: GroupOptions = GroupOptions()
    options.read(argv, True, False)
    found: Stream | None = call.database.stream(key)
    if found is None and not options.make_stream:
        raise KeyRequired()
    if len(argv) > 8:
        raise UnknownSubcommand("XGROUP", argv[1])
    stream: Stream = idempotency.new_stream(call) if found is None else found
    after: StreamId = stream.last_id() if argv[4] == b"$" else stream_id.parse(argv[4], 0)
    if found is None:
        store_new_stream(call, key, stream)
    if stream.group(argv[3]) is not None:
        raise GroupExists()
    cold_reads.raise_unless_entries_loaded(stream, [after])
    options.cap_entries_read(call, stream)
    stream.start_counting_losses(stream.make_group(argv[3], after.ms, after.seq, options.entries_read))
    record_group_change(call, b"xgroup-create")
    call.reply.ok()


@cython.cfunc
def store_new_stream(call: Call, key: bytes, stream: Stream) -> cython.void:
    """Store the new, empty stream. It and its group count as one change."""
    call.database.put(key, stream)
    call.database.invalidate_watchers(key)


def run_set_id(call: Call) -> None:
    """XGROUP SETID: set the group's last ID; pending entries stay."""
    argv: list[bytes] = call.argv
    options: GroupOptions = GroupOptions()
    options.read(argv, False, call.replayed())
    stream: Stream = stream_at(call)
    group: Group = group_at(call)
    if len(argv) not in (5, 7) and not options.loss_counters:
        raise UnknownSubcommand("XGROUP", argv[1])
    after: StreamId = stream.last_id() if argv[4] == b"$" else stream_id.parse_bound(argv[4], 0)
    cold_reads.raise_unless_entries_loaded(stream, [after, StreamId(group.last_ms, group.last_seq)])
    delivery.set_position(stream, group, after.ms, after.seq)
    options.cap_entries_read(call, stream)
    group.entries_read = options.entries_read
    if options.loss_counters:
        group.passed_count, group.lost_unread_base, group.lost_pending_count = options.loss_counters
    if call.replayed():  # the log has named them when the group read
        loss_log.mark_as_logged(stream, group)
    record_group_change(call, b"xgroup-setid")
    call.reply.ok()


def run_destroy(call: Call) -> None:
    """XGROUP DESTROY: remove a group; clients that wait for it get an error."""
    stream = stream_at(call)
    if not stream.drop_group(call.argv[3]):
        call.reply.integer(0)
        return
    call.keyspace.rule_registry.on_group_removed(stream, call.argv[3])
    record_group_change(call, b"xgroup-destroy")
    call.database.signal_ready(call.argv[2])
    call.reply.integer(1)


def run_create_consumer(call: Call) -> None:
    """XGROUP CREATECONSUMER: create a consumer; reply 1, or 0 if it exists."""
    group: Group = group_at(call)
    if group.consumer(call.argv[4]) is not None:
        call.reply.integer(0)
        return
    group.make_consumer(call.argv[4], call.now)
    record_group_change(call, b"xgroup-createconsumer")
    call.reply.integer(1)


def run_delete_consumer(call: Call) -> None:
    """XGROUP DELCONSUMER: remove a consumer; reply with the number of its pending entries."""
    group: Group = group_at(call)
    consumer: Consumer | None = group.consumer(call.argv[4])
    if consumer is None:
        call.reply.integer(0)
        return
    pending: cython.Py_ssize_t = consumer.pending_count
    start: cython.Py_ssize_t = call.effects.next_index() if call.effects.recording else 0
    if pending > 0 and group.is_ordered() and not call.replayed():
        _hand_over(call, group, consumer)
    group.drop_consumer(consumer)
    record_group_change(call, b"xgroup-delconsumer")
    if call.effects.recording:
        call.effects.make_atomic(start)
    call.reply.integer(pending)


@cython.cfunc
def _hand_over(call: Call, group: Group, consumer: Consumer) -> cython.void:
    """Give the pending entries of a consumer that is being removed to the one seen most recently.

    Used for groups with ORDERED-BY. The entries get the delivery time 0: they wait to be delivered again.
    Raises NoOtherConsumer.
    """
    pending: PendingEntries = group.pending
    stream: Stream | None = call.database.stream(call.argv[2])
    other: Consumer | None = None
    candidate: Consumer
    for candidate in group.consumers():
        if candidate is not consumer and (other is None or candidate.seen_ms > other.seen_ms):
            other = candidate
    if other is None:
        raise NoOtherConsumer(consumer.name, consumer.pending_count)
    assert stream is not None
    words: list[bytes] = []
    existing: list[int] = []
    slot: cython.Py_ssize_t
    for slot in consumer.owned_entries.slots():  # all of them first: a cold run may be unreadable
        if stream.contains(pending.ms_of(slot), pending.seq_of(slot)):
            existing.append(slot)
    for slot in existing:
        words.append(stream_id.text_of(pending.ms_of(slot), pending.seq_of(slot)))
        pending.assign(slot, other, 0, pending.delivery_count_of(slot))
        if call.effects.recording and words and len(words) % HAND_OVER_IDS_PER_EFFECT_MAX == 0:
            _record_hand_over(call, group, other, words)
            words = []
    if call.effects.recording and words:
        _record_hand_over(call, group, other, words)
    call.database.signal_ready(call.argv[2])


@cython.cfunc
def _record_hand_over(call: Call, group: Group, other: Consumer, words: list[bytes]) -> cython.void:
    claim: list[bytes] = [b"XCLAIM", call.argv[2], group.name, other.name, b"0", *words]
    call.record([*claim, b"TIME", b"0", b"FORCE", b"JUSTID"])


SUBCOMMANDS = [
    configure.COMMAND,
    Command(
        "xgroup|create",
        -5,
        run_create,
        "write denyoom",
        keys="2: RW insert",
        group="stream",
        since="5.0.0",
        summary="Creates a consumer group, and optionally its stream.",
        syntax="key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
    ),
    Command(
        "xgroup|createconsumer",
        5,
        run_create_consumer,
        "write denyoom",
        keys="2: RW insert",
        group="stream",
        since="6.2.0",
        summary="Creates a consumer of a group.",
        syntax="key group consumer",
    ),
    Command(
        "xgroup|delconsumer",
        5,
        run_delete_consumer,
        "write",
        keys="2: RW delete",
        group="stream",
        since="5.0.0",
        summary="Removes a consumer from a group, and its pending entries.",
        complexity="O(n log m) for its n pending entries and m of the group",
        syntax="key group consumer",
    ),
    Command(
        "xgroup|destroy",
        4,
        run_destroy,
        "write",
        keys="2: RW delete",
        group="stream",
        since="5.0.0",
        summary="Removes a consumer group.",
        complexity="O(n) for n pending entries",
        syntax="key group",
    ),
    Command(
        "xgroup|setid",
        -5,
        run_set_id,
        "write",
        keys="2: RW update",
        group="stream",
        since="5.0.0",
        summary="Sets the last-delivered ID of a group.",
        syntax="key group <id | $> [ENTRIESREAD entries-read]",
    ),
]

COMMANDS = [
    Command(
        "xgroup",
        -2,
        None,
        group="stream",
        since="5.0.0",
        summary="Manages consumer groups.",
        subcommands=[*SUBCOMMANDS, help_row("xgroup", SUBCOMMANDS, categories="stream")],
    ),
]
