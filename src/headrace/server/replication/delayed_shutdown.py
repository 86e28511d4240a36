"""Delay a shutdown until replicas and a new log have every write that was acknowledged to a client.

SHUTDOWN, SIGTERM ─▶ writes pause, replicas are asked ─▶ all have everything, or shutdown-timeout ─▶ end
                                    └─ SHUTDOWN ABORT ─▶ writes continue
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.commands.replication_interface import NotShuttingDown
from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.engine.write_gate import SHUTDOWN_PAUSE
from headrace.errors import CommandError
from headrace.plurals import plural
from headrace.server.config.config import Config
from headrace.server.config.log_levels import NOTICE
from headrace.server.replication.primary_side import PrimarySide, address_of

LOG = logging.getLogger("headrace")


class ShutdownAborted(CommandError):
    text = "ERR Errors trying to SHUTDOWN. Check logs."


class DelayedShutdown:
    """Delays a shutdown. At most one waits at a time."""

    def __init__(self, config: Config, engine: Engine, replicas: PrimarySide) -> None:
        self.config = config
        self.engine = engine
        self.primary_side = replicas
        self._finish: Callable[[], None] | None = None
        self._waiting: list[Session] = []  # the clients that have asked for it
        self._deadline_ms = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a shutdown waits."""
        return self._finish is not None

    def begin(self, finish: Callable[[], None], session: Session | None) -> bool:
        """Begin to wait for the replicas and a new log; return False if there is nothing to wait for.

        If it returns True, tick() calls finish() at the end of the wait.

        Args:
            finish: ends the server; a CommandError that it raises becomes the reply to the waiting clients.
            session: the client that requested the shutdown; None: a signal did.
        """
        timeout_ms = 1000 * self.config.number("shutdown-timeout")
        if self._finish is None and not (timeout_ms and self._must_wait()):
            return False
        if session is not None:
            self._waiting.append(session)
        if self._finish is not None:
            return True
        self._finish = finish
        self._deadline_ms = self.primary_side.loop.clock.now_ms() + timeout_ms
        self.engine.write_gate.pause(self._deadline_ms + timeout_ms, True, SHUTDOWN_PAUSE)
        self.primary_side.request_acknowledgements()
        LOG.log(NOTICE, "the shutdown waits for %s", self._what_is_missing())
        return True

    def _must_wait(self) -> bool:
        return bool(self._lagging()) or self.primary_side.durability.first_base_pending

    def _what_is_missing(self) -> str:
        lagging = self._lagging()
        return plural(len(lagging), "replica") if lagging else "the log, which is being written"

    def _lagging(self) -> list[str]:
        """Return the names of the online replicas that lack a part of the stream."""
        primary = self.primary_side.primary
        self.primary_side.feed_now()
        return [
            address_of(replica)
            for replica in primary.replicas
            if replica.is_online
            and not replica.used_legacy_sync
            and replica.acknowledged_offset < primary.end_offset
        ]

    def tick(self, now: int) -> int:
        """Call finish() if the replicas have everything, or the timeout is over.

        Returns in how many milliseconds to call it again, -1 if nothing waits.
        """
        if self._finish is None:
            return -1
        lagging = self._lagging()
        if self._must_wait() and now < self._deadline_ms:
            return 50
        if lagging:
            LOG.error("these replicas lack a part of the data at the shutdown: %s", ", ".join(lagging))
        finish = self._finish
        try:
            finish()
        except CommandError as error:
            self._end(error)
        return -1

    def abort(self) -> None:
        """Abort a shutdown that waits. Raises CommandError if there is none."""
        if self._finish is None:
            raise NotShuttingDown()
        LOG.log(NOTICE, "the shutdown was aborted")
        self._end(ShutdownAborted())

    def _end(self, error: CommandError) -> None:
        waiting, self._waiting, self._finish = self._waiting, [], None
        self.engine.write_gate.end_pause(SHUTDOWN_PAUSE)
        for session in waiting:
            self.engine.end_shutdown_wait(session, error)
