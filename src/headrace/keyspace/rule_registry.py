"""Register the streams of a keyspace that have rules or a schedule, and the work that is due for them.

streams            stream -> RuledStream
ruled_databases    number of a database -> RuledDatabase, which SWAPDB exchanges together with the keys
changed_streams    those that a command has just changed: the engine applies their rules after the command
backlog            those with work left: engine.tick() continues it, a bounded step at a time
hot_rule_streams   those with HOT-BYTES or HOT-AGE, for hot_rules.py; hot_rules_version changes when one is
                   added
timers             by time: when to check whether the rules of a stream have work without a command, at its
                   due time or earlier
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import cython

from headrace import companion_keys, mem
from headrace.errors import CommandError
from headrace.streams import retention
from headrace.streams.group import Group
from headrace.streams.key_order import KeyOrder
from headrace.streams.rules import GroupRules
from headrace.streams.schedule import Schedule
from headrace.streams.stream import Stream
from headrace.structures.timer_heap import TimerQueue
from headrace.visibility import Public

DISPOSED_PER_STEP = cython.declare(cython.Py_ssize_t, 2000)
NEVER = cython.declare(cython.longlong, -1)
NO_TIMER = cython.declare(cython.Py_ssize_t, -1)


def dead_letter_key(key: bytes, rules: GroupRules) -> bytes:
    """Return the key of the stream for dead letters of a group with these rules.

    It is never `key`: if a stream was renamed to the key that its rules name, the default key is returned.
    """
    named = rules.dead_letter
    return named if named and named != key else companion_keys.dead_letter_name(key)


def dead_letter_stream_keys(key: bytes, stream: Stream) -> dict[bytes, None]:
    """Return the keys of the streams for dead letters of all groups of a stream, as keys of a dict."""
    rules = [group.rules for group in stream.unsorted_groups()]
    return dict.fromkeys(dead_letter_key(key, one) for one in rules if one is not None and one.max_deliveries)


@cython.final
@cython.cclass
class RuledDatabase:
    """The streams with rules of one database, and the keys of their dead letters.

    SWAPDB exchanges it together with the keys, so the number of its database can change.
    """

    database: Public[cython.Py_ssize_t]
    streams: dict[Stream, None]
    dead_letter_key_refcounts: dict[bytes, int]  # by key: of how many groups it has the dead letters

    def __init__(self, database: cython.Py_ssize_t) -> None:
        self.database = database
        self.streams = {}
        self.dead_letter_key_refcounts = {}


@cython.final
@cython.cclass
class RuledStream:
    """A stream with rules or a schedule, and what is to be done for it."""

    stream: Stream
    ruled_database: RuledDatabase
    schedule_target_key: Public[bytes | None]  # the stream that its entries are scheduled for
    schedule: Schedule | None  # of these entries
    due_ms: Public[cython.longlong]  # when its rules next have work without a command; -1: never
    timer: cython.Py_ssize_t  # in RuleRegistry.timers; -1: none
    consumers_due_ms: Public[cython.longlong]  # when CONSUMER-TTL is to be checked; -1: never
    # Groups and names of consumers: CONSUMER-TTL is being checked.
    unchecked_consumers: Public[list[tuple[Group, list[bytes]]]]
    recheck_due_ms: Public[cython.longlong]  # when to check those again that were checked; -1: never
    # CONSUMER-TTL counts from here on if a consumer was last seen before; -1: from when the rules are applied
    consumer_ttls_from_ms: Public[cython.longlong]
    # Inactive consumers, by group and name: CONSUMER-TTL makes their entries from this ID on due.
    inactive_consumers: Public[dict[tuple[bytes, bytes], tuple[int, int]]]
    acked_ids: Public[list[bytes]]  # IDs acknowledged since the rules were last applied
    acked_sweep_start_id: Public[bytes]  # DROP-ACKED: look at all entries from this ID on; empty: no need to
    exhausted_entries: Public[
        list[tuple[bytes, int, int]]
    ]  # (group, ms, seq): no more deliveries are allowed
    # An XADD needs no rules to be applied while the stream is below these; see can_skip_rules().
    rules_needed_from_length: Public[cython.longlong]
    rules_needed_above_bytes: Public[cython.longlong]  # of its nodes; 0: no limit
    watches_acks: Public[cython.bint]  # an acknowledgement may let entries be removed
    removed_count: Public[cython.longlong]  # entries that the rules have removed
    # Dead letters could not be added: no others are tried before.
    dead_letter_retry_at_ms: Public[cython.longlong]
    dead_letter_count: Public[cython.longlong]
    rejected_count: Public[cython.longlong]  # XADDs rejected at a limit
    dead_letter_keys: dict[bytes, bytes]  # by group: the key of its dead letters

    def __init__(self, stream: Stream, home: RuledDatabase) -> None:
        self.stream = stream
        self.ruled_database = home
        self.schedule_target_key = None
        self.schedule = None
        self.due_ms = self.consumers_due_ms = self.consumer_ttls_from_ms = NEVER
        self.timer = NO_TIMER
        self.unchecked_consumers = []
        self.recheck_due_ms = NEVER
        self.inactive_consumers = {}
        self.acked_ids = []
        self.acked_sweep_start_id = b""
        self.exhausted_entries = []
        self.rules_needed_from_length = self.rules_needed_above_bytes = 0
        self.watches_acks = True
        self.dead_letter_retry_at_ms = 0
        self.removed_count = self.dead_letter_count = self.rejected_count = 0
        self.dead_letter_keys = {}

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def can_skip_rules(self) -> cython.bint:
        """Return whether an XADD has left nothing to do for the rules."""
        length: cython.longlong = mem.as_signed(self.stream.length)
        if self.schedule is not None or length >= self.rules_needed_from_length:
            return False
        return (
            self.rules_needed_above_bytes == 0
            or retention.total_node_bytes(self.stream) <= self.rules_needed_above_bytes
        )

    @property
    def database(self) -> int:
        """The number of the database that has the stream."""
        return self.ruled_database.database

    @property
    def key(self) -> bytes:
        """The key of the stream."""
        key = self.stream.memory.stream_key
        assert key is not None
        return key


@cython.final
@cython.cclass
class RuleRegistry:
    """All streams with rules or a schedule. Databases add and remove them."""

    streams: dict[Stream, RuledStream]
    changed_streams: dict[RuledStream, None]
    backlog: OrderedDict[RuledStream, None]  # a dict would pass all removed items again and again
    timers: TimerQueue
    hot_rule_streams: OrderedDict[Stream, None]
    hot_rules_version: cython.longlong
    # Opens the cold storage, or raises CommandError; None: there is none to open.
    open_cold_storage: Public[Callable[[], object] | None]
    unused_key_orders: list[KeyOrder]  # their memory is freed in steps
    ruled_databases: dict[int, RuledDatabase]

    def __init__(self) -> None:
        self.streams = {}
        self.changed_streams = {}
        self.backlog = OrderedDict()
        self.timers = TimerQueue()
        self.hot_rule_streams = OrderedDict()
        self.hot_rules_version = 0
        self.open_cold_storage = None
        self.unused_key_orders = []
        self.ruled_databases = {}

    @cython.ccall
    def on_stored(self, database: cython.Py_ssize_t, key: bytes, stream: Stream) -> cython.void:
        """Register a stream that was stored at a key, if it has rules or a schedule."""
        target: bytes | None = companion_keys.stream_of_schedule_key(key)
        ruled: RuledStream
        if target is None and not stream.may_have_rules:
            return
        ruled = RuledStream(stream, self._ruled_database(database))
        if target is not None:
            ruled.schedule_target_key = target
            ruled.schedule = Schedule(stream)
        self.streams[stream] = ruled
        ruled.ruled_database.streams[stream] = None
        self._update_dead_letter_keys(ruled)
        self._queue_full_rule_check(ruled)
        self._update_hot_rule_stream(stream)

    @cython.ccall
    def on_removed(self, stream: Stream) -> cython.void:
        """Forget a stream that was removed from its key."""
        ruled: RuledStream | None = self.streams.pop(stream, None)
        self.hot_rule_streams.pop(stream, None)
        if ruled is not None:
            ruled.ruled_database.streams.pop(stream, None)
            self._remove_all_dead_letter_keys(ruled)
            self._stop_timer(ruled)
            ruled.due_ms = NEVER
            self.changed_streams.pop(ruled, None)
            self.backlog.pop(ruled, None)

    @cython.ccall
    def on_flushed(self, database: cython.Py_ssize_t) -> cython.void:
        """Forget all streams of a database."""
        stream: Stream
        for stream in list(self._ruled_database(database).streams):
            self.on_removed(stream)

    @cython.ccall
    def on_rules_changed(
        self, database: cython.Py_ssize_t, key: bytes, stream: Stream, group: Group | None
    ) -> cython.void:
        """Apply the rules of a stream, or of one of its groups, that were just set."""
        ruled: RuledStream | None = self.streams.get(stream)
        stream.may_have_rules = True
        if ruled is None:
            self.on_stored(database, key, stream)
            ruled = self.streams[stream]
            ruled.consumer_ttls_from_ms = 0
        else:
            if group is not None:
                self._remove_dead_letter_key(ruled, group.name)
                self._add_dead_letter_key(ruled, group)
            ruled.rules_needed_from_length = 0
            ruled.watches_acks = True
            self._queue_full_rule_check(ruled)
            self._update_hot_rule_stream(stream)

    def on_group_removed(self, stream: Stream, name: bytes) -> None:
        """Forget the rules of a group that was deleted."""
        ruled: RuledStream | None = self.streams.get(stream)
        if ruled is not None:
            self._remove_dead_letter_key(ruled, name)

    @cython.ccall
    def mark_changed(self, stream: Stream) -> cython.void:
        """Record that a stream has changed: its rules are applied after the command."""
        ruled: RuledStream | None = self.streams.get(stream)
        if ruled is not None:
            self.changed_streams[ruled] = None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def add_exhausted(
        self,
        stream: Stream,
        group: bytes,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        now: cython.longlong,
    ) -> cython.bint:
        """Record an entry that is moved to the dead letters after the command.

        Returns False if it must stay pending for now: the last attempt failed, or the stream has no rules.
        """
        ruled: RuledStream | None = self.streams.get(stream)
        if ruled is None or now < ruled.dead_letter_retry_at_ms:
            return False
        ruled.exhausted_entries.append((group, ms, seq))
        self.changed_streams[ruled] = None
        return True

    @cython.ccall
    def add_to_backlog(self, stream: Stream) -> cython.void:
        """Record that the rules of a stream are applied in the next turn of the event loop."""
        ruled: RuledStream | None = self.streams.get(stream)
        if ruled is not None:
            self.backlog[ruled] = None

    def free_key_order_later(self, order: KeyOrder) -> None:
        """Queue an order that is not used any more; free_key_orders_step() frees its memory."""
        self.unused_key_orders.append(order)

    def free_key_orders_step(self) -> None:
        """Free a part of the memory of the queued orders. At least one order must be queued."""
        if not self.unused_key_orders[-1].dispose(DISPOSED_PER_STEP):
            self.unused_key_orders.pop()

    def queue_full_rule_checks(self) -> None:
        """Queue a check of all rules from the next tick on, after rules were suspended."""
        ruled: RuledStream
        for ruled in self.streams.values():
            ruled.consumer_ttls_from_ms = NEVER
            self._queue_full_rule_check(ruled)

    @cython.cfunc
    def _queue_full_rule_check(self, ruled: RuledStream) -> cython.void:
        """Have the rules of a stream applied to all its consumers and entries, from the next tick on."""
        ruled.consumers_due_ms, ruled.unchecked_consumers = 0, []
        ruled.acked_sweep_start_id = b"0-0"
        self.backlog[ruled] = None

    @cython.cfunc
    def _update_hot_rule_stream(self, stream: Stream) -> cython.void:
        """Note whether a stream has rules about its nodes in memory, and open the cold storage if it has."""
        if stream.rules is None or not stream.rules.limits_memory():
            self.hot_rule_streams.pop(stream, None)
            return
        self.hot_rule_streams[stream] = None
        self.hot_rules_version += 1
        if self.open_cold_storage is not None:
            try:
                self.open_cold_storage()
            except CommandError as error:  # a client that sets a rule gets it: commands/stream/configure.py
                logging.getLogger("headrace").error("HOT-BYTES and HOT-AGE have no effect: %s", error)

    @cython.cfunc
    def _ruled_database(self, database: cython.Py_ssize_t) -> RuledDatabase:
        home: RuledDatabase | None = self.ruled_databases.get(database)
        if home is None:
            home = self.ruled_databases[database] = RuledDatabase(database)
        return home

    def swap(self, first: int, second: int) -> None:
        """Exchange the streams of two databases, in constant time."""
        one: RuledDatabase = self._ruled_database(first)
        other: RuledDatabase = self._ruled_database(second)
        one.database, other.database = second, first
        self.ruled_databases[first], self.ruled_databases[second] = other, one

    def is_dead_letter_key(self, database: int, key: bytes, without: Stream | None = None) -> bool:
        """Return whether the rules of a group move entries to the key.

        without: a stream whose groups do not count.
        """
        home: RuledDatabase | None = self.ruled_databases.get(database)
        if home is None:
            return False
        count = home.dead_letter_key_refcounts.get(key, 0)
        ruled: RuledStream | None = None if without is None else self.streams.get(without)
        if ruled is not None and ruled.ruled_database is home:
            count -= list(ruled.dead_letter_keys.values()).count(key)
        return count > 0

    def has_dead_letter_rule(self, stream: Stream) -> bool:
        """Return whether the rules of one of its groups move entries to another stream."""
        ruled: RuledStream | None = self.streams.get(stream)
        return ruled is not None and bool(ruled.dead_letter_keys)

    @cython.cfunc
    def _update_dead_letter_keys(self, ruled: RuledStream) -> cython.void:
        """Count the dead-letter streams of a stream whose key or database has changed."""
        group: Group
        self._remove_all_dead_letter_keys(ruled)
        for group in ruled.stream.unsorted_groups():
            self._add_dead_letter_key(ruled, group)

    @cython.cfunc
    def _add_dead_letter_key(self, ruled: RuledStream, group: Group) -> cython.void:
        rules: GroupRules | None = group.rules
        if rules is not None and rules.max_deliveries:
            counts: dict[bytes, int] = ruled.ruled_database.dead_letter_key_refcounts
            target = dead_letter_key(ruled.key, rules)
            ruled.dead_letter_keys[group.name] = target
            counts[target] = counts.get(target, 0) + 1

    @cython.cfunc
    def _remove_dead_letter_key(self, ruled: RuledStream, group: bytes) -> cython.void:
        counts: dict[bytes, int] = ruled.ruled_database.dead_letter_key_refcounts
        target = ruled.dead_letter_keys.pop(group, None)
        if target is not None:
            counts[target] -= 1
            if counts[target] == 0:
                del counts[target]

    @cython.cfunc
    def _remove_all_dead_letter_keys(self, ruled: RuledStream) -> cython.void:
        for group in list(ruled.dead_letter_keys):
            self._remove_dead_letter_key(ruled, group)

    def clear(self) -> None:
        """Forget all streams."""
        self.ruled_databases.clear()
        self.streams.clear()
        self.hot_rule_streams.clear()
        self.changed_streams.clear()
        self.backlog.clear()
        self.timers = TimerQueue()

    # Timers.

    @cython.ccall
    def schedule(self, ruled: RuledStream, at: cython.longlong) -> cython.void:
        """Set when the rules of a stream next have work, in Unix milliseconds; -1: never."""
        ruled.due_ms = at
        if at >= 0 and (ruled.timer < 0 or at < self.timers.deadline_of(ruled.timer)):
            self._set_timer(ruled, at)

    @cython.cfunc
    def _set_timer(self, ruled: RuledStream, at: cython.longlong) -> cython.void:
        self._stop_timer(ruled)
        ruled.timer = self.timers.add(at, ruled)

    @cython.cfunc
    def _stop_timer(self, ruled: RuledStream) -> cython.void:
        if ruled.timer >= 0:
            self.timers.remove(ruled.timer)
            ruled.timer = NO_TIMER

    @cython.ccall
    def pop_due(self, now: cython.longlong) -> RuledStream | None:
        """Remove and return a stream whose rules have work by now; None for none."""
        ruled: RuledStream | None = self.timers.first_due(now)
        while ruled is not None:
            self._stop_timer(ruled)
            if ruled.due_ms > now:
                self._set_timer(ruled, ruled.due_ms)
            elif ruled.due_ms >= 0:
                ruled.due_ms = NEVER
                return ruled
            ruled = self.timers.first_due(now)
        return None

    @cython.ccall
    def next_due(self) -> cython.longlong:
        """Return when to call pop_due() next; -1 for never."""
        return self.timers.next_deadline()
