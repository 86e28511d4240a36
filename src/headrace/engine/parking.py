"""Suspend requests until a cold run (nodes of a stream, stored in a file) has been read.

    request ─▶ run ─▶ RunNeeded ─▶ parked ─▶ read by another thread ─▶ on_loaded() ─▶ the request again

Commands that only read are run until they meet a run that is not in the cache: what they have written of a
reply is dropped. Those that change something require their runs before (streams/cold_reads.py), as do those
that read a range; a sequential reader has its next run loaded ahead. All other reads, of MULTI, scripts,
rules and trims, load the run at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import cython

from headrace.commands.call import Call
from headrace.commands.session import Session
from headrace.commands.stats import CommandRow, Stats
from headrace.engine.dispatch import Dispatcher
from headrace.engine.write_gate import never_serve, no_timeout_reply
from headrace.errors import DamagedColdRun
from headrace.keyspace.blocking import Blocking, Waiter
from headrace.keyspace.cold_storage import ColdStorage
from headrace.streams import cold_run
from headrace.streams.cold_run import ColdRun, RunNeeded

# A request that was parked so often loads what it needs at once: its runs may be more than the cache holds.
PARKED_MAX = cython.declare(cython.int, 8)


@cython.final
@cython.cclass
class Parking:
    """The parked requests of an engine, by the run that they wait for."""

    dispatcher: Dispatcher
    stats: Stats
    blocking: Blocking
    cold_storage: ColdStorage
    load: Callable[[ColdRun], object]  # starts to read a run; on_loaded() is called later
    waiting: dict[ColdRun, list[Waiter]]
    unreadable: weakref.WeakSet[ColdRun]  # reading them failed, so they are not loaded ahead
    times: dict[Session, int]  # how often the present request of a session was parked
    parked: cython.longlong

    def __init__(
        self, dispatcher: Dispatcher, stats: Stats, cold: ColdStorage, load: Callable[[ColdRun], object]
    ) -> None:
        self.dispatcher = dispatcher
        self.stats = stats
        self.blocking = dispatcher.keyspace.blocking
        self.cold_storage = cold
        self.load = load
        self.waiting = {}
        self.unreadable = weakref.WeakSet()
        self.times = {}
        self.parked = 0

    @cython.ccall
    def run(self, call: Call, row: CommandRow) -> cython.void:
        """Run the command of a client, or park the request until the runs that it needs are read."""
        session: Session = call.session
        mark: cython.Py_ssize_t = call.reply.mark()
        if not row.of_streams or (self.times and self.times.get(session, 0) >= PARKED_MAX):
            self.times.pop(session, None)
            self.dispatcher.run(call, row)
            return
        self.cold_storage.cache.defer_mode = (
            cold_run.DEFER_ALWAYS if row.readonly else cold_run.DEFER_REQUIRED
        )
        try:
            self.dispatcher.run(call, row)
            self.times.pop(session, None)
        except RunNeeded as needed:
            call.reply.rewind(mark)
            row.calls -= 1
            self.stats.commands -= 1
            self._park(call, row, needed.runs)
        finally:
            self.cold_storage.cache.defer_mode = cold_run.DEFER_NEVER

    @cython.cfunc
    def _park(self, call: Call, row: CommandRow, runs: list[ColdRun]) -> cython.void:
        """Let the client wait for the last of some runs, which are read in order."""
        session: Session = call.session
        run: ColdRun
        waiter: Waiter = Waiter(
            session, session.database, call.argv, [], 0, never_serve, no_timeout_reply, row.command.name
        )
        session.waiting = waiter
        self.blocking.add_waiter(waiter)
        self.parked += 1
        self.times[session] = self.times.get(session, 0) + 1
        for run in runs:
            self.start_to_load(run)
        self.waiting[runs[-1]].append(waiter)

    def load_ahead(self, run: ColdRun) -> None:
        """Start to read a run that no request waits for yet, unless reading it has failed before."""
        if run not in self.unreadable:
            self.start_to_load(run)

    def start_to_load(self, run: ColdRun) -> None:
        """Start to read a run in another thread, unless it is being read."""
        if run not in self.waiting:
            self.waiting[run] = []
            self.load(run)

    def on_loaded(self, run: ColdRun, stored: Any) -> list[Waiter]:
        """Put what was read of a run into the cache; return the waiters for it.

        stored: what RunSource.load returned; None if it failed: the requests will try again, and report it.
        """
        waiters: list[Waiter] = self.waiting.pop(run, [])
        if stored is not None:
            try:
                if run.cached_nodes is None:
                    self.cold_storage.cache.misses += 1
                    self.cold_storage.cache.put(run, run.decode(stored))
                return waiters
            except DamagedColdRun:
                pass
        self.unreadable.add(run)
        for waiter in waiters:
            assert isinstance(waiter.session, Session)
            self.times[waiter.session] = PARKED_MAX
        return waiters

    @cython.ccall
    def forget(self, session: Session) -> cython.void:
        """Forget a session that ends."""
        self.times.pop(session, None)
