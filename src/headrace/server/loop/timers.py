"""What comes round by itself: idle clients are closed, counters are sampled for INFO's rates, the log is
synced, children are looked after, memory is given back when a crowd has gone.
"""

from __future__ import annotations

import logging

from headrace.persistence.aof.log_file_monitor import CHECK_INTERVAL_MS
from headrace.server.config.config import Config
from headrace.server.disk.group_commit import Durability
from headrace.server.disk.saving import Saving
from headrace.server.host import ServerHost
from headrace.server.loop.event_loop import Turn
from headrace.server.observe.heap import Crowd, give_back

SLOW_MS = 1000  # how often idle clients are looked for while nothing else happens


class Timers:
    """Runs `hz` times a second while there is traffic, else once a second for idle clients or a log."""

    def __init__(
        self, config: Config, host: ServerHost, turn: Turn, durability: Durability, saving: Saving
    ) -> None:
        self.config = config
        self.host = host
        self.turn = turn
        self.durability = durability
        self.saving = saving
        self.crowd = Crowd()

    def run(self, now: int) -> int:
        """Do what is due; returns how many milliseconds may pass until the next time, -1 for any number."""
        interval = 1000 // self.config.number("hz")
        self.turn.rest(now, now + interval)
        self.turn.clock_watch.follow()
        moved = self.host.sample(now)
        seconds = self.config.number("timeout")
        if seconds:
            self._close_idle(now - 1000 * seconds)
        for connection in self.turn.handshakes.stalled(now):
            logging.getLogger("headrace").info("closing client %d: no TLS handshake", connection.session.id)
            self.turn.drop(connection)
        for connection in self.turn.unread.overdue(now):
            why = "it has left more than the soft client-output-buffer-limit unread too long"
            self.turn.refuse(connection, why)
        if self.crowd.has_gone(len(self.turn.connections)):
            give_back()
        self.durability.tick(now)
        self._check_log_files(now)
        self.saving.tick(now)
        waits = [self.durability.due_ms(), self.saving.due_ms(now, interval)]
        waits.append(-1 if self.durability.log is None else CHECK_INTERVAL_MS)
        watching = seconds or self.turn.handshakes.going or self.turn.unread.lagging
        waits.append(interval if moved else SLOW_MS if watching else -1)
        return min((wait for wait in waits if wait >= 0), default=-1)

    def _check_log_files(self, now: int) -> None:
        """Refuse writes and rewrite the log if its files are not those that it has written."""
        if self.durability.check_files(now):
            self.saving.drop_rewrite()

    def _close_idle(self, since: int) -> None:
        """Close whoever has asked for nothing since then. Who waits for an answer or listens is not idle."""
        idle = [
            c
            for c in self.turn.connections.values()
            if c.session.active_ms < since
            and c.session.waiting is None
            and not (c.session.subscription_count or c.session.monitoring)
            and not c.session.reply.pending()
        ]
        for connection in idle:
            logging.getLogger("headrace").info("closing idle client %d", connection.session.id)
            self.turn.drop(connection)
