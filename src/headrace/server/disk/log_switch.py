"""Turn the log on or off while the server runs (CONFIG SET appendonly), or begin a new one."""

from __future__ import annotations

import logging

from headrace.engine.engine import Engine
from headrace.errors import CommandError, HeadraceError
from headrace.persistence.aof.manifest import Manifest
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.disk.saving import SaveManager


class LogSwitch:
    """Keeps the log as `appendonly` says, from open() on."""

    def __init__(self, config: Config, engine: Engine, durability: Durability, saving: SaveManager) -> None:
        self.config = config
        self.engine = engine
        self.durability = durability
        self.saving = saving
        self._enabled: bool | None = None  # the value of appendonly that is in effect; None before open()

    def open(self, appendonly: bool, manifest: Manifest | None, now: int) -> None:
        """Open the log at start-up, if it is on.

        Args:
            appendonly: the value with which the data were loaded; apply() follows a later CONFIG SET.
            manifest: the manifest of the log that was found; None if there is none.
            now: in Unix milliseconds.

        Raises:
            HeadraceError, OSError: if the log cannot be opened.
        """
        if appendonly:
            self.saving.open_log(manifest, now)
        self._enabled = appendonly

    def apply(self) -> None:
        """Turn the log on or off if the configuration has changed. Raises CommandError."""
        on = self.config.flag("appendonly")
        if self._enabled is None or self._enabled == on:
            return
        if on:
            try:
                self.durability.enable()
                self.saving.queue_rewrite()
            except (OSError, HeadraceError) as wrong:
                self.config.values["appendonly"] = False
                raise CommandError(f"ERR CONFIG SET failed: no log can be kept: {wrong}") from None
        else:
            self._disable()
        self._enabled = on

    def restart(self) -> None:
        """Begin a new log after the data in memory were replaced. Does nothing if the log is off.

        The old log stays until the first rewrite of the new one is done. If the new log cannot be opened,
        the error is logged, and there is no log.
        """
        if self.durability.log is None:
            return
        self._disable()
        try:
            self.durability.enable(hold_replies=True)
        except (OSError, HeadraceError) as wrong:
            logging.getLogger("headrace").error("there is no log of the primary's data: %s", wrong)
        else:
            self.saving.queue_rewrite()

    def _disable(self) -> None:
        self.saving.cancel_rewrites()
        self.durability.disable(self.engine.keyspace.now)
