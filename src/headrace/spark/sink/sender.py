"""Write rows to streams: encode the batches of a task, and send them to the servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.client.stream_names import stream_key, stream_name
from headrace.errors import UsageError
from headrace.spark.interpreter import use_this_interpreter
from headrace.spark.options import Options, parse_options
from headrace.spark.sink.arrow_cells import field_cells, map_cells
from headrace.spark.sink.at_least_once import AtLeastOnceWriter, RowChunk
from headrace.spark.sink.attempts import check_repeated_batch, new_execution_id
from headrace.spark.sink.column_roles import ColumnRoles, arrow_schema, column_roles
from headrace.spark.sink.encoder import XaddEncoder
from headrace.spark.sink.exactly_once import ExactlyOnceWriter
from headrace.spark.sink.marker import Marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID_PROPERTY = "sql.streaming.queryId"  # Spark's local property of the tasks of a streaming query

CHUNK_ROWS = 2000  # sent at once; with exactly-once one transaction
CHUNK_BYTES = 4 << 20


def trim_arguments(options: Options) -> list[bytes]:
    """Return the arguments of XADD that trim its stream. Raises UsageError for options that conflict."""
    policy = [options.trim_policy.encode()] if options.trim_policy else []
    if options.max_length is not None and options.min_id is not None:
        raise UsageError("maxLength and minId are two ways to trim a stream: give only one of them.")
    if options.max_length is not None:
        return [*policy, b"MAXLEN", b"~", b"%d" % options.max_length]
    if options.min_id is not None:
        return [*policy, b"MINID", b"~", options.min_id.encode()]
    if policy:
        raise UsageError("trimPolicy needs maxLength or minId, which say what to trim.")
    return []


class RowSender:
    """Sends the rows of one task, over one connection to each server. Call close() at the end.

    Args:
        options: the options of the sink.
        marker: the identity of an exactly-once write; None delivers at least once.
        assign_roles: returns the roles of a schema's columns; None for column_roles(), which uses names.
        chunk_rows: the maximum number of rows of one transaction.
        increasing_ids: whether the IDs are known to increase, so that only the first one is checked.
    """

    def __init__(
        self,
        options: Options,
        marker: Marker | None = None,
        *,
        assign_roles: Callable[[pa.Schema], ColumnRoles] | None = None,
        chunk_rows: int | None = None,
        increasing_ids: bool = False,
    ) -> None:
        self._options = options
        self._assign_roles = assign_roles or (lambda schema: column_roles(schema, options))
        self._chunk_rows = chunk_rows or CHUNK_ROWS
        self._increasing_ids = increasing_ids
        self._trim_arguments = trim_arguments(options)
        self._marker = marker
        self._servers = options.servers()
        self._writers: dict[str, AtLeastOnceWriter | ExactlyOnceWriter] = {}  # by server
        self._owners: dict[bytes, str] = {}  # the server of each stream
        self._encoder = XaddEncoder()
        self._has_digest = marker is not None and marker.has_digest
        self._sent: dict[bytes, tuple[int, int | None]] = {}  # the task's rows so far, and their digest
        self._schema: pa.Schema | None = None
        self._roles = ColumnRoles(None, None, None, ())

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch; the last ones may not be confirmed yet."""
        if batch.schema != self._schema:
            self._roles = self._assign_roles(batch.schema)
            self._schema = batch.schema
        if batch.num_rows == 0:
            return
        self._load_batch(self._encoder, batch, self._roles)
        groups = self._rows_by_stream(batch)
        owners: dict[str, list[bytes]] = {}
        for stream in groups:
            owners.setdefault(self._owner(stream), []).append(stream)
        for owner, streams in owners.items():
            writer = self._writers.setdefault(owner, self._new_writer())
            writer.look_up_written_rows(streams)
            for stream in streams:
                self._send_rows(writer, batch, stream, groups[stream])

    def _owner(self, stream: bytes) -> str:
        """Return the server of the stream. If the stream has moved, wait for its previous server first."""
        owner = self._servers.owner_node_name(stream_name(stream))
        before = self._owners.setdefault(stream, owner)
        if before != owner:
            self._writers[before].flush()
            self._owners[stream] = owner
        return owner

    def _new_writer(self) -> AtLeastOnceWriter | ExactlyOnceWriter:
        replicas = self._options.wait_replicas
        if self._marker is None:
            return AtLeastOnceWriter(self._servers, replicas)
        return ExactlyOnceWriter(self._servers, self._marker, self._trim_arguments, replicas)

    def flush(self) -> int:
        """Wait until every row is confirmed; return how many rows the task added."""
        for writer in self._writers.values():
            writer.flush()
        return self.confirmed_row_count

    def finish(self) -> int:
        """Flush, and check that all rows of earlier attempts were read again; return how many were added.

        Raises:
            RowsChanged: if an earlier attempt has written more rows.
        """
        added = self.flush()
        for owner, writer in self._writers.items():
            writer.finish({s: rows for s, (rows, _) in self._sent.items() if self._owners[s] == owner})
        return added

    @property
    def row_count(self) -> int:
        """How many rows the task was given."""
        return sum(rows for rows, _ in self._sent.values())

    @property
    def repeated_streams(self) -> list[str]:
        """The streams to which an earlier execution may have written rows of the batch."""
        found = [
            s for w in self._writers.values() if isinstance(w, ExactlyOnceWriter) for s in w.repeated_streams
        ]
        return [stream_name(stream) for stream in found]

    @property
    def confirmed_row_count(self) -> int:
        """How many rows of the task the servers have confirmed."""
        return sum(writer.confirmed_row_count for writer in self._writers.values())

    def close(self) -> None:
        """Close the connections."""
        for writer in self._writers.values():
            writer.close()
        self._servers.close()

    def _load_batch(self, encoder: XaddEncoder, batch: pa.RecordBatch, roles: ColumnRoles) -> None:
        """Load the columns of a batch into an encoder."""
        form = self._options.timestamp_format
        columns = [field_cells(name, batch.column(name), form) for name in roles.fields]
        if roles.fields_map is not None:
            columns.append(map_cells(batch.column(roles.fields_map)))
        ids = field_cells("", batch.column(roles.entry_id), form) if roles.entry_id is not None else None
        encoder.set_batch(batch.num_rows, columns, ids)

    def _rows_by_stream(self, batch: pa.RecordBatch) -> dict[bytes, list[int] | None]:
        """Return the rows of each stream in order; None means all rows."""
        if self._roles.stream is None:
            return {stream_key(self._options.stream or ""): None}
        groups: dict[str | None, list[int]] = {}
        for row, stream in enumerate(batch.column(self._roles.stream).to_pylist()):
            groups.setdefault(stream, []).append(row)
        if None in groups:
            raise UsageError(f"A row has a null in {self._roles.stream}: give each row a stream.")
        found: dict[bytes, list[int] | None] = {}
        for stream, rows in groups.items():
            if stream is not None:  # two texts may denote the same name
                found[stream_key(stream)] = sorted([*(found.get(stream_key(stream)) or []), *rows])
        return found

    def _send_rows(
        self,
        writer: AtLeastOnceWriter | ExactlyOnceWriter,
        batch: pa.RecordBatch,
        stream: bytes,
        rows: list[int] | None,
    ) -> None:
        """Send the rows in chunks, except those that earlier attempts have written."""
        count = batch.num_rows if rows is None else len(rows)
        base, digest = self._sent.get(stream, (0, None))
        self._encoder.set_prefix([b"XADD", stream, *self._trim_arguments])
        if self._has_digest:
            self._encoder.start_digest(digest)
        ids = self._requested_ids_getter(batch, rows) if self._roles.entry_id is not None else None
        encode = self._encode_function(batch, stream, rows)
        at = 0
        while at < count:
            written = writer.rows_done(stream) - base
            stop = min(at + self._chunk_rows, count)
            if at < written:
                at = self._encoder.encode(rows, at, min(stop, written), CHUNK_BYTES)
                self._encoder.discard()
                digest = self._encoder.digest()
                writer.skip(stream, base + at, digest)
                continue
            stop = self._encoder.encode(rows, at, stop, CHUNK_BYTES)
            chunk = RowChunk(stream, self._encoder.take(), base + at, at, stop, encode, ids, digest)
            chunk.digest_after = digest = self._encoder.digest()
            writer.write(chunk)
            at = stop
        self._sent[stream] = (base + count, digest)

    def _encode_function(
        self, batch: pa.RecordBatch, stream: bytes, rows: list[int] | None
    ) -> Callable[[int, int, int | None], tuple[bytes | bytearray, int]]:
        """Return the function that encodes rows of a batch again, for RowChunk.encode."""
        roles = self._roles

        def encode(at: int, stop: int, digest: int | None) -> tuple[bytes | bytearray, int]:
            # With a new encoder: self._encoder may contain a later batch by then.
            encoder = XaddEncoder()
            self._load_batch(encoder, batch, roles)
            encoder.set_prefix([b"XADD", stream, *self._trim_arguments])
            if self._has_digest:
                encoder.start_digest(digest)
            encoder.encode(rows, at, stop, 1 << 62)
            return encoder.take(), encoder.digest()

        return encode

    def _requested_ids_getter(
        self, batch: pa.RecordBatch, rows: list[int] | None
    ) -> Callable[[int, int], list[str | None]]:
        """Return the function that returns the requested IDs of rows, for RowChunk.list_requested_ids."""
        column = batch.column(self._roles.entry_id)

        def ids(at: int, stop: int) -> list[str | None]:
            stop = at + 1 if self._increasing_ids else stop
            picked = column.slice(at, stop - at) if rows is None else column.take(pa.array(rows[at:stop]))
            texts: list[str | None] = picked.to_pylist()
            return texts

        return ids


@dataclass(frozen=True)
class TaskResult:
    """What one task has written.

    Attributes:
        added: how many entries it added: fewer than its rows if an earlier attempt added some.
        row_count: how many rows it was given.
        repeated_streams: the streams to which an earlier execution may have written rows of the batch.
    """

    added: int
    row_count: int
    repeated_streams: tuple[str, ...] = ()


def send_batches_of_task(
    batches: Iterable[pa.RecordBatch], options: Options, marker: Marker | None
) -> TaskResult:
    """Send the batches of one task, and wait until all rows are confirmed."""
    sender = RowSender(options, marker)
    try:
        for batch in batches:
            sender.send(batch)
        return TaskResult(sender.finish(), sender.row_count, tuple(sender.repeated_streams))
    finally:
        sender.close()


def sink_options(url: str, stream: str | None, options: Mapping[str, Any]) -> Options:
    """Parse options that are Python values."""
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in options.items()}
    texts["url"] = url
    if stream is not None:
        texts["stream"] = stream
    return parse_options(texts, "sink")


def write_batches(
    batches: Iterable[pa.RecordBatch],
    url: str,
    stream: str | None = None,
    marker: Marker | None = None,
    **options: Any,
) -> int:
    """Write Arrow record batches to a stream, without Spark.

    With a marker each row is added exactly once: after a failure, call it again with the same batches and the
    same marker. It continues where it stopped.

    Args:
        batches: record batches, a RecordBatchReader or a Table.
        url: the server.
        stream: the stream, unless the rows have a column `_stream`.
        marker: the identity of the write; None delivers at least once.
        options: options of the sink.

    Returns:
        How many rows were added.

    Raises:
        UsageError: for wrong options or columns.
        RowsChanged: if the rows are not those that an earlier call with the marker has written.
        HeadraceError: if the server cannot be reached or rejects rows.
    """
    if isinstance(batches, pa.Table):
        batches = batches.to_batches()
    return send_batches_of_task(batches, sink_options(url, stream, options), marker).added


def write_stream(
    df: DataFrame, batch_id: int, *, url: str, stream: str | None = None, query_id: str, **options: Any
) -> int:
    """Write a micro-batch exactly once, for use in foreachBatch.

        def write(df, batch_id):
            write_stream(df, batch_id, url="redis://...", stream="orders", query_id="orders-1")

    Called again with the same query_id and batch_id, it adds the missing rows.

    Args:
        df: the rows of the micro-batch.
        batch_id: its number.
        url: the server.
        stream: the stream, unless the rows have a column `_stream`.
        query_id: a name of the query. A new checkpoint needs a new name, and so does each of several writes
            of one batch.
        options: options of the sink.

    Returns:
        How many rows were added.

    Raises:
        UsageError: for wrong options or columns.
        RowsChanged: when the batch is committed, if its partitions are not those of an earlier call.
        PySparkException: if a task fails, also because its rows are not those of an earlier call.
    """
    parsed = sink_options(url, stream, options)
    trim_arguments(parsed)
    column_roles(arrow_schema(df.schema), parsed)
    use_this_interpreter(df.sparkSession)
    execution = new_execution_id()

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        checkpoint = context.getLocalProperty(QUERY_ID_PROPERTY) if context else None
        marker = Marker(
            query_id,
            context.partitionId() if context else 0,
            batch_id,
            execution=execution,
            checkpoint=checkpoint or "",
        )
        result = send_batches_of_task(batches, parsed, marker)
        yield pa.RecordBatch.from_pydict(
            {
                "added": pa.array([result.added]),
                "repeated": pa.array([result.repeated_streams], pa.list_(pa.string())),
            }
        )

    results = df.mapInArrow(task, "added long, repeated array<string>").collect()
    repeated = [each for row in results for each in row["repeated"]]
    if repeated:
        with parsed.servers() as servers:
            check_repeated_batch(servers, Marker(query_id, 0, batch_id, execution=execution), repeated)
    return sum(row["added"] for row in results)
