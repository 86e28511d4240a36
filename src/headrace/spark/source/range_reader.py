"""Read one range of a stream page by page into record batches, in a Spark task.

Each page begins with the last entry of the page before, the anchor (see data_loss). The next page is
requested as soon as the last byte of this one was received, before it is decoded.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.client.connection import RawConnection
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.retrying import ReconnectDelay
from headrace.client.stream_names import stream_key
from headrace.errors import CommandError
from headrace.spark.decode import arrow_decoder
from headrace.spark.decode.misfits import report_misfits
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.decode.schema import BatchBuilder, ColumnLayout
from headrace.spark.options import Options
from headrace.spark.source.adaptive_count import AdaptiveCount
from headrace.spark.source.data_loss import LossDetector
from headrace.spark.source.planner import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
RECEIVE_BYTES = 1 << 18
EARLY_DECODE_BYTES = 2 << 20  # a page larger than this is decoded while its rest is being received

log = logging.getLogger(__name__)


@functools.cache
def warn_if_interpreted() -> None:
    """Warn once in a worker process that has no compiled modules, as with `--py-files`."""
    if not str(arrow_decoder.__file__).endswith((".so", ".pyd")):
        log.warning("headrace is not compiled here, and slow: install its wheel on every node.")


class RangeReader:
    """Reads one range. After a lost connection it reconnects, and continues after the last received entry."""

    def __init__(self, part: OffsetRange, layout: ColumnLayout, options: Options) -> None:
        self._range = part
        self._options = options
        self._servers = options.servers()
        self._reconnect_delay = ReconnectDelay(self._servers.reconnect_timeout)
        self._tokenizer = ReplyPageTokenizer()
        self._layout = layout
        self._decoder = layout.new_decoder(self._tokenizer, part.stream, options.mode)
        self._builder = BatchBuilder(layout, part.stream)
        self._connection: RawConnection | None = None
        self._loss_detector = LossDetector(part, options, self._servers)
        self._after = part.after  # the last tokenized entry, or where the range begins
        self._anchored = part.anchored
        self._last_numbered = (part.after, part.after_number)  # an entry and its number, as far as counted
        self._adaptive_count = AdaptiveCount(options.entries_per_fetch)
        self._requested_count = 0
        self._page_bytes = 0
        # Each row repeats the name of the stream: with a very long name a batch has fewer rows.
        self._rows_max = max(1, min(BATCH_ROWS, BATCH_BYTES // max(len(part.stream), 1)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the entries of the range in order. Close the socket also if the caller stops early."""
        warn_if_interpreted()
        decoder = self._decoder
        try:
            more = True
            while more:
                more = self._receive()
                if more and self._should_receive_more():
                    continue
                while not decoder.decode(self._rows_max, BATCH_BYTES):
                    yield self._builder.take(decoder)
                if (
                    decoder.tracks_rows and decoder.row_count
                ):  # it needs the reply bytes that the rows come from
                    yield self._builder.take(decoder)
            if decoder.row_count:
                yield self._builder.take(decoder)
            if decoder.dropped_entries:
                log.warning(
                    "%d malformed entries of %s were left out", decoder.dropped_entries, self._range.stream
                )
            part, misfits = self._range, decoder.misfit_counts()
            report_misfits(
                part.stream, f"{part.after} {part.upto}", self._layout, misfits, self._options.mode
            )
        finally:
            self._disconnect()
            self._servers.close()

    def _receive(self) -> bool:
        """Receive some bytes; at the end of a page request the next one. Return False at the range's end."""
        scanner = self._tokenizer
        try:
            if self._connection is None:
                self._connection = self._servers.open_raw(self._range.stream, self._range.upto)
                self._resume_after_reconnect()
                self._request_page(self._connection)
            n = scanner.receive(self._connection.receive, RECEIVE_BYTES)
            whole = self._scan(self._connection)
        except CONNECTION_ERRORS as failure:
            self._disconnect()
            self._reconnect_delay.wait_or_raise(failure)
            return True
        self._page_bytes += n
        if not whole:
            return True
        self._reconnect_delay.reset()
        self._check_anchor()
        self._advance()
        self._adaptive_count.record_page(scanner.entry_count, self._page_bytes)
        if scanner.entry_count < self._requested_count or self._after == self._range.upto:
            self._loss_detector.check_end(self._after)
            return False
        try:
            self._request_page(self._connection)
        except CONNECTION_ERRORS:
            self._disconnect()
        return True

    def _should_receive_more(self) -> bool:
        """Return whether to receive more of the page first, to request the next one before decoding."""
        return (
            self._connection is not None
            and self._page_bytes > 0
            and self._tokenizer.buffered_bytes() < EARLY_DECODE_BYTES
        )

    def _check_anchor(self) -> None:
        """Report a loss if the page, which may be incomplete, does not begin with its anchor."""
        if self._tokenizer.anchor_lost:
            at, number = self._last_numbered
            number = number if at == self._after else None
            self._loss_detector.check_anchor(self._after, number, self._tokenizer.first_id.decode())

    def _advance(self) -> None:
        """Set the next anchor to the end of this page. Count its entries unless some are missing."""
        scanner = self._tokenizer
        at, number = self._last_numbered
        came = scanner.entry_count - self._anchored
        if not scanner.last_id:
            return
        if number is not None:
            number = number + came if at == self._after and not scanner.anchor_lost else None
        self._after, self._anchored = scanner.last_id.decode(), True
        self._last_numbered = (self._after, number)

    def _scan(self, connection: RawConnection) -> bool:
        """Tokenize the received bytes; return whether the page is complete.

        An error reply is raised; ServerUnavailable if another server can answer.
        """
        try:
            return self._tokenizer.scan()
        except CommandError as error:
            connection.raise_if_unavailable(error)
            raise CommandError(f"{error} (reading the stream {self._range.stream!r})") from None

    def _resume_after_reconnect(self) -> None:
        """Continue after the last tokenized entry, which may be in the middle of a page."""
        self._check_anchor()
        if self._tokenizer.last_id:
            self._after, self._anchored = self._tokenizer.last_id.decode(), True
        self._tokenizer.reset()

    def _request_page(self, connection: RawConnection) -> None:
        """Request the next page. An anchored page begins with the entry `after`, in addition to its count."""
        after = self._after.encode()
        self._tokenizer.begin_page(after if self._anchored else b"")
        self._requested_count = self._adaptive_count.count + self._anchored
        self._page_bytes = 0
        connection.send(
            b"XRANGE",
            stream_key(self._range.stream),
            after if self._anchored else b"(" + after,
            self._range.upto.encode(),
            b"COUNT",
            self._requested_count,
        )

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
