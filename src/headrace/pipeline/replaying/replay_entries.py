"""Replay past entries into a stream: at their original speed, a multiple of it, or as fast as possible.

A replay can be stopped or killed at any point. The next run of the same replay continues after the last
entry that was added, because the server stores its position (see target.py). The end of a replay is fixed
when it begins, so a stream can be replayed into itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.archive.files import split_ids
from headrace.client.connection_errors import explain_connection_errors
from headrace.client.write_timeouts import explain_timeouts
from headrace.errors import UsageError
from headrace.pipeline.replaying.position import ReplayPosition
from headrace.pipeline.replaying.source import MAX_ID, ReplaySource
from headrace.pipeline.replaying.target import ReplayTarget
from headrace.pipeline.shared.interrupts import raise_if_interrupted
from headrace.pipeline.shared.pacing import ReplayPacer
from headrace.positions.entry_ids import START, parse_id


@dataclass(frozen=True)
class ReplayResult:
    """The progress or result of a replay.

    Attributes:
        added: Entries added by this run.
        first_id: The source ID of the first entry added.
        last_id: The source ID of the last entry replayed.
        upto: The ID at which the replay ends, inclusive.
        resumed_after: The ID after which this run continued; empty for a new replay.
        ids_kept: Whether entries keep their IDs.
        seconds: Time since the run began, in seconds.
        lag_seconds: Delay compared with the requested speed, in seconds.
        was_complete: Whether an earlier run was complete, so that nothing was added.
        has_newer_entries: Whether the source has entries after the end of the complete replay.
        target_was_deleted: Whether the target was deleted since an earlier run; the replay began again.
    """

    added: int = 0
    first_id: str = ""
    last_id: str = ""
    upto: str = ""
    resumed_after: str = ""
    ids_kept: bool = False
    seconds: float = 0.0
    lag_seconds: float = 0.0
    was_complete: bool = False
    has_newer_entries: bool = False
    target_was_deleted: bool = False


def replay_entries(
    source: ReplaySource,
    url: str,
    stream: str,
    *,
    name: str,
    after: str = START,
    upto: str | None = None,
    keep_ids: bool | None = None,
    pacer: ReplayPacer | None = None,
    restart: bool = False,
    into_itself: bool = False,
    on_progress: Callable[[ReplayResult], None] = lambda report: None,
) -> ReplayResult:
    """Add the source's entries after the ID `after`, up to and including `upto`, to a stream.

    Args:
        source: The entries to replay.
        url: The server to replay to.
        stream: The stream to replay into.
        name: Identifies the replay, so that it is continued when it is run again.
        after: The ID after which to begin.
        upto: The last ID to replay; None for the current last ID of the source.
        keep_ids: Whether entries keep their IDs; None to keep them only if the stream never had an entry.
        pacer: Delays entries until they are due; None to replay as fast as possible.
        restart: Whether to begin again and ignore the position of an earlier run.
        into_itself: Whether source and target are the same stream on the same server.
        on_progress: Called at the beginning and after each transaction.

    Returns:
        The result.

    Raises:
        UsageError: if no ID is between `after` and `upto`, IDs cannot be kept (ReplayTarget.keeps_ids), or an
            ID to keep occurs twice.
        HeadraceError: if entries were trimmed before they were read, or the source or target was recreated.
    """
    pacer = pacer or ReplayPacer(None)
    if upto is not None and parse_id(after) >= parse_id(upto):
        raise UsageError(f"no entry can be after {after} and up to {upto}: the start must be before the end")
    target = ReplayTarget(url, stream, name, into_itself)
    with closing(target), explain_connection_errors(url), explain_timeouts(target.servers, stream):
        earlier = target.position()
        target_was_deleted = earlier is not None and not restart and target.was_deleted(earlier)
        position = None if restart or target_was_deleted else earlier
        source.check_identity(position.source if position else None)
        if position is not None and position.done:
            has_newer = upto is None and parse_id(source.last_id()) > parse_id(position.upto)
            report = _complete_result(position, has_newer)
            on_progress(report)
            return report
        begin = position.last_source_id if position else after
        end = position.upto if position else min(upto or MAX_ID, source.last_id(), key=parse_id)
        keep = target.keeps_ids(position.keep_ids if position and keep_ids is None else keep_ids, begin)
        report = ReplayResult(
            resumed_after=position.last_source_id if position else "",
            upto=end,
            ids_kept=keep,
            target_was_deleted=target_was_deleted,
        )
        on_progress(report)
        target.start_run(_beginning(source, earlier, position, begin, end, keep), restart)
        batches = source.batches(begin, end, position is not None)
        unique = check_ids_unique(batches) if keep else batches
        report = _add_batches(unique, target, pacer, report, on_progress)
        target.complete(is_first=position is None)
        return report


def _complete_result(position: ReplayPosition, has_newer: bool) -> ReplayResult:
    """Return the result of a run that finds its replay complete."""
    return ReplayResult(
        last_id=position.last_source_id,
        upto=position.upto,
        ids_kept=position.keep_ids,
        was_complete=True,
        has_newer_entries=has_newer,
    )


def _beginning(
    source: ReplaySource,
    earlier: ReplayPosition | None,
    position: ReplayPosition | None,
    begin: str,
    end: str,
    keep: bool,
) -> ReplayPosition:
    """Return the position at which this run begins: `position`, or the beginning if that is None."""
    run = (earlier.run_number if earlier else 0) + 1
    if position is not None:
        return replace(position, run_number=run, rows=0, keep_ids=keep)
    return ReplayPosition(run, 0, begin, end, keep, source=source.identity())


def check_ids_unique(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches unchanged; check that no ID occurs twice.

    Raises:
        UsageError: if an ID occurs twice, as in an archive of a stream that was recreated.
    """
    last = None
    for batch in batches:
        ids = batch.column("id")
        twice = ids[1:].filter(pc.equal(ids[1:], ids[:-1]))
        duplicate = ids[0] if ids[0] == last else twice[0] if len(twice) else None
        if duplicate is not None:
            raise UsageError(
                f"entry {duplicate} is in the archive twice, because the stream was deleted and recreated. A "
                "stream cannot have both: replay with --new-ids, or exclude one with --from and --to"
            )
        last = ids[-1]
        yield batch


def _add_batches(
    batches: Iterator[pa.RecordBatch],
    target: ReplayTarget,
    pacer: ReplayPacer,
    report: ReplayResult,
    on_progress: Callable[[ReplayResult], None],
) -> ReplayResult:
    """Add the entries when they are due; return the report with what was added."""
    started = time.monotonic()
    lag_seconds = 0.0

    def current_result() -> ReplayResult:
        return replace(
            report,
            added=target.rows_sent,
            first_id=target.first_id,
            last_id=target.last_id,
            seconds=time.monotonic() - started,
            lag_seconds=lag_seconds,
        )

    try:
        for batch in batches:
            times = split_ids(batch.column("id"))[0].to_pylist()
            for start, stop in pacer.due_slices(times):
                if start == stop:
                    target.flush()
                else:
                    target.add(batch.slice(start, stop - start))
                lag_seconds = max(0.0, -pacer.seconds_until_due(times[start]))
                on_progress(current_result())
                raise_if_interrupted()
        target.flush()
    except KeyboardInterrupt:
        target.flush()
        raise
    finally:
        on_progress(current_result())
    return current_result()
