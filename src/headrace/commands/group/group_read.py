"""XREADGROUP: read entries of a group for one of its consumers; wait if there are none.

XREADGROUP GROUP group consumer [COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK milliseconds]
           [CLAIM min-idle-time] [NOACK] STREAMS key [key …] id [id …]

The ID `>` delivers new entries of the group; with CLAIM, entries that were pending for long come first.
Any other ID returns the consumer's own pending entries.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.group import members, ordered_read, stream_reply
from headrace.commands.group.members import NoSuchKeyOrGroup
from headrace.commands.group.stream_reply import StreamReply
from headrace.commands.spec import Command
from headrace.commands.stream import read, read_options
from headrace.commands.stream.read_options import ReadOptions, ReplyBudget
from headrace.errors import CommandError, DamagedColdRun
from headrace.keyspace.keyspace import Database
from headrace.resp.writer import ReplyWriter
from headrace.streams import cold_reads
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.key_order import KeyOrder
from headrace.streams.pending import PendingEntries
from headrace.streams.rules import GroupRules
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
# A reader with CLAIM that finds nothing retries when entries become idle, but not more often than this.
CLAIM_RETRY_MIN_MS = cython.declare(cython.longlong, 10)
CLAIM_CANDIDATES_MAX = cython.declare(
    cython.int, 100
)  # pending entries whose runs a read with CLAIM requires
# Deleted pending entries that one call passes, in about a millisecond; fewer if they must be searched for.
# The next call goes on after them.
SKIP_BUDGET = cython.declare(cython.Py_ssize_t, 10_000)


class MeaninglessId(CommandError):
    """`$` or `+` is not a valid ID in XREADGROUP."""

    def __init__(self, word: str) -> None:
        super().__init__(
            f"ERR The {word} ID is meaningless in the context of XREADGROUP: you want to read the history of"
            " this consumer by specifying a proper ID, or use the > ID to get new messages."
            f" The {word} ID would just return an empty result set."
        )


@cython.final
@cython.freelist(8)
@cython.cclass
class XReadGroupRequest:
    """A parsed XREADGROUP. It is also the waiter: `serve` runs again when a key has new data."""

    options: ReadOptions
    keys: list[bytes]
    after_ids: list[StreamId | None]  # for each key; None is `>`
    streams: list[Stream]  # for each key, while a reply is written
    groups: list[Group]
    skip_budget: cython.Py_ssize_t  # what passing deleted pending entries may still cost in this call

    def __init__(self, argv: list[bytes], now: cython.longlong) -> None:
        self.options = ReadOptions(True)
        self.options.read(argv, now)
        at: cython.Py_ssize_t = self.options.streams_at
        pairs: cython.Py_ssize_t = (len(argv) - at) // 2
        self.keys = argv[at : at + pairs]
        self.after_ids = []
        self.streams = []
        self.groups = []
        self.skip_budget = 0

    @cython.cfunc
    def resolve(self, call: Call) -> cython.void:
        """Look up streams and groups; the first time also parse the IDs. Raises CommandError."""
        pairs: cython.Py_ssize_t = len(self.keys)
        first: cython.bint = len(self.after_ids) == 0
        name: bytes | None = self.options.group
        i: cython.Py_ssize_t
        stream: Stream | None
        group: Group | None
        self.streams = []
        self.groups = []
        self.skip_budget = SKIP_BUDGET
        assert name is not None
        for i in range(pairs):
            stream = call.database.stream(self.keys[i])
            call.count_lookup(self.keys[i], stream)
            group = None if stream is None else stream.group(name)
            if stream is None or group is None:
                raise NoSuchKeyOrGroup(self.keys[i], name, " in XREADGROUP with GROUP option")
            self.streams.append(stream)
            self.groups.append(group)
            if first:
                self.after_ids.append(_parse_id(call.argv[self.options.streams_at + pairs + i]))
        for i in range(pairs):
            self._require_runs(i, call.now)
        call.keyspace.hits += pairs  # Redis looks them up again when it replies

    @cython.cfunc
    def _require_runs(self, i: cython.Py_ssize_t, now: cython.longlong) -> cython.void:
        """Ensure that the cold runs needed for the i-th key are loaded."""
        if self.streams[i].run_count() == 0:
            return
        group: Group = self.groups[i]
        after: StreamId | None = self.after_ids[i]
        name: bytes | None = self.options.consumer
        count: cython.longlong = self.options.count if self.options.count > 0 else self.options.maxcount
        consumer: Consumer | None
        if after is None:
            self._ensure_first_pending_loaded(self.streams[i], group, now)
            cold_reads.ensure_loaded_after(self.streams[i], group.last_ms, group.last_seq, count)
        elif name is not None:
            consumer = group.consumer(name)
            if consumer is not None:
                cold_reads.ensure_pending_loaded(
                    self.streams[i], consumer.owned_entries, after.ms, after.seq, count
                )

    @cython.cfunc
    def _ensure_first_pending_loaded(self, stream: Stream, group: Group, now: cython.longlong) -> cython.void:
        """Ensure that the run of the pending entry that `>` delivers first is loaded.

        `>` delivers a pending entry with CLAIM, or because the entry is due. For ORDERED-BY, the runs of the
        entries whose values are read next are loaded, too.
        """
        pending: PendingEntries = group.pending
        slot: cython.Py_ssize_t
        left: cython.int = CLAIM_CANDIDATES_MAX
        if group.is_ordered() and not self.options.noack:
            order: KeyOrder = group.ensure_key_order()
            if not order.are_values_read:
                cold_reads.ensure_pending_loaded(
                    stream, pending.by_id, order.first_unread_ms, order.first_unread_seq, 0
                )
        if self.options.claim_idle_ms != read_options.NO_CLAIM:
            slot = pending.first_existing_by_delivery()
            while slot >= 0 and left > 0:
                if max(0, now - pending.delivery_time_of(slot)) < self.options.claim_idle_ms:
                    break
                if _load_and_check_exists(stream, pending, slot):
                    return
                slot = pending.next_by_delivery(slot)
                left -= 1
        if group.due_entries is not None and not self.options.noack:
            slot = group.due_entries.first_due(now)
            if slot >= 0:
                _load_and_check_exists(stream, pending, slot)

    @cython.cfunc
    def try_serve(self, call: Call) -> cython.bint:
        """Write the reply; return False, and write nothing, if there are no entries. Call resolve() first."""
        reply: ReplyWriter = call.reply
        mark: cython.Py_ssize_t = reply.open_array()
        budget: ReplyBudget = ReplyBudget(self.options, reply)
        answered: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        start: cython.Py_ssize_t = call.effects.next_index() if call.effects.recording else 0
        for i in range(len(self.keys)):
            if budget.stream_limit() == 0:
                break
            try:
                answered += self._write_stream(call, i, budget)
            except DamagedColdRun:
                if answered == 0:
                    raise
                break  # the client must get what was delivered to it; the next read meets the damage again
        if call.effects.recording:
            call.effects.make_atomic(start)
        if answered == 0:
            reply.rewind(mark)
            return False
        if reply.protocol == 2:
            reply.close_array(mark, answered)
        else:
            reply.close_map(mark, answered)
        return True

    @cython.ccall
    def serve(self, call: Call) -> cython.bint:
        """Retry for a blocked session; return whether it replied. If not, schedule a retry of CLAIM."""
        self.resolve(call)
        served: cython.bint = self.try_serve(call)
        if not served:
            self.schedule_claim_retry(call)
        return served

    @cython.ccall
    def may_be_served(self, database: Database, key: bytes) -> cython.bint:
        """Return whether the group has entries to deliver, no longer exists, or may have idle entries."""
        stream: Stream
        value: object = database.values.find(key) if database.contains(key) else None
        if self.options.claim_idle_ms != read_options.NO_CLAIM or not isinstance(value, Stream):
            return True
        stream = value
        name: bytes | None = self.options.group
        group: Group | None = None if name is None else stream.group(name)
        if group is None or group.lease is not None:
            return True
        return stream_id.is_before(group.last_ms, group.last_seq, stream.last_ms, stream.last_seq)

    @cython.cfunc
    def has_rules(self) -> cython.bint:
        """Return whether a group has rules, so that two of its consumers may find different entries."""
        group: Group
        found: cython.bint = False
        for group in self.groups:
            found = found or group.rules is not None
        return found

    @cython.cfunc
    def schedule_claim_retry(self, call: Call) -> cython.void:
        """With CLAIM: schedule a retry for when the oldest pending entry is idle long enough.

        If there are more deleted entries than this call may skip, the retry is soon, and starts after them.
        The streams and groups are released: resolve() looks them up again.
        """
        oldest: cython.longlong = call.now
        time: cython.longlong
        i: cython.Py_ssize_t
        if self.options.claim_idle_ms != read_options.NO_CLAIM:
            for i in range(len(self.keys)):
                time = self._oldest_delivery_ms(self.streams[i], self.groups[i])
                if 0 <= time < oldest:
                    oldest = time
            if self.options.claim_idle_ms <= I64_MAX - oldest:
                time = max(oldest + self.options.claim_idle_ms, call.now + CLAIM_RETRY_MIN_MS)
                for i in range(len(self.keys)):
                    call.keyspace.blocking.schedule_key_signal(call.database.index, self.keys[i], time)
        self.streams = []
        self.groups = []

    @cython.cfunc
    def _oldest_delivery_ms(self, stream: Stream, group: Group) -> cython.longlong:
        """Return when the next entry to be claimed was delivered, in milliseconds since 1970.

        Returns -1 if there is none, and 0 if there are too many deleted ones before it.
        """
        pending: PendingEntries = group.pending
        slot: cython.Py_ssize_t = pending.first_existing_by_delivery()
        is_noting: cython.bint = True
        while slot >= 0:
            if not stream_reply.is_trimmed(stream, pending, slot) and _may_exist(stream, pending, slot):
                return pending.delivery_time_of(slot)
            if self.skip_budget <= 0:
                return 0
            self.skip_budget -= stream_reply.skip_cost(stream, pending, slot)
            if is_noting and not stream_reply.may_be_added_again(stream, pending, slot):
                pending.note_deleted_through(slot)
            else:
                is_noting = False
            slot = pending.next_by_delivery(slot)
        return -1

    @cython.cfunc
    def _write_stream(self, call: Call, i: cython.Py_ssize_t, budget: ReplyBudget) -> cython.Py_ssize_t:
        """Write the i-th key and its entries; return 1. If `>` finds none, return 0 and write nothing."""
        reply: ReplyWriter = call.reply
        key: bytes = self.keys[i]
        group: Group = self.groups[i]
        name: bytes | None = self.options.consumer
        assert name is not None
        consumer: Consumer | None = group.consumer(name)
        consumer_created: cython.bint = consumer is None
        if consumer is None:
            consumer = members.create_consumer(call, key, group, name)
            if self.options.noack and call.effects.recording:
                members.record_consumer(call, key, group, consumer)
        changes: cython.longlong = call.keyspace.changes
        group.touch(consumer, call.now)
        writer: StreamReply = StreamReply(call, key, self.streams[i], group, consumer, budget)
        mark: cython.Py_ssize_t = reply.mark()
        if reply.protocol == 2:
            reply.array(2)
        reply.bulk(key)
        list_mark: cython.Py_ssize_t = reply.open_array()
        after: StreamId | None = self.after_ids[i]
        damage: DamagedColdRun | None = None
        try:
            self._write_entries(writer, after)
        except DamagedColdRun as error:
            if writer.written_count == 0:
                damage = error
        writer.flush_claims()
        if damage is not None and consumer_created and call.keyspace.changes == changes:
            group.drop_consumer(consumer)
            call.keyspace.changes -= 1
            consumer_created = False
            if self.options.noack and call.effects.recording:
                call.effects.drop_last()
        if writer.delivered_count > 0:
            call.keyspace.changes += 1
        elif consumer_created and not self.options.noack and call.effects.recording:
            members.record_consumer(call, key, group, consumer)
        if damage is not None:
            reply.rewind(mark)
            raise damage
        if writer.written_count == 0 and after is None:
            reply.rewind(mark)
            return 0
        reply.close_array(list_mark, writer.written_count)
        return 1

    @cython.cfunc
    def _write_entries(self, writer: StreamReply, after: StreamId | None) -> cython.void:
        """Write the entries of one stream. After DamagedColdRun those before the damage are written."""
        rules: GroupRules | None = writer.group.rules
        if after is not None:
            writer.write_history(after)
            return
        if rules is not None:
            writer.apply_rules(rules, self.options.noack)
        writer.has_claim_option = self.options.claim_idle_ms != read_options.NO_CLAIM
        if writer.has_claim_option:
            writer.skip_budget = self.skip_budget
            writer.claim_and_write_idle(self.options.claim_idle_ms)
            self.skip_budget = writer.skip_budget
        if writer.group.due_entries is not None and not self.options.noack:
            writer.claim_and_write_due(writer.group.due_entries)
        if writer.key_order is not None:
            ordered_read.deliver_in_order(writer, writer.key_order)
        else:
            writer.deliver_and_write_new(self.options.noack)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _load_and_check_exists(stream: Stream, pending: PendingEntries, slot: cython.Py_ssize_t) -> cython.bint:
    """Ensure that the run of a pending entry is loaded; return whether the entry exists."""
    entry: StreamId = StreamId(pending.ms_of(slot), pending.seq_of(slot))
    cold_reads.ensure_entries_loaded(stream, [entry])
    return stream.contains(entry.ms, entry.seq)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _may_exist(stream: Stream, pending: PendingEntries, slot: cython.Py_ssize_t) -> cython.bint:
    """Return True if a pending entry exists or cannot be read; the next read reports the damage."""
    try:
        return stream.contains(pending.ms_of(slot), pending.seq_of(slot))
    except DamagedColdRun:
        return True


@cython.cfunc
def _parse_id(word: bytes) -> StreamId | None:
    """Parse the ID of one key; None for `>`."""
    if word == b">":
        return None
    if word == b"$" or word == b"+":
        raise MeaninglessId(word.decode())
    after: StreamId = stream_id.parse(word, 0)
    if after.ms == U64_MAX and after.seq == U64_MAX:
        return None  # Redis stores `>` as this ID
    return after


def run(call: Call) -> None:
    """XREADGROUP: reply with the entries for the consumer, or wait for some."""
    request: XReadGroupRequest = XReadGroupRequest(call.argv, call.now)
    request.resolve(call)
    if request.try_serve(call):
        return
    options: ReadOptions = request.options
    if options.block_ms == read_options.NO_BLOCK or not call.policy.may_block:
        call.reply.null_array()
        return
    wait_class = None if request.has_rules() else (options.group, options.claim_idle_ms)
    call.wait(
        request.keys,
        options.deadline(call.now),
        request.serve,
        "null_array",
        wait_class,
        request.may_be_served,
    )
    request.schedule_claim_retry(call)


COMMANDS = [
    Command(
        "xreadgroup",
        -7,
        run,
        "write blocking",
        keys="STREAMS 4: RO access",
        find_keys=read.stream_key_positions,
        group="stream",
        since="5.0.0",
        summary="Reads for a consumer: new entries, long-idle entries of others, or its own pending ones.",
        complexity="O(n) for the n entries returned, and O(k) for k keys to wait for",
        syntax="GROUP group consumer [COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK milliseconds]"
        " [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]",
    ),
]
