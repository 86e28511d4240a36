"""The streams of a keyspace that the server has to work on by itself: they have rules, or a schedule.

streams   stream -> RuledStream
ready     those that a command has just changed: the engine applies their rules after the command
backlog   those with work left: engine.tick() continues it, a bounded step at a time
timers    (time, number, RuledStream)     when to apply the rules without a command; a stale item differs
                                          from the due time of its RuledStream
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import cython

from headrace import companion_keys, mem
from headrace.streams.schedule import Schedule
from headrace.streams.stream import Stream
from headrace.visibility import Public

TIMERS_STALE_MIN = cython.declare(cython.Py_ssize_t, 64)
NEVER = cython.declare(cython.longlong, -1)


@cython.final
@cython.cclass
class RuledStream:
    """A stream with rules or a schedule, and what is to be done for it."""

    stream: Stream
    database: Public[cython.Py_ssize_t]
    target: Public[bytes | None]  # the stream that its entries are scheduled for
    schedule: Schedule | None  # of these entries
    due_ms: Public[cython.longlong]  # of its valid timer; -1: none
    members_due_ms: Public[cython.longlong]  # when CONSUMER-TTL is to be checked; -1: never
    acked: Public[list[bytes]]  # IDs acknowledged since the rules were last applied
    sweep_from: Public[bytes]  # DROP-ACKED: look at all entries from this ID on; empty: no need to
    exhausted: Public[list[tuple[bytes, int, int]]]  # (group, ms, seq): no more deliveries are allowed
    # An XADD needs no rules to be applied while the stream is below these; see is_quiet().
    quiet_length: Public[cython.longlong]
    quiet_bytes: Public[cython.longlong]  # of its memory account; 0: no limit
    watches_acks: Public[cython.bint]  # an acknowledgement may let entries be removed
    removed: Public[cython.longlong]  # entries that the rules have removed
    dead_letters: Public[cython.longlong]
    rejected: Public[cython.longlong]  # XADDs rejected at a limit

    def __init__(self, stream: Stream, database: cython.Py_ssize_t) -> None:
        self.stream = stream
        self.database = database
        self.target = None
        self.schedule = None
        self.due_ms = self.members_due_ms = NEVER
        self.acked = []
        self.sweep_from = b""
        self.exhausted = []
        self.quiet_length = self.quiet_bytes = 0
        self.watches_acks = True
        self.removed = self.dead_letters = self.rejected = 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_quiet(self) -> cython.bint:
        """Return whether an XADD has left nothing to do for the rules."""
        length: cython.longlong = mem.as_signed(self.stream.length)
        if self.schedule is not None or length >= self.quiet_length:
            return False
        return self.quiet_bytes == 0 or self.stream.memory.total < self.quiet_bytes

    @property
    def key(self) -> bytes:
        """The key of the stream."""
        key = self.stream.memory.key
        assert key is not None
        return key


@cython.final
@cython.cclass
class RuleRegistry:
    """All streams with rules or a schedule. Databases add and remove them."""

    streams: dict[Stream, RuledStream]
    ready: dict[RuledStream, None]
    backlog: dict[RuledStream, None]
    timers: list[tuple[int, int, RuledStream]]
    number: cython.longlong

    def __init__(self) -> None:
        self.streams = {}
        self.ready = {}
        self.backlog = {}
        self.timers = []
        self.number = 0

    @cython.ccall
    def on_stored(self, database: cython.Py_ssize_t, key: bytes, stream: Stream) -> cython.void:
        """Register a stream that was stored at a key, if it has rules or a schedule."""
        target: bytes | None = companion_keys.scheduled_stream(key)
        ruled: RuledStream
        if target is None and not stream.has_rules:
            return
        ruled = RuledStream(stream, database)
        if target is not None:
            ruled.target = target
            ruled.schedule = Schedule(stream)
        self.streams[stream] = ruled
        ruled.members_due_ms = 0
        ruled.sweep_from = b"0-0"
        self.backlog[ruled] = None

    @cython.ccall
    def on_removed(self, stream: Stream) -> cython.void:
        """Forget a stream that was removed from its key."""
        ruled: RuledStream | None = self.streams.pop(stream, None)
        if ruled is not None:
            ruled.due_ms = NEVER
            self.ready.pop(ruled, None)
            self.backlog.pop(ruled, None)

    @cython.ccall
    def on_rules_changed(self, database: cython.Py_ssize_t, key: bytes, stream: Stream) -> cython.void:
        """Apply the rules of a stream that were just set."""
        ruled: RuledStream | None = self.streams.get(stream)
        stream.has_rules = True
        if ruled is None:
            self.on_stored(database, key, stream)
        else:
            ruled.members_due_ms = 0
            ruled.sweep_from = b"0-0"
            ruled.quiet_length = 0
            ruled.watches_acks = True
            self.backlog[ruled] = None

    @cython.ccall
    def mark(self, stream: Stream) -> cython.void:
        """Have the rules of a changed stream applied after the command."""
        ruled: RuledStream | None = self.streams.get(stream)
        if ruled is not None:
            self.ready[ruled] = None

    @cython.ccall
    def give_up(
        self, stream: Stream, group: bytes, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.void:
        """Have a pending entry moved to the dead letters after the command."""
        ruled: RuledStream | None = self.streams.get(stream)
        if ruled is not None:
            ruled.exhausted.append((group, ms, seq))
            self.ready[ruled] = None

    @cython.ccall
    def continue_later(self, stream: Stream) -> cython.void:
        """Have the rules of a stream applied in the next turn of the event loop."""
        ruled: RuledStream | None = self.streams.get(stream)
        if ruled is not None:
            self.backlog[ruled] = None

    def mark_all(self) -> None:
        """Apply all rules: they were suspended."""
        ruled: RuledStream
        for ruled in self.streams.values():
            ruled.members_due_ms = 0
            ruled.sweep_from = b"0-0"
            self.backlog[ruled] = None

    def swap(self, first: int, second: int) -> None:
        """Exchange the streams of two databases."""
        ruled: RuledStream
        for ruled in self.streams.values():
            if ruled.database == first:
                ruled.database = second
            elif ruled.database == second:
                ruled.database = first

    def clear(self) -> None:
        """Forget all streams."""
        self.streams.clear()
        self.ready.clear()
        self.backlog.clear()
        self.timers.clear()

    # Timers.

    def schedule(self, ruled: RuledStream, at: int) -> None:
        """Set the only timer of a stream, in Unix milliseconds; -1 removes it."""
        if at == ruled.due_ms:
            return
        ruled.due_ms = at
        if at < 0:
            return
        self.number += 1
        heappush(self.timers, (at, self.number, ruled))
        if len(self.timers) > TIMERS_STALE_MIN and len(self.timers) > 2 * len(self.streams):
            self.timers = [item for item in self.timers if item[2].due_ms == item[0]]
            heapify(self.timers)

    def pop_due(self, now: int) -> RuledStream | None:
        """Remove and return a stream whose timer is due; None for none."""
        while self.timers and self.timers[0][0] <= now:
            at, _, ruled = heappop(self.timers)
            if ruled.due_ms == at:
                ruled.due_ms = NEVER
                return ruled
        return None

    def next_due(self) -> int:
        """Return when the next timer is due; -1 for never."""
        while self.timers and self.timers[0][2].due_ms != self.timers[0][0]:
            heappop(self.timers)
        return self.timers[0][0] if self.timers else -1
