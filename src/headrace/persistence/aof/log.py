"""The log: what makes an acknowledged write stay.

    commit()  ─▶ recorder ─one write─▶ newest incr file ─sync─▶ disk
                                       base, older incr files: read at the next start, never written again

Only when commit() says True may the answers of its requests leave. What holds at every moment, so that
a crash between any two steps, or the failure of any of them, leaves a log that the next start can read:

1. The manifest in place names only files that are there. A file is created or renamed, and its directory
   synced, before a manifest names it; it is removed when a durable manifest calls it history.
2. Only the newest incr file is ever appended to, so only it may end in half a record. Before a manifest
   names a newer one the old one is synced, whatever the policy. One that no manifest names is empty.
3. The base and the incr files behind it hold each record exactly once: a rewrite starts a new incr file at
   the moment its base describes, and one manifest takes both. A base has the number of the incr file that
   follows it, and each takes a higher one: nothing is renamed over a file that a manifest names.
4. The newest file holds whole commits only. A write that fails or stops short is cut off again, at once or
   before the next try; until that has worked commit() is False and the records stay in memory.
5. After a sync that failed the kernel may have dropped pages and call them clean: syncing again proves
   nothing. The file is given up (needs_rewrite), commit() is False, and only a rewrite from memory, which
   holds all that the file lost, ends that. The manifest in place goes on naming the old files until then.
6. When a manifest was put in place but its directory could not be synced (Unsettled), either the old or the
   new set comes back after a power cut. Both are right as long as nothing is appended and nothing removed:
   so the manifest is stored again before the next record is written.
7. A signal handler may raise at any call made here. commit() and tick() can be broken off by that, and the
   next one continues: what belongs together changes in one statement without a call. See require_rewrite().
8. Files that were removed, replaced or changed by others are detected by check_files(), about once a second.
   The log is then given up as after a failed sync (5), and rewritten from memory.

A rewrite, step by step, and what a start finds after a crash behind each:

    begin    sync incr 7                                      base 5, incr 5..7
             create incr 8, sync directory                    the same; an empty file without a name in it
             manifest: base 5, incr 5..8                      base 5, incr 5..8
    ...      commits go to incr 8, the base is written        the same, and a temporary file, which is removed
    finish   sync it, rename to base 8, sync directory        the same; an unnamed base, which is removed
             manifest: base 8, history 5..7, incr 8           base 8, incr 8
             remove history, manifest without it              the same; history missing is no error

Without a file to trust (the first start, a failed sync) begin changes nothing on disk, records since then
wait in memory, and finish creates the incr file with the base: one manifest brings in both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import cython

from headrace.errors import HeadraceError
from headrace.persistence.aof import log_files
from headrace.persistence.aof.log_file_monitor import CHECK_INTERVAL_MS, LogFileMonitor
from headrace.persistence.aof.log_files import describe_error
from headrace.persistence.aof.manifest import Manifest, ManifestLine, Unsettled
from headrace.persistence.aof.names import LogFileNames
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.aof.records import Item, LogBuffer
from headrace.persistence.data_directory import DataDirectory, File, PendingSync
from headrace.visibility import Public

POLICIES = ("always", "everysec", "no")
SYNC_EVERY_MS = 1000
SYNC_FAILED = "the log could not be synced and must be rewritten"
SYNC_WAIT_MAX_MS = 2000  # a sync that takes longer is waited for: no more than this can be lost


@cython.cclass
class Log:
    """The append-only log in a data directory. One thread uses it; only syncs may run in another."""

    __dict__: dict[str, object]  # tests derive from the class and replace methods
    files: Public[DataDirectory]
    names: Public[LogFileNames]
    policy: Public[str]
    timestamps: Public[cython.bint]
    disable_gc: Public[cython.bint]  # keep the files of the past, and their lines
    sync_later: Public[Callable[[File], PendingSync] | None]
    sync_paused: Public[cython.bint]  # no-appendfsync-on-rewrite: no promise at all while it is set
    written: Public[cython.longlong]  # bytes of records given to commit() since the process began
    synced: Public[cython.longlong]  # those of them that are durable
    delayed_commits: Public[cython.longlong]  # commits that had to wait for a sync in another thread
    failure: Public[str]  # why commit() is False; empty when it is not
    base_size: Public[cython.longlong]  # bytes of all files after the last rewrite; at a start, of the base
    rewrite: Public[PendingRewrite | None]
    manifest: Public[Manifest]
    monitor: Public[LogFileMonitor]
    checked_ms: Public[cython.longlong]
    _recorder: Public[LogBuffer]
    _recorded: Public[cython.Py_ssize_t]  # bytes in the recorder that count; an interrupted commit may follow
    _file: Public[File | None]  # the newest incr file, as long as it can be trusted
    _file_size: Public[cython.longlong]  # of the whole commits in it
    _older_size: Public[cython.longlong]  # of the files before it
    _cut_due: Public[cython.bint]  # half a commit may lie behind _file_size
    _unsettled: Public[cython.bint]
    _base_offset: Public[cython.longlong]  # of the records that the base holds
    _pending: Public[PendingSync | None]
    _pending_offset: Public[cython.longlong]
    _sync_ms: Public[cython.longlong]

    def __init__(
        self,
        files: DataDirectory,
        names: LogFileNames,
        *,
        policy: str = "everysec",
        timestamps: bool = False,
        disable_gc: bool = False,
        sync_later: Callable[[File], PendingSync] | None = None,
    ) -> None:
        self.files = files
        self.names = names
        self.timestamps = timestamps
        self.disable_gc = disable_gc
        self.sync_later = sync_later
        self.failure = ""
        self.manifest = Manifest()
        self.monitor = LogFileMonitor(files, names)
        self.checked_ms = 0  # when files were compared last
        self._recorder = LogBuffer()
        self.rewrite = self._file = self._pending = None
        self.sync_paused = self._cut_due = self._unsettled = False
        self.written = self.synced = self.delayed_commits = self.base_size = 0
        self._recorded = self._file_size = self._older_size = 0
        self._base_offset = self._pending_offset = self._sync_ms = 0
        self.set_policy(policy)

    @property
    def needs_rewrite(self) -> bool:
        """There is no file to write to: only a rewrite from memory makes commit() True again."""
        return self._file is None

    @property
    def size(self) -> int:
        """Bytes in all files of the log."""
        return self._older_size + self._file_size

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of records in memory that are in no file yet."""
        return self._recorded

    @property
    def syncing(self) -> bool:
        """Whether a sync runs in another thread."""
        return self._pending is not None

    def set_policy(self, policy: str) -> None:
        """When to sync from now on: always, everysec or no; what was written before counts, too."""
        if policy not in POLICIES:
            raise ValueError(f"a policy that is not one of {', '.join(POLICIES)}: {policy}")
        self.policy = policy

    def start(self, manifest: Manifest | None) -> None:
        """Go on with the log that was recovered, its tail cut. None: there is none yet, see create().

        OSError: the directory cannot be used.
        """
        names, files = self.names, self.files
        files.make_directory(names.directory)
        files.sync_directory("")
        files.sync_directory(names.directory)  # a killed process may have renamed and not synced
        log_files.remove_leftovers(files, names, manifest)
        if manifest is None:
            self.failure = "there is no log yet"
            return
        self.manifest = manifest
        sizes = self.monitor.start(manifest)
        if manifest.incrs:
            self._file = files.append(names.path(manifest.incrs[-1].file))
            self._file.sync()
            self._file_size = sizes.pop()
        else:
            number = log_files.free_number(self.files, self.names, self.manifest)
            self._open_next(ManifestLine(names.incr_name(number), number))
        self._older_size = sum(sizes)
        self.base_size = sizes[0] if manifest.base else 0
        self._forget_history()

    def create(self, write_base: Callable[[File], None], rdb: bool = True) -> None:
        """Rewrite here and now: write_base gets the file. HeadraceError or OSError: it did not work."""
        rewrite = self.begin_rewrite(rdb)
        whole = False
        try:
            with contextlib.closing(self.files.create(rewrite.temporary)) as file:
                write_base(file)
                file.sync()
            whole = True
        finally:
            done = self.finish_rewrite(rewrite, whole)
        if not done:
            raise HeadraceError(f"the log could not be written: {rewrite.failure}")

    @cython.ccall
    def commit(self, items: list[Item], now_ms: cython.longlong) -> cython.bint:
        """Write what was done, in order: (database, words). The list is emptied: its items are the log's.

        True: all given so far is as durable as the policy promises. False: it is not; failure says why. Then
        nothing given is lost; tick(), or a commit of nothing, tries again. If it is broken off (7), call it
        again with the same list.
        """
        if items:
            self._record(items, now_ms)
        if self._pending is not None and now_ms - self._sync_ms > SYNC_WAIT_MAX_MS:
            self.delayed_commits += 1
            self._collect(wait=True)
        return self._flush(self._syncs_always())

    def flush(self) -> bool:
        """Write and sync all that was given, whatever the policy; return whether that worked."""
        return self._flush(True)

    def tick(self, now_ms: int) -> None:
        """To be called ten times a second or so: starts and ends syncs, and tries again after failure."""
        self._collect(wait=False)
        if self.failure or self._syncs_always():  # always: it may have been everysec a moment ago
            self._flush(self._syncs_always())
        if self._file is None or self._unsettled or self.policy != "everysec" or self.sync_paused:
            return
        offset = self.written - self._recorded
        waits = self._pending is not None or 0 <= now_ms - self._sync_ms < SYNC_EVERY_MS
        if self.synced == offset or waits:
            return
        self._sync_ms = now_ms
        if self.sync_later is None:
            self._sync()
        else:
            self._pending_offset = offset
            self._pending = self.sync_later(self._file)

    def begin_rewrite(self, rdb: bool = True) -> PendingRewrite:
        """Start a new base, a snapshot or commands, of all that was given so far.

        HeadraceError: not now (one is running, the disk is full), and nothing has changed.
        """
        if self.rewrite is not None:
            raise HeadraceError("the log is being rewritten already")
        if not self._flush(sync=True) and self._file is not None:
            raise HeadraceError(f"the log cannot be rewritten now: {self.failure}")
        old = self._file
        try:
            number = log_files.free_number(self.files, self.names, self.manifest)
            incr = ManifestLine(self.names.incr_name(number), number)
            if old is not None:
                self._open_next(incr)
                _close(old)
        except OSError as error:
            raise HeadraceError(f"the log cannot be rewritten now: {describe_error(error)}") from error
        base = ManifestLine(self.names.base_name(number, rdb), number)
        self._recorder.forget_database()
        self.rewrite = PendingRewrite(self.names.temporary(base.file), rdb, base, incr, self.written)
        return self.rewrite

    def finish_rewrite(self, rewrite: PendingRewrite, ok: bool) -> bool:
        """The base is whole and synced (ok), or it failed. False: the log is as it would be without it."""
        self.rewrite = None
        done = False
        if ok and rewrite.usable:
            try:
                self._adopt(rewrite)
                done = True
            except OSError as error:
                rewrite.failure = describe_error(error)
        else:
            rewrite.failure = self.failure if ok else "the new base was not finished"
        if done:
            self._flush(self._syncs_always())
            self._forget_history()
        else:
            log_files.remove(self.files, rewrite.temporary)
        return done

    def close(self, clean: bool) -> bool:
        """Leave the log; clean syncs it first. True: all given is durable, whatever the policy."""
        if self.rewrite is not None:
            self.finish_rewrite(self.rewrite, False)
        durable = clean and self._flush(sync=True)
        self._collect(wait=True)
        self.abandon()
        return durable

    def abandon(self) -> None:
        """In the child of a fork: the log is the parent's. Its file is closed here and nothing is written."""
        file, self._file = self._file, None
        if file is not None:
            _close(file)

    def require_rewrite(self, why: str) -> None:
        """A rewrite was interrupted at an unknown point: only another one makes the log reliable.

        What the manifest on disk names by now is right in any case: at most it has an empty incr file more,
        or a base of the same records.
        """
        self.failure = f"the log is not known to be whole and must be rewritten: {why}"
        self._pending = None
        rewrite, self.rewrite = self.rewrite, None
        if rewrite is not None:
            rewrite.usable = False
        self.abandon()

    def check_files(self, now_ms: cython.longlong, force: cython.bint = False) -> bool:
        """Give up a log whose files were changed by others (8); return whether. Seldom, unless forced."""
        if not force and 0 <= now_ms - self.checked_ms < CHECK_INTERVAL_MS:
            return False
        if self._file is None or self._unsettled:
            return False
        self.checked_ms = now_ms
        change = self.monitor.find_change(self.manifest, self._file_size, not self._cut_due)
        if change:
            self.require_rewrite(change)
        return bool(change)

    @cython.ccall
    def _syncs_always(self) -> cython.bint:
        return self.policy == "always" and not self.sync_paused

    @cython.ccall
    def _record(self, items: list[Item], now_ms: cython.longlong) -> cython.void:
        """Have a record of each item, and none of the items any more."""
        recorder = self._recorder
        if recorder.used != self._recorded:
            recorder.cut(self._recorded)
        if self.timestamps:
            recorder.stamp(now_ms)
        recorder.put_all(items)
        written = self.written - self._recorded
        self.written, self._recorded, items[:] = written + recorder.used, recorder.used, ()

    @cython.ccall
    def _flush(self, sync: cython.bint) -> cython.bint:
        """Bring the records in memory to the file, and to the disk if asked; whether that worked."""
        if self._file is None:
            if self.rewrite is None or not self.rewrite.usable:
                self._recorded = 0  # the next rewrite's base holds them
                self._recorder.clear()
            return False
        try:
            if self._unsettled:
                self._store(self.manifest)
                if self._unsettled:
                    return False
                self.synced = max(self.synced, self._base_offset)
                self._forget_history()
            if self._recorded:
                self._append(self._file)
        except OSError as error:
            self.failure = f"the log could not be written: {describe_error(error)}"
            return False
        if sync and self.synced < self.written and not self._sync():
            return False
        self.failure = ""
        return True

    @cython.ccall
    def _append(self, file: File) -> cython.void:
        """Write all records in memory, or cut off what of them got there."""
        recorder = self._recorder
        if recorder.used != self._recorded:
            recorder.cut(self._recorded)
        if self._cut_due:
            file.truncate(self._file_size)
        self._cut_due = True  # as long as it is unknown how much gets there
        try:
            recorder.write_to(file)
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(self._file_size)
                self._cut_due = False
            raise
        self._file_size, self._recorded, self._cut_due = self._file_size + self._recorded, 0, False
        recorder.clear()

    @cython.ccall
    def _sync(self) -> cython.bint:
        """Make durable what is written; whether that worked. A sync in another thread is waited for first:
        the kernel tells of a failure once, and it may be that one which hears it."""
        self._collect(wait=True)
        if self._file is None:
            return False
        offset = self.written - self._recorded
        try:
            self._file.sync()
        except OSError as error:
            file, self._file, self.failure = self._file, None, SYNC_FAILED
            self._give_up(file, error)
            return False
        self.synced = offset
        return True

    def _collect(self, wait: bool) -> None:
        """See how the sync in another thread went."""
        pending = self._pending
        if pending is None or not (wait or pending.done()):
            return
        try:
            pending.result()
        except Exception as error:  # whatever it was: nothing is known to be durable
            file, self._file, self.failure, self._pending = self._file, None, SYNC_FAILED, None
            assert file is not None
            self._give_up(file, error)
        else:
            self.synced = max(self.synced, self._pending_offset)
            self._pending = None

    def _give_up(self, file: File, error: Exception) -> None:
        """A sync failed: this file, and a rewrite that relies on it, are worth nothing."""
        self.failure = f"{SYNC_FAILED}: {describe_error(error)}"
        if self.rewrite is not None:
            self.rewrite.usable = False
        _close(file)

    def _open_next(self, incr: ManifestLine) -> None:
        """Continue in a new incr file. OSError: nothing changed, except for an empty unnamed file."""
        file, old = self._create(incr), self._file
        try:
            if old is not None:
                self.monitor.record(old.name, old.identity())
            manifest = self.manifest
            self._store(Manifest(manifest.base, manifest.history, [*manifest.incrs, incr]))
        except OSError:
            _close(file)
            raise
        self._older_size += self._file_size
        self._use(file)

    def _adopt(self, rewrite: PendingRewrite) -> None:
        """Let the new base take the place of all files before it. OSError: all is as before."""
        names, files = self.names, self.files
        base = names.path(rewrite.base.file)
        size = files.size(rewrite.temporary)
        with contextlib.closing(files.append(rewrite.temporary)) as file:
            file.sync()
            identity = file.identity()
        fresh = self._create(rewrite.incr) if self._file is None else None
        past = self.manifest
        history = [line for line in past.lines() if line != rewrite.incr]
        try:
            files.rename(rewrite.temporary, base)
            files.sync_directory(names.directory)
            self.monitor.record(base, identity)
            self._store(Manifest(rewrite.base, history, [rewrite.incr]))
        except OSError:
            log_files.remove(files, base)
            if fresh is not None:
                _close(fresh)
            raise
        self._older_size = size
        self._base_offset = rewrite.offset
        if not self._unsettled:
            self.synced = max(self.synced, rewrite.offset)
        if fresh is not None:
            self._use(fresh)
        self.base_size = self.size

    def _create(self, incr: ManifestLine) -> File:
        """An empty incr file whose name is durable, for a manifest to name."""
        file = self.files.create(self.names.path(incr.file))
        try:
            self.files.sync_directory(self.names.directory)
            self.monitor.record(self.names.path(incr.file), file.identity())
        except OSError:
            _close(file)
            raise
        return file

    def _use(self, file: File) -> None:
        self._file = file
        self._file_size = 0
        self._cut_due = False

    def _store(self, manifest: Manifest) -> None:
        """Make it the manifest. OSError: the one before is. Unsettled counts as done, but see _flush()."""
        try:
            manifest.store(self.files, self.names)
            self.monitor.record_manifest(manifest.text(), manifest)
            self._unsettled = False
        except Unsettled as error:
            self._unsettled = True
            self.failure = f"the log's manifest could not be stored: {describe_error(error)}"
        self.manifest = manifest

    def _forget_history(self) -> None:
        """Remove the files of the past. What fails here is done by the next rewrite or start."""
        manifest = self.manifest
        if self.disable_gc or self._unsettled or not manifest.history:
            return
        left = log_files.remove_history(self.files, self.names, manifest, self.monitor)
        if len(left) < len(manifest.history):
            with contextlib.suppress(OSError):
                self._store(Manifest(manifest.base, left, manifest.incrs))


def error_reply_for(failure: str) -> bytes:
    """What writes are answered on the wire while a log is in that failure."""
    return f"MISCONF Errors writing to the AOF file: {failure.rpartition(': ')[2]}".encode(errors="replace")


def _close(file: File) -> None:
    """What a close reports was a failed sync already, or does not matter."""
    with contextlib.suppress(OSError):
        file.close()
