"""The append-only log: makes acknowledged writes durable.

    commit()  ─▶ recorder ─one write─▶ newest incr file ─sync─▶ disk
                                       base, older incr files: read at the next start, never written again

Replies to the requests of a commit may be sent only when commit() returns True. The following invariants hold
at every moment. So a crash between any two steps, or the failure of any step, leaves a readable log:

1. The manifest in place names only existing files. A file is created or renamed, and its directory synced,
   before a manifest names it. A file is removed after a durable manifest lists it as history.
2. Only the newest incr file is appended to, so only it may end in half a record. Before a manifest names a
   newer one, the old one is synced, whatever the policy. An incr file that no manifest names is empty.
3. The base and the incr files after it contain each record exactly once: a rewrite starts a new incr file at
   the moment that its base describes, and one manifest adds both. A base has the number of the incr file
   that follows it, and numbers only rise: no file that a manifest names is replaced by a rename.
4. The newest file contains whole commits only. After a failed or short write the file is truncated, at once
   or before the next attempt. Until that has worked commit() is False and the records stay in memory.
5. After a failed sync the kernel may have dropped pages and marked them clean: another sync proves nothing.
   The file is given up (needs_rewrite) and commit() is False until a rewrite from memory, which has all that
   the file lost. Until then the manifest in place names the old files.
6. When a manifest was put in place but its directory could not be synced (ManifestNotDurable), a power cut
   leaves the old or the new set of files. Both are right as long as nothing is appended or removed. So the
   manifest is stored again before the next record is written.
7. A signal handler may raise in any call made here, and so interrupt commit() and tick(). The next call
   continues: what belongs together changes in one statement without a call. See require_rewrite().
8. Cold files to which a base refers are complete and durable before the base is written. They are removed
   only if neither the manifest in place nor one that a power cut may bring back names them.
9. give_up_if_files_changed() detects files that other programs removed, replaced or changed, about once a
   second. The log is then given up as after a failed sync (5), and rewritten from memory.

The steps of a rewrite, and what a start finds after a crash that follows each:

    begin    sync incr 7                                      base 5, incr 5..7
             create incr 8, sync directory                    the same; an empty file that it does not name
             manifest: base 5, incr 5..8                      base 5, incr 5..8
    ...      commits go to incr 8, the base is written        the same; a temporary file, which is removed
    finish   sync it, rename to base 8, sync directory        the same; an unnamed base, which is removed
             manifest: base 8, history 5..7, incr 8           base 8, incr 8
             remove history, manifest without it              the same; history missing is no error

Without a reliable file (at the first start, after a failed sync) begin changes nothing on disk. Records stay
in memory since then, and finish creates the incr file with the base: one manifest adds both.

A syncing step takes milliseconds to a second. Those that do not change the log run in the context `unlocked`
of the caller, in which other threads may commit:

    begin    unlocked: create incr 8 and the new manifest beside the old one, sync both
             the last records of the base, sync incr 7, rename the manifest, continue in incr 8
             unlocked: sync the directory
    finish   unlocked: sync the base, rename it, write the new manifest beside the old one, sync both
             rename the manifest
             unlocked: sync the directory; remove history

Until the directory is synced, a power cut may bring back the manifest without incr 8, and lose what was
committed to it. So a sync of the log syncs the directory first, and `synced` does not rise before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import cython

from headrace.errors import HeadraceError
from headrace.persistence.aof import log_files
from headrace.persistence.aof.encoded_effects import EncodedEffects
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log_buffer import DatabaseRequest, LogBuffer
from headrace.persistence.aof.log_file_monitor import CHECK_INTERVAL_MS, LogFileMonitor
from headrace.persistence.aof.log_files import describe_error
from headrace.persistence.aof.manifest import Manifest, ManifestLine
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_owner import new_owner, read_owner
from headrace.persistence.cold.cold_references import ColdReferences
from headrace.persistence.data_directory import DataDirectory, File, PendingSync, write_file
from headrace.visibility import Public

POLICIES = ("always", "everysec", "no")
SYNC_EVERY_MS = 1000
SYNC_FAILED_MESSAGE = "the log could not be synced and must be rewritten"
SYNC_WAIT_MAX_MS = 2000  # commits wait for a slower sync: this bounds what can be lost
UnlockedContextFactory = Callable[
    [], contextlib.AbstractContextManager[None]
]  # other threads may use the log inside


@cython.cclass
class Log:
    """The append-only log in a data directory. One thread uses it; only syncs may run in another."""

    __dict__: dict[str, object]  # tests derive from the class and replace methods
    files: Public[DataDirectory]
    names: Public[LogFileNames]
    policy: Public[str]
    timestamps: Public[cython.bint]
    checksums: Public[cython.bint]  # each commit ends in a line with its checksum
    keep_history_files: Public[cython.bint]  # keep history files, and their lines in the manifest
    sync_later: Public[Callable[[File], PendingSync] | None]
    sync_paused: Public[cython.bint]  # no-appendfsync-on-rewrite: nothing is synced while it is set
    written: Public[cython.longlong]  # bytes of all records since the process started
    synced: Public[cython.longlong]  # how many of them are durable
    delayed_commits: Public[cython.longlong]  # commits that had to wait for a sync in another thread
    failure: Public[str]  # why commit() is False; empty when it is not
    base_size: Public[cython.longlong]  # bytes of all files after the last rewrite; at start-up, of the base
    rewrite: Public[PendingRewrite | None]
    manifest: Public[Manifest]
    cold_files: Public[ColdFiles | None]  # None: no base refers to any
    monitor: Public[LogFileMonitor]
    checked_ms: Public[cython.longlong]
    _recorder: Public[LogBuffer]
    _recorded_bytes: Public[cython.Py_ssize_t]  # valid in the recorder; an interrupted commit may follow
    _file: Public[File | None]  # the newest incr file; None if it is not reliable
    _file_size: Public[cython.longlong]  # bytes of whole commits in it
    _older_size: Public[cython.longlong]  # bytes of the files before it
    _cut_due: Public[cython.bint]  # half a commit may follow _file_size
    _unsettled: Public[cython.bint]
    _cold_names: Public[frozenset[str]]  # of the manifests that a power cut may leave
    _directory_due: Public[cython.bint]  # a manifest is in place, but its directory is not synced yet
    _base_offset: Public[cython.longlong]  # `written` when the base was begun
    _pending_sync: Public[PendingSync | None]
    _pending_offset: Public[cython.longlong]
    _sync_ms: Public[cython.longlong]

    def __init__(
        self,
        files: DataDirectory,
        names: LogFileNames,
        *,
        policy: str = "everysec",
        timestamps: bool = False,
        checksums: bool = True,
        disable_gc: bool = False,
        sync_later: Callable[[File], PendingSync] | None = None,
    ) -> None:
        self.files = files
        self.names = names
        self.timestamps = timestamps
        self.checksums = checksums
        self.keep_history_files = disable_gc
        self.sync_later = sync_later
        self.failure = ""
        self.manifest = Manifest()
        self.cold_files = None
        self._cold_names = frozenset()
        self.monitor = LogFileMonitor(files, names)
        self.checked_ms = 0  # time of the last check
        self._recorder = LogBuffer()
        self.rewrite = self._file = self._pending_sync = None
        self.sync_paused = self._cut_due = self._unsettled = self._directory_due = False
        self.written = self.synced = self.delayed_commits = self.base_size = 0
        self._recorded_bytes = self._file_size = self._older_size = 0
        self._base_offset = self._pending_offset = self._sync_ms = 0
        self.set_policy(policy)

    @property
    def needs_rewrite(self) -> bool:
        """Whether there is no reliable file: then only a rewrite from memory makes commit() True again."""
        return self._file is None

    @property
    def file(self) -> File | None:
        """The file that commits go to; None if there is no reliable one."""
        return self._file

    @property
    def size(self) -> int:
        """Bytes of all files of the log."""
        return self._older_size + self._file_size

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of records that are only in memory."""
        return self._recorded_bytes

    @property
    def syncing(self) -> bool:
        """Whether a sync runs in another thread."""
        return self._pending_sync is not None

    def set_policy(self, policy: str) -> None:
        """Set when to sync: always, everysec or no. Also applies to what is already written."""
        if policy not in POLICIES:
            raise ValueError(f"a policy that is not one of {', '.join(POLICIES)}: {policy}")
        self.policy = policy

    def start(self, manifest: Manifest | None) -> None:
        """Continue the recovered log, whose tail was cut off.

        Args:
            manifest: the files of the log. None if there is no log yet, or only one of other data: then call
                create() next.

        Raises:
            OSError: if the directory cannot be used.
            Damaged: if there is a log of other data whose manifest cannot be read. It may name cold files.
            HeadraceError: if the cold files belong to another log, or another process uses them.
        """
        names, files = self.names, self.files
        if self.cold_files is not None:
            log_files.prepare_cold_directory(files, names, self.cold_files)
        files.make_directory(names.directory)
        files.sync_directory("")
        files.sync_directory(names.directory)  # a killed process may have renamed files without a sync
        log_files.remove_leftovers(files, names, manifest)
        if self.cold_files is not None:
            stored = manifest or Manifest.load(files, names) or self.manifest  # an older log stays valid
            self._keep_cold_files(stored, True)
            log_files.remove_orphans(self.cold_files)
        if manifest is None:
            self.failure = "there is no log yet"
            return
        self.manifest = manifest
        sizes = self.monitor.record_identities(manifest)
        if manifest.incrs:
            self._file = files.open_append(names.path(manifest.incrs[-1].file))
            self._file.sync()
            self._file_size = sizes.pop()
        else:
            number = log_files.next_free_number(self.files, self.names, self.manifest)
            self._open_next(ManifestLine(names.incr_name(number), number))
        self._older_size = sum(sizes)
        self.base_size = sizes[0] if manifest.base else 0
        self._remove_history_files()

    def create(self, write_base: Callable[[File], None], rdb: bool = True) -> None:
        """Create the log: write its first base synchronously. Raises HeadraceError or OSError.

        Args:
            write_base: writes the base to the given file. While it runs, self.rewrite is this rewrite.
            rdb: whether write_base writes a snapshot or commands.
        """
        rewrite = self.begin_rewrite(rdb)
        whole = False
        try:
            write_file(self.files, rewrite.temporary_path, write_base)
            whole = True
        finally:
            done = self.finish_rewrite(rewrite, whole)
        if not done:
            raise HeadraceError(f"the log could not be written: {rewrite.failure}")

    @cython.ccall
    def commit(
        self, items: list[DatabaseRequest], now_ms: cython.longlong, encoded: EncodedEffects | None = None
    ) -> cython.bint:
        """Append records, each a (database, words), and clear the list of items.

        encoded: the bytes of all these items, if they are encoded already; cleared as well.

        Returns True if all records given so far are as durable as the policy promises. If False, failure says
        why, and the records stay in memory: tick(), or a commit of an empty list, retries. If an exception
        interrupts commit() (invariant 7), call it again with the same list.
        """
        if items:
            self._record(items, now_ms, encoded)
        if self._pending_sync is not None and now_ms - self._sync_ms > SYNC_WAIT_MAX_MS:
            self.delayed_commits += 1
            self._collect_sync_result(wait=True)
        return self._flush(self._syncs_always())

    def flush(self) -> bool:
        """Write and sync all records, whatever the policy; return whether that worked."""
        return self._flush(True)

    def tick(self, now_ms: int) -> None:
        """Start and finish syncs, and retry after a failure. Call it about ten times a second."""
        self._collect_sync_result(wait=False)
        if self.failure or self._syncs_always():  # always: the policy may just have changed from everysec
            self._flush(self._syncs_always())
        if self._file is None or self._unsettled or self._directory_due:
            return
        if self.policy != "everysec" or self.sync_paused:
            return
        offset = self.written - self._recorded_bytes
        waits = self._pending_sync is not None or 0 <= now_ms - self._sync_ms < SYNC_EVERY_MS
        if self.synced == offset or waits:
            return
        self._sync_ms = now_ms
        if self.sync_later is None:
            self._sync()
        else:
            self._pending_offset = offset
            self._pending_sync = self.sync_later(self._file)

    def begin_rewrite(
        self,
        rdb: bool = True,
        unlocked: UnlockedContextFactory = nullcontext,
        freeze: Callable[[], None] | None = None,
    ) -> PendingRewrite:
        """Start a rewrite: a new base, as a snapshot (rdb) or as commands, of all records given so far.

        Args:
            rdb: whether the base will be a snapshot.
            unlocked: returns the context for slow steps, in which other threads may use the log.
            freeze: called between the slow steps: it commits the last records that the base contains.

        Raises:
            HeadraceError: if a rewrite is running or the disk fails. Nothing has changed then.
        """
        if self.rewrite is not None:
            raise HeadraceError("the log is being rewritten already")
        if self._unsettled and not self._flush(sync=True):
            raise HeadraceError(f"the log cannot be rewritten now: {self.failure}")
        old = self._file
        following = None
        try:
            number = log_files.next_free_number(self.files, self.names, self.manifest)
            incr = ManifestLine(self.names.incr_name(number), number)
            if old is not None:
                following = self._prepare_next(incr, unlocked)
            if freeze is not None:
                freeze()
            if not self._flush(sync=True) and self._file is not None:
                raise HeadraceError(f"the log cannot be rewritten now: {self.failure}")
            if following is not None and old is not None and self._file is old:
                self._switch(following, incr)
                following = None
                _close(old)
        except OSError as error:
            raise HeadraceError(f"the log cannot be rewritten now: {describe_error(error)}") from error
        finally:
            if following is not None:
                _close(following)
        base = ManifestLine(self.names.base_name(number, rdb), number)
        self._recorder.forget_database()
        self.rewrite = PendingRewrite(self.names.temporary_path(base.file), rdb, base, incr, self.written)
        if self.cold_files is not None:
            self.rewrite.cold_references = ColdReferences()
        self._settle_manifest(unlocked)
        return self.rewrite

    def finish_rewrite(
        self, rewrite: PendingRewrite, ok: bool, unlocked: UnlockedContextFactory = nullcontext
    ) -> bool:
        """End a rewrite: make the new base the base of the log, or discard it.

        Args:
            ok: the base is complete and synced.
            unlocked: as for begin_rewrite().

        Returns:
            Whether the log has the new base. If not, the log continues without the new base, and
            rewrite.failure says why.
        """
        if self._file is None or self._unsettled:
            unlocked = nullcontext  # a commit of another thread would not find a log that it can write to
        done = False
        try:
            if ok and rewrite.usable:
                done = self._adopt_base(rewrite, unlocked)
            else:
                rewrite.failure = self.failure if ok else "the new base was not finished"
        except OSError as error:
            rewrite.failure = describe_error(error)
        finally:
            self.rewrite = None
        if done:
            self._flush(self._syncs_always())
            self._remove_history_files(unlocked)
        else:
            log_files.remove_if_possible(self.files, rewrite.temporary_path)
        return done

    def close(self, clean: bool, comment: bytes = b"") -> bool:
        """Close the log. Return whether all records are durable.

        Args:
            clean: write and sync the records first.
            comment: a last line for a log that is complete; it begins with # and ends with \\r\\n.
        """
        if self.rewrite is not None:
            self.finish_rewrite(self.rewrite, False)
        if clean and comment and not self.failure:
            self._recorder.truncate(self._recorded_bytes)
            self._recorder.put_comment(comment)
            self.written, self._recorded_bytes = self.written + len(comment), self._recorder.used
        durable = clean and self._flush(sync=True)
        self._collect_sync_result(wait=True)
        self.abandon()
        return durable

    def abandon(self) -> None:
        """Close the file without writing. For the child of a fork: the log belongs to the parent."""
        file, self._file = self._file, None
        if file is not None:
            _close(file)

    def require_rewrite(self, why: str) -> None:
        """Give up the files: only a rewrite makes the log reliable again.

        Call it after a rewrite was interrupted at an unknown point, or when others have changed the files.
        After an interruption the manifest on disk is still right. At most it names one more empty incr file,
        or a base of the same records.
        """
        self.failure = f"the log is not known to be whole and must be rewritten: {why}"
        self._pending_sync = None
        rewrite, self.rewrite = self.rewrite, None
        if rewrite is not None:
            rewrite.usable = False
        self.abandon()

    def give_up_if_files_changed(self, now_ms: cython.longlong, force: cython.bint = False) -> bool:
        """Give up the log if others have changed its files (invariant 9); return True if it was given up.

        Unless forced, the files are compared about once a second.
        """
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
    def _record(
        self, items: list[DatabaseRequest], now_ms: cython.longlong, encoded: EncodedEffects | None
    ) -> cython.void:
        """Append a record of each item to the recorder, and clear items."""
        recorder = self._recorder
        if recorder.used != self._recorded_bytes:
            recorder.truncate(self._recorded_bytes)
        recorder.begin_commit(self.checksums)
        if self.timestamps:
            recorder.put_timestamp(now_ms)
        if encoded is None:
            recorder.put_all(items)
        else:
            encoded.copy_to(recorder)
        recorder.end_commit()
        used: cython.Py_ssize_t = recorder.used
        written: cython.longlong = self.written - self._recorded_bytes + used
        if encoded is None:
            self.written, self._recorded_bytes, items[:] = written, used, ()
        else:
            self.written, self._recorded_bytes, items[:], encoded.count = written, used, (), 0

    @cython.ccall
    def _flush(self, sync: cython.bint) -> cython.bint:
        """Write the records in memory to the file, and sync it if asked; return whether that worked."""
        if self._file is None:
            if self.rewrite is None or not self.rewrite.usable:
                self._recorded_bytes = 0  # the base of the next rewrite contains them
                self._recorder.clear()
            return False
        try:
            if self._unsettled:
                self._store_manifest(self.manifest)
                if self._unsettled:
                    return False
                self.synced = max(self.synced, self._base_offset)
                self._remove_history_files()
            if self._recorded_bytes:
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
        """Write all records in memory. After an error truncate what was written of them."""
        recorder = self._recorder
        if recorder.used != self._recorded_bytes:
            recorder.truncate(self._recorded_bytes)
        if self._cut_due:
            file.truncate(self._file_size)
        self._cut_due = True  # until all of it is written
        try:
            recorder.write_to(file)
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(self._file_size)
                self._cut_due = False
            raise
        self._file_size, self._recorded_bytes, self._cut_due = (
            self._file_size + self._recorded_bytes,
            0,
            False,
        )
        recorder.clear()

    @cython.ccall
    def _sync(self) -> cython.bint:
        """Sync what is written; return whether that worked.

        Waits for a sync in another thread first: the kernel reports a failure once, perhaps to that one.
        """
        self._collect_sync_result(wait=True)
        if self._file is None:
            return False
        self._settle_manifest(nullcontext)
        if self._unsettled:
            return False
        offset = self.written - self._recorded_bytes
        try:
            self._file.sync()
        except OSError as error:
            file, self._file, self.failure = self._file, None, SYNC_FAILED_MESSAGE
            self._give_up(file, error)
            return False
        self.synced = offset
        return True

    def _collect_sync_result(self, wait: bool) -> None:
        """Take the result of the sync in another thread, if it is done; wait=True waits for it."""
        pending = self._pending_sync
        if pending is None or not (wait or pending.done()):
            return
        try:
            pending.result()
        except Exception as error:  # after any error nothing is known to be durable
            file, self._file, self.failure, self._pending_sync = self._file, None, SYNC_FAILED_MESSAGE, None
            assert file is not None
            self._give_up(file, error)
        else:
            self.synced = max(self.synced, self._pending_offset)
            self._pending_sync = None

    def _give_up(self, file: File, error: Exception) -> None:
        """Give up a file after a failed sync, and a rewrite that relies on it."""
        self.failure = f"{SYNC_FAILED_MESSAGE}: {describe_error(error)}"
        if self.rewrite is not None:
            self.rewrite.usable = False
        _close(file)

    def _open_next(self, incr: ManifestLine) -> None:
        """Continue in a new incr file. After an OSError nothing has changed but for an empty unnamed file."""
        file = self._prepare_next(incr, nullcontext)
        try:
            self._switch(file, incr)
        except OSError:
            _close(file)
            raise
        self._settle_manifest(nullcontext)

    def _prepare_next(self, incr: ManifestLine, unlocked: UnlockedContextFactory) -> File:
        """Create an incr file and the manifest that names it; return the file. Raises OSError."""
        following = self._manifest_with(incr)
        with unlocked():
            file = self._create_incr(incr)
            try:
                following.write_temporary(self.files, self.names)
            except OSError:
                _close(file)
                raise
        return file

    def _manifest_with(self, incr: ManifestLine) -> Manifest:
        return replace(self.manifest, incrs=[*self.manifest.incrs, incr])

    def _switch(self, file: File, incr: ManifestLine) -> None:
        """Put the prepared manifest in place; continue in its file. After an OSError nothing has changed."""
        if self._file is not None:
            self.monitor.record(self._file.name, self._file.identity())
        self._replace_manifest(self._manifest_with(incr))
        self._older_size += self._file_size
        self._use(file)

    def _adopt_base(self, rewrite: PendingRewrite, unlocked: UnlockedContextFactory) -> bool:
        """Replace all older files by the new base. On False or an OSError, nothing has changed."""
        names, files = self.names, self.files
        base = names.path(rewrite.base.file)
        history = [line for line in self.manifest.lines() if line != rewrite.incr]
        known = {} if self.cold_files is None else self.cold_files.identities()
        cold = log_files.cold_file_lines(files, rewrite.cold_references or (), known)
        owner = self.manifest.cold_owner or (self._cold_owner() if cold else "")
        following = Manifest(rewrite.base, history, [rewrite.incr], cold, owner)
        size = files.size(rewrite.temporary_path)
        fresh = self._create_incr(rewrite.incr) if self._file is None else None
        try:
            with unlocked():
                with contextlib.closing(files.open_append(rewrite.temporary_path)) as file:
                    file.sync()
                    self.monitor.record(base, file.identity())
                files.rename(rewrite.temporary_path, base)
                files.sync_directory(names.directory)
                following.write_temporary(files, names)
        except OSError:
            log_files.remove_if_possible(files, base)
            if fresh is not None:
                _close(fresh)
            raise
        if not rewrite.usable:  # another thread has given up the log
            log_files.remove_if_possible(files, base)
            rewrite.failure = self.failure
            return False
        self._replace_manifest(following)
        if rewrite.cold_references is not None:
            rewrite.cold_references.on_base_adopted()
        self._older_size = size
        self._base_offset = rewrite.offset
        if fresh is not None:
            self._use(fresh)
        self.base_size = self.size
        self._settle_manifest(unlocked)
        if not self._unsettled:
            self.synced = max(self.synced, rewrite.offset)
        return True

    def _cold_owner(self) -> str:
        """Return the identity that the cold directory has, or a new one. Raises OSError."""
        return read_owner(self.files, self.names.cold_directory) or new_owner()

    def _create_incr(self, incr: ManifestLine) -> File:
        """Create an empty incr file, and make its name durable before a manifest names it."""
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

    def _store_manifest(self, manifest: Manifest) -> None:
        """Store the manifest. After an OSError the old one is in place.

        If it returns, but the manifest is not durable, `_unsettled` is set: _flush() stores it again.
        """
        manifest.write_temporary(self.files, self.names)
        self._replace_manifest(manifest)
        self._settle_manifest(nullcontext)

    def _replace_manifest(self, manifest: Manifest) -> None:
        """Put a prepared manifest in place; _settle_manifest() must follow. _flush() retries a failure."""
        self.manifest = manifest
        self._keep_cold_files(manifest, False)
        try:
            manifest.replace_stored(self.files, self.names)
            self.monitor.record_manifest(manifest.text(), manifest)
            self._directory_due = True
        except OSError as error:
            self._report_unsettled(error)

    def _settle_manifest(self, unlocked: UnlockedContextFactory) -> None:
        """Sync the directory of a new manifest. If that fails, the manifest is not durable: see _flush()."""
        if not self._directory_due:
            return
        try:
            with unlocked():
                self.files.sync_directory(self.names.directory)
        except OSError as error:
            self._directory_due = False
            self._report_unsettled(error)
        except BaseException:  # of a signal handler
            self._directory_due, self._unsettled = False, True
            raise
        if self._directory_due:  # else another thread has synced it, perhaps in vain
            self._directory_due = self._unsettled = False
            self._keep_cold_files(self.manifest, True)

    def _keep_cold_files(self, manifest: Manifest, settled: bool) -> None:
        """Keep the cold files that a manifest names; if it is not settled, also those kept before.

        Files that a run in memory needs are kept in any case.
        """
        names = manifest.cold_names()
        self._cold_names = names if settled else self._cold_names | names
        if self.cold_files is not None:
            self.cold_files.set_needed_names(self._cold_names)
            if settled and manifest.cold_owner:
                self.cold_files.set_owner(manifest.cold_owner)

    def _report_unsettled(self, error: OSError) -> None:
        self._unsettled = True
        self.failure = f"the log's manifest could not be stored: {describe_error(error)}"

    def _remove_history_files(self, unlocked: UnlockedContextFactory = nullcontext) -> None:
        """Remove history files. The next rewrite or start retries what fails here."""
        manifest = self.manifest
        if self.keep_history_files or self._unsettled or not manifest.history:
            return
        try:
            with unlocked():
                left = log_files.remove_history(self.files, self.names, manifest, self.monitor)
                if len(left) == len(manifest.history):
                    return
                following = replace(manifest, history=left)
                following.write_temporary(self.files, self.names)
        except OSError:
            return
        if self.manifest is manifest and not self._unsettled:
            self._replace_manifest(following)
            self._settle_manifest(unlocked)


def error_reply_for(failure: str) -> bytes:
    """Return the error reply to writes while the log has this failure."""
    return f"MISCONF Errors writing to the AOF file: {failure.rpartition(': ')[2]}".encode(errors="replace")


def _close(file: File) -> None:
    """Close a file and ignore errors: a failed sync has reported them, or they do not matter."""
    with contextlib.suppress(OSError):
        file.close()
