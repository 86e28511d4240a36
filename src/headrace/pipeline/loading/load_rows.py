"""Load a file into a stream: each row becomes an entry, its columns the fields, its time the ID.

Without a time column the server generates the IDs. An interrupted load is resumed after the last row that is
in the stream, even if other clients add entries meanwhile (see loader.py and marker.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.connection_errors import explain_connection_errors
from headrace.client.servers import Servers
from headrace.client.write_timeouts import explain_timeouts
from headrace.pipeline.file_formats.csv_records import BadRow
from headrace.pipeline.loading.loader import ROWS_PER_BATCH as ROWS_PER_BATCH
from headrace.pipeline.loading.loader import BadRowCallback, Loader, LoadIdentity, LoadReport
from headrace.pipeline.loading.read_ahead import read_ahead
from headrace.pipeline.loading.row_checks import prepare_rows, split_valid_rows
from headrace.pipeline.loading.time_columns import TimeColumn
from headrace.pipeline.shared.pacing import RateLimiter

BatchesAndBadRows = Iterable[pa.RecordBatch | BadRow]


def load_rows(
    rows: BatchesAndBadRows,
    times: TimeColumn | None,
    servers: Servers,
    stream: str,
    *,
    job: LoadIdentity | None = None,
    append: bool = False,
    resume: bool = False,
    maxlen: int | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    rate: RateLimiter | None = None,
    on_bad_row: BadRowCallback | None = None,
    on_progress: Callable[[LoadReport], None] = lambda report: None,
    ahead: bool = False,
) -> LoadReport:
    """Add rows to a stream, each exactly once.

    Args:
        rows: Arrow record batches, with a BadRow for each row that could not be read.
        times: The column that gives the IDs; None to have the server generate them.
        servers: The server: `headrace.client.servers.servers_at(url)` in a `with` statement.
        stream: The stream's name.
        job: The identity of the load. By default it has no name and cannot be resumed.
        append: Whether rows with earlier times get IDs after the stream's last entry.
        resume: Whether to skip the rows that an earlier run of the job has added.
        maxlen: Trim the stream to about this many entries; None to keep all.
        rows_per_batch: Rows in one transaction, at most.
        rate: Limits rows per second; None for no limit.
        on_bad_row: Called with each bad row and the number of valid rows before it; the bad row is skipped.
            A resumed load also calls it for bad rows of the interrupted run. None: a bad row ends the load.
        on_progress: Called when the server has confirmed rows.
        ahead: Whether a thread reads `rows` in advance. Then, without a rate limit, a batch is also sent
            before the previous one is confirmed. Only for files: rows of a pipe may take long to arrive.

    Returns:
        The report. If the job was already complete, `added_rows` is 0 and `skipped` is not.

    Raises:
        UsageError: for a bad row, an ID not above the stream's last one, or a changed file (earlier rows stay
            in the stream); or if an earlier load is incomplete and neither `resume` nor `append` is set.
        HeadraceError: if the server is not reachable, or rejects rows, or the stream was recreated.
    """
    job = job or LoadIdentity()
    rate = rate or RateLimiter(None)
    parts = prepare_rows(rows, times, rate.batch_rows(rows_per_batch))
    with explain_connection_errors(servers.url), explain_timeouts(servers, stream):
        loader = Loader(
            servers,
            stream,
            job,
            times,
            append,
            maxlen,
            rows_per_batch,
            rate,
            on_progress,
            pipelined=ahead and rate.rows_per_second is None,
        )
        try:
            loader.start(resume)
            with read_ahead(parts) if ahead else nullcontext(parts) as prepared:
                loader.add_all(prepared, on_bad_row)
            loader.finish(named=bool(job.name))
        except BaseException as stop:
            loader.report_after_failure(stop)
            raise
        finally:
            loader.close()
    return loader.report


def sorted_by_time(rows: BatchesAndBadRows, times: TimeColumn) -> Iterator[pa.RecordBatch | BadRow]:
    """Yield all rows sorted by time; rows of equal time keep their order.

    Bad rows are yielded first. The whole file is held in memory.
    """
    batches: list[pa.RecordBatch] = []
    rows_before = 0
    for each in rows:
        if isinstance(each, BadRow):
            yield each
            continue
        # The column is still needed for sorting.
        for part in split_valid_rows(each, replace(times, is_field=True), rows_before, keep_types=True):
            if isinstance(part, BadRow):
                yield part
            else:
                batches.append(part.rows)
        rows_before += each.num_rows
    if not batches:
        return
    table = pa.Table.from_batches(with_common_schema(batches))
    stamps: list[int | None] = []
    for batch in table.to_batches():
        stamps += times.milliseconds(batch)
    order = pc.sort_indices(pa.array([-1 if ms is None else ms for ms in stamps], pa.int64()))
    yield from table.take(order).to_batches(max_chunksize=ROWS_PER_BATCH * 8)


def with_common_schema(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the batches with one common schema: JSON objects of later batches may have new keys."""
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
