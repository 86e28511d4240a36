"""The promise behind an answer: what it tells of stands in the log, as durable as appendfsync says.

    turn     requests run ─ commit: one write, and with `always` one sync ─ answers leave
    trouble  the disk refuses: the answers of that turn are held, writes are refused, reads go on;
             the log keeps what it could not write and tries again; then the answers leave

So what is in memory and not in the log has been acknowledged to nobody. Who reads meanwhile may see it.
The log itself is persistence/aof/log.py; here it meets the turn, the engine and the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import cython

from headrace.commands.server.saving import SYNCED
from headrace.engine.engine import Engine
from headrace.persistence.aof.log import Log, refusal_of
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.aof.names import Names
from headrace.persistence.data_directory import File, Files
from headrace.server.config.config import Config
from headrace.server.loop.event_loop import Turn
from headrace.visibility import Public

SNAPSHOT_ERROR = (
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
    " Commands that may modify the data set are disabled, because this instance is configured to report"
    " errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the"
    " Redis logs for details about the RDB error."
)
TICK_MS = 100  # how often the log is looked after while something is not yet synced, or in trouble


@cython.final
@cython.cclass
class Durability:
    """The log of a server: off, beginning (its first base is being written, nothing is promised), or on."""

    __dict__: dict[str, object]
    config: Public[Config]
    engine: Public[Engine]
    turn: Public[Turn]
    files: Public[Files]
    wake: Public[Callable[[], None]]  # ends the turn's wait, from any thread
    names: Public[Names]
    log: Public[Log | None]
    beginning: Public[cython.bint]
    trouble: Public[str]  # why the log is not what was promised
    snapshot_failed: Public[cython.bint]  # and writes are to be refused for that
    start: Public[cython.longlong]  # the length, as sessions know it, at which this log begins
    synced: Public[cython.longlong]  # as the waiters know it
    unsafe: Public[cython.bint]  # the log was written inside of this turn, and that failed
    stirred: Public[cython.bint]  # a sync in the background has ended
    syncer: Public[ThreadPoolExecutor | None]

    def __init__(
        self, config: Config, engine: Engine, turn: Turn, files: Files, wake: Callable[[], None]
    ) -> None:
        self.config = config
        self.engine = engine
        self.turn = turn
        self.files = files
        self.wake = wake
        self.names = Names(config.text("appenddirname"), config.text("appendfilename"))
        self.log = None
        self.beginning = False
        self.trouble = ""
        self.snapshot_failed = False
        self.start = 0
        self.synced = 0
        self.unsafe = False
        self.stirred = False
        self.syncer = None

    # On and off.

    def open(self, manifest: Manifest | None, write_base: Callable[[File], None]) -> None:
        """The log goes on behind what was recovered; without a manifest it begins with what is in memory.

        HeadraceError or OSError when it cannot.
        """
        log = self._new_log()
        log.start(manifest)
        if manifest is None:
            log.create(write_base, self.config.flag("aof-use-rdb-preamble"))
        self._take(log)

    def begin(self) -> None:
        """CONFIG SET appendonly yes: there will be a log once it has been rewritten, which it asks for.

        An older log is given up by that rewrite, and not before. HeadraceError or OSError.
        """
        self.files.lock()
        log = self._new_log()
        log.start(None)
        log.manifest = Manifest.load(self.files, self.names) or log.manifest
        self.engine.effects.take()
        self.beginning = True
        self._take(log)

    def _new_log(self) -> Log:
        return Log(
            self.files,
            self.names,
            policy=self._policy(),
            timestamps=self.config.flag("aof-timestamp-enabled"),
            disable_gc=self.config.flag("aof-disable-auto-gc"),
            sync_later=self._sync_later,
        )

    def _take(self, log: Log) -> None:
        self.log = log
        self.engine.record_effects(True)
        self._move_on()
        self.synced = self.synced_offset()

    def close(self) -> None:
        """Write what there is, sync and close. What the log cannot take is lost, and that is said."""
        log, self.log = self.log, None
        if log is not None:
            log.commit(self.engine.effects.take(), self.engine.keyspace.now)
            self.engine.record_effects(False)
            if not log.close(True) and not self.beginning:
                logging.getLogger("headrace").error("the log was closed without its end: %s", log.trouble)
            self.beginning = False
            self.start += log.written + 1
            self.engine.effects.offset = self.start
        if self.syncer is not None:
            self.syncer.shutdown()
            self.syncer = None

    def stop(self, now: int) -> None:
        """CONFIG SET appendonly no: nothing is promised any more, and nobody waits for it."""
        self.close()
        self.unsafe = False
        self._end_trouble("the log was turned off: writes are taken, and kept in memory only")
        self.engine.on_log_synced(now)

    def apply(self) -> None:
        """Act on what the configuration says now, appendonly aside."""
        if self.log is not None:
            self.log.set_policy(self._policy())
            self.log.timestamps = self.config.flag("aof-timestamp-enabled")
            self.log.disable_gc = self.config.flag("aof-disable-auto-gc")

    def child_writes(self, on: bool) -> None:
        """A child has begun to write to the disk, or has ended."""
        if self.log is not None:
            self.log.sync_paused = on and self.config.flag("no-appendfsync-on-rewrite")

    def _policy(self) -> str:
        policy = self.config.text("appendfsync")
        return "everysec" if policy == "no" and self._waited_for() else policy

    # The turn.

    @cython.ccall
    def commit(self) -> cython.bint:
        """Write what was executed since the last time; whether the answers may leave."""
        if self.stirred:
            self._end_background_sync()
        effects = self.engine.effects
        log = self.log
        safe: cython.bint
        if not effects.items:
            safe, self.unsafe = not self.unsafe, False
            return safe
        if log is None:
            effects.take()
            return True
        safe = log.commit(effects.items, self.engine.keyspace.now)
        effects.offset = self.start + log.written
        if safe:
            self.unsafe = False
            if self.beginning or self.trouble:
                self._end_trouble()
            if self.start + log.synced != self.synced:
                self._tell_synced()
            return True
        if self.beginning:
            return True
        if self.trouble and not self.unsafe:
            # Writes have been refused since before this turn. These are keys that died of age, which happens
            # by itself again after a restart: no answer depends on it.
            return True
        self.unsafe = False
        self._begin_trouble()
        return False

    def _end_background_sync(self) -> None:
        """Read the result of a background sync. Its failure makes what this turn has executed unsafe."""
        refused_before = bool(self.trouble)
        self.tick(self.engine.keyspace.now)
        if self.trouble and not refused_before:
            self.unsafe = True

    def tick(self, now: int) -> None:
        """See to syncs that are due, and to what could not be written."""
        self.stirred = False
        log = self.log
        if log is None:
            return
        log.set_policy(self._policy())
        log.tick(now)
        if not log.trouble:
            self._end_trouble()
        elif not self.beginning:
            self._begin_trouble()
        self._tell_synced()

    def check_files(self, now: int, force: bool = False) -> bool:
        """Refuse writes if files of the log were removed, replaced or changed; return whether they were.

        The log is rewritten from memory then. Compares the files about once a second unless forced.
        """
        log = self.log
        if log is None or self.beginning or not log.check_files(now, force):
            return False
        self.tick(now)
        return True

    def due_ms(self) -> int:
        """In how many milliseconds tick() is wanted at the latest; -1 for never."""
        log = self.log
        if log is None or (not log.trouble and log.synced >= log.written):
            return -1
        if not log.trouble and self.config.text("appendfsync") == "no" and not self._waited_for():
            return -1
        return TICK_MS

    def flush(self, now: int) -> bool:
        """Have everything on the disk before the end; whether it is."""
        log = self.log
        if log is None:
            return True
        items = self.engine.effects.take()
        if not self.beginning:
            log.check_files(now, force=True)
        if items or log.trouble:
            log.commit(items, now)
            self._move_on()
        if not log.flush() and not self.beginning:
            self.unsafe = self.unsafe or not self.trouble
            self.turn.unsettled = True
            self._begin_trouble()
        return not log.trouble

    def synced_offset(self) -> int:
        """How much of the log is on the disk, measured as effects.offset is; -1 when there is no log."""
        if self.log is None:
            return -1
        return 0 if self.beginning else self.start + self.log.synced

    def _move_on(self) -> None:
        """What was taken of the effects is the log's now."""
        assert self.log is not None
        self.engine.effects.offset = self.start + self.log.written

    def _sync_later(self, file: File) -> Future[None]:
        """Sync in the one other thread there is, which has the turn woken when it is done."""
        if self.syncer is None:
            self.syncer = ThreadPoolExecutor(1, "headrace-sync")
        done = self.syncer.submit(file.sync)
        done.add_done_callback(self._stir)
        return done

    def _stir(self, done: Future[None]) -> None:
        self.stirred = True
        self.turn.unsettled = True
        self.wake()

    def _waited_for(self) -> bool:
        return (0, SYNCED) in self.engine.keyspace.blocking.queues

    def _tell_synced(self) -> None:
        """Those who wait for a sync are served once more is synced."""
        synced = self.synced_offset()
        if synced != self.synced:
            self.synced = synced
            if self._waited_for():
                self.engine.on_log_synced(self.engine.keyspace.now)

    # Trouble.

    def _begin_trouble(self) -> None:
        assert self.log is not None
        if not self.trouble:
            logging.getLogger("headrace").error("%s; until it is whole, writes are refused", self.log.trouble)
        if self.trouble != self.log.trouble:
            self.trouble = self.log.trouble
            self.look()

    def _end_trouble(self, message: str = "the log is whole again: writes are taken") -> None:
        """Accept writes again and send the held replies. `message` tells the operator why."""
        self.beginning = False
        if self.trouble:
            logging.getLogger("headrace").warning("%s", message)
            self.trouble = ""
            self.look()
            self.turn.release()

    def look(self) -> None:
        """Refuse writes, or take them, as things stand."""
        text = None
        if self.trouble:
            text = refusal_of(self.trouble)
        elif self.snapshot_failed:
            text = SNAPSHOT_ERROR.encode()
        self.engine.write_gate.reject_writes(text)
