"""What requests take, for whoever wants to know: SLOWLOG, LATENCY, INFO's commandstats; and MONITOR's lines.

    begin            ran              ran                        ran
      |--- request ---|--- request ---|--- EXEC: | one | two | ---|
      reading         reading         reading    ...              reading

The clock is read once a request: where one ends the next one begins. What is between two turns is nobody's,
for each turn begins with a reading of its own. Nothing is read or kept while nobody wants to know.
"""

from __future__ import annotations

import cython

from headrace import system
from headrace.commands import redaction
from headrace.commands.call import Call
from headrace.commands.connection.subscriptions import PubSub
from headrace.engine.clock import RealClock
from headrace.engine.histogram import Histogram
from headrace.engine.latency import LatencyMonitor
from headrace.engine.slowlog import SlowLog
from headrace.engine.stats import CommandRow
from headrace.keyspace.settings import Settings

NEVER_NS = cython.declare(cython.longlong, (1 << 62) - 1)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _count(row: CommandRow, taken: cython.longlong) -> cython.int:
    """A request of that row has taken so many nanoseconds."""
    if row.latencies is None:
        row.latencies = Histogram()
    return row.latencies.add(max(taken, 0))


@cython.final
@cython.cclass
class Timing:
    """The stop-watch of one engine, and what it has found worth keeping."""

    enabled: cython.bint  # someone wants to know: ran() is to be called
    timed: cython.bint  # and how long it took
    tracking: cython.bint  # and the distribution, command by command
    lap_ns: cython.longlong  # when the clock was read last
    threshold_ns: cython.longlong  # what takes as long goes into the slow log, or is an event
    has_monitors: cython.bint  # someone is to be shown all requests
    uses_system_clock: cython.bint  # the clock is the system's: it need not be asked by way of an object
    clock: RealClock
    settings: Settings
    pubsub: PubSub
    slow_log: SlowLog
    latency: LatencyMonitor

    def __init__(self, settings: Settings, pubsub: PubSub) -> None:
        self.uses_system_clock = True
        self.clock = RealClock()
        self.settings = settings
        self.pubsub = pubsub
        self.slow_log = SlowLog()
        self.latency = LatencyMonitor()
        self.timed = False
        self.lap_ns = 0
        self.refresh()

    def use_clock(self, clock: RealClock) -> None:
        """Ask that clock from now on, in place of the system's."""
        self.clock = clock
        self.uses_system_clock = False
        self.begin()

    @cython.ccall
    def refresh(self) -> cython.void:
        """The settings have changed, or who watches: find out what is to be done from now on."""
        settings: Settings = self.settings
        slow: cython.longlong = settings.slowlog_log_slower_than
        event: cython.longlong = settings.latency_monitor_threshold
        self.threshold_ns = NEVER_NS
        if slow >= 0:
            self.threshold_ns = slow * 1000 if slow < NEVER_NS // 1000 else NEVER_NS
        if event > 0 and event < self.threshold_ns // 1_000_000:
            self.threshold_ns = event * 1_000_000
        self.tracking = settings.latency_tracking
        self.timed = self.tracking or slow >= 0 or event > 0
        self.has_monitors = len(self.pubsub.monitors) > 0
        self.enabled = self.timed or self.has_monitors
        self.begin()

    @cython.ccall
    def begin(self) -> cython.void:
        """What happens from now on is the next request's."""
        if self.timed:
            self.lap_ns = system.monotonic_ns() if self.uses_system_clock else self.clock.monotonic_ns()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def record_run(self, call: Call, row: CommandRow, since_ns: cython.longlong) -> cython.int:
        """The call, of that row, has run. since_ns: what lap_ns was before."""
        if self.timed:
            taken: cython.longlong = self._lap(row, since_ns)
            if call.session.waiting is None:
                if self.tracking:
                    _count(row, taken)
                if taken >= self.threshold_ns:
                    self._record_slow(call, taken)
        if self.has_monitors:
            self._send_to_monitors(call)
        return 0

    @cython.ccall
    def record_unblocked(self, row: CommandRow, since_ns: cython.longlong) -> cython.void:
        """A request of that row that had to wait has been answered; that it waited is not counted."""
        if self.timed:
            taken: cython.longlong = self._lap(row, since_ns)
            if self.tracking:
                _count(row, taken)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _lap(self, row: CommandRow, since_ns: cython.longlong) -> cython.longlong:
        """Read the clock; the nanoseconds since then are the row's."""
        now: cython.longlong = system.monotonic_ns() if self.uses_system_clock else self.clock.monotonic_ns()
        self.lap_ns = now
        row.ns += now - since_ns
        return now - since_ns

    @cython.cfunc
    def _record_slow(self, call: Call, taken: cython.longlong) -> cython.void:
        """Keep what took so long."""
        if call.session.replayed:
            return
        settings: Settings = self.settings
        flags = call.command.flags
        at_s = call.now // 1000
        ms = taken // 1_000_000
        if 0 < settings.latency_monitor_threshold <= ms:
            self.latency.add(b"fast-command" if "fast" in flags else b"command", at_s, ms)
        slower = settings.slowlog_log_slower_than
        if 0 <= slower <= taken // 1000 and "skip_slowlog" not in flags:
            argv = redaction.without_secrets(call.command, call.argv)
            session = call.session
            max_requests = settings.slowlog_max_len
            self.slow_log.add(at_s, taken // 1000, argv, session.address, session.name, max_requests)

    @cython.cfunc
    def _send_to_monitors(self, call: Call) -> cython.void:
        """Tell all who watch. Administrators' requests are shown to nobody."""
        if call.session.replayed or "admin" in call.command.flags:
            return
        microseconds = call.now * 1000 + call.server.microseconds()
        argv = redaction.without_secrets(call.command, call.argv)
        where = b"%d %s" % (call.session.database, call.session.address)
        shown = b" ".join(redaction.quoted(word) for word in argv)
        self.pubsub.send_to_monitors(
            b"%d.%06d [%s] %s" % (microseconds // 1_000_000, microseconds % 1_000_000, where, shown)
        )

    def record_event(self, name: bytes, ms: int, now_ms: int) -> None:
        """Something other than a command has held up the server: an event, if it took long enough."""
        if 0 < self.settings.latency_monitor_threshold <= ms:
            self.latency.add(name, now_ms // 1000, ms)
