"""The short way from a Headrace server: record batches that it has made, instead of replies to decode.

The server answers XARROW with the columns of the schema as an Arrow IPC message, which is received into the
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
from headrace.errors import CommandError, ProtocolError, UsageError
from headrace.server_url import parse_server_url
from headrace.spark.decode.schema import Layout
from headrace.spark.options import Options
from headrace.spark.servers import CONNECTION_ERRORS, Servers, Wire
from headrace.spark.source.planner import Range
from headrace.spark.source.range_reader import BATCH_BYTES, RangeReader, log
from headrace.spark.stream_names import key

if TYPE_CHECKING:
    import pyarrow as pa

COMMAND = "XARROW"
HEAD_BYTES = 2048  # of the first receive; a head has some 80, an error some 300
HEAD_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 1 << 33  # an entry may have a gigabyte, and stand in it three times
NUMBER_BYTES_MAX = 20  # a sign for its kind, and what fits into 64 bits
MALFORMED = "MALFORMED "


def range_reader(part: Range, layout: Layout, options: Options) -> RangeReader:
    """What reads the range, by the way that the option `fetch` and the server allow."""
    if options.fetch == "resp":
        return RangeReader(part, layout, options)
    words = column_words(layout)
    if options.fetch == "auto" and (words is None or not knows_arrow(options.url)):
        return RangeReader(part, layout, options)
    if words is None:
        raise UsageError(
            "The option fetch is arrow, but the schema has a column that the server cannot fill: a DATE, a "
            "DECIMAL or a TIMESTAMP of format iso8601, for instance. Leave fetch at auto."
        )
    return ArrowReader(part, layout, options, words)


def column_words(layout: Layout) -> list[bytes] | None:
    """name, type, name, type ... as XARROW takes them; None if it has no type for some column."""
    words = []
    for spec in layout.specs:
        if spec.kind == "stream":
            continue
        word = column_types.word_of(spec.kind, spec.settings)
        if word is None:
            return None
        words += [column_types.WHOLE if spec.kind in column_types.OF_THE_ENTRY else spec.name.encode(), word]
    return words if len(words) <= 2 * column_types.COLUMNS_MAX else None


@functools.cache
def knows_arrow(url: str) -> bool:
    """Whether the server has the command: asked once in a worker process. The nodes of clusters have not."""
    if parse_server_url(url).kind == "cluster":
        return False
    servers = Servers(url)
    try:
        answer: Any = servers.patiently(lambda: servers.client().execute_command("COMMAND INFO", COMMAND))
    except redis.ResponseError:  # not allowed to ask, perhaps
        return False
    finally:
        servers.close()
    return bool(answer) and answer[0] is not None


@dataclass(frozen=True)
class Head:
    """What is said before the message of `size` bytes, the first of which stand at `at`.

    misfits: for each column how many values did not fit; nothing if all did.
    """

    last: str | None
    lost: bool
    more: bool
    dropped: int
    rows: int
    size: int
    at: int
    misfits: list[int] = field(default_factory=list)


def parse_head(data: bytes) -> Head | None:
    """The head of an answer; None while it is not whole. CommandError if the server refuses."""
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
        raise ProtocolError(f"no answer of {COMMAND}: {data[:80]!r}")
    at = sum(map(len, head)) + 2 * len(head)
    return Head(last, bool(lost), bool(more), dropped, rows, size, at, misfits)


def _number(line: bytes, kind: bytes) -> int:
    if line[:1] != kind or not line[1:].isdigit() or len(line) > NUMBER_BYTES_MAX:
        raise ProtocolError(f"no answer of {COMMAND}: {line[:80]!r}")
    return int(line[1:])


class ArrowReader(RangeReader):
    """Reads one range by XARROW."""

    def __init__(self, part: Range, layout: Layout, options: Options, words: list[bytes]) -> None:
        super().__init__(part, layout, options)
        self._words = words
        self._filler = Filler(layout, part.stream)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The entries of the range, in order. Closes its socket also when the caller stops half-way."""
        dropped = 0
        misfits = [0] * (len(self._words) // 2)
        try:
            more = True
            while more:
                head, message = self._fetch()
                if head.lost:
                    self._check_anchor()
                if head.last is not None:
                    self._after, self._anchored = head.last, True
                dropped += head.dropped
                if len(head.misfits) not in (0, len(misfits)):
                    raise ProtocolError(f"counts of {len(head.misfits)} columns instead of {len(misfits)}")
                if head.misfits:
                    misfits = [before + now for before, now in zip(misfits, head.misfits, strict=True)]
                more = head.more and self._after != self._part.upto
                if head.rows:
                    yield self._filler.batch(head.rows, message)
            self._check_end()
            if dropped:
                log.warning("%d malformed entries of %s were left out", dropped, self._part.stream)
            self._report_misfits(misfits)
        finally:
            self._close()

    def _fetch(self) -> tuple[Head, pa.Buffer]:
        """The next answer; the one after it is asked for. If the connection is lost, the same over again."""
        while True:
            try:
                if self._wire is None:
                    self._wire = self._servers.wire(self._part.stream)
                    self._ask_after(self._wire, self._after, self._anchored)
                answer = self._receive_answer(self._wire)
                self._patience.reset()
                return answer
            except CONNECTION_ERRORS as failure:
                self._hang_up()
                self._patience.wait(failure)

    def _receive_answer(self, wire: Wire) -> tuple[Head, pa.Buffer]:
        import pyarrow as pa

        buffer = bytearray(HEAD_BYTES)
        view = memoryview(buffer)
        n = wire.receive(view)
        while (head := self._parse(wire, bytes(view[:n]))) is None:
            if n == len(buffer):
                if n >= HEAD_BYTES_MAX:
                    raise ProtocolError(f"an endless head of an answer of {COMMAND}")
                buffer = buffer + bytearray(n)
                view = memoryview(buffer)
            n += wire.receive(view[n:])
        if head.more and head.last != self._part.upto and head.last is not None:
            self._ask_after(wire, head.last, True)
        message = pa.allocate_buffer(head.size)
        into = memoryview(message).cast("B")
        have = min(n - head.at, head.size)
        into[:have] = view[head.at : head.at + have]
        while have < head.size:
            have += wire.receive(into[have:])
        end = n - head.at - head.size  # of the two bytes behind the message these have come
        tail = memoryview(bytearray(2))
        left = 2 - max(end, 0)
        while left:
            left -= wire.receive(tail[:left])
        return head, message

    def _parse(self, wire: Wire, data: bytes) -> Head | None:
        """The head. An error in its stead may mean that another server is to be asked."""
        try:
            return parse_head(data)
        except CommandError as refused:
            wire.moved(refused)
            text = str(refused)
            if text.startswith(MALFORMED):
                raise MalformedEntry(text.removeprefix(MALFORMED)) from None
            raise CommandError(f"{text} (reading the stream {self._part.stream!r})") from None

    def _ask_after(self, wire: Wire, after: str, anchored: bool) -> None:
        """Ask for the entries after that one, and if anchored whether it is still there."""
        wire.send(
            COMMAND.encode(),
            key(self._part.stream),
            after.encode() if anchored else b"(" + after.encode(),
            self._part.upto.encode(),
            b"COUNT",
            max(1, min(self._options.entries_per_fetch, BATCH_BYTES // max(len(self._part.stream), 1))),
            *([b"ANCHOR"] if anchored else []),
            b"MODE",
            self._options.mode.encode(),
            b"COLUMNS",
            len(self._words) // 2,
            *self._words,
        )


class Filler:
    """Makes the record batches of one stream out of what the server sends."""

    def __init__(self, layout: Layout, stream: str) -> None:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        self._stream = stream
        self._schema = to_arrow_schema(layout.schema, timezone="UTC")
        self._from_server = [spec.kind != "stream" for spec in layout.specs]
        fields = zip(self._schema, self._from_server, strict=True)
        self._sent = pa.schema([field for field, sent in fields if sent])

    def batch(self, rows: int, message: pa.Buffer) -> pa.RecordBatch:
        """The rows as one batch, on the memory of the message; ProtocolError when it is none."""
        import pyarrow as pa

        try:
            batch = pa.ipc.read_record_batch(message, self._sent)
            batch.validate(full=True)  # whoever reads the batch believes its offsets
        except (pa.ArrowException, OSError, EOFError) as wrong:
            raise ProtocolError(f"no record batch in an answer of {COMMAND}: {wrong}") from None
        if batch.num_rows != rows:
            raise ProtocolError(f"a batch of {batch.num_rows} rows is said to have {rows}")
        columns = iter(batch.columns)
        arrays = [
            next(columns) if sent else pa.repeat(pa.scalar(self._stream, field.type), rows)
            for field, sent in zip(self._schema, self._from_server, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
