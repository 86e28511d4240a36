"""From a file into a stream: every row an entry, its time the ID, its columns the fields."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.pipeline.link import Link
from headrace.pipeline.pace import Rate
from headrace.pipeline.requests import Request, pack
from headrace.pipeline.times import TimeColumn

ROWS_PER_BATCH = 2000

# A batch is cut smaller when its rows are large: what is on its way is held twice.
BATCH_BYTES = 16 * 1024 * 1024

# Batches sent and not yet confirmed: one is packed while the server works on the other.
BATCHES_ON_THE_WAY = 2


@dataclass
class Report:
    """What a load has done so far; `moved` and `untimed` rows took the time of the row before them."""

    rows: int = 0
    skipped: int = 0
    moved: int = 0
    untimed: int = 0
    first_id: str = ""
    last_id: str = ""
    seconds: float = 0.0


@dataclass
class Ids:
    """Growing IDs from times: a row that goes back in time takes the last time, and is counted."""

    ms: int = 0
    seq: int = 0
    moved: int = 0
    untimed: int = 0

    def of(self, times: Iterable[int | None]) -> Iterator[tuple[int, int]]:
        """The next IDs, one a time."""
        for ms in times:
            if ms is None:
                self.untimed += 1
            elif ms > self.ms:
                self.ms, self.seq = ms, 0
                yield ms, 0
                continue
            elif ms < self.ms:
                if ms < 0:
                    raise UsageError(f"a row's time lies before 1970 ({ms} ms), which no ID can say")
                self.moved += 1
            self.seq += 1
            yield self.ms, self.seq


def load(
    batches: Iterable[pa.RecordBatch],
    times: TimeColumn,
    link: Link,
    stream: str,
    *,
    existing: str = "refuse",
    maxlen: int | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    rate: Rate | None = None,
    on_progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Appends the rows to the stream, at most at a rate, and returns what was done.

    `existing` says what to do if the stream has entries at or after the first row's ID: refuse; append (rows
    go after the last entry); resume (rows up to the last ID are taken for loaded, and skipped). A batch is in
    the stream whole or not at all, so after a failure resume goes on exactly where the load stopped.
    """
    started = time.monotonic()
    report = Report()
    last = link.last_id(stream) or (0, 0)
    ids = Ids(*last) if existing == "append" else Ids()
    on_the_way: deque[Request] = deque()
    rate = rate or Rate(None)
    most_on_the_way = BATCHES_ON_THE_WAY if rate.rows_per_second is None else 1

    def confirm_oldest() -> None:
        request = on_the_way.popleft()
        link.confirm(request)
        report.rows += request.rows
        report.first_id = report.first_id or request.first_id
        report.last_id = request.last_id
        report.seconds = time.monotonic() - started
        on_progress(report)

    for batch in cut(batches, rate.at_once(rows_per_batch)):
        numbered = list(ids.of(times.milliseconds(batch)))
        report.moved, report.untimed = ids.moved, ids.untimed
        if numbered[0] <= last:
            if existing != "resume":
                raise UsageError(taken(stream, last, numbered[0]))
            loaded = bisect_right(numbered, last)
            report.skipped += loaded
            numbered, batch = numbered[loaded:], batch.slice(loaded)
        if numbered:
            if not times.is_field:
                batch = batch.drop_columns([times.name])
            request = pack(stream.encode(), [b"%d-%d" % each for each in numbered], batch, maxlen)
            rate.wait(request.rows)
            link.send(stream, request)
            on_the_way.append(request)
        if len(on_the_way) == most_on_the_way:
            confirm_oldest()
    while on_the_way:
        confirm_oldest()
    return report


def cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of so many at most, and of BATCH_BYTES at most on average."""
    for batch in batches:
        share = BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)
        step = max(1, min(rows, share))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def in_time_order(batches: Iterable[pa.RecordBatch], times: TimeColumn) -> Iterator[pa.RecordBatch]:
    """All rows sorted by time, rows of one time in the order they came; the whole file is held in memory."""
    table = pa.Table.from_batches(aligned(list(batches)))
    stamps: list[int | None] = []
    for batch in table.to_batches():
        stamps += times.milliseconds(batch)
    order = pc.sort_indices(pa.array([-1 if ms is None else ms for ms in stamps], pa.int64()))
    yield from table.take(order).to_batches(max_chunksize=ROWS_PER_BATCH * 8)


def aligned(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches under one schema: JSON objects of a later batch may have brought new keys."""
    schema = pa.unify_schemas([batch.schema for batch in batches]) if batches else pa.schema([])
    return [
        pa.RecordBatch.from_arrays(
            [
                batch.column(each.name)
                if each.name in batch.schema.names
                else pa.nulls(len(batch), each.type)
                for each in schema
            ],
            schema=schema,
        )
        for batch in batches
    ]


def taken(stream: str, last: tuple[int, int], first: tuple[int, int]) -> str:
    """Why the rows cannot simply be appended, and what the choices are."""
    return (
        f"stream {stream!r} already has entries up to {last[0]}-{last[1]}, and the first row would be "
        f"{first[0]}-{first[1]}; choose --append to put the rows after them, --resume to go on with a load "
        "that stopped, or another --stream"
    )
