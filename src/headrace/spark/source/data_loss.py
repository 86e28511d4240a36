"""Detect entries of a range that were lost before they were read.

Redis trims from the front only. So while the anchor, the last entry before a page, exists, nothing after it
was trimmed. The anchor is requested with each page: this costs one entry a page and no round trip, and also
detects trims during the read. A range that ends before its last entry has lost entries if the stream's last
ID is lower: the stream was deleted, or a failover took entries back.
"""

from __future__ import annotations

import logging

from headrace.client.servers import Servers
from headrace.errors import HeadraceError
from headrace.positions.entry_ids import parse_id
from headrace.positions.recreation import (
    StreamObservation,
    describe_recreation,
    identity_mismatch_reason,
    observe_streams,
)
from headrace.positions.stream_state import StreamState, count_trimmed_after
from headrace.spark.options import Options
from headrace.spark.source.planner import OffsetRange

log = logging.getLogger(__name__)


class DataLoss(HeadraceError):
    """Entries that a query had not read yet no longer exist."""


def report_loss(options: Options, loss: str) -> None:
    """Raise DataLoss or log a warning, as the option failOnDataLoss says."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{loss} Set failOnDataLoss to false to continue with the remaining entries.")
    log.warning("%s Continuing with the remaining entries, because failOnDataLoss is false.", loss)


class LossDetector:
    """Checks the anchors and the end of one range, and reports losses."""

    def __init__(self, part: OffsetRange, options: Options, servers: Servers) -> None:
        self._range = part
        self._options = options
        self._servers = servers
        self._reported = False

    def check_anchor(self, anchor: str, number: int | None, first_id: str | None = None) -> None:
        """Report a loss if entries after a missing anchor were trimmed.

        Report none if only the anchor was deleted, or if nothing after the anchor was trimmed.

        Args:
            anchor: the ID of the anchor.
            number: how many entries had been added up to the anchor; None if unknown.
            first_id: the ID of the first entry that the server returned instead; None if unknown.
        """
        observation = self._observe()
        state = observation.state if observation else None
        part = self._range
        if self._is_recreated(observation):
            return
        if state is not None and state.first_id is not None and parse_id(state.first_id) < parse_id(anchor):
            was_read = anchor != part.after  # so it was an entry, and was then deleted
            deleted = state.max_deleted_id
            if was_read and deleted is not None and parse_id(deleted) < parse_id(anchor):
                self._report(
                    f"the entry {anchor} of the stream {part.stream!r} is gone, and was not deleted by XDEL: "
                    "the stream was deleted and recreated, or trimmed in its middle."
                )
            return
        lost = None
        if state is not None and (anchor == part.after or not self._has_deleted_since_start(state)):
            lost = count_trimmed_after(anchor, number, state)
        if lost == 0:
            return
        first = first_id or (state.first_id if state else None)
        found = f"the first entry there is {first}" if first else "the stream is empty or deleted"
        many = "it is not known how many" if lost is None else f"{lost} of them"
        self._report(
            f"entries of the stream {part.stream!r} after {anchor} may have been trimmed before they were "
            f"read ({many}): {found}."
        )

    def _has_deleted_since_start(self, state: StreamState) -> bool:
        """Return whether entries after the start of the range may have been deleted, so counts differ."""
        deleted = state.max_deleted_id
        return deleted is None or parse_id(deleted) > parse_id(self._range.after)

    def check_end(self, last: str) -> None:
        """Report a loss if the end of the range was trimmed or taken back, or the stream was recreated.

        Args:
            last: the last ID of the range that was read.
        """
        part = self._range
        is_whole = last == part.upto
        if is_whole and part.expected_position is None:
            return
        observation = self._observe()
        state = observation.state if observation else None
        if self._is_recreated(observation) or is_whole:
            return
        missing = f"entries of the stream {part.stream!r} after {last} and up to {part.upto}"
        if state is None or parse_id(state.last_id) < parse_id(part.upto):
            outcome = f"ends at {state.last_id}" if state else "does not exist"
            self._report(
                f"{missing} are gone: the stream {outcome}, so it was deleted, or a failover took entries "
                "back."
            )
        elif not self._reported and self._is_end_trimmed(state):
            self._report(
                f"{missing} were trimmed before they were read: the first entry there is "
                f"{state.first_id or 'none'}."
            )

    def _is_end_trimmed(self, state: StreamState) -> bool:
        """Return whether the last entry of the range existed when it was planned, and was trimmed since."""
        expected, upto = self._range.expected_position, parse_id(self._range.upto)
        if expected is None or expected.fingerprint is None or expected.id != self._range.upto:
            return False
        if state.max_deleted_id is None or parse_id(state.max_deleted_id) >= upto:
            return False
        return state.first_id is None or parse_id(state.first_id) > upto

    def _is_recreated(self, observation: StreamObservation | None) -> bool:
        """Return whether the stream was recreated since the range was planned, and report it."""
        expected = self._range.expected_position
        if expected is None or observation is None:
            return False
        mismatch = identity_mismatch_reason(expected, observation)
        if mismatch is None:
            return False
        self._report(
            describe_recreation(self._range.stream, expected, f"{mismatch}; that happened while it was read")
        )
        return True

    def _report(self, loss: str) -> None:
        self._reported = True
        report_loss(self._options, loss)

    def _observe(self) -> StreamObservation | None:
        """Return the stream as it is now; None if it does not exist."""
        stream, expected = self._range.stream, self._range.expected_position
        return observe_streams(
            self._servers,
            [stream],
            {stream: expected} if expected else {},
            reached={stream: self._range.upto},
        ).get(stream)
