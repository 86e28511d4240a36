"""Apply the rules of streams and groups: after commands, at their times, and in bounded steps.

    a command changed a stream with rules   ─▶ rule_marks.py ─▶ run_ready(), directly after the command
    the time of a rule has come             ─┐
    work is left of an earlier step         ─┴▶ tick(), once in a turn of the event loop

The effects are ordinary commands, run here as a client would run them: XTRIM, XDEL, XADD, XACK, XCLAIM and
XGROUP DELCONSUMER. The effects of one decision are one transaction in the log. So a server that replays them
needs to know no rules. Rules are not applied on a replica, while data is loaded or replayed, during a pause,
or while writes are rejected, including for too few replicas (min-replicas-to-write).

The time at which a consumer was last seen is neither logged nor replicated, and its requests may have been
rejected or held meanwhile. So CONSUMER-TTL does not begin before the rules are applied for the first time, or
again after they were suspended.
"""

from __future__ import annotations

import logging
from itertools import islice

from headrace.commands.call import Call
from headrace.commands.group.group_due import GroupsCheck
from headrace.commands.session import Session
from headrace.commands.stats import CommandRow
from headrace.engine.dispatch import Dispatcher
from headrace.engine.write_gate import WriteGate
from headrace.errors import READING_FROM_STORE_MESSAGE, CommandError, DamagedColdRun, log_text, to_text
from headrace.keyspace import watermark
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.keyspace.rule_registry import RuledStream, dead_letter_key
from headrace.streams import references, retention
from headrace.streams.cold_run import first_inner, run_of
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.iterator import StreamIterator
from headrace.streams.node import Node
from headrace.streams.schedule import parse_due_ms
from headrace.streams.stream import Stream
from headrace.structures import stream_id

NODES_AFTER_COMMAND = 8  # that a trim removes: more than one command adds
NODES_PER_STEP = 200  # about half a millisecond
ENTRIES_PER_STEP = 500
CONSUMERS_PER_STEP = 100  # checked and removed, at 4 µs each
SWEPT_PER_STEP = 250  # entries that are deleted if they are acknowledged, at 6 µs each
SCHEDULED_READ_PER_STEP = 1000
DELIVERIES_PER_STEP = 100
WORK_PER_TICK = 50  # streams that are only looked at; one with effects counts as CHANGED_STREAM_WORK
CHANGED_STREAM_WORK = 15
BEGUN_PER_TICK = 5  # streams whose time has come, however many are in progress
RETRY_MS = 1000  # after a failure, and for what no command announces: the watermark of an archive
NEVER = -1
I64_MAX = (1 << 63) - 1
DEAD_LETTER_FIELDS = tuple(
    b"dead:" + name for name in (b"stream", b"id", b"group", b"consumer", b"deliveries", b"error")
)


def _first_node_entries(head: Node) -> int:
    """Return how many entries the first node has; a mean if it is in a run that would have to be read."""
    if head.run is None or run_of(head).cached_nodes is not None:
        return first_inner(head).live_count
    return head.live_count // run_of(head).inner_count()


def earlier(a: int, b: int) -> int:
    """Return the earlier of two times; a negative one means never."""
    return b if a < 0 or 0 <= b < a else a


def _log_failure(ruled: RuledStream, error: CommandError) -> None:
    """Log that a rule failed, unless it only waits for a run."""
    if not isinstance(error, DamagedColdRun) or error.what != READING_FROM_STORE_MESSAGE:
        logging.getLogger("headrace").error("a rule of %s failed: %s", log_text(ruled.key), error)


class RuleRunner:
    """Applies the rules of one keyspace."""

    def __init__(
        self,
        keyspace: Keyspace,
        write_gate: WriteGate,
        dispatcher: Dispatcher,
        call: Call,
        rows: dict[bytes, CommandRow],
    ) -> None:
        """Create a runner.

        Args:
            call: for the commands of rules; no other code uses it.
            rows: the rows of commands, by name.
        """
        self.keyspace = keyspace
        self.registry = keyspace.rule_registry
        self.write_gate = write_gate
        self.call = call
        self._dispatcher = dispatcher
        self._rows = rows
        self.call.session = Session(0)
        self.call.session.is_rule_session = True
        self.call.reply = self.call.session.reply
        self._suspended = False  # the rules were not applied at the last tick, or all data is new

    # When.

    def is_suspended(self) -> bool:
        """Return whether no rule may be applied now."""
        keyspace, gate = self.keyspace, self.write_gate
        return (
            keyspace.hides_expired()
            or keyspace.ignore_expiry
            or gate.loading
            or gate.paused_until != 0
            or gate.write_error is not None
            or gate.too_few_replicas
        )

    def reapply_all_next_time(self) -> None:
        """Record that the rules were not applied until now: all of them are applied again next time.

        For example, the data was loaded or came from a primary, clients were paused, or the clock was set.
        """
        self._suspended = True

    def run_ready(self, now: int) -> None:
        """Apply the rules of the streams that the last command changed."""
        if self.is_suspended():
            self._suspended = True
            self.registry.changed_streams.clear()
            return
        self._resume()
        while self.registry.changed_streams:
            ruled = next(iter(self.registry.changed_streams))
            del self.registry.changed_streams[ruled]
            self._apply(ruled, now, NODES_AFTER_COMMAND)

    def tick(self, now: int) -> None:
        """Apply the rules whose time has come, and continue what is left."""
        if self.registry.unused_key_orders:
            self.registry.free_key_orders_step()
        if self.is_suspended():
            self._suspended = True
            return
        self._resume()
        backlog = self.registry.backlog
        for _ in range(max(WORK_PER_TICK - len(backlog), BEGUN_PER_TICK)):  # others stay in the timers
            ruled = self.registry.pop_due(now)
            if ruled is None:
                break
            backlog[ruled] = None
        work = 0
        for ruled in list(islice(backlog, WORK_PER_TICK)):
            before = self.keyspace.changes
            self._apply(ruled, now, NODES_PER_STEP)
            work += 1 if self.keyspace.changes == before else CHANGED_STREAM_WORK
            if work >= WORK_PER_TICK:
                break

    def _resume(self) -> None:
        """Have all rules applied again if they were suspended."""
        if self._suspended:
            self._suspended = False
            self.registry.queue_full_rule_checks()

    def next_due(self, now: int) -> int:
        """Return when tick() next has work, in Unix milliseconds; -1 for never."""
        if not self.registry.streams:
            return NEVER
        if self.is_suspended():
            self._suspended = True
            return NEVER
        if self.registry.backlog or self._suspended or self.registry.unused_key_orders:
            return now
        return self.registry.next_due()

    # One stream.

    def _apply(self, ruled: RuledStream, now: int, nodes_max: int) -> None:
        """Apply all rules of a stream, and set its timer."""
        self.registry.backlog.pop(ruled, None)
        cold = self.keyspace.cold_storage
        if cold is not None:
            cold.store.may_wait_for_object_store = False
        try:
            self._apply_or_retry(ruled, now, nodes_max)
        finally:
            if cold is not None:
                cold.store.may_wait_for_object_store = True

    def _apply_or_retry(self, ruled: RuledStream, now: int, nodes_max: int) -> None:
        """Apply the rules, and set the timer for what they do next or for another attempt."""
        try:
            due, is_complete = self._apply_rules(ruled, now, nodes_max)
        except CommandError as error:
            _log_failure(ruled, error)
            due, is_complete = now + RETRY_MS, True
        except Exception:
            logging.getLogger("headrace").exception("a bug in the rules of %s", log_text(ruled.key))
            due, is_complete = now + RETRY_MS, True
        if ruled.stream not in self.registry.streams:
            return
        self.registry.schedule(ruled, due)
        if not is_complete:
            self.registry.backlog[ruled] = None
        try:
            self._set_skip_thresholds(ruled, now)
        except DamagedColdRun as error:  # then no command applies the rules, but the timer does
            _log_failure(ruled, error)
            self.registry.schedule(ruled, earlier(due, now + RETRY_MS))

    def _apply_rules(self, ruled: RuledStream, now: int, nodes_max: int) -> tuple[int, bool]:
        """Apply the rules; return when they next have work, and whether nothing is left to do now."""
        stream = ruled.stream
        due, is_complete = NEVER, True
        if ruled.consumer_ttls_from_ms < 0:
            ruled.consumer_ttls_from_ms = now
        gave_up = len(ruled.exhausted_entries) > 0
        if gave_up:
            self._move_to_dead_letters(ruled, now)
        if ruled.dead_letter_retry_at_ms > now:
            due = ruled.dead_letter_retry_at_ms
        if stream.rules is not None:
            if stream.rules.drop_acked:
                is_complete &= self._drop_acked(ruled)
            limits_due, trimmed = self._trim(ruled, now, nodes_max)
            due = earlier(due, limits_due)
            is_complete &= not trimmed
        ruled.acked_ids.clear()
        if gave_up:
            is_complete = False  # readers may go on in the next turn: they may find more to give up
        else:
            groups_due, is_checked = self._wake_group_readers(ruled, now)
            due = earlier(due, groups_due)
            is_complete &= is_checked
        if 0 <= ruled.consumers_due_ms <= now:
            is_complete &= self._remove_consumers(ruled, now)
        if ruled.inactive_consumers:
            self._make_entries_due(ruled, now)
            is_complete &= not ruled.inactive_consumers
        if not ruled.unchecked_consumers:
            due = earlier(due, ruled.consumers_due_ms)
        if ruled.schedule is not None:
            schedule_due, delivered = self._deliver_scheduled(ruled, now)
            due = earlier(due, schedule_due)
            is_complete &= delivered
        return due, is_complete

    def _set_skip_thresholds(self, ruled: RuledStream, now: int) -> None:
        """Set which commands need not apply the rules: most of them change nothing."""
        stream, rules = ruled.stream, ruled.stream.rules
        ruled.rules_needed_from_length, ruled.rules_needed_above_bytes, ruled.watches_acks = I64_MAX, 0, False
        if rules is None:
            return
        if rules.max_len and not rules.discard_new:
            head = stream.first_node()
            slack = 1 if rules.exact or head is None else max(_first_node_entries(head), 1)
            ruled.rules_needed_from_length = min(rules.max_len + slack, I64_MAX)
        if rules.max_bytes and not rules.discard_new:
            ruled.rules_needed_above_bytes = rules.max_bytes
        if rules.max_age_ms and ruled.due_ms < 0:
            ruled.rules_needed_from_length = 0  # the next entry needs a timer
        is_over = (
            retention.is_over_limit(stream, rules) or 0 <= retention.next_age_due_ms(stream, rules) <= now
        )
        ruled.watches_acks = rules.drop_acked or (rules.keep_unacked and is_over)

    # Retention.

    def _trim(self, ruled: RuledStream, now: int, nodes_max: int) -> tuple[int, bool]:
        """Trim a stream to its limits; return when MAX-AGE is due next, and whether entries were removed."""
        stream, rules = ruled.stream, ruled.stream.rules
        assert rules is not None
        database = self.keyspace.databases[ruled.database]
        archived = watermark.archived_id(database, ruled.key, stream) if rules.keep_unarchived else None
        count = retention.count_removable(stream, rules, now, archived, nodes_max)
        if count:
            self._run(database, [b"XTRIM", ruled.key, b"MAXLEN", b"=", b"%d" % (stream.length - count)])
            ruled.removed_count += count
            return NEVER, True
        due = retention.next_age_due_ms(stream, rules)
        if due > now:
            return due, False
        is_over = due >= 0 or retention.is_over_limit(stream, rules)
        return now + RETRY_MS if rules.keep_unarchived and is_over else NEVER, False

    def _drop_acked(self, ruled: RuledStream) -> bool:
        """Remove entries that all groups have acknowledged; return False if some are left to look at."""
        stream = ruled.stream
        if not stream.group_count:
            ruled.acked_sweep_start_id = b""
            return True
        found = [word for word in dict.fromkeys(ruled.acked_ids) if self._is_acked(stream, word)]
        is_complete = True
        if ruled.acked_sweep_start_id:
            first = stream_id.parse(ruled.acked_sweep_start_id, 0)
            lowest = references.lowest_last_id(stream)
            assert lowest is not None
            entries = StreamIterator(stream, first.ms, first.seq, lowest.ms, lowest.seq, False)
            visited = 0
            ruled.acked_sweep_start_id = b""
            while entries.next():
                visited += 1
                if visited > SWEPT_PER_STEP:
                    ruled.acked_sweep_start_id = stream_id.text_of(entries.ms, entries.seq)
                    is_complete = False
                    break
                if not references.is_pending(stream, entries.ms, entries.seq):
                    found.append(stream_id.text_of(entries.ms, entries.seq))
        if found:
            database = self.keyspace.databases[ruled.database]
            before = stream.length
            self._run(database, [b"XDEL", ruled.key, *dict.fromkeys(found)])
            ruled.removed_count += before - stream.length
        return is_complete

    def _is_acked(self, stream: Stream, word: bytes) -> bool:
        """Return whether the word of an XACK or XACKDEL is the ID of an entry that no group needs."""
        try:
            entry = stream_id.parse(word, 0)
        except CommandError:  # an option of XACKDEL
            return False
        return stream.contains(entry.ms, entry.seq) and not references.is_referenced(
            stream, entry.ms, entry.seq
        )

    # Groups.

    def _wake_group_readers(self, ruled: RuledStream, now: int) -> tuple[int, bool]:
        """Wake readers if a group may have entries for them; return the next due time, and if all is done."""
        database = self.keyspace.databases[ruled.database]
        check = GroupsCheck(ruled.stream, now, database.has_waiters(ruled.key))
        check.run()
        if check.has_ready_reader:
            database.signal_ready(ruled.key)
        return check.next_check_ms, check.is_complete

    def _move_to_dead_letters(self, ruled: RuledStream, now: int) -> None:
        """Move entries that were delivered too often to the dead letters; if it fails, set when to retry."""
        database = self.keyspace.databases[ruled.database]
        exhausted, ruled.exhausted_entries = ruled.exhausted_entries, []
        for name, ms, seq in exhausted:
            group = ruled.stream.group(name)
            if group is None or group.rules is None:
                continue
            try:
                self._move_to_dead_letter(ruled, database, group, ms, seq)
            except CommandError as error:
                key = to_text(dead_letter_key(ruled.key, group.rules))
                logging.getLogger("headrace").error("no dead letter was added to %s: %s", key, error)
                ruled.dead_letter_retry_at_ms = now + RETRY_MS
                break  # the others stay pending, too

    def _move_to_dead_letter(
        self, ruled: RuledStream, database: Database, group: Group, ms: int, seq: int
    ) -> None:
        pending, word = group.pending, stream_id.text_of(ms, seq)
        slot = pending.find(ms, seq)
        if slot < 0 or group.rules is None:
            return
        start = self.call.effects.next_index()
        entry = StreamIterator(ruled.stream, ms, seq, ms, seq, False)
        if entry.next():
            owner = pending.owner_of(slot)
            deliveries = pending.delivery_count_of(slot)
            values = (
                ruled.key,
                word,
                group.name,
                b"" if owner is None else owner.name,
                b"%d" % deliveries,
                b"delivered %d times and never acknowledged" % deliveries,
            )
            fields = _without(entry.remaining_pieces(), DEAD_LETTER_FIELDS)
            fields += [part for pair in zip(DEAD_LETTER_FIELDS, values, strict=True) for part in pair]
            self._run(database, [b"XADD", dead_letter_key(ruled.key, group.rules), b"*", *fields])
            ruled.dead_letter_count += 1
        self._run(database, [b"XACK", ruled.key, group.name, word])
        self.call.effects.make_atomic(start)
        ruled.acked_ids.append(word)

    def _remove_consumers(self, ruled: RuledStream, now: int) -> bool:
        """Check some consumers: remove inactive ones without pending entries, record the other inactive ones.

        After the last consumer, set when to check again and return True; until then return False.
        """
        groups = ruled.unchecked_consumers
        if not groups:
            with_rule = [
                one for one in ruled.stream.unsorted_groups() if one.rules and one.rules.consumer_ttl_ms
            ]
            groups += [(group, group.consumer_names()) for group in with_rule]
            ruled.recheck_due_ms = NEVER
        left = CONSUMERS_PER_STEP
        while groups and left > 0:
            group, names = groups[-1]
            rules = group.rules
            if rules is None or not rules.consumer_ttl_ms or ruled.stream.group(group.name) is not group:
                groups.pop()
                continue
            # of consumers that are created meanwhile
            ruled.recheck_due_ms = earlier(ruled.recheck_due_ms, now + rules.consumer_ttl_ms)
            step, names[-left:] = names[-left:], []
            left -= len(step) + 1
            for name in step:
                self._remove_consumer_if_inactive(ruled, group, name, rules.consumer_ttl_ms, now)
            if not names:
                groups.pop()
        if groups:
            return False
        ruled.consumers_due_ms = ruled.recheck_due_ms
        return True

    def _remove_consumer_if_inactive(
        self, ruled: RuledStream, group: Group, name: bytes, ttl_ms: int, now: int
    ) -> None:
        consumer = group.consumer(name)
        if consumer is None:
            return
        expires = max(consumer.seen_ms, ruled.consumer_ttls_from_ms) + ttl_ms
        if expires > now:
            ruled.recheck_due_ms = earlier(ruled.recheck_due_ms, expires)
        elif consumer.pending_count == 0:
            database = self.keyspace.databases[ruled.database]
            self._run(database, [b"XGROUP", b"DELCONSUMER", ruled.key, group.name, name])
        elif group.lease is not None:
            ruled.inactive_consumers.setdefault((group.name, name), (0, 0))

    def _make_entries_due(self, ruled: RuledStream, now: int) -> None:
        """Make some entries of one inactive consumer due, as if they had been delivered long ago."""
        (group_name, name), (ms, seq) = next(iter(ruled.inactive_consumers.items()))
        group = ruled.stream.group(group_name)
        consumer = None if group is None else group.consumer(name)
        del ruled.inactive_consumers[group_name, name]
        if group is None or consumer is None or group.rules is None or group.lease is None:
            return
        ttl_ms = group.rules.consumer_ttl_ms
        if ttl_ms == 0 or max(consumer.seen_ms, ruled.consumer_ttls_from_ms) + ttl_ms > now:
            return  # it is active again
        pending, words, visited = group.pending, [], 0
        slot = pending.first_of_consumer_from(consumer, ms, seq)
        while slot >= 0 and visited < ENTRIES_PER_STEP:
            if group.due_of(slot) > now:
                words.append(stream_id.text_of(pending.ms_of(slot), pending.seq_of(slot)))
            visited += 1
            slot = pending.next_of_consumer(consumer, slot)
        if slot >= 0:
            ruled.inactive_consumers[group_name, name] = pending.ms_of(slot), pending.seq_of(slot)
        if words:
            self._claim_as_due(ruled, group, consumer, words)

    def _claim_as_due(self, ruled: RuledStream, group: Group, consumer: Consumer, words: list[bytes]) -> None:
        """Set the delivery time of a consumer's entries to 0. This does not make the consumer active."""
        database, seen_ms = self.keyspace.databases[ruled.database], consumer.seen_ms
        claim = [b"XCLAIM", ruled.key, group.name, consumer.name, b"0", *words, b"TIME", b"0", b"JUSTID"]
        self._run(database, claim)
        group.touch(consumer, seen_ms)
        database.signal_ready(ruled.key)

    # Scheduled entries.

    def _deliver_scheduled(self, ruled: RuledStream, now: int) -> tuple[int, bool]:
        """Move due entries to their stream; return when the next one is due, and whether none is left now."""
        schedule = ruled.schedule
        assert schedule is not None
        schedule.read_new(SCHEDULED_READ_PER_STEP)
        if not schedule.has_read_all():
            return NEVER, False  # in order of due times: all of them must be known first
        if schedule.retry_at_ms > now:
            return schedule.next_due_ms(), True
        for _ in range(DELIVERIES_PER_STEP):
            item = schedule.pop_due(now)
            if item is None:
                return schedule.next_due_ms(), True
            try:
                self._deliver(ruled, item[1], item[2])
            except CommandError as error:
                if not error.args[0].startswith("FULL"):
                    logging.getLogger("headrace").error("%s is not delivered: %s", log_text(ruled.key), error)
                schedule.put_back(now + RETRY_MS)
                return schedule.next_due_ms(), True
        return NEVER, False

    def _deliver(self, ruled: RuledStream, ms: int, seq: int) -> None:
        """Append a scheduled entry to its stream and delete it from the schedule, in one transaction."""
        entry = StreamIterator(ruled.stream, ms, seq, ms, seq, False)
        if not entry.next():
            return  # cancelled
        words = entry.remaining_pieces()
        if parse_due_ms(words) < 0 or ruled.schedule_target_key is None:
            return
        database = self.keyspace.databases[ruled.database]
        start = self.call.effects.next_index()
        self._run(database, [b"XADD", ruled.schedule_target_key, b"*", *words[:-2]])
        self._run(database, [b"XDEL", ruled.key, stream_id.text_of(ms, seq)])
        self.call.effects.make_atomic(start)

    # Commands.

    def _run(self, database: Database, argv: list[bytes]) -> None:
        """Run a command as a client would. Raises CommandError."""
        call = self.call
        row = self._rows[b"xgroup|delconsumer" if argv[0] == b"XGROUP" else argv[0].lower()]
        call.argv = argv
        call.now = self.keyspace.now
        call.session.database = database.index
        try:
            self._dispatcher.run(call, row)
        finally:
            call.reply.rewind(0)
        if argv[0] == b"XADD" and (stream := database.stream(argv[1])) is not None and stream.may_have_rules:
            self.registry.mark_changed(stream)


def _without(words: list[bytes], names: tuple[bytes, ...]) -> list[bytes]:
    """Return the fields and values without those of these names."""
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for pair in pairs if pair[0] not in names for word in pair]
