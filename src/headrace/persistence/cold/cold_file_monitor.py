"""Detect cold files that were removed, replaced or truncated while they are in use.

    written, opened ──▶ identity: device, inode, size
                            │ compared with the path, some files in each round
                            ▼
    missing, another file, shorter ──▶ damaged: which runs need it, a warning ──▶ put back: verified, a notice
       │                                                                               ▲
       └── while it is still open here ──▶ written again from the open file ───────────┘

Reads of runs that were damaged in place fail by their checksum: the monitor compares no contents, except for
those of a file that was put back.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator

from headrace.errors import log_text, os_error_text
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.stream_scan import streams_in_steps
from headrace.persistence.cold import cold_file
from headrace.persistence.cold.cold_file import DamagedBytes, IndexEntry
from headrace.persistence.cold.cold_files import ColdFiles, KnownIdentity
from headrace.persistence.cold.open_files import KeptFile
from headrace.persistence.data_directory import DiskDirectory, FileIdentity
from headrace.plurals import plural
from headrace.streams.cold_run import ColdRun, run_of
from headrace.streams.node import node_of_cursor
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor

FILES_PER_ROUND = 500  # a check takes some microseconds
SCAN_NODES = 2000  # looked at in each step of a search
STREAMS_SHOWN = 10  # in a warning
COPY_PAUSE_S = 60.0  # after a copy that failed: on a full disk each one takes the space that is left
STEP_TIMEOUT_S = 1.0  # for the event loop to do a step; it may be ending

RunWithKeyspace = Callable[[Callable[[], None]], object]  # runs a function where the keyspace may be read


class _DamagedFile:
    """A file that is not as it was written. `runs` are those in it that are needed; None: not found yet."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.runs: set[IndexEntry] | None = None
        self.tried: FileIdentity | None = None  # what had this name, but not these runs
        self.copy_error = ""  # why it could not be written again
        self.next_copy_s = 0.0  # when to try that next, by time.monotonic()
        self.kept: KeptFile | None = None  # the file that had this name, if it is still open

    def release(self) -> None:
        """Let the file be closed."""
        if self.kept is not None:
            self.kept.release()


class ColdFileMonitor:
    """Compares the cold files of a keyspace with what was written.

    Call check_next_files() in one thread at a time.
    """

    def __init__(self, files: ColdFiles, keyspace: Callable[[], Keyspace], report: RunWithKeyspace) -> None:
        """Check nothing yet.

        Args:
            keyspace: returns the keyspace.
            report: runs a function where the keyspace may be read: soon, in another thread or in this one.
        """
        self.files = files
        self.damaged_files: dict[str, _DamagedFile] = {}
        self._keyspace = keyspace
        self._report = report
        self._last = ""  # the name that was checked last

    def check_next_files(self) -> None:
        """Check the next FILES_PER_ROUND files and the damaged ones, and log what has changed."""
        known = self.files.identities()
        for name in self.damaged_files.keys() - known.keys():
            self.damaged_files.pop(name).release()
        for name in self._next_names(known):
            what, found = self._difference(known[name])
            damaged = self.damaged_files.get(name)
            if damaged is None:
                if not what or name not in self.files.identities():  # it is not needed any more
                    continue
                damaged = self.damaged_files[name] = _DamagedFile(what)
                self.files.stop_appending(name)
                if found is None or not found.is_same_file(known[name].identity):
                    damaged.kept = self.files.keep_open(known[name])
            if damaged.runs is None:
                self._locate_and_warn(name, damaged, found is None)
            elif found is not None and self._has_runs(name, damaged, found):
                self._note_restored(name, damaged, found)
            if found is None and damaged.runs is not None and damaged.kept is not None:
                self._restore_removed_file(name, damaged, damaged.kept)

    def _next_names(self, known: dict[str, KnownIdentity]) -> list[str]:
        """Return the names to check now: in turn, and those of damaged files."""
        names = sorted(known)
        start = next((at for at, name in enumerate(names) if name > self._last), 0)
        chosen = (names[start:] + names[:start])[:FILES_PER_ROUND]
        if chosen:
            self._last = chosen[-1]
        return [*chosen, *(self.damaged_files.keys() - set(chosen))]

    def _difference(self, known: KnownIdentity) -> tuple[str, FileIdentity | None]:
        """Return how a file differs from what was written, "" if it does not; and what has its name."""
        try:
            found = self.files.files.identity(known.path)
        except FileNotFoundError:
            return "the file is missing", None
        except OSError as error:
            return os_error_text(error), None
        if not found.is_same_file(known.identity):
            return "another file has this name", found
        if found.size < known.size:
            return f"it has {found.size} bytes instead of {known.size}", found
        return "", found

    def _locate_and_warn(self, name: str, damaged: _DamagedFile, is_missing: bool) -> None:
        """Find the needed runs of a file, and log a warning; the next check tries again if that fails."""
        runs: set[IndexEntry] = set()
        ranges: dict[bytes, list[ColdRun]] = {}
        steps = _runs_in(self._keyspace(), name)
        is_complete = False

        def step() -> None:
            nonlocal is_complete
            for found in steps:
                if found is None:
                    return
                key, run = found
                runs.add(
                    IndexEntry(
                        run.storage_location.offset, run.storage_location.size, run.storage_location.checksum
                    )
                )
                ranges.setdefault(key, [run, run])[1] = run
            is_complete = True

        while not is_complete:
            if not self._run_step(step):
                return
        damaged.runs = runs
        logging.getLogger("headrace").warning("%s", self._warning_text(name, damaged, ranges, is_missing))

    def _run_step(self, step: Callable[[], None]) -> bool:
        """Run a step where the keyspace may be read; return False if that takes too long."""
        done = threading.Event()

        def run() -> None:
            try:
                step()
            finally:
                done.set()

        self._report(run)
        return done.wait(STEP_TIMEOUT_S)

    def _warning_text(
        self, name: str, damaged: _DamagedFile, ranges: dict[bytes, list[ColdRun]], is_missing: bool
    ) -> str:
        """Return the warning."""
        whole = self._whole_path(name)
        shown = [
            f"{log_text(key)!r} {first.first_ms}-{first.first_seq} to {last.last_ms}-{last.last_seq}"
            for key, (first, last) in list(ranges.items())[:STREAMS_SHOWN]
        ]
        if len(ranges) > len(shown):
            shown.append(f"{len(ranges) - len(shown)} more")
        needed = f"entries in it cannot be read: {', '.join(shown)}" if shown else "no entry in it is needed"
        advice = "put the file back from a backup; nothing else is affected"
        if not shown:
            advice = "the log still names it, so put it back from a backup, or rewrite the log (BGREWRITEAOF)"
        if damaged.kept is not None:
            needed = needed.replace("cannot be read", "will be lost when this process ends")
            advice = f"it is still open here, so copy it back: {_copy_command(damaged.kept, whole)}"
            if is_missing:
                advice = "it is still open here, and is written again"
        count = plural(len(damaged.runs or ()), "run")
        return f"cold file {whole}: {damaged.what}; {needed} ({count}); {advice}"

    def _whole_path(self, name: str) -> str:
        files, path = self.files.files, self.files.path(name)
        return os.path.abspath(files.path(path)) if isinstance(files, DiskDirectory) else path

    def _restore_removed_file(self, name: str, damaged: _DamagedFile, kept: KeptFile) -> None:
        """Restore a removed file from the one that is still open. A later check compares its runs."""
        if time.monotonic() < damaged.next_copy_s:
            return
        try:
            kept.write_again(self.files.files, self.files.path(name))
        except OSError as error:
            damaged.next_copy_s = time.monotonic() + COPY_PAUSE_S
            what, whole = os_error_text(error), self._whole_path(name)
            if what != damaged.copy_error:
                text = "cold file %s cannot be written again, which is tried until it works: %s; or: %s"
                command = _copy_command(kept, whole)
                logging.getLogger("headrace").warning(text, whole, what, command)
            damaged.copy_error = what

    def _has_runs(self, name: str, damaged: _DamagedFile, found: FileIdentity) -> bool:
        """Return whether the file of this name now has all needed runs; False if it was tried before."""
        if found == damaged.tried:
            return False
        damaged.tried = found
        try:
            source = self.files.files.open_random_access(self.files.path(name))
        except OSError:
            return False
        try:
            for run in damaged.runs or ():
                if cold_file.checked_run_checksum(source.read_at(run.offset, run.size)) != run.checksum:
                    return False
        except (OSError, DamagedBytes):
            return False
        finally:
            source.close()
        return True

    def _note_restored(self, name: str, damaged: _DamagedFile, found: FileIdentity) -> None:
        """Use a file that was put back. It stays in `damaged_files` until all of this is done."""
        self.files.accept_replaced_file(name, found)
        damaged.release()
        text = "cold file %s is back, with all runs that are needed"
        logging.getLogger("headrace").warning(text, self.files.path(name))
        del self.damaged_files[name]


def _copy_command(kept: KeptFile, whole: str) -> str:
    """Return the shell command that restores a removed file from its open descriptor."""
    return f"cp /proc/{os.getpid()}/fd/{kept.descriptor} {whole}"


def _runs_in(keyspace: Keyspace, name: str) -> Iterator[tuple[bytes, ColdRun] | None]:
    """Yield the runs that are in the file of this name, in order, with their keys; None between two steps."""
    for found in streams_in_steps(keyspace):
        if found is None:
            yield None
        else:
            yield from _runs_of_stream(*found, name)


def _runs_of_stream(key: bytes, stream: Stream, name: str) -> Iterator[tuple[bytes, ColdRun] | None]:
    if stream.cold is None or all(file.name != name for file in stream.cold.run_count_by_file):
        return
    after = b""
    while True:
        cursor = RaxCursor(stream.nodes)
        more = cursor.seek(">", after) if after else cursor.seek("^")
        for _ in range(SCAN_NODES):
            node = node_of_cursor(cursor) if more else None
            if node is None or node.run is None:
                return
            run = run_of(node)
            if run.storage_location.file.name == name:
                yield key, run
            after = node.key()
            more = cursor.next()
        yield None
