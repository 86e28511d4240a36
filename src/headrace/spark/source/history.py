"""Whether a stream is still the one that a query has read: recreated streams are recognized here.

A position is what was known of the stream, a tail is what XINFO STREAM says of it now. They are of one
history only if all of this holds (i, n: the position's ID and number):

    last-generated-id      is not below i
    entries-added          is not below n, and is n if the last ID is i
    entries after i        are at most entries-added - n
    the entry i            has the fingerprint that it had; or it was deleted, as max-deleted-entry-id
                           tells, or trimmed, and then no earlier entry is left

Without counters (servers before Redis 7) the first and the last line remain. A stream that was recreated with
the same IDs, the same fields at i and as many entries up to i passes: nothing tells it apart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import redis

from headrace.spark.options import Options
from headrace.spark.servers import Servers, StreamRefused
from headrace.spark.source.offsets import START, is_time, parse_id
from headrace.spark.source.positions import Position, Positions, fingerprint_of
from headrace.spark.source.stream_state import Tail, tail_of
from headrace.spark.stream_names import key

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sight:
    """A stream as it is now: its tail, and the fingerprint of the entry at a position, if it is there."""

    tail: Tail
    fingerprint: str | None = None


def sights(
    servers: Servers, streams: Iterable[str], positions: Mapping[str, Position] | None = None
) -> dict[str, Sight]:
    """Look at those streams that exist: one round trip a shard.

    The entry at a position is asked for first: if it is missing, the tail already tells of its deletion.

    Raises:
        StreamRefused: if a key is no stream, or the server refuses to show it.
    """
    marked = {s: each.id for s, each in (positions or {}).items() if each.fingerprint}

    def put(pipe: Any, stream: str) -> None:
        if stream in marked:
            pipe.xrange(key(stream), marked[stream], marked[stream], 1)
        pipe.xinfo_stream(key(stream))

    found = {}
    for stream, answers in servers.ask_each(streams, put).items():
        if (sight := _sight_of(stream, answers)) is not None:
            found[stream] = sight
    return found


def _sight_of(stream: str, answers: list[Any]) -> Sight | None:
    """What the answers of one stream say; None if it does not exist."""
    *entries, info = answers
    if isinstance(info, redis.ResponseError) and "no such key" in str(info).lower():
        return None
    for answer in answers:
        if isinstance(answer, Exception):
            raise StreamRefused(stream, answer)
    fields = [entry[1] for page in entries for entry in page]
    return Sight(tail_of(info), fingerprint_of(fields[0]) if fields else None)


def contradiction(position: Position, now: Tail) -> str | None:
    """Say why the stream cannot be the one that the position is of, going by its tail; None if it can."""
    if position.id == START:
        return None
    place, number = parse_id(position.id), position.number
    if parse_id(now.last) < place:
        return f"it ends at {now.last}"
    if number is None or now.added is None:
        return None
    if now.added < number:
        return f"it was given {now.added} entries, and had been given {number}"
    if now.last == position.id and position.exact and now.added != number:
        return f"it was given {now.added} entries up to that ID, and had been given {number}"
    later = 0
    if now.first is not None and parse_id(now.first) > place:
        later = now.length
    elif now.last_entry is not None and parse_id(now.last_entry) > place:
        later = 1
    if later > now.added - number:
        return f"its entry {now.first} is one of the first {number}"
    return None


def difference(position: Position, sight: Sight) -> str | None:
    """Say why the stream is not the one that the position is of; None if nothing shows that."""
    now = sight.tail
    why = contradiction(position, now)
    if why is not None or position.fingerprint is None:
        return why
    if sight.fingerprint is not None:
        return (
            None if sight.fingerprint == position.fingerprint else "the entry with that ID has other fields"
        )
    place = parse_id(position.id)
    is_trimmed = now.first is None or parse_id(now.first) > place
    if not is_trimmed and now.deleted is not None and parse_id(now.deleted) < place:
        return "it has earlier entries, and no entry with that ID was deleted"
    return None


def is_read(position: Position, chosen: str | None) -> bool:
    """Whether the query has read up to the position; chosen: where the options say that it starts."""
    return position.is_marked or not (position.id in (START, chosen) or is_time(position.id))


class StreamHistories:
    """What one query knows of the histories of its streams, from one look to the next."""

    def __init__(self, servers: Servers, options: Options) -> None:
        self._servers = servers
        self._tails: dict[str, Tail] | None = None
        self._missing: set[str] = set()
        self._reported: set[tuple[str, str]] = set()
        self._fails = options.fail_on_data_loss

    @property
    def tails(self) -> dict[str, Tail] | None:
        """The streams as they were at the last look; None before the first."""
        return self._tails

    def look(
        self, streams: Iterable[str], start: Positions, chosen: Mapping[str, str]
    ) -> tuple[dict[str, Tail], Positions, list[str]]:
        """Look at the streams.

        Returns:
            The tails of those that exist; the start, where a recreated stream is set back to its beginning;
            and what was lost, in words, as far as it has not been returned before.
        """
        seen = sights(self._servers, streams, start)
        begin, losses = dict(start), []
        for stream, sight in seen.items():
            at = start.get(stream, Position())
            was_missing = stream in self._missing
            self._missing.discard(stream)
            if at.id == START or not is_read(at, chosen.get(stream)):
                continue
            why = "it was gone for a while" if was_missing else difference(at, sight)
            if why is not None:
                begin[stream] = Position(generation=at.generation + 1)
                losses += self._once(stream, at, why)
        losses += self._gone(start, {s: sight.tail for s, sight in seen.items()})
        found = {stream: sight.tail for stream, sight in seen.items()}
        self._tails = found
        return found, begin, losses

    def _once(self, stream: str, at: Position, why: str) -> list[str]:
        """The loss in words, but in a query that goes on only the first time."""
        if (stream, str(at)) in self._reported and not self._fails:
            return []
        self._reported.add((stream, str(at)))
        return [recreated(stream, at, why)]

    def _gone(self, start: Positions, found: Mapping[str, Tail]) -> list[str]:
        """Note the streams that have vanished; return the losses of those that had unread entries."""
        before = self._tails or {}
        losses = []
        for stream in sorted(before.keys() - found.keys()) if start else ():
            at = start.get(stream, Position())
            self._missing.add(stream)
            if parse_id(before[stream].last) > parse_id(at.id):
                losses.append(
                    f"the stream {stream!r} was deleted: it had entries up to {before[stream].last}, and the "
                    f"query has read it up to {at.id}."
                )
            else:
                log.warning("The stream %r is gone; the query had read all of it that it knew.", stream)
        return losses

    def check_batch(
        self, start: Positions, end: Positions, chosen: Mapping[str, str]
    ) -> tuple[Positions, list[str]]:
        """Look at the streams of a batch that is planned, perhaps again after a restart.

        Returns:
            The end, without the streams that were recreated since it was chosen; and what was lost, in words.
        """
        moved = [s for s in end if end[s] != start.get(s)]
        seen = sights(self._servers, moved, end)
        good, losses = dict(end), []
        for stream in moved:
            sight = seen.get(stream)
            if sight is None or not is_read(end[stream], chosen.get(stream)):
                continue  # the task finds out by itself what is missing
            why = difference(end[stream], sight)
            if why is not None:
                del good[stream]
                losses.append(
                    recreated(stream, end[stream], f"{why}; its entries were to be read up to there")
                )
        return good, losses

    def marked(
        self, start: Positions, end: Mapping[str, str], numbers: Mapping[str, tuple[int, bool]]
    ) -> Positions:
        """The positions of the IDs in end, each with what is known of it.

        numbers: of the streams for which it is known how many entries they were given up to there, and
        whether exactly.
        """
        assert self._tails is not None
        asked = {}
        found = {}
        for stream, entry_id in end.items():
            before = start.get(stream, Position())
            number, exact = numbers.get(stream, (None, True))
            now = self._tails.get(stream)
            if entry_id == before.id:
                found[stream] = before
                if entry_id != START and before.number is None and now is not None and now.last == entry_id:
                    found[stream] = replace(now.position, generation=before.generation)
                continue
            found[stream] = Position(entry_id, number, exact, None, before.generation)
            if now is not None and now.last_entry == entry_id:
                found[stream] = replace(found[stream], fingerprint=now.fingerprint)
            elif now is None or now.last != entry_id:
                asked[stream] = found[stream]
        return found | self._fingerprinted(asked)

    def _fingerprinted(self, positions: Positions) -> Positions:
        """The positions with the fingerprints of their entries. One round trip a shard."""
        if not positions:
            return {}

        def put(pipe: Any, stream: str) -> None:
            pipe.xrange(key(stream), positions[stream].id, positions[stream].id, 1)

        found = {}
        for stream, page in self._servers.ask(positions, put).items():
            if isinstance(page, Exception):
                raise StreamRefused(stream, page)
            mark = fingerprint_of(page[0][1]) if page else None
            found[stream] = replace(positions[stream], fingerprint=mark)
        return found


def recreated(stream: str, at: Position, why: str) -> str:
    """Say that a stream is not the one that was read."""
    return (
        f"the stream {stream!r} was deleted and recreated, or a failover took entries back: the query has "
        f"read it up to {at.id}, and {why}. Entries that were not read yet may be lost."
    )
