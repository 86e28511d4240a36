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
from headrace.commands.command_rows import help_row
from headrace.commands.spec import Command
from headrace.commands.stream import entries
from headrace.errors import CommandError, DamagedColdRun, NoSuchKey, UnknownSubcommand, to_text
from headrace.resp.writer import ReplyWriter
from headrace.streams import delivery
from headrace.streams.cold_part import ColdPart
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.iterator import StreamIterator
from headrace.streams.pending import PendingEntries
from headrace.streams.rules import Rules
from headrace.streams.stream import Stream

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
COLD_PAIR_COUNT = cython.declare(cython.Py_ssize_t, 3)
FULL_COUNT = cython.declare(cython.longlong, 10)  # entries shown by FULL without COUNT


class NoSuchGroupForKey(CommandError):
    """The key has no group of that name."""

    def __init__(self, group: bytes, key: bytes) -> None:
        group_name = to_text(group)
        key_name = to_text(key)
        super().__init__(f"NOGROUP No such consumer group '{group_name}' for key name '{key_name}'")


@cython.cfunc
def existing_stream(call: Call) -> Stream:
    """Return the stream that the subcommand names. Raises NoSuchKey if it does not exist."""
    stream: Stream | None = call.database.stream(call.argv[2])
    if stream is None:
        raise NoSuchKey()
    return stream


def run_stream(call: Call) -> None:
    """XINFO STREAM: reply with the stream's counters, first and last entry; FULL: entries and groups."""
    stream: Stream = existing_stream(call)
    argv: list[bytes] = call.argv
    n: cython.Py_ssize_t = len(argv)
    reply: ReplyWriter = call.reply
    if n == 3:
        first_error: bytes = first_or_last_error(stream, False)
        last_error: bytes = first_or_last_error(stream, True)
        reply.map(16 + extra_pair_count(stream) + (1 if first_error or last_error else 0))
        write_counters(reply, stream)
        reply.bulk(b"groups")
        reply.integer(stream.group_count)
        reply.bulk(b"first-entry")
        write_first_or_last(reply, stream, False, first_error)
        reply.bulk(b"last-entry")
        write_first_or_last(reply, stream, True, last_error)
        write_cold(reply, stream)
        if first_error or last_error:
            reply.bulk(b"cold-error")
            reply.bulk(first_error or last_error)
        write_rules(reply, stream.rules)
        return
    count: cython.longlong = parse_full_count(argv)
    reply.map(15 + extra_pair_count(stream) + (1 if stream.run_count() > 0 else 0))
    write_counters(reply, stream)
    reply.bulk(b"entries")
    entries.write_entries(reply, StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, False), count)
    reply.bulk(b"groups")
    reply.array(stream.group_count)
    group: Group
    for group in stream.groups():
        write_group(reply, stream, group, count)
    write_cold(reply, stream)
    write_file_names(reply, stream)
    write_rules(reply, stream.rules)


@cython.cfunc
def first_or_last_error(stream: Stream, reverse: cython.bint) -> bytes:
    """Return why the first entry, or with `reverse` the last, cannot be read; empty if it can."""
    if stream.run_count() > 0:
        try:
            StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, reverse).next()
        except DamagedColdRun as error:
            return str(error).removeprefix("COLDERR ").encode(errors="surrogateescape")
    return b""


@cython.cfunc
def write_first_or_last(
    reply: ReplyWriter, stream: Stream, reverse: cython.bint, error: bytes
) -> cython.void:
    """Write the first entry, or with `reverse` the last; null if there is none, or it cannot be read."""
    if error:
        reply.null()
    else:
        entries.write_first_or_last(reply, stream, reverse)


@cython.cfunc
def parse_full_count(argv: list[bytes]) -> cython.longlong:
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
def write_counters(reply: ReplyWriter, stream: Stream) -> cython.void:
    """Write the thirteen pairs with which both forms of XINFO STREAM begin."""
    reply.bulk(b"length")
    reply.integer(mem.as_signed(stream.length))
    reply.bulk(b"radix-tree-keys")
    reply.integer(stream.node_count())
    reply.bulk(b"radix-tree-nodes")
    reply.integer(stream.nodes.node_count)
    reply.bulk(b"last-generated-id")
    reply.stream_id(stream.last_ms, stream.last_seq)
    reply.bulk(b"max-deleted-entry-id")
    reply.stream_id(stream.max_deleted_ms, stream.max_deleted_seq)
    reply.bulk(b"entries-added")
    reply.integer(mem.as_signed(stream.entries_added))
    reply.bulk(b"recorded-first-entry-id")
    reply.stream_id(stream.first_ms, stream.first_seq)
    memory: IdempotencyStore | None = stream.idempotency
    reply.bulk(b"idmp-duration")
    reply.integer(stream.idmp_duration_s)
    reply.bulk(b"idmp-maxsize")
    reply.integer(stream.idmp_maxsize)
    reply.bulk(b"pids-tracked")
    reply.integer(0 if memory is None else memory.producer_count())
    reply.bulk(b"iids-tracked")
    reply.integer(0 if memory is None else memory.iid_count())
    reply.bulk(b"iids-added")
    reply.integer(0 if memory is None else mem.as_signed(memory.added_count))
    reply.bulk(b"iids-duplicates")
    reply.integer(0 if memory is None else mem.as_signed(memory.duplicate_count))


@cython.cfunc
@cython.exceptval(-1, check=False)
def extra_pair_count(stream: Stream) -> cython.Py_ssize_t:
    """Return how many pairs write_cold() and write_rules() write for a stream."""
    return (COLD_PAIR_COUNT if stream.run_count() > 0 else 0) + (0 if stream.rules is None else 1)


@cython.cfunc
def write_cold(reply: ReplyWriter, stream: Stream) -> cython.void:
    """Write how much is in cold files instead of in memory; nothing if there are no cold files."""
    cold: ColdPart | None = stream.cold
    if cold is None or cold.totals.run_count == 0:
        return
    reply.bulk(b"cold-entries")
    reply.integer(cold.totals.entry_count)
    reply.bulk(b"cold-bytes")
    reply.integer(cold.totals.bytes_if_loaded)
    reply.bulk(b"cold-files")
    reply.integer(cold.file_count())


@cython.cfunc
def write_file_names(reply: ReplyWriter, stream: Stream) -> cython.void:
    """Write the names of the cold files, the oldest runs first; nothing if there are none."""
    cold: ColdPart | None = stream.cold
    if cold is None or cold.totals.run_count == 0:
        return
    reply.bulk(b"cold-file-names")
    reply.array(cold.file_count())
    for file in cold.run_count_by_file:
        reply.bulk(str(getattr(file, "name", file)).encode())


@cython.cfunc
def write_rules(reply: ReplyWriter, rules: Rules | None) -> cython.void:
    """Write the pair of the rules, a map from name to value; nothing if there are none."""
    if rules is None:
        return
    given: dict[str, bytes] = rules.explicit_values()
    reply.bulk(b"rules")
    reply.map(len(given))
    for name, value in given.items():
        reply.bulk(name.encode())
        reply.bulk(value)


@cython.cfunc
def write_position_and_lag(reply: ReplyWriter, stream: Stream, group: Group) -> cython.void:
    """Write the group's position and its lag; null for an unknown number."""
    lag: cython.longlong = delivery.lag_or_unknown(stream, group)
    reply.bulk(b"last-delivered-id")
    reply.stream_id(group.last_ms, group.last_seq)
    reply.bulk(b"entries-read")
    if group.entries_read < 0:
        reply.null()
    else:
        reply.integer(group.entries_read)
    reply.bulk(b"lag")
    if delivery.lag_is_known(stream, group):
        reply.integer(lag)
    else:
        reply.null()


@cython.cfunc
def write_losses(reply: ReplyWriter, group: Group, unread: cython.longlong) -> cython.void:
    """Write the pairs of the lost entries; nothing if there are none."""
    if unread == 0 and group.lost_pending_count == 0:
        return
    reply.bulk(b"lost-unread")
    reply.integer(unread)
    reply.bulk(b"lost-pending")
    reply.integer(group.lost_pending_count)


@cython.cfunc
def extra_group_pair_count(group: Group, unread: cython.longlong) -> cython.Py_ssize_t:
    """Return how many pairs are shown that Redis does not have: of lost entries, and of rules."""
    pairs: cython.Py_ssize_t = 0 if unread == 0 and group.lost_pending_count == 0 else 2
    return pairs if group.rules is None else pairs + 1


@cython.cfunc
def write_group(reply: ReplyWriter, stream: Stream, group: Group, count: cython.longlong) -> cython.void:
    """Write a group as FULL shows it, with at most `count` (0: all) pending entries in each list."""
    pending: PendingEntries = group.pending
    slot: cython.Py_ssize_t = pending.first_by_id_from(0, 0)
    shown: cython.longlong = 0
    owner: Consumer | None
    consumer: Consumer
    unread: cython.longlong = stream.lost_unread_count(group)
    reply.map(8 + extra_group_pair_count(group, unread))
    reply.bulk(b"name")
    reply.bulk(group.name)
    write_position_and_lag(reply, stream, group)
    reply.bulk(b"pel-count")
    reply.integer(pending.count)
    reply.bulk(b"nacked-count")
    reply.integer(pending.unowned_count)
    reply.bulk(b"pending")
    mark: cython.Py_ssize_t = reply.open_array()
    while slot >= 0 and (count == 0 or shown < count):
        owner = pending.owner_of(slot)
        reply.array(4)
        reply.stream_id(pending.ms_of(slot), pending.seq_of(slot))
        reply.bulk(b"" if owner is None else owner.name)
        reply.integer(pending.delivery_time_of(slot))
        reply.integer(pending.delivery_count_of(slot))
        shown += 1
        slot = pending.next_by_id(slot)
    reply.close_array(mark, shown)
    reply.bulk(b"consumers")
    reply.array(group.consumer_count())
    for consumer in group.consumers():
        write_consumer(reply, pending, consumer, count)
    write_losses(reply, group, unread)
    write_rules(reply, group.rules)


@cython.cfunc
def write_consumer(
    reply: ReplyWriter, pending: PendingEntries, consumer: Consumer, count: cython.longlong
) -> cython.void:
    """Write a consumer as FULL shows it, with at most `count` (0: all) of its pending entries."""
    slot: cython.Py_ssize_t = pending.first_of_consumer_from(consumer, 0, 0)
    shown: cython.longlong = 0
    reply.map(5)
    reply.bulk(b"name")
    reply.bulk(consumer.name)
    reply.bulk(b"seen-time")
    reply.integer(consumer.seen_ms)
    reply.bulk(b"active-time")
    reply.integer(consumer.active_ms)
    reply.bulk(b"pel-count")
    reply.integer(consumer.pending_count)
    reply.bulk(b"pending")
    mark: cython.Py_ssize_t = reply.open_array()
    while slot >= 0 and (count == 0 or shown < count):
        reply.array(3)
        reply.stream_id(pending.ms_of(slot), pending.seq_of(slot))
        reply.integer(pending.delivery_time_of(slot))
        reply.integer(pending.delivery_count_of(slot))
        shown += 1
        slot = pending.next_of_consumer(consumer, slot)
    reply.close_array(mark, shown)


def run_groups(call: Call) -> None:
    """XINFO GROUPS: reply with the stream's groups, in byte order of their names."""
    stream: Stream = existing_stream(call)
    reply: ReplyWriter = call.reply
    group: Group
    reply.array(stream.group_count)
    for group in stream.groups():
        unread: cython.longlong = stream.lost_unread_count(group)
        reply.map(6 + extra_group_pair_count(group, unread))
        reply.bulk(b"name")
        reply.bulk(group.name)
        reply.bulk(b"consumers")
        reply.integer(group.consumer_count())
        reply.bulk(b"pending")
        reply.integer(group.pending.count)
        write_position_and_lag(reply, stream, group)
        write_losses(reply, group, unread)
        write_rules(reply, group.rules)


def run_consumers(call: Call) -> None:
    """XINFO CONSUMERS: reply with the group's consumers, in byte order of their names."""
    group: Group | None = existing_stream(call).group(call.argv[3])
    if group is None:
        raise NoSuchGroupForKey(call.argv[3], call.argv[2])
    reply: ReplyWriter = call.reply
    consumer: Consumer
    reply.array(group.consumer_count())
    for consumer in group.consumers():
        reply.map(4)
        reply.bulk(b"name")
        reply.bulk(consumer.name)
        reply.bulk(b"pending")
        reply.integer(consumer.pending_count)
        reply.bulk(b"idle")
        reply.integer(max(0, call.now - consumer.seen_ms))
        reply.bulk(b"inactive")
        reply.integer(-1 if consumer.active_ms < 0 else max(0, call.now - consumer.active_ms))


SUBCOMMANDS = [
    Command(
        "xinfo|stream",
        -3,
        run_stream,
        "readonly",
        keys="2: RO access",
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
        keys="2: RO access",
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
        keys="2: RO access",
        tips="nondeterministic_output",
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
