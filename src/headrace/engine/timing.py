"""Durations of requests for SLOWLOG, LATENCY and INFO commandstats; and the lines of MONITOR.

    begin         record_run      record_run                 record_run
      |--- request ---|--- request ---|--- EXEC: | one | two | ---|
      reading         reading         reading    ...              reading

The clock is read once for each request: where one ends, the next one begins. The time between two turns of
the event loop is not counted, because each turn begins with a reading. Each command of a
script begins with one, too. The clock is not read while no durations are measured.
"""

from __future__ import annotations

import cython

from headrace import system
from headrace.commands.call import Call
from headrace.commands.connection.monitor import quoted
from headrace.commands.connection.subscriptions import PubSub
from headrace.commands.server.latency_events import LatencyMonitor
from headrace.commands.server.slow_requests import SlowLog
from headrace.commands.stats import CommandRow
from headrace.engine.clock import RealClock
from headrace.keyspace.settings import Settings
from headrace.structures.histogram import Histogram

NEVER_NS = cython.declare(cython.longlong, (1 << 62) - 1)
MONITORED_BYTES_MAX = 64 * 1024  # of each argument that MONITOR shows: escaping takes time


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _add_to_histogram(row: CommandRow, taken: cython.longlong) -> cython.int:
    """Add a duration in nanoseconds to the row's histogram."""
    if row.latency_histogram is None:
        row.latency_histogram = Histogram()
    return row.latency_histogram.add(max(taken, 0))


@cython.final
@cython.cclass
class Timing:
    """Measures the durations of the requests of one engine; has its slow log and its latency events."""

    must_record_runs: cython.bint  # record_run() must be called
    measures_durations: cython.bint  # durations are measured
    tracks_latency: cython.bint  # each command's distribution of durations is kept
    last_reading_ns: cython.longlong  # the latest reading of the clock
    threshold_ns: cython.longlong  # a request this slow goes into the slow log, or is a latency event
    has_monitors: cython.bint  # there are MONITOR clients
    uses_system_clock: cython.bint  # no indirect call through `clock` is needed
    clock: RealClock
    settings: Settings
    pubsub: PubSub
    slow_log: SlowLog
    latency_monitor: LatencyMonitor

    def __init__(self, settings: Settings, pubsub: PubSub) -> None:
        self.uses_system_clock = True
        self.clock = RealClock()
        self.settings = settings
        self.pubsub = pubsub
        self.slow_log = SlowLog()
        self.latency_monitor = LatencyMonitor()
        self.measures_durations = False
        self.last_reading_ns = 0
        self.refresh()

    def use_clock(self, clock: RealClock) -> None:
        """Use that clock instead of the system's."""
        self.clock = clock
        self.uses_system_clock = False
        self.begin()

    @cython.ccall
    def refresh(self) -> cython.void:
        """Re-read the settings and the list of monitors. To be called when they have changed."""
        settings: Settings = self.settings
        slow: cython.longlong = settings.slowlog_log_slower_than
        event: cython.longlong = settings.latency_monitor_threshold
        self.threshold_ns = NEVER_NS
        if slow >= 0:
            self.threshold_ns = slow * 1000 if slow < NEVER_NS // 1000 else NEVER_NS
        if event > 0 and event < self.threshold_ns // 1_000_000:
            self.threshold_ns = event * 1_000_000
        self.tracks_latency = settings.latency_tracking
        self.measures_durations = self.tracks_latency or slow >= 0 or event > 0
        self.has_monitors = len(self.pubsub.monitors) > 0
        self.must_record_runs = self.measures_durations or self.has_monitors
        self.begin()

    @cython.ccall
    def begin(self) -> cython.void:
        """Read the clock: the next request begins now."""
        if self.measures_durations:
            self.last_reading_ns = (
                system.monotonic_ns() if self.uses_system_clock else self.clock.monotonic_ns()
            )

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def record_run(self, call: Call, row: CommandRow, since_ns: cython.longlong) -> cython.int:
        """Record that a command ran. since_ns: last_reading_ns before it ran."""
        if self.measures_durations:
            taken: cython.longlong = self._lap(row, since_ns)
            if call.session.waiter is None:
                if self.tracks_latency:
                    _add_to_histogram(row, taken)
                if taken >= self.threshold_ns:
                    self._record_slow(call, taken)
        if self.has_monitors and "skip_monitor" not in call.command.flags:
            self.send_to_monitors(call)
        return 0

    @cython.ccall
    def record_unblocked(self, row: CommandRow, since_ns: cython.longlong) -> cython.void:
        """Record that a blocked request was served; its waiting time is not counted."""
        if self.measures_durations:
            taken: cython.longlong = self._lap(row, since_ns)
            if self.tracks_latency:
                _add_to_histogram(row, taken)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _lap(self, row: CommandRow, since_ns: cython.longlong) -> cython.longlong:
        """Read the clock; add the nanoseconds since `since_ns` to the row and return them."""
        now: cython.longlong = system.monotonic_ns() if self.uses_system_clock else self.clock.monotonic_ns()
        self.last_reading_ns = now
        row.total_ns += now - since_ns
        return now - since_ns

    @cython.cfunc
    def _record_slow(self, call: Call, taken: cython.longlong) -> cython.void:
        """Add a slow request to the latency events and the slow log."""
        if call.session.replayed:
            return
        settings: Settings = self.settings
        flags = call.command.flags
        at_s = call.now // 1000
        ms = taken // 1_000_000
        if 0 < settings.latency_monitor_threshold <= ms:
            self.latency_monitor.add(b"fast-command" if "fast" in flags else b"command", at_s, ms)
        slower = settings.slowlog_log_slower_than
        if 0 <= slower <= taken // 1000 and "skip_slowlog" not in flags:
            argv = call.command.without_secrets(call.argv)
            session = call.session
            max_requests = settings.slowlog_max_len
            self.slow_log.add(at_s, taken // 1000, argv, session.address, session.name, max_requests)

    def send_to_monitors(self, call: Call) -> None:
        """Send the request to all MONITOR clients, except requests of administrators.

        A command that runs others has the flag skip_monitor, and calls this before it runs them.
        """
        if not self.has_monitors or call.session.replayed or "admin" in call.command.flags:
            return
        microseconds = call.now * 1000 + call.server.sub_ms_microseconds()
        argv = call.command.without_secrets(call.argv)
        address = b"lua" if call.session.is_script else call.session.address
        where = b"%d %s" % (call.session.database, address)
        shown = b" ".join(quoted(word[:MONITORED_BYTES_MAX]) for word in argv)
        self.pubsub.send_to_monitors(
            b"%d.%06d [%s] %s" % (microseconds // 1_000_000, microseconds % 1_000_000, where, shown)
        )
