"""The disk under a database in this process: a lock on the directory, the log, and who waits for it.

    thread 1  execute ─┐ commit: takes what all three did ─ one write ─ one sync ─┐ done
    thread 2  execute ─┤ waits for thread 1's commit                              ├ done, nothing left to do
    thread 3  execute ─┘ waits                                                    └ done

Requests are counted by `batches`: the engine's offset is the number of the batch that its effects will be
taken in, so a session that has written in batch 7 is safe as soon as `safe` is more than 7.

The files of the log are compared with what was written to them before a commit, about once a second, and
before close() and compact(): an idle program learns at its next write that they were removed or replaced.

The disk refuses: what is in memory stays there and is tried again by the keeper (or the next commit), the
thread that wrote it gets NotOnDisk, and writes are refused before they are done until the disk has it all.

A signal handler may raise in the main thread, at any call it makes (KeyboardInterrupt). A commit that is
broken off by that is simply done again, by whoever commits next, or by the keeper: the log sees to it that
nothing is there twice. A rewrite is not, so it runs where no signal handler does: in another thread.

The files are those of `headrace serve`: a directory that one has written the other can open, never both.
Locks: `lock` is held by who commits; the door's, the engine's, is taken inside of it and never around it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.api.local.background import Sync, in_peace
from headrace.commands.server.saving import SYNCED
from headrace.commands.server_interface import ServerInterface
from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.errors import CommandError, DatabaseClosed, HeadraceError, NotOnDisk, UsageError
from headrace.persistence.aof.log import SYNC_EVERY_MS, Log, refusal_of
from headrace.persistence.aof.log_files import restore_directory
from headrace.persistence.aof.manifest import write_all
from headrace.persistence.aof.names import Names
from headrace.persistence.data_directory import DirectoryInUse, DiskFiles, File, Files
from headrace.persistence.rdb.versions import by_name
from headrace.persistence.rdb.writer import write_rdb
from headrace.persistence.recovery import Recovered, recover

if TYPE_CHECKING:
    from headrace.api.local.local_engine import Door

SNAPSHOT = "dump.rdb"  # as the server calls it
RETRY_MS = 100  # in trouble the disk is tried so often
REWRITE_RETRY_MS = 1000
GROWN_MIN = 64 << 20  # a smaller log is not rewritten by itself
NEVER_MS = -1
OPENED = "by headrace.open"  # who holds a directory says how


class Storage:
    """The log of one database. Any thread may commit."""

    def __init__(self, files: Files, policy: str, grown_min: int = GROWN_MIN) -> None:
        self.files = files
        self.names = Names()
        self.policy = policy
        self.grown_min = grown_min
        self.lock = threading.Lock()
        self.log = Log(files, self.names, policy=policy, sync_later=self._sync_later)
        self.batches = 0  # taken of the engine
        self.taken: list[tuple[int, list[bytes]]] = []  # of the engine, and not the log's yet
        self.synced = 0  # batches before that one are on the disk
        self.trouble = ""
        self.wanted = False  # BGREWRITEAOF
        self.watched = False  # the keeper knows that there is something to do
        self.closed = False
        self._door: Door | None = None
        self._sync: Sync | None = None
        self._sync_offset = 0
        self._sync_batches = 0
        self._rewrite_at = 0  # bytes of log that call for a rewrite
        self._retry_ms = 0
        self._rewrite_error = ""  # logged already

    # From the start to the end.

    def load(self, engine: Engine, now_ms: int) -> Recovered:
        """What is on the disk becomes the empty engine's, and the log goes on behind it. HeadraceError."""
        try:
            with plain_errors(self.files):
                self.files.lock()
                found = self._recover(engine, now_ms)
        except BaseException:
            self.abandon()
            raise
        for note in found.notes:
            logging.getLogger("headrace").warning("%s", note)
        self._measure()
        engine.stats.reset()
        engine.record_effects(True)
        return found

    def _recover(self, engine: Engine, now_ms: int) -> Recovered:
        found = recover(
            self.files,
            self.names,
            engine.keyspace,
            Replayer(engine, now_ms).execute,
            appendonly=True,
            dbfilename=SNAPSHOT,
            truncated_ok=True,
            now_ms=now_ms,
        )
        self.log.start(found.manifest)
        if found.manifest is None:
            self.log.create(lambda file: write_base(engine, file, now_ms))
        return found

    def attach(self, door: Door) -> None:
        """The door whose engine it is."""
        self._door = door

    def close(self) -> None:
        """Sync everything and let go of the directory. NotOnDisk: the end is lost. Twice does nothing."""
        with self.lock:
            if self.closed:
                return
            try:
                self.log.check_files(0, force=True)
                if self.log.needs_rewrite:
                    self._rewrite_if_possible()
                self._write()
                trouble = "" if self.log.close(True) else self.log.trouble
                if not trouble:
                    self.door.safe = self.synced = self.batches
            finally:
                self.closed = True
                self.files.unlock()
        if trouble:
            raise NotOnDisk(f"the database was closed, and the disk has not taken the end of it: {trouble}")

    def abandon(self) -> None:
        """In the child of a fork: let go of the files, which are the parent's; no lock is touched."""
        self.closed = True
        self.log.abandon()
        self.files.unlock()

    # Commits.

    @property
    def door(self) -> Door:
        """The engine's door."""
        assert self._door is not None
        return self._door

    def commit(self, written: int) -> None:
        """Return when what a session wrote in that batch is as durable as promised; else NotOnDisk."""
        with self.lock:
            if self.door.safe > written:
                return
            if self.closed:
                raise DatabaseClosed("the database was closed before this was on the disk")
            self._commit()
            grown = self.log.size > self._rewrite_at
        if grown:
            in_peace(self._rewrite_if_grown)

    def _commit(self) -> None:
        """Take what was done, write it, and sync it if that is promised. The lock is held."""
        try:
            whole = self._write()
            if whole:
                self._whole()
            else:
                self._begin_trouble()
        except BaseException:
            self._have_watched()
            raise
        if not whole:
            raise NotOnDisk(
                "what was just written is in memory, and not yet on the disk "
                f"({self.log.trouble}): it is tried again by itself, and until then writes are refused"
            )

    def _write(self) -> bool:
        """Have the log take what was done; whether it has it all."""
        with self.door.lock:
            self._take()
        now_ms = self.door.engine.keyspace.now
        self.log.check_files(now_ms)
        return self.log.commit(self.taken, now_ms)

    def _take(self) -> None:
        """The next batch. In one statement that calls nothing: see persistence/aof/log.py, 7."""
        effects = self.door.engine.effects
        effects.offset = self.batches + 1
        self.batches, self.taken, effects.items[:] = effects.offset, self.taken + effects.items, ()

    def _whole(self) -> None:
        """The log has all batches."""
        self.door.safe = self.batches
        if self.log.synced == self.log.written:
            self.synced = self.batches
        if self.trouble:
            logging.getLogger("headrace").warning("the log is whole again: writes are taken")
            with self.door.lock:
                self.door.engine.write_gate.reject_writes(None)
            self.trouble = ""
        if not self.watched and self.policy == "everysec" and self.log.synced < self.log.written:
            self._have_watched()

    def _begin_trouble(self) -> None:
        if not self.watched:
            self._have_watched()  # first: once writes are refused nobody else comes by to see to it
        if not self.trouble:
            logging.getLogger("headrace").error("%s; until it is whole, writes are refused", self.log.trouble)
        if self.trouble != self.log.trouble:
            self.trouble = self.log.trouble
            with self.door.lock:
                self.door.engine.write_gate.reject_writes(refusal_of(self.trouble))

    def _have_watched(self) -> None:
        self.door.rouse()
        self.watched = True

    # What the keeper does.

    def tick(self, now_ms: int) -> int:
        """Sync what is due, try again what failed; when to come again, or NEVER_MS."""
        with self.lock:
            if self.closed:
                return NEVER_MS
            self._see_to(now_ms)
            sync, self._sync = self._sync, None
        if sync is not None:
            sync.run()
            with self.lock:
                if not self.closed:
                    self._see_to(now_ms)
        self._tell_synced(now_ms)
        with self.lock:
            if self.closed:
                return NEVER_MS
            due = self._due_ms(now_ms)
            self.watched = due != NEVER_MS
            return due

    def _see_to(self, now_ms: int) -> None:
        log = self.log
        waited_for = (0, SYNCED) in self.door.engine.keyspace.blocking.queues
        log.set_policy("everysec" if waited_for and self.policy == "no" else self.policy)
        broken_off = self.door.safe < self.batches
        if (self.door.engine.effects.items or broken_off) and not self.trouble:  # or keys have died of age
            with contextlib.suppress(NotOnDisk):
                self._commit()
        if log.size > self._rewrite_at:
            self.wanted = True
        log.tick(now_ms)
        if self._sync is None and log.synced >= self._sync_offset:
            self.synced = max(self.synced, self._sync_batches)
        if (log.needs_rewrite and now_ms >= self._retry_ms) or self.wanted:
            self.wanted = False
            self._retry_ms = now_ms + REWRITE_RETRY_MS
            self._rewrite_if_possible()
        if log.trouble:
            self._begin_trouble()
        elif self.trouble:
            self._whole()

    def _due_ms(self, now_ms: int) -> int:
        if self.trouble:
            return now_ms + RETRY_MS
        if self.wanted:
            return now_ms
        unsynced = self.log.synced < self.log.written
        return now_ms + SYNC_EVERY_MS if unsynced and self.log.policy == "everysec" else NEVER_MS

    def _sync_later(self, file: File) -> Sync:
        """The log wants a sync in another thread: it is the keeper's, once it has let go of the lock."""
        self._sync = Sync(file)
        self._sync_offset = self.log.written
        self._sync_batches = self.door.safe
        return self._sync

    def _tell_synced(self, now_ms: int) -> None:
        """WAITAOF: those who wait are tried again."""
        door = self.door
        if (0, SYNCED) in door.engine.keyspace.blocking.queues:
            with contextlib.suppress(DatabaseClosed):
                door.enter()
                try:
                    door.engine.on_log_synced(now_ms)
                finally:
                    door.leave()
                door.settle(-1)

    # Rewrites.

    def compact(self) -> None:
        """Write the log anew: what there is, no longer how it came to be. HeadraceError if it cannot be."""
        in_peace(self._compact)

    def _compact(self) -> None:
        with self.lock:
            if self.closed:
                raise DatabaseClosed("the database is closed")
            with plain_errors(self.files):
                self._rewrite()

    def ask_for_rewrite(self) -> None:
        """Have the keeper write the log anew. Called with the engine's lock."""
        self.wanted = True
        self.door.rouse()

    def _rewrite_if_grown(self) -> None:
        with self.lock:
            if not self.closed and self.log.size > self._rewrite_at:
                self._rewrite_if_possible()

    def _rewrite_if_possible(self) -> None:
        try:
            self._rewrite()
            self._rewrite_error = ""
        except (OSError, HeadraceError) as wrong:
            if str(wrong) != self._rewrite_error:  # it is tried again every second
                self._rewrite_error = str(wrong)
                logging.getLogger("headrace").error("the log was not rewritten: %s", wrong)
            self._rewrite_at = self.log.size + self.log.size // 4

    def _rewrite(self) -> None:
        """A snapshot, in the place of all that the log said so far.

        Nobody changes data while it is written, and nobody waits for the disk to sync it but who writes.
        """
        name = self.names.temporary(f"{self.names.base}.rewrite")
        self.log.check_files(0, force=True)
        try:
            if self.log.needs_rewrite:
                restore_directory(self.files, self.names)
            with self.door.lock:
                self._take()
                now_ms = self.door.engine.keyspace.now
                error = self._write_snapshot(name, now_ms)
            self.log.commit(self.taken, now_ms)
            if error is not None:
                raise error
            rewrite = self.log.begin_rewrite()
            whole = False
            try:
                self.files.rename(name, rewrite.temporary)
                whole = True
            finally:
                done = self.log.finish_rewrite(rewrite, whole)
            if not done:
                raise HeadraceError(rewrite.trouble)
            self._measure()
        except (OSError, HeadraceError):
            raise
        except BaseException as error:
            self.log.distrust(f"it was broken off by {type(error).__name__}")
            raise
        finally:
            with contextlib.suppress(OSError):
                self.files.remove(name)
            if self.log.trouble:
                self._begin_trouble()
            else:
                self._whole()

    def _write_snapshot(self, name: str, now_ms: int) -> OSError | None:
        """Write memory to a file, which is not synced; what went wrong."""
        try:
            with contextlib.closing(self.files.create(name)) as file:
                write_base(self.door.engine, file, now_ms)
        except OSError as error:
            return error
        return None

    def _measure(self) -> None:
        self._rewrite_at = max(self.grown_min, 2 * self.log.base_size)


class NoSnapshot(CommandError):
    text = (
        "ERR a database inside a program keeps a log and no snapshot beside it, so there is nothing to save:"
        " compact(), or BGREWRITEAOF, writes the log anew; for a copy close it and copy its directory"
    )


class LibraryHost(ServerInterface):
    """What commands may ask of a program that has the engine in it."""

    storage: Storage | None = None

    def directives(self) -> dict[bytes, bytes]:
        """As CONFIG GET shows them."""
        known = super().directives()
        if self.storage is not None:
            known |= {b"appendonly": b"yes", b"appendfsync": self.storage.policy.encode()}
        return known

    def save(self, now_ms: int) -> None:
        """SAVE: there is no snapshot beside the log."""
        if self.storage is not None:
            raise NoSnapshot()
        super().save(now_ms)

    def background_save(self, schedule: bool) -> bytes:
        """BGSAVE."""
        if self.storage is not None:
            raise NoSnapshot()
        return super().background_save(schedule)

    def rewrite_log(self) -> bytes:
        """BGREWRITEAOF: the keeper does it."""
        if self.storage is None:
            return super().rewrite_log()
        self.storage.ask_for_rewrite()
        return b"Background append only file rewriting started"

    def log_synced(self) -> int:
        """Which batches are on the disk."""
        return -1 if self.storage is None else self.storage.synced


def write_base(engine: Engine, file: File, now_ms: int) -> None:
    """All that is in memory, as a snapshot that a log may begin with."""
    write_rdb(
        engine.keyspace,
        lambda data: write_all(file, data),
        version=by_name("compatible"),
        compress=True,
        checksum=True,
        aof_base=True,
        now_ms=now_ms,
    )


def directory(path: str | os.PathLike[str]) -> DiskFiles:
    """The directory to keep a database in, made if it is missing. HeadraceError.

    It stays that one when the program goes to another directory, or a link leads elsewhere.
    """
    given = os.fsdecode(path)
    if not given:
        raise UsageError("'' is no directory: open() without a path is in memory, open('.') is here")
    if "://" in given:
        raise UsageError(f"{given!r} is a server's address, and no directory: use headrace.connect()")
    try:
        root = os.path.realpath(given)
        os.makedirs(root, exist_ok=True)
    except OSError as error:
        raise HeadraceError(f"{given}: {error.strerror}: a database needs a directory of its own") from error
    except ValueError as error:  # UnicodeEncodeError is one
        raise UsageError(f"{given!r} is no directory's name: {error}") from error
    return DiskFiles(root, f"{os.path.basename(sys.argv[0]) or 'python'}, {OPENED}")


@contextlib.contextmanager
def plain_errors(files: Files) -> Iterator[None]:
    """What goes wrong is a HeadraceError that says what to do."""
    try:
        yield
    except DirectoryInUse as used:
        raise HeadraceError(in_use(used)) from None
    except OSError as error:
        where = error.filename or getattr(files, "root", "the database")
        raise HeadraceError(f"{where}: {error.strerror or error}") from error


def in_use(used: DirectoryInUse) -> str:
    """Who has the directory, and how to share it."""
    who = "this process" if used.pid == str(os.getpid()) else f"process {used.pid}"
    holder = f" ({used.holder})" if used.holder else ""
    text = f"{used.root} is in use by {who}{holder}, and one process has it at a time"
    if used.holder and OPENED not in used.holder:  # a server says its addresses
        address = used.holder.partition(",")[0]
        return f'{text}: that is a server, use headrace.connect("redis://{address}") instead'
    if who == "this process":
        return f"{text}: open it once and hand the Database on, it is safe to use from many threads"
    return (
        f"{text}. To share it, run a server on it, `headrace serve --dir {used.root}`, "
        'and use headrace.connect("redis://127.0.0.1:7777") in every process'
    )
