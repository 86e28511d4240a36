"""Handle SIGTERM while a slow script runs: end the script if it has written nothing, else wait for it.

the script has                     the server
not written                        ends it, as SCRIPT KILL does, and shuts down
written, and the log is on         waits shutdown-timeout, then drops its changes and ends
written, nothing is ever stored    the same
written, snapshots only            waits: memory holds a part of the changes, so no snapshot can be taken
written, after a second signal     drops its changes and ends, without a snapshot

The changes of a script reach log and replicas when it has ended. So dropping them loses nothing that a client
knows of; what was acknowledged before is in the log, which is synced.
"""

from __future__ import annotations

import logging

from headrace import system
from headrace.commands.scripts_interface import RunningScript, ScriptsInterface
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.run_control import RunControl
from headrace.server.shutdown import Shutdown

LOG = logging.getLogger("headrace")
KILLED_BY_SHUTDOWN = b"Script killed: the server shuts down"
NS_PER_SECOND = 1_000_000_000  # nanoseconds


class ScriptShutdown:
    """Ends the running script if a signal has requested a shutdown."""

    def __init__(
        self,
        config: Config,
        control: RunControl,
        scripts: ScriptsInterface,
        durability: Durability,
        shutdown: Shutdown,
    ) -> None:
        """Store the parts that end_script_if_requested() needs.

        Args:
            config: has shutdown-timeout and save.
            control: counts the signals that have requested the shutdown.
            scripts: those of the engine.
            durability: has the log.
            shutdown: ends the server.
        """
        self.config = config
        self.control = control
        self.scripts = scripts
        self.durability = durability
        self.shutdown = shutdown
        self._awaited: RunningScript | None = None
        self._deadline_ns = 0

    def end_script_if_requested(self) -> None:
        """End the running script if a signal has requested a shutdown, and the table above says so.

        Called from time to time while a slow script runs.
        """
        running = self.scripts.running
        if not self.control.shutdown_signals or running is None or running.end_reason is not None:
            return
        if not running.wrote:
            LOG.warning("the shutdown ends a script that still runs after %d ms", self.scripts.elapsed_ms())
            running.end_reason = KILLED_BY_SHUTDOWN
            return
        if running is not self._awaited:
            self._begin_wait_for(running)
        if self.control.shutdown_signals > 1 or (
            self._loses_nothing() and system.monotonic_ns() >= self._deadline_ns
        ):
            LOG.error("the shutdown drops the changes of a script that has not ended")
            self.scripts.abandon()
            self.shutdown.end(False, force=True)  # without a snapshot

    def _begin_wait_for(self, running: RunningScript) -> None:
        self._awaited = running
        seconds = self.config.number("shutdown-timeout")
        self._deadline_ns = system.monotonic_ns() + seconds * NS_PER_SECOND
        text = "the shutdown waits for a script that has written%s; the next signal drops its changes"
        LOG.warning(text, f", for {seconds} s" if self._loses_nothing() else "")

    def _loses_nothing(self) -> bool:
        """Return whether an end without a snapshot keeps every acknowledged write that is stored at all."""
        durability = self.durability
        if durability.log is None:
            return not self.config.save_rules()
        return not durability.first_base_pending and not durability.failure
