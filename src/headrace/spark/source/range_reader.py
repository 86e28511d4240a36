"""One range of a stream, read page by page into record batches: what a Spark task does.

Each page begins with the last entry of the page before, the anchor. Redis trims from the front only, so while
the anchor is there nothing behind it was trimmed; the check costs one entry a page and no round trip, and
sees trims that happen during the read. A range that ends before the entry it should end with was lost if the
stream never came so far: it was deleted, or a failover took it back.

The next page is asked for as soon as the last byte of this one is there, before it is decoded.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.client.retry import ReconnectDelay
from headrace.client.servers import CONNECTION_ERRORS, RawConnection, Servers
from headrace.client.stream_names import stream_key
from headrace.errors import CommandError, HeadraceError
from headrace.spark.decode import arrow_decoder
from headrace.spark.decode.misfits import report_misfits
from headrace.spark.decode.page_scanner import ReplyPageTokenizer
from headrace.spark.decode.schema import BatchBuilder, ColumnLayout
from headrace.spark.options import Options
from headrace.spark.source.adaptive_count import AdaptiveCount
from headrace.spark.source.history import (
    StreamObservation,
    describe_recreation,
    identity_mismatch,
    observe_streams,
)
from headrace.spark.source.offsets import parse_id
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.stream_state import StreamState, count_trimmed_after

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
RECEIVE_BYTES = 1 << 18
EARLY_DECODE_BYTES = 2 << 20  # of a page larger than this the begin is decoded before its end is here

log = logging.getLogger(__name__)


@functools.cache
def warn_if_interpreted() -> None:
    """Say once in a worker that it lacks the compiled modules, as under `--py-files`."""
    if not str(arrow_decoder.__file__).endswith((".so", ".pyd")):
        log.warning("headrace is not compiled here, and slow: install its wheel on every node.")


class DataLoss(HeadraceError):
    """Entries that a query had yet to read are gone."""


class RangeReader:
    """Reads one range. A lost connection is made again, and the read goes on behind the last entry it has."""

    def __init__(self, part: OffsetRange, layout: ColumnLayout, options: Options) -> None:
        self._part = part
        self._options = options
        self._servers = Servers(options.url)
        self._retry_timer = ReconnectDelay(self._servers.reconnect_timeout)
        self._scanner = ReplyPageTokenizer()
        self._layout = layout
        self._decoder = layout.decoder(self._scanner, part.stream, options.mode)
        self._builder = BatchBuilder(layout, part.stream)
        self._connection: RawConnection | None = None
        self._after = part.after  # the last entry that is noted, or where the range begins
        self._anchored = part.anchored
        self._counted_at = (
            part.after,
            part.start_number,
        )  # an entry and its number, as far as it was counted
        self._count = AdaptiveCount(options.entries_per_fetch)
        self._requested_count = 0
        self._page_bytes = 0  # bytes of this page
        self._loss_reported = False  # entries are missing, and that was reported
        # The name of the stream stands in every row: of a very long one there are fewer rows in a batch.
        self._rows_max = max(1, min(BATCH_ROWS, BATCH_BYTES // max(len(part.stream), 1)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The entries of the range, in order. Closes its socket also when the caller stops half-way."""
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
                if decoder.tracks_rows and decoder.rows:  # while the replies that the rows come from are here
                    yield self._builder.take(decoder)
            if decoder.rows:
                yield self._builder.take(decoder)
            if decoder.dropped:
                log.warning("%d malformed entries of %s were left out", decoder.dropped, self._part.stream)
            self._report_misfits(decoder.misfits())
        finally:
            self._close()

    def _report_misfits(self, misfits: list[int]) -> None:
        """Tell how many values of each column did not fit."""
        part = self._part
        report_misfits(part.stream, f"{part.after} {part.upto}", self._layout, misfits, self._options.mode)

    def _receive(self) -> bool:
        """Take in some bytes; at the end of a page ask for the next. False when the range is whole."""
        scanner = self._scanner
        try:
            if self._connection is None:
                self._connection = self._servers.open_raw(self._part.stream)
                self._resume_after_loss()
                self._request_page(self._connection)
            n = scanner.receive(self._connection.receive, RECEIVE_BYTES)
            whole = self._scan(self._connection)
        except CONNECTION_ERRORS as failure:
            self._disconnect()
            self._retry_timer.wait(failure)
            return True
        self._page_bytes += n
        if not whole:
            return True
        self._retry_timer.reset()
        if scanner.anchor_lost:
            self._check_anchor()
        self._advance()
        self._count.record_page(scanner.entry_count, self._page_bytes)
        if scanner.entry_count < self._requested_count or self._after == self._part.upto:
            self._check_end()
            return False
        try:
            self._request_page(self._connection)
        except CONNECTION_ERRORS:
            self._disconnect()
        return True

    def _should_receive_more(self) -> bool:
        """Whether to wait for more of the page, so as to ask for the next one before this one is decoded."""
        return (
            self._connection is not None
            and self._page_bytes > 0
            and self._scanner.buffered_bytes() < EARLY_DECODE_BYTES
        )

    def _advance(self) -> None:
        """The next page begins where this one ends. Count its entries, unless some are missing."""
        scanner = self._scanner
        at, number = self._counted_at
        came = scanner.entry_count - self._anchored
        if not scanner.last_id:
            return
        if number is not None:
            number = number + came if at == self._after and not scanner.anchor_lost else None
        self._after, self._anchored = scanner.last_id.decode(), True
        self._counted_at = (self._after, number)

    def _scan(self, connection: RawConnection) -> bool:
        """Whether the page is whole. An error in its stead may mean that another server is to be asked."""
        try:
            return self._scanner.scan()
        except CommandError as error:
            connection.raise_if_unavailable(error)
            raise CommandError(f"{error} (reading the stream {self._part.stream!r})") from None

    def _resume_after_loss(self) -> None:
        """Go on behind the last entry noted, which may lie within a page."""
        if self._scanner.last_id:
            self._after, self._anchored = self._scanner.last_id.decode(), True
        self._scanner.reset()

    def _request_page(self, connection: RawConnection) -> None:
        """Ask for the next page; an anchored one begins with the entry `after`, which is not counted."""
        after = self._after.encode()
        self._scanner.begin_page(after if self._anchored else b"")
        self._requested_count = self._count.count + self._anchored
        self._page_bytes = 0
        connection.send(
            b"XRANGE",
            stream_key(self._part.stream),
            after if self._anchored else b"(" + after,
            self._part.upto.encode(),
            b"COUNT",
            self._requested_count,
        )

    def _check_anchor(self) -> None:
        """The anchor is gone. That is no loss if it was deleted by itself, or if nothing else was trimmed."""
        observation = self._observe()
        state = observation.state if observation else None
        part, after = self._part, self._after
        if self._is_recreated(observation):
            return
        if state is not None and state.first_id is not None and parse_id(state.first_id) < parse_id(after):
            was_entry = after != part.after  # it was read here, and is gone without having been deleted
            if (
                was_entry
                and state.max_deleted_id is not None
                and parse_id(state.max_deleted_id) < parse_id(after)
            ):
                self._report(
                    f"the entry {after} of the stream {part.stream!r} is gone, and was not deleted by "
                    "itself: the stream was deleted and recreated, or trimmed in its midst."
                )
            return
        lost = count_trimmed_after(after, self._number_at(state), state) if state else None
        if lost == 0:
            return
        first = self._scanner.first_id.decode() or (state.first_id if state else None)
        found = f"the first entry there is {first}" if first else "the stream is empty or deleted"
        many = "it is not known how many" if lost is None else f"{lost} of them"
        self._report(
            f"entries of the stream {part.stream!r} after {after} may have been trimmed before they were "
            f"read ({many}): {found}."
        )

    def _number_at(self, state: StreamState) -> int | None:
        """The number of the entry `after`; None if unknown, as when entries were deleted before it."""
        at, number = self._counted_at
        deleted = state.max_deleted_id is None or parse_id(state.max_deleted_id) > parse_id(self._part.after)
        return number if at == self._after and (at == self._part.after or not deleted) else None

    def _check_end(self) -> None:
        """The range is read. Was it read of the stream it was planned for, and is its last entry there?"""
        part = self._part
        is_whole = self._after == part.upto
        if is_whole and part.expected_position is None:
            return
        observation = self._observe()
        current = observation.state if observation else None
        if self._is_recreated(observation) or is_whole:
            return
        if current is None or parse_id(current.last_id) < parse_id(part.upto):
            outcome = f"ends at {current.last_id}" if current else "does not exist"
            self._report(
                f"entries of the stream {part.stream!r} after {self._after} and up to {part.upto} are gone: "
                f"the stream {outcome}, so it was deleted, or a failover took entries back."
            )
        elif not self._loss_reported and self._is_end_trimmed(current):
            self._report(
                f"entries of the stream {part.stream!r} after {self._after} and up to {part.upto} were "
                f"trimmed before they were read: the first entry there is {current.first_id or 'none'}."
            )

    def _is_end_trimmed(self, state: StreamState) -> bool:
        """Whether the last entry of the range was there when it was planned, and was trimmed since."""
        expected, upto = self._part.expected_position, parse_id(self._part.upto)
        if (
            expected is None
            or expected.fingerprint is None
            or expected.id != self._part.upto
            or state.max_deleted_id is None
        ):
            return False
        return parse_id(state.max_deleted_id) < upto and (
            state.first_id is None or parse_id(state.first_id) > upto
        )

    def _is_recreated(self, observation: StreamObservation | None) -> bool:
        """Whether the stream is another one than the range was planned for; that is reported."""
        expected = self._part.expected_position
        mismatch = (
            None if expected is None or observation is None else identity_mismatch(expected, observation)
        )
        if expected is None or mismatch is None:
            return False
        self._report(
            describe_recreation(self._part.stream, expected, f"{mismatch}; that happened while it was read")
        )
        return True

    def _report(self, what: str) -> None:
        """Fail or warn, as the option says."""
        self._loss_reported = True
        report_loss(self._options, what)

    def _observe(self) -> StreamObservation | None:
        """The stream as it is now; None if there is none."""
        stream, expected = self._part.stream, self._part.expected_position
        return observe_streams(self._servers, [stream], {stream: expected} if expected else {}).get(stream)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close(self) -> None:
        self._disconnect()
        self._servers.close()


def report_loss(options: Options, what: str) -> None:
    """Fail or warn, as the option says."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what} Set failOnDataLoss to false to go on with what is there.")
    log.warning("%s Going on with what is there, as failOnDataLoss is false.", what)
