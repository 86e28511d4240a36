"""One range of a stream, read page by page into record batches: what a Spark task does.

Each page begins with the last entry of the page before, the anchor. Redis trims from the front only, so while
the anchor is there nothing behind it was trimmed; the check costs one entry a page and no round trip, and
sees trims that happen during the read.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import redis

from headrace.errors import CommandError, HeadraceError
from headrace.spark import arrow_decoder
from headrace.spark.arrow_decoder import ArrowDecoder
from headrace.spark.offsets import parse_id
from headrace.spark.options import Options
from headrace.spark.page_scanner import PageScanner
from headrace.spark.planner import Range
from headrace.spark.schema import BatchMaker, Layout
from headrace.spark.shards import LOST, RETRIES, Wire, client

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
RECEIVE_BYTES = 1 << 18

log = logging.getLogger(__name__)


@functools.cache
def warn_if_interpreted() -> None:
    """Say once in a worker that it lacks the compiled decoder, as under `--py-files`."""
    if not str(arrow_decoder.__file__).endswith((".so", ".pyd")):
        log.warning("headrace is not compiled here and reads slowly: install its wheel on every node.")


class DataLoss(HeadraceError):
    """Entries that a query had yet to read are gone."""


class StreamRefused(HeadraceError):
    """The server refuses what was asked of a stream."""

    def __init__(self, stream: str, refused: Exception) -> None:
        super().__init__(f"Cannot read the stream {stream!r}: {refused}")


class RangeReader:
    """Reads one range. A lost connection is made again, and the read goes on behind the last entry it has."""

    def __init__(self, part: Range, layout: Layout, options: Options) -> None:
        self._part = part
        self._options = options
        self._scanner = PageScanner()
        self._decoder = ArrowDecoder(self._scanner, layout.columns(), part.stream, options.mode)
        self._maker = BatchMaker(layout, part.stream)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._wire: Wire | None = None
        self._after = part.after  # the last entry that is noted, or where the range begins
        self._anchored = part.anchored
        self._asked = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The entries of the range, in order. Closes its socket also when the caller stops half-way."""
        warn_if_interpreted()
        decoder = self._decoder
        try:
            more = True
            while more:
                more = self._receive()
                while not decoder.decode(BATCH_ROWS, BATCH_BYTES):
                    yield self._maker.batch(*decoder.take())
            if decoder.rows:
                yield self._maker.batch(*decoder.take())
            if decoder.dropped:
                log.warning("%d malformed entries of %s were left out", decoder.dropped, self._part.stream)
        finally:
            self._close()

    def _receive(self) -> bool:
        """Take in some bytes; at the end of a page ask for the next. False when the range is whole."""
        scanner = self._scanner
        scanner.feed(self._buffer, self._wait())
        try:
            whole = scanner.scan()
        except CommandError as refused:
            raise CommandError(f"{refused} (reading the stream {self._part.stream!r})") from None
        if not whole:
            return True
        if scanner.anchor_lost:
            self._check_loss()
        if scanner.last_id:
            self._after, self._anchored = scanner.last_id.decode(), True
        if scanner.entries < self._asked or self._after == self._part.upto:
            return False
        if self._wire is not None:
            self._ask(self._wire)
        return True

    def _wait(self) -> int:
        """Receive at least one byte, over a new connection if the old one is lost."""
        for attempt in range(RETRIES + 1):
            try:
                if self._wire is None:
                    self._wire = Wire(self._options.url)
                    self._resume()
                    self._ask(self._wire)
                return self._wire.receive(self._buffer)
            except LOST:
                self._close()
                if attempt == RETRIES:
                    raise
                time.sleep(min(0.1 * 2**attempt, 2))
        raise AssertionError("unreachable")

    def _resume(self) -> None:
        """Go on behind the last entry noted, which may lie within a page."""
        if self._scanner.last_id:
            self._after, self._anchored = self._scanner.last_id.decode(), True
        self._scanner.restart()

    def _ask(self, wire: Wire) -> None:
        """Ask for the next page; an anchored one begins with the entry `after`, which is not counted."""
        after = self._after.encode()
        self._scanner.page(after if self._anchored else b"")
        self._asked = self._options.entries_per_fetch + self._anchored
        wire.send(
            b"XRANGE",
            self._part.stream.encode(),
            after if self._anchored else b"(" + after,
            self._part.upto.encode(),
            b"COUNT",
            self._asked,
        )

    def _check_loss(self) -> None:
        """The anchor is gone. That is no loss if it was deleted by itself: then older entries are there."""
        stream, after = self._part.stream, self._after
        server = client(self._options.url)
        try:
            first: Any = server.xrange(stream, count=1)
        finally:
            server.close()
        if first and parse_id(first[0][0].decode()) < parse_id(after):
            return
        found = (
            f"the first entry there is {first[0][0].decode()}" if first else "the stream is empty or deleted"
        )
        report_loss(
            self._options,
            f"entries of the stream {stream!r} after {after} may have been trimmed before they were read: "
            f"{found}.",
        )

    def _close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def report_loss(options: Options, what: str) -> None:
    """Fail or warn, as the option says."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what} Set failOnDataLoss to false to go on with what is there.")
    log.warning("%s Going on with what is there, as failOnDataLoss is false.", what)


def tail(server: redis.Redis, streams: tuple[str, ...]) -> dict[str, str]:
    """The last ID that each stream has ever given, of the streams that exist. One round trip."""
    pipe = server.pipeline(transaction=False)
    for stream in streams:
        pipe.xinfo_stream(stream)
    tails = {}
    for stream, answer in zip(streams, pipe.execute(raise_on_error=False), strict=True):
        if isinstance(answer, redis.ResponseError):
            if "no such key" in str(answer).lower():
                continue
            raise StreamRefused(stream, answer)
        tails[stream] = _text(answer["last-generated-id"])
    return tails


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
