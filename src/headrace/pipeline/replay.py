"""Entries of the past into a stream: at the speed at which they came, a multiple of it, or flat out.

A replay can be stopped, or killed, at any point: begun again it goes on behind the last entry that is there,
for the server knows where it stands (replay_target). Its end is fixed when it begins, so a stream can be
replayed into itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.pipeline.replay_pacer import Pace
from headrace.pipeline.replay_source import LAST, Source
from headrace.pipeline.replay_target import Target
from headrace.server_url import explain_connection_errors
from headrace.spark.archive.files import numbers_of
from headrace.spark.sink.write_timeouts import timeouts_explained
from headrace.spark.source.offsets import START, parse_id


@dataclass
class Report:
    """What a replay has done so far.

    behind      seconds by which it lags the pace asked for
    complete    whether an earlier run has done it all, so that nothing was added
    newer       whether the source has entries after the end that was fixed for it then
    gone        whether the stream of an earlier run is no longer there, so that the replay began again
    """

    rows: int = 0
    first_id: str = ""
    last_id: str = ""
    upto: str = ""
    resumed_after: str = ""
    kept: bool = False
    seconds: float = 0.0
    behind: float = 0.0
    complete: bool = False
    newer: bool = False
    gone: bool = False


def replay(
    source: Source,
    url: str,
    stream: str,
    *,
    name: str,
    after: str = START,
    upto: str | None = None,
    keep_ids: bool | None = None,
    pace: Pace | None = None,
    restart: bool = False,
    on_progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Add the source's entries after one ID, up to and including another, to a stream.

    Args:
        source: what to replay.
        url: the server to replay to.
        stream: the stream to replay into.
        name: tells this replay from others into the same stream. Begun again under it, the replay goes on
            where it was; if it was complete, it adds nothing.
        after: the ID after which to begin.
        upto: the last ID to replay; by default the last one there is.
        keep_ids: whether entries keep their IDs; by default, if the stream has had no entry.
        pace: how fast.
        restart: whether to begin again, whatever an earlier run has done.
        on_progress: called while it goes on.

    Returns:
        What was done.

    Raises:
        UsageError: if no ID lies between `after` and `upto`, or IDs cannot be kept.
        KeyboardInterrupt: if interrupts are held, between two transactions.
    """
    pace = pace or Pace(None)
    if upto is not None and parse_id(after) >= parse_id(upto):
        raise UsageError(f"no entry can be after {after} and not after {upto}")
    with (
        closing(Target(url, stream, name)) as target,
        explain_connection_errors(url),
        timeouts_explained(target.servers, stream),
    ):
        before = target.stand()
        gone = before is not None and not restart and not target.exists()
        stand = None if restart or gone else before
        if stand is not None and stand.done:
            newer = upto is None and parse_id(source.end()) > parse_id(stand.upto)
            report = Report(last_id=stand.last, upto=stand.upto, kept=stand.keep, complete=True, newer=newer)
            on_progress(report)
            return report
        begin = stand.last if stand else after
        end = stand.upto if stand else min(upto or LAST, source.end(), key=parse_id)
        keep = target.keeps_ids(stand.keep if stand and keep_ids is None else keep_ids, begin)
        report = Report(resumed_after=stand.last if stand else "", upto=end, kept=keep, gone=gone)
        on_progress(report)
        target.open(keep, (before.run if before else 0) + 1, end, restart)
        batches = source.batches(begin, end, stand is not None)
        _play(each_once(batches) if keep else batches, target, pace, report, on_progress)
        target.complete(stand)
        return report


def each_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, in the order of their IDs.

    Raises:
        UsageError: if an ID is there twice, as in an archive of a stream that was recreated.
    """
    last = None
    for batch in batches:
        ids = batch.column("id")
        twice = ids[1:].filter(pc.equal(ids[1:], ids[:-1]))
        found = ids[0] if ids[0] == last else twice[0] if len(twice) else None
        if found is not None:
            raise UsageError(
                f"entry {found} is in the archive twice, as the stream was deleted and recreated: a stream "
                "cannot have both under that ID. Replay with --new-ids, or leave it out by --from and --to"
            )
        last = ids[-1]
        yield batch


def _play(
    batches: Iterator[pa.RecordBatch],
    target: Target,
    pace: Pace,
    report: Report,
    on_progress: Callable[[Report], None],
) -> None:
    started = time.monotonic()
    try:
        for batch in batches:
            times = numbers_of(batch.column("id"))[0].to_pylist()
            for start, stop in pace.pieces(times):
                if start == stop:
                    target.settle()
                else:
                    target.add(batch.slice(start, stop - start))
                report.behind = max(0.0, -pace.due(times[start]))
                _tell(report, target, started, on_progress)
                raise_if_interrupted()
        target.settle()
    except KeyboardInterrupt:
        target.settle()
        raise
    finally:
        _tell(report, target, started, on_progress)


def _tell(report: Report, target: Target, started: float, on_progress: Callable[[Report], None]) -> None:
    report.rows, report.first_id, report.last_id = target.rows, target.first_id, target.last_id
    report.seconds = time.monotonic() - started
    on_progress(report)
