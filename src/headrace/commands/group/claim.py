"""XCLAIM and XAUTOCLAIM: give pending entries to another consumer, by ID or by idle time.

XCLAIM key group consumer min-idle-time id [id …] [IDLE ms] [TIME unix-time-ms] [RETRYCOUNT count] [FORCE]
       [JUSTID] [LASTID id]
XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]
"""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.group import loss_log, members
from headrace.commands.spec import Command
from headrace.commands.stream import entries
from headrace.commands.stream.entry_lookup import EntryLookup
from headrace.errors import CommandError, DamagedColdRun, InvalidStreamId, InvalidSyntax, NotAnInteger
from headrace.resp.writer import ReplyWriter
from headrace.streams import cold_reads, delivery
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.iterator import StreamIterator
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
NOT_GIVEN = cython.declare(cython.longlong, -1)
COUNT_DEFAULT = cython.declare(cython.longlong, 100)
COUNT_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF // 16)
SCANNED_PER_COUNT = cython.declare(cython.longlong, 10)  # entries examined by XAUTOCLAIM


class InvalidOptionValue(CommandError):
    """A value of XCLAIM or XAUTOCLAIM is not an integer; `what` names the value."""

    def __init__(self, what: str) -> None:
        super().__init__(f"ERR Invalid {what}")


class CountNotPositive(CommandError):
    text = "ERR COUNT must be > 0"


@cython.cfunc
def parse_option_integer(word: bytes, what: str) -> cython.longlong:
    """Parse an integer; `what` names it in the error. Raises InvalidOptionValue."""
    try:
        return arguments.parse_i64(word)
    except NotAnInteger:
        raise InvalidOptionValue(what) from None


@cython.final
@cython.cclass
class ClaimOperation:
    """One XCLAIM or XAUTOCLAIM: options, group and consumer, and what was changed."""

    call: Call
    key: bytes
    lookup: EntryLookup
    group: Group
    consumer: Consumer
    min_idle: cython.longlong  # milliseconds
    new_delivery_ms: cython.longlong  # the new time of delivery
    retry_count: cython.longlong  # NOT_GIVEN: the present count plus one
    just_id: cython.bint  # reply with IDs only, and do not count a delivery
    force: cython.bint  # also claim entries that are not pending
    claimed_count: cython.longlong
    change_count: cython.longlong
    removed_count: cython.longlong  # entries that do not exist any more
    consumer_created: cython.bint  # the consumer was created
    last_id_recorded: cython.bint  # an effect contains the group's last ID
    effects_start: cython.Py_ssize_t

    def __init__(self, call: Call, stream: Stream, group: Group, min_idle: cython.longlong) -> None:
        self.call = call
        self.key = call.argv[1]
        self.lookup = EntryLookup(stream)
        self.group = group
        self.min_idle = max(0, min_idle)
        self.new_delivery_ms = call.now
        self.retry_count = NOT_GIVEN
        self.just_id = False
        self.force = False
        self.claimed_count = 0
        self.change_count = 0
        self.removed_count = 0
        self.consumer_created = False
        self.last_id_recorded = False
        self.effects_start = 0

    @cython.cfunc
    def begin(self) -> cython.void:
        """Look up or create the consumer, and set its seen-time. The effects until end() are atomic."""
        name: bytes = self.call.argv[3]
        found: Consumer | None = self.group.consumer(name)
        self.consumer_created = found is None
        if found is None:
            found = members.create_consumer(self.call, self.key, self.group, name)
        self.group.touch(found, self.call.now)
        self.consumer = found
        if self.call.effects.recording:
            self.effects_start = self.call.effects.next_index()

    @cython.cfunc
    def end(self) -> cython.void:
        """Count and record the changes; wake readers with CLAIM, which may find older entries now."""
        if self.call.effects.recording:
            if self.consumer_created and self.claimed_count == 0:
                members.record_consumer(self.call, self.key, self.group, self.consumer)
            self.call.effects.make_atomic(self.effects_start)
        self.call.keyspace.changes += self.change_count
        if self.removed_count > 0:
            loss_log.log_new_losses(self.call, self.key, self.lookup.stream, self.group)
        if self.claimed_count > 0:
            self.call.database.signal_ready(self.key)

    @cython.cfunc
    def is_idle(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Return whether the pending entry has been idle long enough; always True if it has no owner."""
        pending: PendingEntries = self.group.pending
        if self.min_idle == 0 or pending.owner_of(slot) is None:
            return True
        return self.call.now - pending.delivery_time_of(slot) >= self.min_idle

    @cython.cfunc
    def claim_and_write_entry(
        self, reply: ReplyWriter, slot: cython.Py_ssize_t, entry: StreamIterator | None, word: bytes | None
    ) -> cython.void:
        """Make the consumer the owner of the pending entry, and write the entry.

        Args:
            entry: an iterator at the entry; None if a replay cannot read it. Then only the ID is written.
            word: the entry's ID as text; None to format it here.
        """
        pending: PendingEntries = self.group.pending
        deliveries: cython.longlong = pending.delivery_count_of(slot)
        if self.retry_count >= 0:
            deliveries = self.retry_count
        elif not self.just_id:
            deliveries = members.saturating_increment(deliveries)
        pending.assign(slot, self.consumer, self.new_delivery_ms, deliveries)
        self.consumer.active_ms = self.call.now
        self.claimed_count += 1
        self.change_count += 1
        if self.just_id or entry is None:
            reply.stream_id(pending.ms_of(slot), pending.seq_of(slot))
        else:
            entries.write_entry(reply, entry)
        if self.call.effects.recording:
            self.record_entry_state(slot, word)

    @cython.cfunc
    def remove_deleted(self, slot: cython.Py_ssize_t, word: bytes | None) -> cython.void:
        """Remove a pending entry whose entry was deleted from the stream."""
        if self.call.effects.recording:
            if word is None:
                word = stream_id.text_of(self.group.pending.ms_of(slot), self.group.pending.seq_of(slot))
            if self.group.pending.owner_of(slot) is None:
                members.record_lost_entry(self.call, self.key, self.group, self.consumer, word)
            else:
                self.record_entry_state(slot, word)
        self.group.pending.remove(slot)
        self.group.lost_pending_count += 1
        self.removed_count += 1
        self.change_count += 1

    @cython.cfunc
    def record_entry_state(self, slot: cython.Py_ssize_t, word: bytes | None) -> cython.void:
        """Record the state of the pending entry as an effect; `word` is its ID as text, or None."""
        group: Group = self.group
        if word is None:
            word = stream_id.text_of(group.pending.ms_of(slot), group.pending.seq_of(slot))
        last: bytes = stream_id.text_of(group.last_ms, group.last_seq)
        self.last_id_recorded = self.last_id_recorded or group.pending.owner_of(slot) is not None
        members.record_claim(self.call, self.key, group, slot, word, last)


def run_claim(call: Call) -> None:
    """XCLAIM: give the consumer the entries with these IDs, if they are pending and idle."""
    argv: list[bytes] = call.argv
    stream: Stream = members.stream_of_group(call)
    group: Group | None = stream.group(argv[2])
    assert group is not None
    min_idle: cython.longlong = parse_option_integer(argv[4], "min-idle-time argument for XCLAIM")
    claim: ClaimOperation = ClaimOperation(call, stream, group, min_idle)
    ids: list[StreamId] = _leading_ids(argv)
    last: StreamId | None = _read_claim_options(claim, argv, 5 + len(ids))
    moved: cython.bint = last is not None and stream_id.is_before(
        group.last_ms, group.last_seq, last.ms, last.seq
    )
    if not call.replayed():  # a replay also claims what cannot be read: see _claim_one()
        cold_reads.ensure_entries_loaded(
            stream, [one for one in ids if claim.force or group.pending.find(one.ms, one.seq) >= 0]
        )
    if moved and last is not None:
        delivery.set_position(stream, group, last.ms, last.seq)
    claim.begin()
    mark: cython.Py_ssize_t = call.reply.open_array()
    i: cython.Py_ssize_t
    for i in range(len(ids)):
        _claim_one(claim, ids[i], argv[5 + i])
    call.reply.close_array(mark, claim.claimed_count)
    if moved:
        claim.change_count = max(claim.change_count, 1)
        if call.effects.recording and not claim.last_id_recorded:
            members.record_last_id(call, claim.key, group)
    claim.end()


@cython.cfunc
def _leading_ids(argv: list[bytes]) -> list[StreamId]:
    """Parse the arguments up to the first that is not an ID."""
    ids: list[StreamId] = []
    at: cython.Py_ssize_t
    for at in range(5, len(argv)):
        try:
            ids.append(stream_id.parse(argv[at], 0))
        except InvalidStreamId:
            break
    return ids


@cython.cfunc
def _read_claim_options(claim: ClaimOperation, argv: list[bytes], at: cython.Py_ssize_t) -> StreamId | None:
    """Read the options of XCLAIM; return the ID of LASTID, or None."""
    last: StreamId | None = None
    now: cython.longlong = claim.call.now
    latest: cython.longlong = I64_MAX if claim.call.replayed() else now  # a clock may have been set back
    word: bytes
    more: cython.bint
    value: cython.longlong
    while at < len(argv):
        word = argv[at]
        more = at + 1 < len(argv)
        at += 1
        if arguments.is_keyword(word, b"FORCE"):
            claim.force = True
            continue
        if arguments.is_keyword(word, b"JUSTID"):
            claim.just_id = True
            continue
        if more and arguments.is_keyword(word, b"IDLE"):
            value = parse_option_integer(argv[at], "IDLE option argument for XCLAIM")
            claim.new_delivery_ms = now - value if 0 <= value <= now else now
        elif more and arguments.is_keyword(word, b"TIME"):
            value = parse_option_integer(argv[at], "TIME option argument for XCLAIM")
            claim.new_delivery_ms = value if 0 <= value <= latest else now
        elif more and arguments.is_keyword(word, b"RETRYCOUNT"):
            value = parse_option_integer(argv[at], "RETRYCOUNT option argument for XCLAIM")
            claim.retry_count = max(NOT_GIVEN, value)
        elif more and arguments.is_keyword(word, b"LASTID"):
            last = stream_id.parse(argv[at], 0)
        else:
            raise members.UnrecognizedOption("XCLAIM", word)
        at += 1
    return last


@cython.cfunc
def _claim_one(claim: ClaimOperation, wanted: StreamId, word: bytes) -> cython.void:
    """Claim one of the IDs of an XCLAIM."""
    pending: PendingEntries = claim.group.pending
    slot: cython.Py_ssize_t = pending.find(wanted.ms, wanted.seq)
    if slot < 0 and not claim.force:
        return
    entry: StreamIterator | None = None
    is_deleted: cython.bint = False
    try:
        entry = claim.lookup.find(wanted.ms, wanted.seq)
        is_deleted = entry is None
    except DamagedColdRun:
        if not claim.call.replayed():
            raise
    if is_deleted:
        if slot >= 0:
            claim.remove_deleted(slot, word)
        return
    if slot < 0:
        slot = pending.add(wanted.ms, wanted.seq, None, 0, 1)
    if claim.is_idle(slot):
        claim.claim_and_write_entry(claim.call.reply, slot, entry, word)


def run_autoclaim(call: Call) -> None:
    """XAUTOCLAIM: give the consumer idle entries from an ID on; the reply begins with the next start ID."""
    argv: list[bytes] = call.argv
    min_idle: cython.longlong = parse_option_integer(argv[4], "min-idle-time argument for XAUTOCLAIM")
    start: StreamId = stream_id.parse_start(argv[5])
    count: cython.longlong = COUNT_DEFAULT
    just_id: cython.bint = False
    at: cython.Py_ssize_t = 6
    while at < len(argv):
        if arguments.is_keyword(argv[at], b"JUSTID"):
            just_id = True
            at += 1
        elif at + 1 < len(argv) and arguments.is_keyword(argv[at], b"COUNT"):
            count = _parse_count(argv[at + 1])
            at += 2
        else:
            raise InvalidSyntax()
    stream: Stream = members.stream_of_group(call)
    group: Group | None = stream.group(argv[2])
    assert group is not None
    claim: ClaimOperation = ClaimOperation(call, stream, group, min_idle)
    claim.just_id = just_id
    cold_reads.ensure_pending_loaded(stream, group.pending.by_id, start.ms, start.seq, count)
    _claim_from(claim, start, count)


@cython.cfunc
def _parse_count(word: bytes) -> cython.longlong:
    try:
        count: cython.longlong = arguments.parse_i64(word)
    except NotAnInteger:
        raise CountNotPositive() from None
    if not 1 <= count <= COUNT_MAX:
        raise CountNotPositive()
    return count


@cython.cfunc
def _claim_from(claim: ClaimOperation, start: StreamId, count: cython.longlong) -> cython.void:
    """Claim idle entries from `start` on, until `count` were changed or ten times as many examined; reply."""
    reply: ReplyWriter = claim.call.reply
    claimed: ReplyWriter = ReplyWriter(reply.protocol)  # the reply's first item, the cursor, is known last
    pending: PendingEntries = claim.group.pending
    scanned: cython.longlong = 0
    deleted: list[StreamId] = []
    slot: cython.Py_ssize_t = pending.first_by_id_from(start.ms, start.seq)
    following: cython.Py_ssize_t
    entry: StreamIterator | None = None
    if slot >= 0:  # looked up before begin(): an error must not leave a new consumer
        entry = claim.lookup.find(pending.ms_of(slot), pending.seq_of(slot))
    claim.begin()
    while slot >= 0 and claim.change_count < count and scanned < count * SCANNED_PER_COUNT:
        following = pending.next_by_id(slot)
        if scanned > 0:
            try:
                entry = claim.lookup.find(pending.ms_of(slot), pending.seq_of(slot))
            except DamagedColdRun:
                break  # the next call begins here
        scanned += 1
        if entry is None:
            deleted.append(StreamId(pending.ms_of(slot), pending.seq_of(slot)))
            claim.remove_deleted(slot, None)
        elif claim.is_idle(slot):
            claim.claim_and_write_entry(claimed, slot, entry, None)
        slot = following
    claim.end()
    reply.array(3)
    if slot < 0:
        reply.stream_id(0, 0)
    else:
        reply.stream_id(pending.ms_of(slot), pending.seq_of(slot))
    reply.array(claim.claimed_count)
    reply.raw(claimed.take())
    reply.array(len(deleted))
    lost: StreamId
    for lost in deleted:
        reply.stream_id(lost.ms, lost.seq)


COMMANDS = [
    Command(
        "xclaim",
        -6,
        run_claim,
        "write fast",
        keys="1: RW update",
        tips="nondeterministic_output",
        group="stream",
        since="5.0.0",
        summary="Gives pending entries to another consumer, by their IDs.",
        complexity="O(log n) for each ID, for n pending entries; with IDLE or TIME O(n) at worst, once",
        syntax="key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds]"
        " [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
    ),
    Command(
        "xautoclaim",
        -6,
        run_autoclaim,
        "write fast",
        keys="1: RW delete",
        tips="nondeterministic_output",
        group="stream",
        since="6.2.0",
        summary="Gives long-idle pending entries to a consumer, some at a time.",
        complexity="O(n) for the n entries examined, at most ten times the count",
        syntax="key group consumer min-idle-time start [COUNT count] [JUSTID]",
    ),
]
