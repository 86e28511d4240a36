"""XREADGROUP GROUP group consumer [COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK milliseconds]
           [CLAIM min-idle-time] [NOACK] STREAMS key [key …] id [id …]

The ID `>` delivers new entries of the group; with CLAIM, entries that were pending for long come first.
Any other ID returns the consumer's own pending entries.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.group import members
from headrace.commands.group.members import NoSuchKeyOrGroup
from headrace.commands.spec import Command
from headrace.commands.stream import entries, read, read_options
from headrace.commands.stream.entry_lookup import EntryLookup
from headrace.commands.stream.read_options import ReadOptions, ReplyBudget
from headrace.errors import CommandError
from headrace.keyspace.keyspace import Database
from headrace.resp.writer import ReplyWriter
from headrace.streams import delivery
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.iterator import StreamIterator
from headrace.streams.pending import PendingEntries
from headrace.streams.redelivery import DueEntries, DueWalk
from headrace.streams.rules import GroupRules
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
# A reader with CLAIM that finds nothing retries when entries become idle, but not more often than this.
CLAIM_RETRY_MIN_MS = cython.declare(cython.longlong, 10)


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
    after: list[StreamId | None]  # for each key; None is `>`
    streams: list[Stream]  # for each key, while a reply is written
    groups: list[Group]

    def __init__(self, argv: list[bytes], now: cython.longlong) -> None:
        self.options = ReadOptions(True)
        self.options.read(argv, now)
        at: cython.Py_ssize_t = self.options.streams_at
        pairs: cython.Py_ssize_t = (len(argv) - at) // 2
        self.keys = argv[at : at + pairs]
        self.after = []
        self.streams = []
        self.groups = []

    @cython.cfunc
    def resolve(self, call: Call) -> cython.void:
        """Look up streams and groups; the first time also parse the IDs. Raises the first key's error."""
        pairs: cython.Py_ssize_t = len(self.keys)
        first: cython.bint = len(self.after) == 0
        name: bytes | None = self.options.group
        i: cython.Py_ssize_t
        stream: Stream | None
        group: Group | None
        self.streams = []
        self.groups = []
        assert name is not None
        for i in range(pairs):
            stream = call.database.stream(self.keys[i])
            if stream is None:
                call.notify_miss(self.keys[i])
            group = None if stream is None else stream.group(name)
            if stream is None or group is None:
                raise NoSuchKeyOrGroup(self.keys[i], name, " in XREADGROUP with GROUP option")
            self.streams.append(stream)
            self.groups.append(group)
            if first:
                self.after.append(_parse_id(call.argv[self.options.streams_at + pairs + i]))

    @cython.cfunc
    def try_serve(self, call: Call) -> cython.bint:
        """Write the reply; return False, and write nothing, if there are no entries. Call resolve() first."""
        reply: ReplyWriter = call.reply
        mark: cython.Py_ssize_t = reply.open_array()
        budget: ReplyBudget = ReplyBudget(self.options, reply)
        answered: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        start: cython.Py_ssize_t = call.effects.position() if call.recording else 0
        for i in range(len(self.keys)):
            if budget.stream_limit() == 0:
                break
            answered += self._write_stream(call, i, budget)
        if call.recording:
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
        """Retry for a blocked session; if it is in vain, schedule the next retry of CLAIM."""
        self.resolve(call)
        served: cython.bint = self.try_serve(call)
        if not served:
            self.schedule_claim_retry(call)
        return served

    @cython.ccall
    def may_be_served(self, database: Database, key: bytes) -> cython.bint:
        """Return whether the group has entries to deliver, no longer exists, or may have idle entries."""
        stream: Stream
        value: object = database.values.get(key) if database.contains(key) else None
        if self.options.claim != read_options.NO_CLAIM or not isinstance(value, Stream):
            return True
        stream = value
        name: bytes | None = self.options.group
        group: Group | None = None if name is None else stream.group(name)
        if group is None or group.redeliveries is not None:
            return True
        return stream_id.before(group.last_ms, group.last_seq, stream.last_ms, stream.last_seq)

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
        """With CLAIM: schedule a retry for when the oldest pending entry is idle long enough."""
        oldest: cython.longlong = call.now
        time: cython.longlong
        i: cython.Py_ssize_t
        if self.options.claim != read_options.NO_CLAIM:
            for i in range(len(self.keys)):
                time = _oldest_delivery(self.streams[i], self.groups[i])
                if 0 <= time < oldest:
                    oldest = time
            if self.options.claim <= I64_MAX - oldest:
                time = max(oldest + self.options.claim, call.now + CLAIM_RETRY_MIN_MS)
                for i in range(len(self.keys)):
                    call.keyspace.blocking.schedule(call.database.index, self.keys[i], time)
        self.streams = []
        self.groups = []

    @cython.cfunc
    def _write_stream(self, call: Call, i: cython.Py_ssize_t, budget: ReplyBudget) -> cython.Py_ssize_t:
        """Write the i-th key and its entries; return 1, or 0 and write nothing if there are no new ones."""
        reply: ReplyWriter = call.reply
        key: bytes = self.keys[i]
        group: Group = self.groups[i]
        name: bytes | None = self.options.consumer
        assert name is not None
        consumer: Consumer | None = group.consumer(name)
        consumer_created: cython.bint = consumer is None
        if consumer is None:
            consumer = members.create_consumer(call, key, group, name)
            if self.options.noack and call.recording:
                members.record_consumer(call, key, group, consumer)
        consumer.seen_ms = call.now
        stream_reply: StreamReply = StreamReply(call, key, self.streams[i], group, consumer, budget)
        mark: cython.Py_ssize_t = reply.mark()
        if reply.protocol == 2:
            reply.array(2)
        reply.bulk(key)
        list_mark: cython.Py_ssize_t = reply.open_array()
        after: StreamId | None = self.after[i]
        if after is not None:
            stream_reply.write_history(after)
        else:
            if group.rules is not None:
                stream_reply.apply_rules(group.rules)
            if self.options.claim != read_options.NO_CLAIM:
                stream_reply.write_claimed(self.options.claim)
            elif group.redeliveries is not None and not self.options.noack:
                stream_reply.write_due(group.redeliveries)
            stream_reply.write_new(self.options.noack, self.options.claim != read_options.NO_CLAIM)
        if stream_reply.delivered > 0:
            call.keyspace.changes += 1
        elif consumer_created and not self.options.noack and call.recording:
            members.record_consumer(call, key, group, consumer)
        if stream_reply.found == 0 and after is None:
            reply.rewind(mark)
            return 0
        reply.close_array(list_mark, stream_reply.found)
        return 1


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


@cython.cfunc
def _oldest_delivery(stream: Stream, group: Group) -> cython.longlong:
    """Return when the next entry to be claimed was delivered, in milliseconds; -1 if there is none."""
    pending: PendingEntries = group.pending
    slot: cython.Py_ssize_t = pending.oldest()
    while slot >= 0:
        if stream.contains(pending.ms_of(slot), pending.seq_of(slot)):
            return pending.delivery_time_of(slot)
        slot = pending.newer(slot)
    return -1


@cython.final
@cython.freelist(8)
@cython.cclass
class StreamReply:
    """One stream's part of the reply: the entries that one consumer of one group gets."""

    call: Call
    key: bytes
    stream: Stream
    group: Group
    consumer: Consumer
    budget: ReplyBudget
    limit: cython.longlong  # maximum number of entries
    pending_max: cython.longlong  # of the consumer, by the rule MAX-PENDING
    found: cython.longlong  # entries written
    delivered: cython.longlong  # entries that became the consumer's

    def __init__(
        self, call: Call, key: bytes, stream: Stream, group: Group, consumer: Consumer, budget: ReplyBudget
    ) -> None:
        self.call = call
        self.key = key
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self.budget = budget
        self.limit = budget.stream_limit()
        self.pending_max = I64_MAX
        self.found = 0
        self.delivered = 0

    @cython.cfunc
    def write_history(self, after: StreamId) -> cython.void:
        """Write the consumer's pending entries above the ID; an entry no longer in the stream as null."""
        reply: ReplyWriter = self.call.reply
        pending: PendingEntries = self.group.pending
        first: StreamId = after.successor()
        slot: cython.Py_ssize_t = pending.of_consumer_from(self.consumer, first.ms, first.seq)
        following: cython.Py_ssize_t
        lookup: EntryLookup = EntryLookup(self.stream)
        entry: StreamIterator | None
        redeliveries: RedeliveryLog = RedeliveryLog(self)
        while slot >= 0 and self.found < self.limit and not self.budget.is_full():
            following = pending.of_consumer_after(self.consumer, slot)
            entry = lookup.find(pending.ms_of(slot), pending.seq_of(slot))
            if entry is not None:
                entries.write_entry(reply, entry)
                pending.touch(
                    slot, self.call.now, members.saturating_increment(pending.delivery_count_of(slot))
                )
                if self.call.recording:
                    redeliveries.add(slot)
            else:
                reply.array(2)
                reply.stream_id(pending.ms_of(slot), pending.seq_of(slot))
                reply.null_array()
            self._count_entry()
            slot = following
        redeliveries.flush()

    @cython.cfunc
    def write_claimed(self, min_idle: cython.longlong) -> cython.void:
        """Write and claim entries that were pending for long, oldest first; deleted ones stay pending."""
        call: Call = self.call
        pending: PendingEntries = self.group.pending
        slot: cython.Py_ssize_t = pending.oldest()
        following: cython.Py_ssize_t
        rest: cython.Py_ssize_t = pending.count  # claimed entries move to the end, and are not met again
        idle: cython.longlong
        lookup: EntryLookup = EntryLookup(self.stream)
        entry: StreamIterator | None
        last: bytes = stream_id.text_of(self.group.last_ms, self.group.last_seq) if call.recording else b""
        while rest > 0 and slot >= 0 and self.found < self.limit and not self.budget.is_full():
            idle = max(0, call.now - pending.delivery_time_of(slot))
            if idle < min_idle:
                break
            following = pending.newer(slot)
            entry = lookup.find(pending.ms_of(slot), pending.seq_of(slot))
            if entry is not None:
                self._write_with_delivery(entry, idle, pending.delivery_count_of(slot))
                pending.assign(
                    slot,
                    self.consumer,
                    call.now,
                    members.saturating_increment(pending.delivery_count_of(slot)),
                )
                self.consumer.active_ms = call.now
                if call.recording:
                    members.record_claim(
                        call, self.key, self.group, slot, stream_id.text_of(entry.ms, entry.seq), last
                    )
                self.delivered += 1
            slot = following
            rest -= 1

    @cython.cfunc
    def apply_rules(self, rules: GroupRules) -> cython.void:
        """Apply MAX-PENDING: the consumer gets no more entries than it may have pending."""
        if rules.max_pending:
            self.pending_max = rules.max_pending

    @cython.cfunc
    @cython.exceptval(check=False)
    def _may_have_more(self) -> cython.bint:
        return self.consumer.pending_count < self.pending_max

    @cython.cfunc
    def write_due(self, due: DueEntries) -> cython.void:
        """Write and claim the entries whose lease has ended, the earliest first.

        One that may not be delivered any more is left to the engine, which moves it to the dead letters. One
        that is deleted from the stream is acknowledged.
        """
        call: Call = self.call
        pending: PendingEntries = self.group.pending
        lookup: EntryLookup = EntryLookup(self.stream)
        entry: StreamIterator | None
        rules: GroupRules | None = self.group.rules
        most: cython.longlong = I64_MAX
        last: bytes = stream_id.text_of(self.group.last_ms, self.group.last_seq) if call.recording else b""
        if rules is not None and rules.max_deliveries:
            most = rules.max_deliveries
        walk: DueWalk = DueWalk(due, call.now)
        ms: cython.ulonglong
        seq: cython.ulonglong
        while self.found < self.limit and not self.budget.is_full() and self._may_have_more():
            slot: cython.Py_ssize_t = walk.next()
            if slot < 0:
                break
            ms = pending.ms_of(slot)
            seq = pending.seq_of(slot)
            entry = lookup.find(ms, seq)
            if entry is None:
                pending.remove(slot)
                call.keyspace.changes += 1
                call.record([b"XACK", self.key, self.group.name, stream_id.text_of(ms, seq)])
                continue
            if pending.delivery_count_of(slot) >= most:
                call.keyspace.rules.give_up(self.stream, self.group.name, ms, seq)
                continue
            entries.write_entry(call.reply, entry)
            self._count_entry()
            pending.assign(
                slot, self.consumer, call.now, members.saturating_increment(pending.delivery_count_of(slot))
            )
            due.add(slot)
            self.consumer.active_ms = call.now
            if call.recording:
                word: bytes = stream_id.text_of(ms, seq)
                members.record_claim(call, self.key, self.group, slot, word, last)
            self.delivered += 1

    @cython.cfunc
    def write_new(self, noack: cython.bint, claiming: cython.bint) -> cython.void:
        """Write and deliver the entries above the group's last ID."""
        call: Call = self.call
        group: Group = self.group
        stream: Stream = self.stream
        before: cython.longlong = self.found
        ms: cython.ulonglong = group.last_ms
        seq: cython.ulonglong = group.last_seq
        slot: cython.Py_ssize_t
        word: bytes
        if not stream_id.before(ms, seq, stream.last_ms, stream.last_seq):
            return  # the usual case of a client that polls
        last: bytes = stream_id.text_of(ms, seq) if call.recording else b""
        if seq == U64_MAX:
            ms += 1
            seq = 0
        else:
            seq += 1
        entry: StreamIterator = StreamIterator(stream, ms, seq, U64_MAX, U64_MAX, False)
        most: cython.longlong = self.limit
        if self.pending_max < I64_MAX and not noack:
            most = min(most, before + max(self.pending_max - self.consumer.pending_count, 0))
        due: DueEntries | None = None if noack else group.redeliveries
        while self.found < most and not self.budget.is_full() and entry.next():
            if claiming:
                self._write_with_delivery(entry, 0, 0)
            else:
                entries.write_entry(call.reply, entry)
                self._count_entry()
            slot = delivery.deliver(stream, group, self.consumer, entry.ms, entry.seq, call.now, not noack)
            if call.recording and not noack:
                word = stream_id.text_of(entry.ms, entry.seq)
                members.record_claim(call, self.key, group, slot, word, last)
            if due is not None:
                due.add(slot)
            self.delivered += 1
        if call.recording and self.found > before:
            members.record_last_id(call, self.key, group)

    @cython.cfunc
    def _write_with_delivery(
        self, entry: StreamIterator, idle: cython.longlong, deliveries: cython.longlong
    ) -> cython.void:
        """Write an entry with its idle time and its delivery count before this delivery."""
        reply: ReplyWriter = self.call.reply
        reply.array(4)
        entries.write_parts(reply, entry)
        reply.integer(idle)
        reply.integer(deliveries)
        self._count_entry()

    @cython.cfunc
    @cython.exceptval(check=False)
    def _count_entry(self) -> cython.void:
        self.found += 1
        self.budget.count_entry()


@cython.final
@cython.cclass
class RedeliveryLog:
    """Effects of reading history: one for each run of entries with the same delivery count."""

    stream_reply: StreamReply
    slot: cython.Py_ssize_t  # the last entry of the run
    ids: list[bytes]

    def __init__(self, stream_reply: StreamReply) -> None:
        self.stream_reply = stream_reply
        self.slot = -1
        self.ids = []

    @cython.cfunc
    def add(self, slot: cython.Py_ssize_t) -> cython.void:
        """Add the entry of the slot, which was delivered again."""
        pending: PendingEntries = self.stream_reply.group.pending
        if self.ids and pending.delivery_count_of(slot) != pending.delivery_count_of(self.slot):
            self.flush()
        self.slot = slot
        self.ids.append(stream_id.text_of(pending.ms_of(slot), pending.seq_of(slot)))

    @cython.cfunc
    def flush(self) -> cython.void:
        """Record the run."""
        if self.ids:
            members.record_redelivery(
                self.stream_reply.call, self.stream_reply.key, self.stream_reply.group, self.slot, self.ids
            )
            self.ids = []


def run(call: Call) -> None:
    """XREADGROUP: reply with the entries for the consumer, or wait for some."""
    request: XReadGroupRequest = XReadGroupRequest(call.argv, call.now)
    request.resolve(call)
    if request.try_serve(call):
        return
    options: ReadOptions = request.options
    if options.block == read_options.NO_BLOCK or not call.may_block:
        call.reply.null_array()
        return
    wait_class = None if request.has_rules() else (options.group, options.claim)
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
        "write blocking movablekeys",
        keys=read.stream_keys,
        group="stream",
        since="5.0.0",
        summary="Reads for a consumer: new entries, long-idle entries of others, or its own pending ones.",
        complexity="O(n) for the n entries returned, and O(k) for k keys to wait for",
        syntax="GROUP group consumer [COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK milliseconds]"
        " [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]",
    ),
]
