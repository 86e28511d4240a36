"""Shutting down: for SHUTDOWN, a signal, or a caller in this process.

    request ─▶ wait for replicas (replication/delayed_shutdown.py) ─▶ end: cancel jobs, sync the log, snapshot
                                                                       └ fails: the server keeps running

A second request does not wait, and is forced if the first one failed.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from headrace.engine.engine import Engine
from headrace.errors import CommandError
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.config.log_levels import NOTICE
from headrace.server.disk.saving import SaveManager
from headrace.server.observe.notify import notify_supervisor
from headrace.server.replication.server_replication import ServerReplication
from headrace.server.run_control import RunControl

LOG = logging.getLogger("headrace")


class ShutdownFailed(CommandError):
    text = "ERR Errors trying to SHUTDOWN. Check logs."


class Shutdown:
    """Ends the server if no data would be lost."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        durability: Durability,
        saving: SaveManager,
        replication: ServerReplication,
        control: RunControl,
    ) -> None:
        self.config = config
        self.engine = engine
        self.durability = durability
        self.saving = saving
        self.replication = replication
        self.control = control
        self.failed = False  # a requested shutdown: the next one is forced

    def run_requested_shutdown(self) -> None:
        """Shut down as SHUTDOWN does, because RunControl.request_shutdown() was called."""
        self.control.shutdown_requested = False
        self.control.shutdown_signals = 0
        LOG.log(NOTICE, "shutting down: %s", self.control.shutdown_reason)
        notify_supervisor("STOPPING=1")
        again = self.failed or self.replication.delayed_shutdown.is_waiting
        with suppress(CommandError):  # logged
            if again or not self.replication.delay_shutdown(self._end, None):
                self._end()

    def _end(self) -> None:
        """End the server, after an earlier failure even if data are lost.

        Raises CommandError if data would be lost and there was no earlier failure.
        """
        try:
            self.end(None, force=self.failed)
        except CommandError:
            self.failed = True
            LOG.error("the server is still running; the next signal ends it even if data are lost")
            raise

    def end(self, save: bool | None, force: bool = False) -> None:
        """End the server after this turn, with the log synced.

        Args:
            save: whether to save a snapshot; None: if there are save rules.
            force: end it also if data are lost.

        Raises:
            CommandError: if data would be lost; the server keeps running.
        """
        # Nothing has changed, and memory holds only a part of the data.
        if self.engine.write_gate.loading:
            self.control.stop()
            return
        at = self.engine.keyspace.now
        # A replica gets its data again.
        if self.durability.first_base_pending and not force and not self.replication.is_replica():
            LOG.error("not stopping: the first log is still being written")
            raise ShutdownFailed()
        self.saving.cancel_all()
        if not self.durability.flush(at) and not force:
            LOG.error("not stopping: the log cannot be written")
            raise ShutdownFailed()
        if save or (save is None and self.config.save_rules()):
            try:
                self.saving.save(at)
            except CommandError:
                if not force:
                    raise ShutdownFailed() from None
        if self.durability.log is not None and not self.durability.failure:
            LOG.log(NOTICE, "the log is synced")
        self.control.stop()
