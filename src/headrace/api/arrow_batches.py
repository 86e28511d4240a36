"""Read the entries of a stream as Arrow record batches, from a database in this process or from a server.

    Headrace         XARROW: the engine encodes the columns; a server encodes the next batch in advance
    Redis, Valkey    XRANGE: entries are fetched page by page, and encoded here

XRANGE is also used for columns whose errors need the whole entry, and for users that may not send XARROW.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from headrace.api.backend import Backend
from headrace.api.codecs.arguments import decode_name
from headrace.api.stream_id import StreamID, id_from_reply
from headrace.arrow.malformed import SPARK_ID_PART_ADVICE, SPARK_NULLABLE_ADVICE, MalformedEntry
from headrace.columns.batch_assembler import BatchAssembler, EncodedColumns, encode_entries
from headrace.columns.layout import DEFAULT_SCHEMA, ArrowLayout
from headrace.errors import AccessDenied, CodecError, CommandError, NotSupported, UnexpectedReply
from headrace.plurals import plural

log = logging.getLogger("headrace.stream")

BATCH_ROWS = 20_000  # the most that XARROW returns
FIRST_PAGE_ENTRIES = 64  # entries of XRANGE
PAGE_ENTRIES_MAX = 1024
MISFITS_METADATA_KEY = b"headrace.misfits"  # in the metadata of a table's schema
MALFORMED_ERROR_PREFIX = "MALFORMED "
NULLABLE_COLUMN_ADVICE = "Make the column nullable, or read it as a string."
ADVICE_ON_IDS = "Read such a stream with the column _id and without that part of the ID."

BatchWithMisfits = tuple[pa.RecordBatch, list[int]]


class ArrowBatches:
    """Entries of a stream as Arrow record batches: what `stream.arrow_batches()` returns.

    Iterate over it, or pass it to a library that reads Arrow streams (`__arrow_c_stream__`). Each read
    starts again, and ends at the last entry that existed when this object was made.

    >>> polars.DataFrame(orders.arrow_batches())

    Attributes:
        schema: the pyarrow.Schema of the batches.
        misfits: by column, how many values of the last read did not fit its type, and became null; for a map
            of text, how many entries have bytes that are not UTF-8 and are escaped.
    """

    schema: pa.Schema
    misfits: dict[str, int]

    def __init__(
        self,
        backend: Backend,
        key: bytes,
        schema: pa.Schema | None,
        start: bytes,
        end: bytes,
        count: int | None,
    ) -> None:
        self._backend = backend
        self._key = key
        self._layout = ArrowLayout(DEFAULT_SCHEMA if schema is None else schema)
        self._start = start
        self._count = count
        last = backend.request(b"XREVRANGE", key, end, start, b"COUNT", b"1")
        self._end: bytes | None = last[0][0] if last else None
        self.schema = self._layout.schema
        self.misfits = {}

    def __repr__(self) -> str:
        return f"ArrowBatches({decode_name(self._key)!r}, {', '.join(self.schema.names)})"

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most 20,000 rows and about 2 MB; only a few are in memory at a time.

        Raises:
            CodecError: if a value is missing or does not fit, and its column is not nullable.
        """
        counts: dict[str, int] = {}
        self.misfits = counts
        try:
            for batch, misfits in self._batches_with_misfits():
                for position, count in enumerate(misfits):
                    if count:
                        name = self._layout.decoded_fields[position].name
                        counts[name] = counts.get(name, 0) + count
                yield batch
        except MalformedEntry as malformed:
            text = (
                str(malformed)
                .replace(SPARK_NULLABLE_ADVICE, NULLABLE_COLUMN_ADVICE)
                .replace(SPARK_ID_PART_ADVICE, ADVICE_ON_IDS)
            )
            raise CodecError(text) from None
        finally:
            for name, count in counts.items():
                log.warning("%s", describe_misfits(decode_name(self._key), name, count))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return an Arrow C stream. The library that reads it reports errors in its own way."""
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def read_all(self) -> pa.Table:
        """Read all entries into a pyarrow.Table.

        If values became null, the metadata of its schema has `misfits` as JSON, at `headrace.misfits`.

        Raises:
            CodecError: if a value is missing or does not fit, and its column is not nullable.
        """
        table = pa.Table.from_batches(list(self), self.schema)
        if self.misfits:
            metadata = {
                **(self.schema.metadata or {}),
                MISFITS_METADATA_KEY: json.dumps(self.misfits).encode(),
            }
            table = table.replace_schema_metadata(metadata)
        return table

    def _batches_with_misfits(self) -> Iterator[BatchWithMisfits]:
        if self._end is None or self._count == 0:
            return
        position = ReadCursor(self._start, self._end, self._count)
        assembler = BatchAssembler(self._layout, self._key, self._backend.is_remote)
        if self._layout.server_can_encode:
            try:
                yield from self._server_encoded_batches(position, assembler)
                return
            except (NotSupported, AccessDenied):  # another server, or a user that may only send XRANGE
                pass
        yield from self._locally_encoded_batches(position, assembler)

    def _server_encoded_batches(
        self, position: ReadCursor, assembler: BatchAssembler
    ) -> Iterator[BatchWithMisfits]:
        """Yield batches that the engine or server encodes, and request the next one of a server ahead."""

        def request(at: bytes, count: int) -> list[Any]:
            words = (b"XARROW", self._key, at, position.end, b"COUNT", b"%d" % count)
            columns = assembler.xarrow_arguments()
            try:
                reply: list[Any] = self._backend.request(
                    *words, b"COLUMNS", b"%d" % (len(columns) // 2), *columns
                )
            except CommandError as refused:
                if str(refused).startswith(MALFORMED_ERROR_PREFIX):
                    raise MalformedEntry(str(refused).removeprefix(MALFORMED_ERROR_PREFIX)) from None
                raise
            return reply

        with ReadAhead(self._backend.is_remote) as ahead:
            following: Callable[[], list[Any]] | None = ahead.start(
                request, position.at, position.request_count()
            )
            while following is not None:
                last, _, more, _, rows, *misfits, message = following()
                found = assembler.assemble_converted(
                    EncodedColumns(rows, misfits[0] if misfits else [], message)
                )
                if found is not None:
                    position.advance(last, rows)
                following = None
                if found is None or (more and rows and position.has_more()):
                    following = ahead.start(request, position.at, position.request_count())
                if found is not None and rows:
                    yield found

    def _locally_encoded_batches(
        self, position: ReadCursor, assembler: BatchAssembler
    ) -> Iterator[BatchWithMisfits]:
        """Yield batches of pages that are encoded here."""
        page = FIRST_PAGE_ENTRIES
        while position.has_more():
            count = min(page, position.request_count())
            words = (b"XRANGE", self._key, position.at, position.end, b"COUNT", b"%d" % count)
            reply = self._backend.request(*words)
            for encoded in encode_entries(
                entries_with_numeric_ids(reply), self._layout, decode_name(self._key)
            ):
                yield assembler.assemble(encoded)
            if len(reply) < count:
                return
            position.advance(reply[-1][0], len(reply))
            page = min(4 * page, PAGE_ENTRIES_MAX)


class ReadCursor:
    """Progress of a read: the next start argument, the end ID, how many entries are left (None: no limit)."""

    def __init__(self, at: bytes, end: bytes, left: int | None) -> None:
        self.at = at
        self.end = end
        self._left = left

    def request_count(self) -> int:
        """Return the COUNT of the next request."""
        return BATCH_ROWS if self._left is None else min(BATCH_ROWS, self._left)

    def advance(self, last: bytes | None, entries: int) -> None:
        """Record that `entries` entries were read, up to the ID `last`; None: there were none."""
        self.at = self.at if last is None else b"(" + last
        if self._left is not None:
            self._left -= entries

    def has_more(self) -> bool:
        """Return whether there may be entries that are not read yet."""
        return self._left != 0 and self.at != b"(" + self.end


class ReadAhead:
    """Makes a request to a server in a thread, so that its reply is on the way while a batch is used."""

    def __init__(self, is_remote: bool) -> None:
        self._pool = ThreadPoolExecutor(1, "headrace-arrow") if is_remote else None

    def start(self, request: Callable[..., list[Any]], *arguments: Any) -> Callable[[], list[Any]]:
        """Start a request, and return a function that waits for its result and returns it.

        To an engine in this process, the request is made only when that function is called.
        """
        if self._pool is None:
            return lambda: request(*arguments)
        future: Future[list[Any]] = self._pool.submit(request, *arguments)
        return future.result

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def entries_with_numeric_ids(reply: list[Any]) -> list[tuple[int, int, list[bytes]]]:
    """Return the entries of a reply of XRANGE, their IDs as numbers.

    Raises:
        UnexpectedReply: if the IDs do not increase, or an entry is not a list of pairs.
    """
    entries = []
    before = StreamID.MIN
    for id, words in reply:
        found = id_from_reply(id)
        if found <= before or words is None or len(words) % 2:
            raise UnexpectedReply(f"entry {found} in a reply to XRANGE is not one of Redis")
        entries.append((found.ms, found.seq, words))
        before = found
    return entries


def describe_misfits(stream: str, column: str, count: int) -> str:
    """Return the warning that `count` values became null; for `_fields`, that entries were escaped."""
    if column == "_fields":
        return (
            f"{stream}: {plural(count, 'entry')} with bytes that are not UTF-8; the map shows each as \\xNN "
            "(a map with binary values has the bytes)"
        )
    return f"{stream}: {plural(count, 'value')} did not fit the column {column} and became null"
