"""The short way from a Headrace server: record batches that it has made, instead of replies to decode.

The server replies XARROW with the columns of the schema as an Arrow IPC message, which is received into the
memory that the batch then stands in:

    *6  last ID · anchor lost · more · dropped · rows · $n   | FF FF FF FF ...  n bytes | CR LF |
    the head, a small buffer; what comes with it is copied   received in place

Before $n comes an array, and *7 at the front, if values did not fit: for each column how many.

The head says where the next batch begins, so that is asked for before this one has even arrived. Rows, losses
and errors are those of the other way (range_reader), and where the server has no XARROW, or a column needs
Python to be read, the other way is gone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redis

from headrace.arrow import column_types
from headrace.arrow.malformed import MalformedEntry
from headrace.client.servers import CONNECTION_ERRORS, RawConnection, Servers
from headrace.client.stream_names import stream_key
from headrace.client.url import parse_server_url
from headrace.errors import CommandError, ProtocolError, UsageError
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import Options
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.range_reader import BATCH_BYTES, RangeReader, log

if TYPE_CHECKING:
    import pyarrow as pa

COMMAND = "XARROW"
HEADER_BYTES = 2048  # of the first receive; a head has some 80, an error some 300
HEADER_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 1 << 33  # an entry may have a gigabyte, and stand in it three times
NUMBER_BYTES_MAX = 20  # a sign for its kind, and what fits into 64 bits
MALFORMED = "MALFORMED "


def make_range_reader(part: OffsetRange, layout: ColumnLayout, options: Options) -> RangeReader:
    """What reads the range, by the way that the option `fetch` and the server allow."""
    if options.fetch == "resp":
        return RangeReader(part, layout, options)
    arguments = column_arguments(layout)
    if options.fetch == "auto" and (arguments is None or not supports_arrow(options.url)):
        return RangeReader(part, layout, options)
    if arguments is None:
        raise UsageError(
            "The option fetch is arrow, but the schema has a column that the server cannot fill: a DATE, a "
            "DECIMAL or a TIMESTAMP of format iso8601, for instance. Leave fetch at auto."
        )
    return ArrowRangeReader(part, layout, options, arguments)


def column_arguments(layout: ColumnLayout) -> list[bytes] | None:
    """name, type, name, type ... as XARROW takes them; None if it has no type for some column."""
    arguments = []
    for spec in layout.specs:
        if spec.kind == "stream":
            continue
        type_name = column_types.word_of(spec.kind, spec.settings)
        if type_name is None:
            return None
        arguments += [
            column_types.WHOLE if spec.kind in column_types.OF_THE_ENTRY else spec.name.encode(),
            type_name,
        ]
    return arguments if len(arguments) <= 2 * column_types.COLUMNS_MAX else None


@functools.cache
def supports_arrow(url: str) -> bool:
    """Whether the server has the command: asked once in a worker process. The nodes of clusters have not."""
    if parse_server_url(url).kind == "cluster":
        return False
    servers = Servers(url)
    try:
        reply: Any = servers.with_retries(lambda: servers.client().execute_command("COMMAND INFO", COMMAND))
    except redis.ResponseError:  # not allowed to ask, perhaps
        return False
    finally:
        servers.close()
    return bool(reply) and reply[0] is not None


@dataclass(frozen=True)
class ReplyHeader:
    """What is said before the message of `size` bytes, the first of which stand at `at`.

    misfits: for each column how many values did not fit; nothing if all did.
    """

    last_id: str | None
    anchor_lost: bool
    more: bool
    dropped: int
    rows: int
    message_bytes: int
    message_offset: int
    misfits: list[int] = field(default_factory=list)


def parse_header(data: bytes) -> ReplyHeader | None:
    """The head of a reply; None while it is not whole. CommandError if the server refuses."""
    lines = data.split(b"\r\n", 8)
    if data[:1] == b"-":
        if len(lines) == 1:
            return None
        raise CommandError(lines[0][1:].decode(errors="replace"))
    null = len(lines) > 1 and lines[1] == b"$-1"
    count = 7 if null else 8
    if len(lines) <= count:
        return None
    end = count
    if lines[0] == b"*7":
        end += 1 + min(_number(lines[count - 1], b"*"), column_types.COLUMNS_MAX)
        lines = data.split(b"\r\n", end)
        if len(lines) <= end:
            return None
    head = lines[:end]
    last = None if null else head[2].decode(errors="replace")
    lost, more, dropped, rows = (_number(line, b":") for line in head[count - 5 : count - 1])
    misfits = [_number(line, b":") for line in head[count : end - 1]]
    size = _number(head[-1], b"$")
    if head[0] not in (b"*6", b"*7") or size > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"no reply of {COMMAND}: {data[:80]!r}")
    at = sum(map(len, head)) + 2 * len(head)
    return ReplyHeader(last, bool(lost), bool(more), dropped, rows, size, at, misfits)


def _number(line: bytes, kind: bytes) -> int:
    if line[:1] != kind or not line[1:].isdigit() or len(line) > NUMBER_BYTES_MAX:
        raise ProtocolError(f"no reply of {COMMAND}: {line[:80]!r}")
    return int(line[1:])


class ArrowRangeReader(RangeReader):
    """Reads one range by XARROW."""

    def __init__(
        self, part: OffsetRange, layout: ColumnLayout, options: Options, column_arguments: list[bytes]
    ) -> None:
        super().__init__(part, layout, options)
        self._column_arguments = column_arguments
        self._assembler = BatchAssembler(layout, part.stream)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The entries of the range, in order. Closes its socket also when the caller stops half-way."""
        dropped = 0
        misfits = [0] * (len(self._column_arguments) // 2)
        try:
            more = True
            while more:
                header, message = self._next_reply()
                if header.anchor_lost:
                    self._check_anchor()
                if header.last_id is not None:
                    self._after, self._anchored = header.last_id, True
                dropped += header.dropped
                if len(header.misfits) not in (0, len(misfits)):
                    raise ProtocolError(f"counts of {len(header.misfits)} columns instead of {len(misfits)}")
                if header.misfits:
                    misfits = [before + now for before, now in zip(misfits, header.misfits, strict=True)]
                more = header.more and self._after != self._part.upto
                if header.rows:
                    yield self._assembler.make_batch(header.rows, message)
            self._check_end()
            if dropped:
                log.warning("%d malformed entries of %s were left out", dropped, self._part.stream)
            self._report_misfits(misfits)
        finally:
            self._close()

    def _next_reply(self) -> tuple[ReplyHeader, pa.Buffer]:
        """The next reply; the one after it is asked for. If the connection is lost, the same over again."""
        while True:
            try:
                if self._connection is None:
                    self._connection = self._servers.open_raw(self._part.stream)
                    self._request_after(self._connection, self._after, self._anchored)
                reply = self._receive_reply(self._connection)
                self._retry_timer.reset()
                return reply
            except CONNECTION_ERRORS as failure:
                self._disconnect()
                self._retry_timer.wait(failure)

    def _receive_reply(self, connection: RawConnection) -> tuple[ReplyHeader, pa.Buffer]:
        import pyarrow as pa

        buffer = bytearray(HEADER_BYTES)
        view = memoryview(buffer)
        n = connection.receive(view)
        while (header := self._parse_header(connection, bytes(view[:n]))) is None:
            if n == len(buffer):
                if n >= HEADER_BYTES_MAX:
                    raise ProtocolError(f"an endless head of a reply of {COMMAND}")
                buffer = buffer + bytearray(n)
                view = memoryview(buffer)
            n += connection.receive(view[n:])
        if header.more and header.last_id != self._part.upto and header.last_id is not None:
            self._request_after(connection, header.last_id, True)
        message = pa.allocate_buffer(header.message_bytes)
        into = memoryview(message).cast("B")
        have = min(n - header.message_offset, header.message_bytes)
        into[:have] = view[header.message_offset : header.message_offset + have]
        while have < header.message_bytes:
            have += connection.receive(into[have:])
        end = (
            n - header.message_offset - header.message_bytes
        )  # of the two bytes behind the message these have come
        tail = memoryview(bytearray(2))
        left = 2 - max(end, 0)
        while left:
            left -= connection.receive(tail[:left])
        return header, message

    def _parse_header(self, connection: RawConnection, data: bytes) -> ReplyHeader | None:
        """The head. An error in its stead may mean that another server is to be asked."""
        try:
            return parse_header(data)
        except CommandError as error:
            connection.raise_if_unavailable(error)
            text = str(error)
            if text.startswith(MALFORMED):
                raise MalformedEntry(text.removeprefix(MALFORMED)) from None
            raise CommandError(f"{text} (reading the stream {self._part.stream!r})") from None

    def _request_after(self, connection: RawConnection, after: str, anchored: bool) -> None:
        """Ask for the entries after that one, and if anchored whether it is still there."""
        connection.send(
            COMMAND.encode(),
            stream_key(self._part.stream),
            after.encode() if anchored else b"(" + after.encode(),
            self._part.upto.encode(),
            b"COUNT",
            max(1, min(self._options.entries_per_fetch, BATCH_BYTES // max(len(self._part.stream), 1))),
            *([b"ANCHOR"] if anchored else []),
            b"MODE",
            self._options.mode.encode(),
            b"COLUMNS",
            len(self._column_arguments) // 2,
            *self._column_arguments,
        )


class BatchAssembler:
    """Makes the record batches of one stream out of what the server sends."""

    def __init__(self, layout: ColumnLayout, stream: str) -> None:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        self._stream = stream
        self._schema = to_arrow_schema(layout.schema, timezone="UTC")
        self._from_server = [spec.kind != "stream" for spec in layout.specs]
        fields = zip(self._schema, self._from_server, strict=True)
        self._server_schema = pa.schema([field for field, sent in fields if sent])

    def make_batch(self, rows: int, message: pa.Buffer) -> pa.RecordBatch:
        """The rows as one batch, on the memory of the message; ProtocolError when it is none."""
        import pyarrow as pa

        try:
            batch = pa.ipc.read_record_batch(message, self._server_schema)
            batch.validate(full=True)  # a reader of the batch relies on its offsets
        except (pa.ArrowException, OSError, EOFError) as wrong:
            raise ProtocolError(f"no record batch in a reply of {COMMAND}: {wrong}") from None
        if batch.num_rows != rows:
            raise ProtocolError(f"a batch of {batch.num_rows} rows is said to have {rows}")
        columns = iter(batch.columns)
        arrays = [
            next(columns) if sent else pa.repeat(pa.scalar(self._stream, field.type), rows)
            for field, sent in zip(self._schema, self._from_server, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
