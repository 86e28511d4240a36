"""Load a file into a stream: read its first rows, choose the column of times, add the rows, keep bad ones.

The command and headrace.pipeline.load() both run it. An observer receives the progress.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa

from headrace.client.servers import Servers
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.file_formats.csv_records import BadRow
from headrace.pipeline.file_formats.file_readers import FileProgress, FileReader
from headrace.pipeline.loading.arguments import LoadArguments
from headrace.pipeline.loading.load_rows import load_rows, sorted_by_time
from headrace.pipeline.loading.loader import BadRowError, LoadIdentity, LoadReport
from headrace.pipeline.loading.rejects import RejectsFile
from headrace.pipeline.loading.time_columns import (
    MS_MAX,
    TimeColumn,
    choose_time_column,
    latest_valid_time_ms,
)
from headrace.pipeline.shared.pacing import RateLimiter
from headrace.plurals import plural


@dataclass(frozen=True)
class LoadResult:
    """The progress or result of a load.

    Attributes:
        added: Rows that this call has added.
        skipped: Rows that an earlier call had added.
        rejected: Bad rows that were left out.
        out_of_order: Rows that got the time of the row before them because their own is earlier.
        without_time: Rows that got the time of the row before them because they have none.
        first_id: The ID of the first row added; empty if the server generates the IDs.
        last_id: The ID of the last row added; empty if the server generates the IDs.
        time_column: The column whose times are the IDs; None if the server generates the IDs.
        rejects: The file with the rejected rows; None if no row was rejected.
        seconds: Time since the load began, in seconds.
        uncertain: Whether more rows may be in the stream: the server did not confirm the last ones.
    """

    added: int = 0
    skipped: int = 0
    rejected: int = 0
    out_of_order: int = 0
    without_time: int = 0
    first_id: str = ""
    last_id: str = ""
    time_column: str | None = None
    rejects: Path | None = None
    seconds: float = 0.0
    uncertain: bool = False

    @property
    def loaded(self) -> int:
        """Rows of the file that are in the stream, added by this call and earlier ones."""
        return self.added + self.skipped


class LoadObserver:
    """Receives what a load reports. These methods ignore it; override those that are needed."""

    def on_note(self, text: str) -> None:
        """Receive a note about how the file is read."""

    def on_time_column(self, times: TimeColumn | None) -> None:
        """Receive the column that gives the IDs; None if the server generates them."""

    def sorting_context(self) -> AbstractContextManager[object]:
        """Return a context for the time in which rows are sorted."""
        return nullcontext()

    def loading_context(self) -> AbstractContextManager[object]:
        """Return a context for the time in which rows are added."""
        return nullcontext()

    def on_progress(self, result: LoadResult, done: int, size: int) -> None:
        """Receive the progress: how much of the file's size is loaded, in the unit of FileReader.size."""

    def on_rejects(self, rejects: RejectsFile) -> None:
        """Receive the file of rejected rows after a successful load, if any row was rejected."""


class FileLoad:
    """One load of a file.

    Attributes:
        result: The progress that the server has confirmed.
    """

    def __init__(self, arguments: LoadArguments, observer: LoadObserver) -> None:
        self.result = LoadResult()
        self._arguments = arguments
        self._job = arguments.job_name
        self._rejects_path = arguments.rejects_path
        self._observer = observer
        self._times: TimeColumn | None = None
        self._rejects: RejectsFile | None = None

    def run(self) -> LoadResult:
        """Load the file; return the result.

        Raises:
            UsageError: if the file cannot be read, an option does not fit it, or a row is bad.
            HeadraceError: if the server is not reachable, or rejects rows. The text of each error says how
                many rows were added, and how to add the others.
        """
        given = self._arguments
        with ExitStack() as stack:
            null_values = ("", *given.null)
            reader = stack.enter_context(FileReader(given.path, null_values, given.delimiter, given.encoding))
            servers = stack.enter_context(Servers(given.url, reconnect_timeout=0))
            if self._rejects_path is not None:
                self._rejects = stack.enter_context(RejectsFile(self._rejects_path, reader, given.resume))
            progress = FileProgress(reader)
            rows = self._prepare_rows(reader, progress)
            with self._observer.loading_context():
                try:
                    self._add(rows, reader, servers, progress)
                except HeadraceError as error:
                    self._add_hints(error)
                    raise
        if self._rejects is not None and self._rejects.count:
            self._observer.on_rejects(self._rejects)
        return self.result

    def _add(
        self,
        rows: Iterable[pa.RecordBatch | BadRow],
        reader: FileReader,
        servers: Servers,
        progress: FileProgress,
    ) -> None:
        given, rejects = self._arguments, self._rejects

        def record_progress(report: LoadReport) -> None:
            if rejects is not None and report.is_complete:
                rejects.finish()
            elif rejects is not None:
                rejects.write_up_to(report.loaded)
            self.result = self._result(report)
            done = progress.position_after(report.loaded + report.rejected)
            self._observer.on_progress(self.result, done, reader.size)

        report = load_rows(
            rows,
            self._times,
            servers,
            given.stream,
            job=LoadIdentity(self._job, reader.name, reader.size),
            append=given.append,
            resume=given.resume,
            maxlen=given.maxlen,
            rows_per_batch=given.batch,
            rate=RateLimiter(given.rate),
            on_bad_row=None if rejects is None else rejects.add,
            on_progress=record_progress,
            ahead=reader.path.is_file(),
        )
        self.result = self._result(report)
        self._observer.on_progress(self.result, reader.size, reader.size)

    def _result(self, report: LoadReport) -> LoadResult:
        rejected = self._rejects.count if self._rejects is not None else 0
        return LoadResult(
            added=report.added_rows,
            skipped=report.skipped,
            rejected=rejected,
            out_of_order=report.out_of_order,
            without_time=report.without_time,
            first_id=report.first_id,
            last_id=report.last_id,
            time_column=None if self._times is None else self._times.name,
            rejects=self._rejects_path if rejected else None,
            seconds=report.seconds,
            uncertain=report.uncertain,
        )

    def _prepare_rows(self, reader: FileReader, progress: FileProgress) -> Iterable[pa.RecordBatch | BadRow]:
        """Read the first rows and choose the column of times. Return all rows, sorted if that is wanted."""
        given = self._arguments
        rows = progress.track(reader.batches_and_bad_rows())
        first: list[pa.RecordBatch | BadRow] = []
        batch = None
        for each in rows:
            first.append(each)
            if not isinstance(each, BadRow):
                batch = each
                break
            if self._rejects_path is None:
                raise UsageError(f"{reader.name}: {each}")
        if batch is None:
            raise UsageError(f"{reader.name}: has no rows" + (" that can be loaded" if first else ""))
        if reader.found_delimiter:
            self._observer.on_note(
                f"Values are separated by {reader.found_delimiter!r}, as the first line shows (--delimiter)"
            )
        latest_ms = MS_MAX if given.allow_future else latest_valid_time_ms()
        if not given.new_ids:
            self._times = choose_time_column(batch, given.time_column, latest_ms, self._observer.on_note)
        self._observer.on_time_column(self._times)
        every = chain(first, rows)
        if not given.sort:
            return every
        if self._times is None:
            raise UsageError(
                f"{reader.name}: no column looks like a time to sort by; name one with --time-column "
                f"({', '.join(batch.schema.names)})"
            )
        with self._observer.sorting_context():
            return list(sorted_by_time(every, self._times))

    def _add_hints(self, error: HeadraceError) -> None:
        """Append to an error how many rows were added, and how to continue."""
        can_resume = bool(self._job)
        hint = resume_hint(self.result, can_resume)
        hints = [hint] if hint else []
        if isinstance(error, BadRowError):
            option = "--resume --skip-bad" if hint and can_resume else "--skip-bad"
            hints.append(f"{option} leaves out bad rows, and writes them to a file")
        if hints:
            error.args = ("; ".join([str(error), *hints]),)


def resume_hint(result: LoadResult, can_resume: bool) -> str:
    """Return how many rows were added before a failure, and how to add the others; empty if none were.

    Args:
        result: The progress so far.
        can_resume: Whether the load has a name: that of its job, or its file's path.
    """
    if not result.added and not result.uncertain:
        return ""
    count = f"{'at least ' if result.uncertain else ''}{plural(result.loaded, 'row')} loaded"
    if not can_resume:
        return f"{count}; standard input cannot be resumed without a --job NAME"
    return f"{count}; the same command with --resume adds the others"
