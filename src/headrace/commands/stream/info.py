"""XINFO: information about a stream, its groups and its consumers.

XINFO STREAM key [FULL [COUNT count]]
XINFO GROUPS key
XINFO CONSUMERS key group
XINFO HELP
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.group.members import NoSuchGroupForKey
from headrace.commands.server.help import help_row
from headrace.commands.spec import Command
from headrace.commands.stream import entries
from headrace.errors import NoSuchKey, UnknownSubcommand
from headrace.resp.writer import ReplyWriter
from headrace.streams import delivery
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.iterator import StreamIterator
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
FULL_COUNT = cython.declare(cython.longlong, 10)  # entries shown by FULL without COUNT


@cython.cfunc
def existing_stream(call: Call) -> Stream:
    """Return the stream that the subcommand names. Raises NoSuchKey if it does not exist."""
    stream: Stream | None = call.database.stream(call.argv[2])
    if stream is None:
        raise NoSuchKey()
    return stream


def run_stream(call: Call) -> None:
    """XINFO STREAM: reply with the stream's counters, first and last entry, or with FULL all it holds."""
    stream: Stream = existing_stream(call)
    argv: list[bytes] = call.argv
    n: cython.Py_ssize_t = len(argv)
    answer: ReplyWriter = call.answer
    if n == 3:
        answer.map(16)
        answer_counters(answer, stream)
        answer.bulk(b"groups")
        answer.integer(stream.group_count)
        answer.bulk(b"first-entry")
        entries.answer_edge(answer, stream, False)
        answer.bulk(b"last-entry")
        entries.answer_edge(answer, stream, True)
        return
    count: cython.longlong = parse_full(argv)
    answer.map(15)
    answer_counters(answer, stream)
    answer.bulk(b"entries")
    entries.answer_entries(answer, StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, False), count)
    answer.bulk(b"groups")
    answer.array(stream.group_count)
    group: Group
    for group in stream.groups():
        answer_group(answer, stream, group, count)


@cython.cfunc
def parse_full(argv: list[bytes]) -> cython.longlong:
    """Return the COUNT of `XINFO STREAM key FULL [COUNT count]`; 0 shows all."""
    n: cython.Py_ssize_t = len(argv)
    if n not in (4, 6) or not arguments.is_keyword(argv[3], b"FULL"):
        raise UnknownSubcommand("XINFO", argv[1])
    if n == 4:
        return FULL_COUNT
    if not arguments.is_keyword(argv[4], b"COUNT"):
        raise UnknownSubcommand("XINFO", argv[1])
    count: cython.longlong = arguments.parse_i64(argv[5])
    return count if count >= 0 else FULL_COUNT


@cython.cfunc
def answer_counters(answer: ReplyWriter, stream: Stream) -> cython.void:
    """Write the thirteen pairs with which both forms of XINFO STREAM begin."""
    answer.bulk(b"length")
    answer.integer(mem.as_signed(stream.length))
    answer.bulk(b"radix-tree-keys")
    answer.integer(stream.nodes.keys)
    answer.bulk(b"radix-tree-nodes")
    answer.integer(stream.nodes.nodes)
    answer.bulk(b"last-generated-id")
    answer.stream_id(stream.last_ms, stream.last_seq)
    answer.bulk(b"max-deleted-entry-id")
    answer.stream_id(stream.max_deleted_ms, stream.max_deleted_seq)
    answer.bulk(b"entries-added")
    answer.integer(mem.as_signed(stream.entries_added))
    answer.bulk(b"recorded-first-entry-id")
    answer.stream_id(stream.first_ms, stream.first_seq)
    memory: IdempotencyStore | None = stream.idempotency
    answer.bulk(b"idmp-duration")
    answer.integer(stream.idmp_duration_s)
    answer.bulk(b"idmp-maxsize")
    answer.integer(stream.idmp_maxsize)
    answer.bulk(b"pids-tracked")
    answer.integer(0 if memory is None else memory.producer_count())
    answer.bulk(b"iids-tracked")
    answer.integer(0 if memory is None else memory.iid_count())
    answer.bulk(b"iids-added")
    answer.integer(0 if memory is None else mem.as_signed(memory.added))
    answer.bulk(b"iids-duplicates")
    answer.integer(0 if memory is None else mem.as_signed(memory.duplicates))


@cython.cfunc
def answer_progress(answer: ReplyWriter, stream: Stream, group: Group) -> cython.void:
    """Write the group's position and its lag; null for an unknown number."""
    lag: cython.longlong = delivery.lag(stream, group)
    answer.bulk(b"last-delivered-id")
    answer.stream_id(group.last_ms, group.last_seq)
    answer.bulk(b"entries-read")
    if group.entries_read < 0:
        answer.null()
    else:
        answer.integer(group.entries_read)
    answer.bulk(b"lag")
    if delivery.lag_is_known(stream, group):
        answer.integer(lag)
    else:
        answer.null()


@cython.cfunc
def answer_group(answer: ReplyWriter, stream: Stream, group: Group, count: cython.longlong) -> cython.void:
    """Write a group as FULL shows it, with at most `count` (0: all) pending entries in each list."""
    pending: PendingEntries = group.pending
    slot: cython.Py_ssize_t = pending.from_id(0, 0)
    shown: cython.longlong = 0
    owner: Consumer | None
    consumer: Consumer
    answer.map(8)
    answer.bulk(b"name")
    answer.bulk(group.name)
    answer_progress(answer, stream, group)
    answer.bulk(b"pel-count")
    answer.integer(pending.count)
    answer.bulk(b"nacked-count")
    answer.integer(pending.unowned)
    answer.bulk(b"pending")
    mark: cython.Py_ssize_t = answer.open_array()
    while slot >= 0 and (count == 0 or shown < count):
        owner = pending.owner_of(slot)
        answer.array(4)
        answer.stream_id(pending.ms_of(slot), pending.seq_of(slot))
        answer.bulk(b"" if owner is None else owner.name)
        answer.integer(pending.delivery_time_of(slot))
        answer.integer(pending.delivery_count_of(slot))
        shown += 1
        slot = pending.after(slot)
    answer.close_array(mark, shown)
    answer.bulk(b"consumers")
    answer.array(group.consumer_count())
    for consumer in group.consumers():
        answer_consumer(answer, pending, consumer, count)


@cython.cfunc
def answer_consumer(
    answer: ReplyWriter, pending: PendingEntries, consumer: Consumer, count: cython.longlong
) -> cython.void:
    """Write a consumer as FULL shows it, with at most `count` (0: all) of its pending entries."""
    slot: cython.Py_ssize_t = pending.of_consumer_from(consumer, 0, 0)
    shown: cython.longlong = 0
    answer.map(5)
    answer.bulk(b"name")
    answer.bulk(consumer.name)
    answer.bulk(b"seen-time")
    answer.integer(consumer.seen_ms)
    answer.bulk(b"active-time")
    answer.integer(consumer.active_ms)
    answer.bulk(b"pel-count")
    answer.integer(consumer.pending_count)
    answer.bulk(b"pending")
    mark: cython.Py_ssize_t = answer.open_array()
    while slot >= 0 and (count == 0 or shown < count):
        answer.array(3)
        answer.stream_id(pending.ms_of(slot), pending.seq_of(slot))
        answer.integer(pending.delivery_time_of(slot))
        answer.integer(pending.delivery_count_of(slot))
        shown += 1
        slot = pending.of_consumer_after(consumer, slot)
    answer.close_array(mark, shown)


def run_groups(call: Call) -> None:
    """XINFO GROUPS: reply with the stream's groups, in byte order of their names."""
    stream: Stream = existing_stream(call)
    answer: ReplyWriter = call.answer
    group: Group
    answer.array(stream.group_count)
    for group in stream.groups():
        answer.map(6)
        answer.bulk(b"name")
        answer.bulk(group.name)
        answer.bulk(b"consumers")
        answer.integer(group.consumer_count())
        answer.bulk(b"pending")
        answer.integer(group.pending.count)
        answer_progress(answer, stream, group)


def run_consumers(call: Call) -> None:
    """XINFO CONSUMERS: reply with the group's consumers, in byte order of their names."""
    group: Group | None = existing_stream(call).group(call.argv[3])
    if group is None:
        raise NoSuchGroupForKey(call.argv[3], call.argv[2])
    answer: ReplyWriter = call.answer
    consumer: Consumer
    answer.array(group.consumer_count())
    for consumer in group.consumers():
        answer.map(4)
        answer.bulk(b"name")
        answer.bulk(consumer.name)
        answer.bulk(b"pending")
        answer.integer(consumer.pending_count)
        answer.bulk(b"idle")
        answer.integer(max(0, call.now - consumer.seen_ms))
        answer.bulk(b"inactive")
        answer.integer(-1 if consumer.active_ms < 0 else max(0, call.now - consumer.active_ms))


SUBCOMMANDS = [
    Command(
        "xinfo|stream",
        -3,
        run_stream,
        "readonly",
        keys=(2, 2, 1),
        group="stream",
        since="5.0.0",
        summary="Describes a stream: its counters and its first and last entry, or all of it.",
        complexity="O(1); with FULL, O(n) for the n entries that are shown",
        syntax="key [FULL [COUNT count]]",
    ),
    Command(
        "xinfo|groups",
        3,
        run_groups,
        "readonly",
        keys=(2, 2, 1),
        group="stream",
        since="5.0.0",
        summary="Lists the groups of a stream.",
        syntax="key",
    ),
    Command(
        "xinfo|consumers",
        4,
        run_consumers,
        "readonly",
        keys=(2, 2, 1),
        group="stream",
        since="5.0.0",
        summary="Lists the consumers of a group.",
        syntax="key group",
    ),
]

COMMANDS = [
    Command(
        "xinfo",
        -2,
        None,
        group="stream",
        since="5.0.0",
        summary="Describes streams, groups and consumers.",
        subcommands=[*SUBCOMMANDS, help_row("xinfo", SUBCOMMANDS, categories="stream")],
    ),
]
