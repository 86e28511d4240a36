"""The sink: Arrow batches into pipelined XADDs. At least once: a task that is run again adds its rows again.

Every column is a field of the entry, a null is left out. Reserved columns, named as the source names them:

    _stream STRING                 the stream to add to, instead of the option `stream`
    _id     STRING                 the entry's ID, instead of one the server makes
    _fields MAP<STRING, STRING>    all its pairs as fields (BINARY keys and values, too)

The texts are those the source reads back: decimal numbers, true and false, times as milliseconds since 1970,
dates as YYYY-MM-DD, BINARY as it is; arrays, maps and structs as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.errors import CommandError, UsageError
from headrace.resp.replies import INCOMPLETE, ReplyError, ReplyParser
from headrace.spark.options import Options
from headrace.spark.shards import Wire

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

CHUNK_ROWS = 2000  # sent at once; the next chunk is encoded while the answers to this one are on their way
RECEIVE_BYTES = 1 << 16
RESERVED = {
    "_stream": ("string",),
    "_id": ("string",),
    "_fields": ("map<string,string>", "map<binary,binary>"),
}


@dataclass
class Written(WriterCommitMessage):
    """How many entries a task added."""

    entries: int


class Encoder:
    """Rows of one schema as XADD commands. Picklable; made on the driver, so a bad schema fails early."""

    def __init__(self, schema: StructType, options: Options) -> None:
        for field in schema.fields:
            allowed = RESERVED.get(field.name)
            if allowed and field.dataType.simpleString() not in allowed:
                raise UsageError(f"The column {field.name} must be {' or '.join(allowed).upper()}.")
        if options.stream is None and "_stream" not in schema.names:
            raise UsageError('Say where to write: .option("stream", "orders"), or give the rows a _stream.')
        self._stream = None if "_stream" in schema.names else bulk((options.stream or "").encode())
        most = options.max_length
        self._trim = [bulk(w) for w in (b"MAXLEN", b"~", b"%d" % most)] if most else []

    def commands(self, batch: pa.RecordBatch) -> list[bytes]:
        """One XADD for each row."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = range(batch.num_rows)
        streams: Any = [self._stream for _ in rows]
        if "_stream" in columns:
            streams = [None if s is None else bulk(s) for s in texts(columns.pop("_stream"))]
        ids: Any = [None for _ in rows]
        if "_id" in columns:
            ids = texts(columns.pop("_id"))
        maps = columns.pop("_fields").to_pylist() if "_fields" in columns else [None for _ in rows]
        fields = [pairs(name, column) for name, column in columns.items()]
        values: Any = zip(*fields, strict=True) if fields else ((),) * batch.num_rows
        return [self._xadd(*row) for row in zip(streams, ids, maps, values, strict=True)]

    def _xadd(
        self, stream: bytes | None, entry_id: bytes | None, fields: Any, values: tuple[bytes | None, ...]
    ) -> bytes:
        if stream is None:
            raise UsageError("A row has null in _stream: it belongs to no stream.")
        words = [value for value in values if value is not None]
        words += [pair(raw(k), raw(v)) for k, v in fields or () if v is not None]
        if not words:
            raise UsageError("A row has nothing but nulls: an entry needs a field.")
        head = [bulk(b"XADD"), stream, *self._trim, bulk(entry_id or b"*")]
        return b"*%d\r\n" % (len(head) + 2 * len(words)) + b"".join(head) + b"".join(words)


def bulk(word: bytes) -> bytes:
    """A word as the protocol has it."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


def pair(name: bytes, value: bytes) -> bytes:
    """A field and its value."""
    return b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(value), value)


def raw(word: str | bytes) -> bytes:
    """The bytes of a word."""
    return word.encode() if isinstance(word, str) else word


def pairs(name: str, column: pa.Array) -> list[bytes | None]:
    """A column's values, each with its field's name; None for null."""
    head = bulk(name.encode())
    return [None if t is None else b"%b$%d\r\n%b\r\n" % (head, len(t), t) for t in texts(column)]


def texts(column: pa.Array) -> list[bytes | None]:
    """A column's values as they are written into entries."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_nested(kind):
        values = column.to_pylist(maps_as_pydicts="lossy")
        return [None if v is None else json.dumps(v, default=str).encode() for v in values]
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
    if not pa.types.is_binary(kind):
        column = column.cast(pa.string()).cast(pa.binary())
    result: list[bytes | None] = column.to_pylist()
    return result


class Pipeline:
    """XADDs on their way over one connection, with one chunk waiting for its answers."""

    def __init__(self, url: str) -> None:
        self._wire = Wire(url)
        self._answers = ReplyParser()
        self._buffer = bytearray(RECEIVE_BYTES)
        self._waiting = 0

    def send(self, commands: list[bytes]) -> None:
        """Send a chunk, then read the answers to the one before."""
        before = self._waiting
        self._wire.send_raw(b"".join(commands))
        self._waiting += len(commands)
        self._read(before)

    def finish(self) -> None:
        """Read the answers that are still to come."""
        self._read(self._waiting)

    def _read(self, count: int) -> None:
        while count:
            answer = self._answers.next()
            if answer is INCOMPLETE:
                n = self._wire.receive(self._buffer)
                self._answers.feed(bytes(self._buffer[:n]))
                continue
            if isinstance(answer, ReplyError):
                raise CommandError(f"{answer} (adding entries)")
            count -= 1
            self._waiting -= 1

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()


class _Writer:
    """What both writers share."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UsageError('headrace adds to streams: write with .mode("append") or outputMode("append").')
        self._url = options.url
        self._encoder = Encoder(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Add the rows of one task."""
        written = 0
        pipeline: Pipeline | None = None
        try:
            for batch in iterator:
                for start in range(0, batch.num_rows, CHUNK_ROWS):
                    commands = self._encoder.commands(batch.slice(start, CHUNK_ROWS))
                    pipeline = pipeline or Pipeline(self._url)
                    pipeline.send(commands)
                    written += len(commands)
            if pipeline:
                pipeline.finish()
        finally:
            if pipeline:
                pipeline.close()
        return Written(written)


class HeadraceWriter(_Writer, DataSourceArrowWriter):
    """df.write.format("headrace").mode("append")"""


class HeadraceStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """df.writeStream.format("headrace"): a micro-batch that is run again adds its entries again."""
