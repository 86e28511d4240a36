"""Suspend requests until a cold run (nodes of a stream, stored in a file) has been read.

    request ─▶ run ─▶ RunNeeded ─▶ parked ─▶ read by another thread ─▶ on_loaded() ─▶ the request again

Commands that only read are executed until they need a run that is not in the cache; then the reply written so
far is dropped. Commands that change data, or read a range, request their runs before they begin
(streams/cold_reads.py). For a sequential reader the next run is loaded ahead. All other reads (in MULTI,
scripts, rules and trims) load the run at once.
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
from headrace.engine.write_gate import no_timeout_reply
from headrace.errors import DamagedColdRun
from headrace.keyspace.blocking import Blocking, Waiter, never_serve
from headrace.keyspace.cold_storage import ColdStorage
from headrace.keyspace.keyspace import Keyspace
from headrace.streams import cold_run
from headrace.streams.cold_run import ColdRun, RunNeeded

# A request that was parked so often loads what it needs at once: its runs may be more than the cache holds.
TIMES_PARKED_MAX = cython.declare(cython.int, 8)


@cython.final
@cython.cclass
class Parking:
    """The parked requests of an engine, by the run that they wait for."""

    dispatcher: Dispatcher
    stats: Stats
    blocking: Blocking
    cold_storage: ColdStorage
    request_load: Callable[[ColdRun], object]  # starts to read a run; on_loaded() is called later
    waiters_by_run: dict[ColdRun, list[Waiter]]
    unreadable_runs: weakref.WeakSet[ColdRun]  # reading them failed, so they are not loaded ahead
    times_parked: dict[Session, int]  # how often the present request of a session was parked
    parked_count: cython.longlong

    def __init__(
        self, dispatcher: Dispatcher, stats: Stats, cold: ColdStorage, load: Callable[[ColdRun], object]
    ) -> None:
        self.dispatcher = dispatcher
        self.stats = stats
        self.blocking = dispatcher.keyspace.blocking
        self.cold_storage = cold
        self.request_load = load
        self.waiters_by_run = {}
        self.unreadable_runs = weakref.WeakSet()
        self.times_parked = {}
        self.parked_count = 0

    @cython.ccall
    def run_or_park(self, call: Call, row: CommandRow) -> cython.void:
        """Run the command of a client, or park the request until the runs that it needs are read."""
        session: Session = call.session
        keyspace: Keyspace = self.dispatcher.keyspace
        hits: cython.longlong = keyspace.hits
        misses: cython.longlong = keyspace.misses
        mark: cython.Py_ssize_t = call.reply.mark()
        if not row.may_read_entries or (
            self.times_parked and self.times_parked.get(session, 0) >= TIMES_PARKED_MAX
        ):
            self.times_parked.pop(session, None)
            self.dispatcher.run(call, row)
            return
        self.cold_storage.cache.defer_mode = (
            cold_run.DEFER_ALWAYS if row.readonly else cold_run.DEFER_REQUIRED
        )
        try:
            self.dispatcher.run(call, row)
            self.times_parked.pop(session, None)
        except RunNeeded as needed:
            call.reply.rewind(mark)
            row.calls -= 1
            self.stats.command_count -= 1
            keyspace.hits, keyspace.misses = hits, misses
            self._park(call, row, needed.runs)
        finally:
            self.cold_storage.cache.defer_mode = cold_run.DEFER_NEVER

    @cython.cfunc
    def _park(self, call: Call, row: CommandRow, runs: list[ColdRun]) -> cython.void:
        """Start to load the runs, which are read in order, and let the client wait for the last one."""
        session: Session = call.session
        run: ColdRun
        waiter: Waiter = Waiter(
            session, session.database, call.argv, [], 0, never_serve, no_timeout_reply, row.command.name
        )
        session.waiter = waiter
        self.blocking.add_waiter(waiter)
        self.parked_count += 1
        self.times_parked[session] = self.times_parked.get(session, 0) + 1
        for run in runs:
            self.start_to_load(run)
        self.waiters_by_run[runs[-1]].append(waiter)

    @cython.ccall
    def waits_for_run(self, session: Session) -> cython.bint:
        """Return whether the session's request waits for a run."""
        return session.waiter is not None and session in self.times_parked

    def load_ahead(self, run: ColdRun) -> None:
        """Start to read a run that no request waits for yet, unless reading it has failed before."""
        if run not in self.unreadable_runs:
            self.start_to_load(run)

    def start_to_load(self, run: ColdRun) -> None:
        """Start to read a run in another thread, unless it is being read."""
        if run not in self.waiters_by_run:
            self.waiters_by_run[run] = []
            self.request_load(run)

    def on_loaded(self, run: ColdRun, stored: Any) -> list[Waiter]:
        """Put into the cache a run that was read from its file; return the waiters for it.

        stored: what RunSource.load() returned; None if it failed. Then the requests load the run themselves,
        and report the error.
        """
        waiters: list[Waiter] = self.waiters_by_run.pop(run, [])
        if stored is not None:
            try:
                if run.cached_nodes is None:
                    self.cold_storage.cache.misses += 1
                    self.cold_storage.cache.put(run, run.decode(stored))
                return waiters
            except DamagedColdRun:
                pass
        self.unreadable_runs.add(run)
        for waiter in waiters:
            assert isinstance(waiter.session, Session)
            self.times_parked[waiter.session] = TIMES_PARKED_MAX
        return waiters

    @cython.ccall
    def forget_session(self, session: Session) -> cython.void:
        """Remove what is stored about a session that ends."""
        self.times_parked.pop(session, None)
