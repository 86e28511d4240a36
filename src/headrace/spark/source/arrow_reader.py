"""Read one range of a stream from a Headrace server as record batches that the server builds (XARROW).

The server replies with the columns of the schema as an Arrow IPC message. It is received into the memory of
the record batch:

    *6  last ID · anchor lost · more · dropped · rows · $n   | FF FF FF FF ...  n bytes | CR LF |
    header, in a small buffer; what follows it is copied     received in place

If values did not fit their columns, the reply begins with *7, and an array with their number in each column
precedes $n.

The header contains the last ID of the batch, so the next batch is requested before this one has arrived.
Rows, losses and errors are the same as in range_reader, which is used if the server has no XARROW, or if a
column needs Python to be read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redis

from headrace.arrow import column_types
from headrace.arrow.malformed import MalformedEntry
from headrace.client.connection import RawConnection
from headrace.client.connection_errors import CONNECTION_ERRORS, ServerUnavailable
from headrace.client.retrying import ReconnectDelay
from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.errors import CommandError, ProtocolError, UsageError
from headrace.spark.decode.misfits import report_misfits
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import Options
from headrace.spark.source.data_loss import LossDetector
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.range_reader import BATCH_BYTES, RangeReader, log

if TYPE_CHECKING:
    import pyarrow as pa

COMMAND = "XARROW"
FIRST_RECEIVE_BYTES = 2048  # of the first receive; a header has about 80, an error about 300
HEADER_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 1 << 33  # an entry may have a gigabyte, and be in the message three times
NUMBER_BYTES_MAX = 20  # a type byte and the digits of 64 bits
MALFORMED_PREFIX = "MALFORMED "


def make_range_reader(
    part: OffsetRange, layout: ColumnLayout, options: Options
) -> RangeReader | ArrowRangeReader:
    """Return an ArrowRangeReader; a RangeReader if the option fetch, the schema or the server requires it.

    Raises:
        UsageError: if fetch is arrow, and the server cannot fill a column.
    """
    if options.fetch == "resp":
        return RangeReader(part, layout, options)
    arguments = column_arguments(layout)
    server = (options.url, options.reconnect_timeout, options.read_from)
    if options.fetch == "auto" and (arguments is None or not supports_arrow(*server)):
        return RangeReader(part, layout, options)
    if arguments is None:
        raise UsageError(
            "The option fetch is arrow, but the schema has a column that the server cannot fill, such as a "
            "DATE, a DECIMAL or a TIMESTAMP of format iso8601. Set fetch to auto."
        )
    return ArrowRangeReader(part, layout, options, arguments)


def column_arguments(layout: ColumnLayout) -> list[bytes] | None:
    """Return XARROW's arguments name, type, name, type ...; None if XARROW cannot return the columns."""
    arguments = []
    for spec in layout.specs:
        if spec.kind == "stream":
            continue
        type_name = column_types.type_argument(spec.kind, spec.settings)
        if type_name is None:
            return None
        arguments += [
            column_types.NO_FIELD if spec.kind in column_types.ENTRY_KINDS else spec.name.encode(),
            type_name,
        ]
    return arguments if len(arguments) <= 2 * column_types.COLUMNS_MAX else None


@functools.cache
def supports_arrow(url: str, reconnect_timeout: float | None = None, read_from: str = "primary") -> bool:
    """Return whether the server has XARROW; False for a cluster. The server is asked once in a process."""
    servers = Servers(url, reconnect_timeout, read_from)
    if servers.is_cluster:
        return False
    try:
        reply: Any = servers.with_retries(lambda: servers.client().execute_command("COMMAND INFO", COMMAND))
    except redis.ResponseError:  # for example, no permission for COMMAND
        return False
    finally:
        servers.close()
    return bool(reply) and reply[0] is not None


@dataclass(frozen=True)
class ReplyHeader:
    """The header of a reply. The first bytes of its message are at message_offset of the receive buffer.

    has_more: whether entries of the range are left. dropped_entries: how many malformed entries were omitted.
    misfit_counts: for each column, how many values did not fit; empty if all did.
    """

    last_id: str | None
    anchor_lost: bool
    has_more: bool
    dropped_entries: int
    row_count: int
    message_bytes: int
    message_offset: int
    misfit_counts: list[int] = field(default_factory=list)


def parse_header(data: bytes) -> ReplyHeader | None:
    """Parse the header of a reply; None if it is not complete. Raises CommandError for an error reply."""
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
        raise ProtocolError(f"not a reply of {COMMAND}: {data[:80]!r}")
    at = sum(map(len, head)) + 2 * len(head)
    return ReplyHeader(last, bool(lost), bool(more), dropped, rows, size, at, misfits)


def _number(line: bytes, kind: bytes) -> int:
    if line[:1] != kind or not line[1:].isdigit() or len(line) > NUMBER_BYTES_MAX:
        raise ProtocolError(f"not a reply of {COMMAND}: {line[:80]!r}")
    return int(line[1:])


class ArrowRangeReader:
    """Reads one range by XARROW. After a lost connection it reconnects and repeats the request."""

    def __init__(
        self, part: OffsetRange, layout: ColumnLayout, options: Options, column_arguments: list[bytes]
    ) -> None:
        self._range = part
        self._layout = layout
        self._options = options
        self._column_arguments = column_arguments
        self._servers = options.servers()
        self._reconnect_delay = ReconnectDelay(self._servers.reconnect_timeout)
        self._connection: RawConnection | None = None
        self._loss_detector = LossDetector(part, options, self._servers)
        self._assembler = ServerBatchReader(layout, part.stream)
        self._after = part.after  # the last received entry, or where the range begins
        self._anchored = part.anchored

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the entries of the range in order. Close the socket also if the caller stops early."""
        dropped = 0
        misfits = [0] * (len(self._column_arguments) // 2)
        try:
            more = True
            while more:
                header, message = self._next_reply()
                if header.anchor_lost:
                    number = self._range.after_number if self._after == self._range.after else None
                    self._loss_detector.check_anchor(self._after, number)
                if header.last_id is not None:
                    self._after, self._anchored = header.last_id, True
                dropped += header.dropped_entries
                if len(header.misfit_counts) not in (0, len(misfits)):
                    raise ProtocolError(
                        f"counts of {len(header.misfit_counts)} columns instead of {len(misfits)}"
                    )
                if header.misfit_counts:
                    misfits = [
                        before + now for before, now in zip(misfits, header.misfit_counts, strict=True)
                    ]
                more = header.has_more and self._after != self._range.upto
                if header.row_count:
                    yield self._assembler.make_batch(header.row_count, message)
            self._loss_detector.check_end(self._after)
            part = self._range
            if dropped:
                log.warning("%d malformed entries of %s were left out", dropped, part.stream)
            report_misfits(
                part.stream, f"{part.after} {part.upto}", self._layout, misfits, self._options.mode
            )
        finally:
            self._disconnect()
            self._servers.close()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _next_reply(self) -> tuple[ReplyHeader, pa.Buffer]:
        """Return the next reply after requesting the one after it. Repeat this on a lost connection."""
        while True:
            try:
                if self._connection is None:
                    self._connection = self._servers.open_raw(self._range.stream, self._range.upto)
                    self._request_after(self._connection, self._after, self._anchored)
                reply = self._receive_reply(self._connection)
                self._reconnect_delay.reset()
                return reply
            except CONNECTION_ERRORS as failure:
                self._disconnect()
                self._reconnect_delay.wait_or_raise(failure)

    def _receive_reply(self, connection: RawConnection) -> tuple[ReplyHeader, pa.Buffer]:
        import pyarrow as pa

        buffer = bytearray(FIRST_RECEIVE_BYTES)
        view = memoryview(buffer)
        n = connection.receive(view)
        while (header := self._parse_header(connection, bytes(view[:n]))) is None:
            if n == len(buffer):
                if n >= HEADER_BYTES_MAX:
                    raise ProtocolError(
                        f"a header of more than {HEADER_BYTES_MAX} bytes in a reply of {COMMAND}"
                    )
                buffer = buffer + bytearray(n)
                view = memoryview(buffer)
            n += connection.receive(view[n:])
        if header.has_more and header.last_id != self._range.upto and header.last_id is not None:
            self._request_after(connection, header.last_id, True)
        message = pa.allocate_buffer(header.message_bytes)
        into = memoryview(message).cast("B")
        have = min(n - header.message_offset, header.message_bytes)
        into[:have] = view[header.message_offset : header.message_offset + have]
        while have < header.message_bytes:
            have += connection.receive(into[have:])
        end = header.message_offset + header.message_bytes
        crlf = memoryview(bytearray(2))
        left = 2 - max(n - end, 0)
        while left:
            left -= connection.receive(crlf[:left])
        return header, message

    def _parse_header(self, connection: RawConnection, data: bytes) -> ReplyHeader | None:
        """Parse the header. An error reply is raised; ServerUnavailable if another server can answer."""
        try:
            return parse_header(data)
        except CommandError as error:
            connection.raise_if_unavailable(error)
            text = str(error)
            if text.startswith("ERR unknown command") and self._servers.reads_replica:
                # This replica replaced one that had XARROW. Choose again; a new task may do without.
                supports_arrow.cache_clear()
                self._servers.close()
                raise ServerUnavailable(f"the replica has no {COMMAND}") from None
            if text.startswith(MALFORMED_PREFIX):
                raise MalformedEntry(text.removeprefix(MALFORMED_PREFIX)) from None
            raise CommandError(f"{text} (reading the stream {self._range.stream!r})") from None

    def _request_after(self, connection: RawConnection, after: str, anchored: bool) -> None:
        """Request the entries after an ID; if anchored, also whether the entry with this ID exists."""
        connection.send(
            COMMAND.encode(),
            stream_key(self._range.stream),
            after.encode() if anchored else b"(" + after.encode(),
            self._range.upto.encode(),
            b"COUNT",
            max(1, min(self._options.entries_per_fetch, BATCH_BYTES // max(len(self._range.stream), 1))),
            *([b"ANCHOR"] if anchored else []),
            b"MODE",
            self._options.mode.encode(),
            b"COLUMNS",
            len(self._column_arguments) // 2,
            *self._column_arguments,
        )


class ServerBatchReader:
    """Makes the record batches of one stream from the messages of the server."""

    def __init__(self, layout: ColumnLayout, stream: str) -> None:
        import pyarrow as pa

        self._stream = stream
        self._schema = layout.arrow_schema
        self._from_server = [spec.kind != "stream" for spec in layout.specs]
        fields = zip(self._schema, self._from_server, strict=True)
        self._server_schema = pa.schema([field for field, sent in fields if sent])

    def make_batch(self, rows: int, message: pa.Buffer) -> pa.RecordBatch:
        """Return a batch that uses the memory of the message.

        Raises:
            ProtocolError: if the message is not a record batch with `rows` rows.
        """
        import pyarrow as pa

        try:
            batch = pa.ipc.read_record_batch(message, self._server_schema)
            batch.validate(full=True)  # a reader of the batch relies on its offsets
        except (pa.ArrowException, OSError, EOFError) as wrong:
            raise ProtocolError(f"not a record batch in a reply of {COMMAND}: {wrong}") from None
        if batch.num_rows != rows:
            raise ProtocolError(f"a batch of {batch.num_rows} rows, but the header says {rows}")
        columns = iter(batch.columns)
        arrays = [
            next(columns) if sent else pa.repeat(pa.scalar(self._stream, field.type), rows)
            for field, sent in zip(self._schema, self._from_server, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
