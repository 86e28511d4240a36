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

from headrace.pipeline.interrupts import raise_if_noted
from headrace.pipeline.pace import Pace
from headrace.pipeline.replay_source import LAST, Source
from headrace.pipeline.replay_target import Target
from headrace.server_url import failures_explained
from headrace.spark.archive_files import numbers_of
from headrace.spark.offsets import START, parse_id


@dataclass
class Report:
    """What a replay has done so far. behind: seconds by which it lags the pace asked for."""

    rows: int = 0
    first_id: str = ""
    last_id: str = ""
    upto: str = ""
    resumed_after: str = ""
    kept: bool = False
    seconds: float = 0.0
    behind: float = 0.0


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
    """Adds the source's entries after one ID, up to and including another, to a stream; says what was done.

    name tells this replay from others into the same stream: begun again under it, it goes on where it was, or
    with restart from its beginning. keep_ids: by default, if the stream has had no entry. UsageError if the
    IDs cannot be kept. KeyboardInterrupt, if interrupts are held, between two transactions.
    """
    pace = pace or Pace(None)
    with closing(Target(url, stream, name)) as target, failures_explained(url):
        stand = None if restart else target.stand()
        begin = stand.last if stand else after
        end = stand.upto if stand else min(upto or LAST, source.end(), key=parse_id)
        keep = target.keeps_ids(stand.keep if stand and keep_ids is None else keep_ids, begin)
        report = Report(resumed_after=stand.last if stand else "", upto=end, kept=keep)
        on_progress(report)
        target.open(keep, (stand.run if stand else 0) + 1, end, restart)
        _play(source.batches(begin, end, stand is not None), target, pace, report, on_progress)
        target.forget()
        return report


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
                raise_if_noted()
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
