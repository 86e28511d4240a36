"""Rows into streams: what each column of a frame becomes, and the way of a task's batches to the server.

Every column is a field of the entry, a null is left out. Reserved columns, named as the source names them:

    _stream STRING                 the stream to add to, instead of the option `stream`
    _id     STRING                 the entry's ID, instead of one the server makes
    _fields MAP<STRING, STRING>    all its pairs as fields (BINARY keys and values, too)

A frame as the source makes it without a schema, `stream, id, timestamp, sequence, fields` or some of these
with `fields` among them, is taken for a copy: the pairs become fields again, the stream is the one it came
from unless the option names another, and the ID is a new one unless keepIds is true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key, stream_name
from headrace.errors import UsageError
from headrace.spark.interpreter import use_this_interpreter
from headrace.spark.options import Options, parse_options
from headrace.spark.sink.arrow_cells import field_cells, map_cells
from headrace.spark.sink.delivery import AtLeastOnceWriter, RowChunk
from headrace.spark.sink.encoder import XaddEncoder
from headrace.spark.sink.exactly_once import ExactlyOnceWriter
from headrace.spark.sink.marker import ALL_ROWS, Marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHUNK_ROWS = 2000  # sent at once, and with exactly once one transaction
CHUNK_BYTES = 4 << 20
SOURCE_COLUMNS = {"stream", "id", "timestamp", "sequence", "fields"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ColumnRoles:
    """What the columns of a schema are for. None: there is no such column."""

    stream: str | None
    entry_id: str | None
    fields_map: str | None
    fields: tuple[str, ...]


def column_roles(schema: pa.Schema, options: Options) -> ColumnRoles:
    """The roles of the columns. UsageError for a reserved column of another type, or rows that go nowhere."""
    names = schema.names
    if "fields" in names and set(names) <= SOURCE_COLUMNS and _is_fields_map(schema.field("fields").type):
        has_stream = "stream" in names and options.stream is None
        found = ColumnRoles(
            "stream" if has_stream else None,
            "id" if "id" in names and options.keep_ids else None,
            "fields",
            (),
        )
    else:
        stream, entry_id, pairs = (name if name in names else None for name in ("_stream", "_id", "_fields"))
        rest = tuple(name for name in names if name not in (stream, entry_id, pairs))
        found = ColumnRoles(stream, entry_id, pairs, rest)
    for name in (found.stream, found.entry_id):
        if name is not None and not _is_text(schema.field(name).type):
            raise UsageError(f"The column {name} must be STRING.")
    if found.fields_map is not None and not _is_fields_map(schema.field(found.fields_map).type):
        raise UsageError(f"The column {found.fields_map} must be MAP<STRING,STRING> or MAP<BINARY,BINARY>.")
    if options.stream is None and found.stream is None:
        raise UsageError('Say where to write: .option("stream", "orders"), or give the rows a _stream.')
    if options.keep_ids and found.entry_id is None:
        raise UsageError("keepIds is true, but the rows have no ID: give them a column _id.")
    return found


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_fields_map(kind: pa.DataType) -> bool:
    if not pa.types.is_map(kind):
        return False
    words = (kind.key_type, kind.item_type)
    return all(_is_text(w) or pa.types.is_binary(w) or pa.types.is_large_binary(w) for w in words)


def trim_arguments(options: Options) -> list[bytes]:
    """The words by which an XADD trims its stream."""
    policy = [options.trim_policy.encode()] if options.trim_policy else []
    if options.max_length is not None and options.min_id is not None:
        raise UsageError("maxLength and minId are two ways to trim a stream: choose one.")
    if options.max_length is not None:
        return [*policy, b"MAXLEN", b"~", b"%d" % options.max_length]
    if options.min_id is not None:
        return [*policy, b"MINID", b"~", options.min_id.encode()]
    if policy:
        raise UsageError("trimPolicy says how to trim: it needs maxLength or minId.")
    return []


class RowSender:
    """Sends the rows of one task. Holds a connection to each server it writes to; close() it.

    assign_roles    what the columns of a schema are for, if it is not their names that say so
    chunk_rows      how many rows go into one transaction at most
    increasing_ids  whether the IDs in the rows are known to rise: only the first of a transaction is checked
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
        self._servers = Servers(options.url)
        self._writers: dict[
            str, AtLeastOnceWriter | ExactlyOnceWriter
        ] = {}  # by the server that owns their streams
        self._owners: dict[bytes, str] = {}
        self._encoder = XaddEncoder()
        self._rows_sent: dict[bytes, int] = {}  # for each stream the task's rows so far
        self._schema: pa.Schema | None = None
        self._roles = ColumnRoles(None, None, None, ())
        self._warned = False

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
            delivery = self._writers.setdefault(owner, self._new_writer())
            delivery.prepare(streams)
            for stream in streams:
                self._send_rows(delivery, batch, stream, groups[stream])

    def _owner(self, stream: bytes) -> str:
        """The server that has the stream. If it is another than before, the one before first confirms."""
        owner = self._servers.owner(stream_name(stream))
        before = self._owners.setdefault(stream, owner)
        if before != owner:
            self._writers[before].flush()
            self._owners[stream] = owner
        return owner

    def _new_writer(self) -> AtLeastOnceWriter | ExactlyOnceWriter:
        if self._marker is None:
            return AtLeastOnceWriter(self._servers)
        return ExactlyOnceWriter(self._servers, self._marker, self._trim_arguments)

    def flush(self) -> int:
        """Wait until every row is confirmed; how many were not yet written when the task began."""
        for delivery in self._writers.values():
            delivery.flush()
        return self.confirmed

    @property
    def confirmed(self) -> int:
        """How many rows are confirmed that were not yet written when the task began."""
        return sum(delivery.confirmed_rows for delivery in self._writers.values())

    def close(self) -> None:
        """Close the connections."""
        for delivery in self._writers.values():
            delivery.close()
        self._servers.close()

    def _load_batch(self, encoder: XaddEncoder, batch: pa.RecordBatch, roles: ColumnRoles) -> None:
        """Give the rows of a batch to an encoder."""
        form = self._options.timestamp_format
        columns = [field_cells(name, batch.column(name), form) for name in roles.fields]
        if roles.fields_map is not None:
            columns.append(map_cells(batch.column(roles.fields_map)))
        ids = field_cells("", batch.column(roles.entry_id), form) if roles.entry_id is not None else None
        encoder.load(batch.num_rows, columns, ids)

    def _rows_by_stream(self, batch: pa.RecordBatch) -> dict[bytes, list[int] | None]:
        """For each stream its rows, in order; None for all of them."""
        if self._roles.stream is None:
            return {stream_key(self._options.stream or ""): None}
        groups: dict[str | None, list[int]] = {}
        for row, stream in enumerate(batch.column(self._roles.stream).to_pylist()):
            groups.setdefault(stream, []).append(row)
        if None in groups:
            raise UsageError(f"A row has null in {self._roles.stream}: it belongs to no stream.")
        found: dict[bytes, list[int] | None] = {}
        for stream, rows in groups.items():
            if stream is not None:  # two texts may stand for one name
                found[stream_key(stream)] = sorted([*(found.get(stream_key(stream)) or []), *rows])
        return found

    def _send_rows(
        self,
        writer: AtLeastOnceWriter | ExactlyOnceWriter,
        batch: pa.RecordBatch,
        stream: bytes,
        rows: list[int] | None,
    ) -> None:
        """Chunk by chunk; what earlier attempts have written is passed over."""
        count = batch.num_rows if rows is None else len(rows)
        base = self._rows_sent.get(stream, 0)
        self._rows_sent[stream] = base + count
        self._encoder.set_prefix([b"XADD", stream, *self._trim_arguments])
        ids = self._ids_of(batch, rows) if self._roles.entry_id is not None else None
        batch_roles = self._roles

        def encode(at: int, stop: int) -> bytes | bytearray:
            # By an encoder of its own: this one may be in the midst of a later batch then.
            encoder = XaddEncoder()
            self._load_batch(encoder, batch, batch_roles)
            encoder.set_prefix([b"XADD", stream, *self._trim_arguments])
            encoder.encode(rows, at, stop, 1 << 62)
            return encoder.take()

        at = 0
        while (at := max(at, writer.rows_done(stream) - base)) < count:
            stop = self._encoder.encode(rows, at, min(at + self._chunk_rows, count), CHUNK_BYTES)
            writer.write(RowChunk(stream, self._encoder.take(), base + at, at, stop, encode, ids))
            at = stop
        if writer.rows_done(stream) == ALL_ROWS and not self._warned and self._marker is not None:
            self._warned = True
            log.warning(
                "Batch %d of the query %s: the stream %s has a later batch already. Its rows are left out. "
                "If this is a new query, or its checkpoint is new, give it another query ID.",
                self._marker.batch_id,
                self._marker.query_id,
                stream.decode(errors="replace"),
            )

    def _ids_of(
        self, batch: pa.RecordBatch, rows: list[int] | None
    ) -> Callable[[int, int], list[str | None]]:
        column = batch.column(self._roles.entry_id)

        def ids(at: int, stop: int) -> list[str | None]:
            stop = at + 1 if self._increasing_ids else stop
            picked = column.slice(at, stop - at) if rows is None else column.take(pa.array(rows[at:stop]))
            texts: list[str | None] = picked.to_pylist()
            return texts

        return ids


def send_task(batches: Iterable[pa.RecordBatch], options: Options, marker: Marker | None) -> int:
    """Send the batches of one task, and wait until all is confirmed; how many rows were new."""
    sender = RowSender(options, marker)
    try:
        for batch in batches:
            sender.send(batch)
        return sender.flush()
    finally:
        sender.close()


def sink_options(url: str, stream: str | None, options: Mapping[str, Any]) -> Options:
    """Options given as Python values."""
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
    """Write Arrow batches (a Table's, a RecordBatchReader, any) into a stream, without Spark.

    With a marker every row is written exactly once: a call that broke off is made again with the same
    batches and the same marker, and goes on where it was. Returns how many rows were new. The options
    are the sink's.
    """
    if isinstance(batches, pa.Table):
        batches = batches.to_batches()
    return send_task(batches, sink_options(url, stream, options), marker)


def write_stream(
    df: DataFrame, batch_id: int, *, url: str, stream: str | None = None, query_id: str, **options: Any
) -> int:
    """Write a micro-batch, exactly once, for use in foreachBatch:

        def write(df, batch_id):
            write_stream(df, batch_id, url="redis://...", stream="orders", query_id="orders-1")

    query_id names the query for as long as its checkpoint lives; a new checkpoint needs a new one, and so
    does each of several writes that one batch makes. Called again with the same (query_id, batch_id) it adds
    what is missing. Returns how many rows were new.
    """
    parsed = sink_options(url, stream, options)
    trim_arguments(parsed)
    use_this_interpreter(df.sparkSession)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        marker = Marker(query_id, context.partitionId() if context else 0, batch_id)
        written = send_task(batches, parsed, marker)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([written], pa.int64())})

    return sum(row["rows"] for row in df.mapInArrow(task, "rows long").collect())
