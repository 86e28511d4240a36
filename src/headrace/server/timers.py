"""Periodic work: close idle clients, sample counters for INFO's rates, sync the log, start and end snapshots.

Also replication, garbage collection, and returning memory to the system after many clients have disconnected.
"""

from __future__ import annotations

import logging

from headrace.engine.engine import Engine
from headrace.persistence.aof.log_file_monitor import CHECK_INTERVAL_MS
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.disk.saving import SaveManager
from headrace.server.loop.event_loop import EventLoop
from headrace.server.observe.collector import FullGcTrigger
from headrace.server.observe.heap import MassDisconnectDetector, release_free_memory
from headrace.server.process_info import ProcessInfo
from headrace.server.replication.server_replication import ServerReplication

IDLE_CHECK_INTERVAL_MS = 1000  # how often idle clients are searched for while nothing else happens


class Timers:
    """Runs periodic work: `hz` times a second while requests arrive, else when a check is due.

    While no requests arrive, it checks idle clients, TLS handshakes and soft limits of output buffers once a
    second. The log, snapshots and replication say when they need the next run. If nothing needs one, the
    timer does not run.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        loop: EventLoop,
        durability: Durability,
        saving: SaveManager,
        replication: ServerReplication,
        info: ProcessInfo,
    ) -> None:
        self.config = config
        self.engine = engine
        self.loop = loop
        self.durability = durability
        self.saving = saving
        self.replication = replication
        self.info = info
        self.mass_disconnect_detector = MassDisconnectDetector()
        self.full_gc_trigger = FullGcTrigger()
        loop.set_timer(self.run)

    def run(self, now: int) -> int:
        """Do what is due; return in how many milliseconds it must run again, -1 for never."""
        interval = 1000 // self.config.number("hz")
        self.loop.set_timer_idle_window(now, now + (interval if not self.replication.is_busy() else 10))
        self.loop.clock_watch.check_clock()
        moved = self.info.sample(now)
        seconds = self.config.number("timeout")
        if seconds:
            self._close_idle(now - 1000 * seconds)
        for connection in self.loop.handshakes.stalled_connections(now):
            logging.getLogger("headrace").info("closing client %d: no TLS handshake", connection.session.id)
            self.loop.drop(connection)
        for connection in self.loop.output_monitor.take_overdue_connections(now):
            why = "it has left more reply bytes unread than its soft client-output-buffer-limit for too long"
            self.loop.output_monitor.disconnections += 1
            self.loop.drop_with_reason(connection, why)
        if self.mass_disconnect_detector.detect(len(self.loop.connections)):
            release_free_memory()
        keyspace = self.engine.keyspace
        if keyspace.image is None:  # a snapshot takes memory that it gives back
            data_bytes = keyspace.memory.total
            self.full_gc_trigger.collect_if_grown(self.info.rss_at_start + data_bytes, data_bytes)
        self.durability.tick(now)
        self._check_log_files(now)
        self.saving.tick(now)
        waits = [self.durability.ms_until_due(), self.saving.ms_until_due(now, interval)]
        waits.append(self.replication.tick(now))
        waits.append(-1 if self.durability.log is None else CHECK_INTERVAL_MS)
        watching = seconds or self.loop.handshakes.in_progress or self.loop.output_monitor.any_over_soft_limit
        waits.append(interval if moved else IDLE_CHECK_INTERVAL_MS if watching else -1)
        return min((wait for wait in waits if wait >= 0), default=-1)

    def _check_log_files(self, now: int) -> None:
        """Reject writes and rewrite the log if others have changed its files."""
        if self.durability.detect_changed_log_files(now):
            self.saving.kill_rewrite()

    def _close_idle(self, since: int) -> None:
        """Close clients without a request since then, unless they wait for a reply or are subscribed."""
        idle = [
            c
            for c in self.loop.connections.values()
            if c.session.last_request_ms < since
            and c.session.waiter is None
            and not (c.session.subscription_count or c.session.monitoring or c.session.is_replica)
            and not c.session.reply.pending_bytes()
        ]
        for connection in idle:
            logging.getLogger("headrace").info("closing idle client %d", connection.session.id)
            self.loop.drop(connection)
