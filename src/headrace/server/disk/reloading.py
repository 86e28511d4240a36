"""DEBUG RELOAD and DEBUG LOADAOF: load the data again while the server runs."""

from __future__ import annotations

import logging
from contextlib import closing

from headrace.engine.engine import Engine
from headrace.engine.error_replies import Loading
from headrace.errors import CommandError, HeadraceError
from headrace.persistence.damage import Damaged
from headrace.persistence.rdb.reader import read_rdb
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.disk.saving import SaveManager
from headrace.server.disk.startup import Startup

LOG = logging.getLogger("headrace")


class Reloading:
    """Replaces the data in memory by those on the disk."""

    def __init__(
        self, config: Config, engine: Engine, startup: Startup, durability: Durability, saving: SaveManager
    ) -> None:
        self.config = config
        self.engine = engine
        self.startup = startup
        self.durability = durability
        self.saving = saving

    def reload_snapshot(self, now_ms: int, flush: bool, save: bool, merge: bool) -> None:
        """Save a snapshot if `save`, drop all keys if `flush`, and load the snapshot.

        With `merge`, its keys replace those that exist. Raises CommandError if that fails.
        """
        self._check_loaded()
        if save:
            self.saving.save(now_ms)
        if flush:
            self.engine.keyspace.flush_all()
        try:
            with closing(self.saving.data_directory.open_source(self.config.text("dbfilename"))) as source:
                read_rdb(source, self.engine.keyspace, now_ms=now_ms, merge=merge)
        except (OSError, Damaged) as wrong:
            LOG.error("DEBUG RELOAD: %s", wrong)
            raise CommandError("ERR Error trying to load the RDB dump, check server logs.") from None
        finally:
            if self.durability.log is not None and not (save and flush):
                self.saving.queue_rewrite()  # the log does not contain the data loaded now

    def reload_log(self, now_ms: int) -> None:
        """Sync the log, drop all keys, and replay it. Raises CommandError if that fails."""
        self._check_loaded()
        if self.durability.log is None or not self.durability.flush(now_ms):
            raise CommandError("ERR Error trying to load the AOF files, check server logs.")
        engine = self.engine
        engine.keyspace.flush_all()
        recording = engine.effects.recording
        engine.set_effect_recording(False)  # they are in the log already
        try:
            self.startup.replay_log(now_ms)
        except (OSError, HeadraceError) as wrong:
            LOG.error("DEBUG LOADAOF: %s", wrong)
            raise CommandError("ERR Error trying to load the AOF files, check server logs.") from None
        finally:
            engine.set_effect_recording(recording)

    def _check_loaded(self) -> None:
        """Raise Loading during a load: memory holds only a part of the data, which must not be saved."""
        if self.engine.write_gate.loading:
            raise Loading()
