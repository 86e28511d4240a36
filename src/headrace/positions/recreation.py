"""Detect streams that were deleted and recreated since a query read them.

A position is what was known of the stream; a state is what XINFO STREAM returns now. Both are of the same
stream only if all of this holds (i, n: the position's ID and number):

    last-generated-id      is not below i
    entries-added          is not below n, and is n if the last ID is i
    entries after i        are at most entries-added - n
    the entry i            has the same fingerprint; or it was deleted, as max-deleted-entry-id shows, or
                           trimmed, and then no earlier entry is left

Without counters (servers before Redis 7) only the first and the last condition are checked. A stream that was
recreated with the same IDs, the same fields at i and as many entries up to i is not detected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import redis

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.fingerprint import entry_fingerprint
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.offsets import is_timestamp_offset
from headrace.positions.position import Position, Positions, reached_ids_by_stream
from headrace.positions.stream_state import StreamReadError, StreamState, parse_stream_state

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamObservation:
    """A stream as it is now: its state, and the fingerprint of the entry at a position, if it exists."""

    state: StreamState
    fingerprint: str | None = None


def observe_streams(
    servers: Servers,
    streams: Iterable[str],
    positions: Mapping[str, Position] | None = None,
    reached: Mapping[str, str] | None = None,
) -> dict[str, StreamObservation]:
    """Observe the streams that exist: one round trip a shard.

    The entry at a position is read first: if it is missing, the state, read later, shows its deletion.

    Args:
        positions: for each stream, the position whose entry is read, if the position has a fingerprint.
        reached: IDs that a replica must have; by default those of the positions that the query has read.

    Raises:
        StreamReadError: if a key is not a stream, or the server rejects the request.
    """
    entry_ids = {s: each.id for s, each in (positions or {}).items() if each.fingerprint}

    def enqueue(pipe: Any, stream: str) -> None:
        if stream in entry_ids:
            pipe.xrange(stream_key(stream), entry_ids[stream], entry_ids[stream], 1)
        pipe.xinfo_stream(stream_key(stream))

    found = {}
    reached = reached_ids_by_stream(positions or {}) if reached is None else reached
    for stream, replies in servers.request_many(streams, enqueue, reached).items():
        if (observation := _parse_observation(stream, replies)) is not None:
            found[stream] = observation
    return found


def _parse_observation(stream: str, replies: list[Any]) -> StreamObservation | None:
    """Parse the replies about one stream; None if it does not exist. Raises StreamReadError."""
    *entries, info = replies
    if isinstance(info, redis.ResponseError) and "no such key" in str(info).lower():
        return None
    for reply in replies:
        if isinstance(reply, Exception):
            raise StreamReadError(stream, reply)
    fields = [entry[1] for page in entries for entry in page]
    return StreamObservation(parse_stream_state(info), entry_fingerprint(fields[0]) if fields else None)


def counter_mismatch_reason(position: Position, state: StreamState) -> str | None:
    """Return why the stream's state contradicts the position; None if it does not."""
    if position.id == START:
        return None
    read_to, number = parse_id(position.id), position.entry_number
    if parse_id(state.last_id) < read_to:
        return f"it ends at {state.last_id}"
    if number is None or state.entries_added is None:
        return None
    if state.entries_added < number:
        return f"{state.entries_added} entries were ever added to it, and it had {number} before"
    if state.last_id == position.id and position.entry_number_is_exact and state.entries_added != number:
        return f"{state.entries_added} entries were added up to that ID, and it had {number} before"
    later = 0
    if state.first_id is not None and parse_id(state.first_id) > read_to:
        later = state.length
    elif state.last_entry_id is not None and parse_id(state.last_entry_id) > read_to:
        later = 1
    if later > state.entries_added - number:
        return f"its entry {state.first_id} is one of the first {number}"
    return None


def identity_mismatch_reason(position: Position, observation: StreamObservation) -> str | None:
    """Return why the stream was recreated since the position; None if nothing shows that it was."""
    state = observation.state
    mismatch = counter_mismatch_reason(position, state)
    if mismatch is not None or position.fingerprint is None:
        return mismatch
    if observation.fingerprint is not None:
        same = observation.fingerprint == position.fingerprint
        return None if same else "the entry with that ID has other fields"
    read_to = parse_id(position.id)
    is_trimmed = state.first_id is None or parse_id(state.first_id) > read_to
    if not is_trimmed and state.max_deleted_id is not None and parse_id(state.max_deleted_id) < read_to:
        return "it has earlier entries, and no entry with that ID was deleted"
    return None


def is_read_position(position: Position, chosen_start: str | None) -> bool:
    """Return whether the query has read up to the position; False if it is only the chosen start.

    chosen_start: the ID that an option chose, if any.
    """
    return position.has_identity or not (
        position.id in (START, chosen_start) or is_timestamp_offset(position.id)
    )


class RecreationDetector:
    """Detects, from one observation to the next, which streams of a query were recreated or deleted."""

    def __init__(self, servers: Servers, *, fail_on_data_loss: bool) -> None:
        self._servers = servers
        self._states: dict[str, StreamState] | None = None
        self._missing: set[str] = set()
        self._reported: set[tuple[str, str]] = set()
        self._fail_on_data_loss = fail_on_data_loss

    @property
    def states(self) -> dict[str, StreamState] | None:
        """The states of the last observation; None before the first one."""
        return self._states

    def observe_and_report_losses(
        self, streams: Iterable[str], start: Positions, chosen_starts: Mapping[str, str]
    ) -> tuple[dict[str, StreamState], Positions, list[str]]:
        """Observe the streams, and find those that were recreated or deleted.

        Args:
            start: the positions at which the next batch begins.
            chosen_starts: for each stream, the ID that an option chose as its start.

        Returns:
            The states of the streams that exist; `start`, with recreated streams set back to their beginning;
            and descriptions of losses that were not returned before.

        Raises:
            StreamReadError: if a key is not a stream, or the server rejects the request.
        """
        observed = observe_streams(self._servers, streams, start)
        begin, losses = dict(start), []
        for stream, observation in observed.items():
            at = start.get(stream, Position())
            was_missing = stream in self._missing
            self._missing.discard(stream)
            if at.id == START or not is_read_position(at, chosen_starts.get(stream)):
                continue
            mismatch = (
                "it did not exist for a time" if was_missing else identity_mismatch_reason(at, observation)
            )
            if mismatch is not None:
                begin[stream] = Position(generation=at.generation + 1)
                losses += self._loss_once(stream, at, mismatch)
        losses += self._describe_deleted_stream_losses(start, {s: each.state for s, each in observed.items()})
        states = {stream: each.state for stream, each in observed.items()}
        self._states = states
        return states, begin, losses

    def _loss_once(self, stream: str, at: Position, mismatch: str) -> list[str]:
        """Describe the loss; only the first time if the query continues after losses."""
        if (stream, str(at)) in self._reported and not self._fail_on_data_loss:
            return []
        self._reported.add((stream, str(at)))
        return [describe_recreation(stream, at, mismatch)]

    def _describe_deleted_stream_losses(
        self, start: Positions, found: Mapping[str, StreamState]
    ) -> list[str]:
        """Record the streams that no longer exist; describe the losses of those that had unread entries."""
        before = self._states or {}
        losses = []
        for stream in sorted(before.keys() - found.keys()) if start else ():
            at = start.get(stream, Position())
            self._missing.add(stream)
            if parse_id(before[stream].last_id) > parse_id(at.id):
                losses.append(
                    f"the stream {stream!r} was deleted: it had entries up to {before[stream].last_id}, and "
                    f"the query has read it up to {at.id}."
                )
            else:
                log.warning("The stream %r was deleted; the query had read all its known entries.", stream)
        return losses

    def drop_recreated_streams(
        self, start: Positions, end: Positions, chosen_starts: Mapping[str, str]
    ) -> tuple[Positions, list[str]]:
        """Remove the streams that were recreated since the end of a batch was chosen.

        The batch is being planned, perhaps again after a restart.

        Returns:
            The end without these streams, and descriptions of losses.

        Raises:
            StreamReadError: if a key is not a stream, or the server rejects the request.
        """
        moved = [s for s in end if end[s] != start.get(s)]
        observed = observe_streams(self._servers, moved, end)
        good, losses = dict(end), []
        for stream in moved:
            observation = observed.get(stream)
            if observation is None or not is_read_position(end[stream], chosen_starts.get(stream)):
                continue  # the task itself detects missing entries
            mismatch = identity_mismatch_reason(end[stream], observation)
            if mismatch is not None:
                del good[stream]
                losses.append(
                    describe_recreation(
                        stream, end[stream], f"{mismatch}; its entries were to be read up to there"
                    )
                )
        return good, losses

    def positions_at(
        self, start: Positions, end: Mapping[str, str], numbers: Mapping[str, tuple[int, bool]]
    ) -> Positions:
        """Return the positions at the IDs of `end`, with their numbers and fingerprints as far as known.

        observe_and_report_losses() must have been called.

        Args:
            numbers: for each stream, how many entries were added up to its end, and whether exactly.

        Raises:
            StreamReadError: if the server rejects a request.
        """
        assert self._states is not None
        without_fingerprint = {}
        found = {}
        for stream, entry_id in end.items():
            before = start.get(stream, Position())
            number, exact = numbers.get(stream, (None, True))
            state = self._states.get(stream)
            if entry_id == before.id:
                found[stream] = before
                if (
                    entry_id != START
                    and before.entry_number is None
                    and state is not None
                    and state.last_id == entry_id
                ):
                    found[stream] = replace(state.end_position, generation=before.generation)
                continue
            found[stream] = Position(entry_id, number, exact, None, before.generation)
            if state is not None and state.last_entry_id == entry_id:
                found[stream] = replace(found[stream], fingerprint=state.last_entry_fingerprint)
            elif state is None or state.last_id != entry_id:
                without_fingerprint[stream] = found[stream]
        return found | self.with_fingerprints(without_fingerprint)

    def with_fingerprints(self, positions: Positions) -> Positions:
        """Return the positions with the fingerprints of the entries at their IDs: one round trip a shard.

        Raises:
            StreamReadError: if the server rejects a request.
        """
        if not positions:
            return {}

        def enqueue(pipe: Any, stream: str) -> None:
            pipe.xrange(stream_key(stream), positions[stream].id, positions[stream].id, 1)

        found = {}
        for stream, page in self._servers.request_each(positions, enqueue).items():
            if isinstance(page, Exception):
                raise StreamReadError(stream, page)
            fingerprint = entry_fingerprint(page[0][1]) if page else None
            found[stream] = replace(positions[stream], fingerprint=fingerprint)
        return found


def describe_recreation(stream: str, at: Position, mismatch: str) -> str:
    """Return the error text for a stream that was recreated."""
    return (
        f"the stream {stream!r} was deleted and recreated, or a failover took entries back: the query has "
        f"read it up to {at.id}, and {mismatch}. Entries that were not read yet may be lost."
    )
