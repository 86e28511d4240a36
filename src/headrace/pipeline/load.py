"""From a file into a stream: every row an entry, its columns the fields, its time the ID.

Without a time column the server generates the IDs. A load that broke off is resumed right after the last
row that is in the stream, whatever others add to the stream meanwhile (loader, load_marker).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.loader import ROWS_PER_BATCH as ROWS_PER_BATCH
from headrace.pipeline.loader import Loader, LoadJob, OnBad, Report
from headrace.pipeline.replay_pacer import Rate
from headrace.pipeline.row_checks import checked
from headrace.pipeline.server_connection import Link
from headrace.pipeline.times import TimeColumn
from headrace.server_url import explain_connection_errors
from headrace.spark.sink.write_timeouts import timeouts_explained

Rows = Iterable[pa.RecordBatch | BadRow]


def load(
    rows: Rows,
    times: TimeColumn | None,
    link: Link,
    stream: str,
    *,
    job: LoadJob | None = None,
    append: bool = False,
    resume: bool = False,
    maxlen: int | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    rate: Rate | None = None,
    on_bad: OnBad | None = None,
    on_progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Add rows to a stream, each exactly once.

    Args:
        rows: the rows, and those that could not be read.
        times: the column that gives the IDs; None to have the server generate them.
        link: the server.
        stream: the stream's name.
        job: which load this is. By default it has no name and cannot be resumed.
        append: whether IDs go after the stream's last entry if their times are earlier.
        resume: whether to skip the rows that an earlier run of the job has added.
        maxlen: trim the stream to about this many entries.
        rows_per_batch: rows in one transaction.
        rate: rows per second.
        on_bad: called with a row that is left out, and with the number of good rows before it; again for the
            rows that a run that broke off had left out. Without it a bad row ends the load.
        on_progress: called when rows are confirmed.

    Returns:
        What was done. `rows` is 0 and `skipped` is not if the job was complete.

    Raises:
        UsageError: for a bad row, an ID that the stream has passed, or a file that is not the one resumed.
            The rows before are in the stream.
        HeadraceError: if the server cannot be reached, or rejects rows.
    """
    job = job or LoadJob()
    with explain_connection_errors(link.url), timeouts_explained(link.servers, stream):
        loader = Loader(
            link, stream, job, times, append, maxlen, rows_per_batch, rate or Rate(None), on_progress
        )
        try:
            loader.begin(resume)
            for each in rows:
                if isinstance(each, BadRow):
                    loader.reject(each, on_bad)
                else:
                    loader.take(each, on_bad)
            loader.finish(named=bool(job.name))
        except BaseException as stop:
            loader.broken_off(stop)
            raise
        finally:
            loader.close()
    return loader.report


def in_time_order(rows: Rows, times: TimeColumn) -> Iterator[pa.RecordBatch | BadRow]:
    """Yield all rows sorted by time, rows of one time in the order they came.

    The whole file is held in memory. Bad rows come first.
    """
    batches: list[pa.RecordBatch] = []
    given = 0
    for each in rows:
        if isinstance(each, BadRow):
            yield each
            continue
        for part in checked(each, replace(times, is_field=True), given):  # the column is still needed
            if isinstance(part, BadRow):
                yield part
            else:
                batches.append(part.rows)
        given += each.num_rows
    if not batches:
        return
    table = pa.Table.from_batches(aligned(batches))
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
