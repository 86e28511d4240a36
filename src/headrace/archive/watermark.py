"""The watermarks of a stream: up to which entry each archive has it, published on the server for trimming.

    {orders}:headrace:archived     1763676000000-4:5:9af3c01e 5f1e…c2 /lake/orders
                                   1763670000000-0:3:1c27ab88 a07d…91 s3://lake/orders

A line for each archive: the position in a commit of its table, the ID of the table, and where it is. Entries
that all archives have may be trimmed, so a position is published after the commit and all its files are on
disk. An archive has a line, with 0-0, before it reads the first entry.

The ID is that of the Delta table: it stays the same if the table is moved or set back. A line is only raised,
except when the stream was recreated: then the archived position of the current stream replaces it; and when
the table no longer has what was published. Earlier versions published one position for all archives, without
an ID. Nothing raises such a position, so trimming stops there until it is released.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

import redis

from headrace import companion_keys
from headrace.client.stream_names import stream_key, stream_name
from headrace.errors import HeadraceError
from headrace.fingerprint import entry_fingerprint
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.position import Position, parse_position
from headrace.positions.recreation import StreamObservation, identity_mismatch_reason
from headrace.positions.stream_state import parse_stream_state

LOCATION_BYTES_MAX = 1000  # as encoded; of a longer one its end is published
UNKNOWN_ARCHIVE_NAME = "unknown"  # the name of an archive whose watermark has no ID


@dataclass(frozen=True)
class Watermark:
    """The position up to which one archive has a stream.

    Attributes:
        position: The last archived position; START if the archive has no entry yet.
        table_id: The ID of the archive's table; empty if an earlier version has published the position.
        location: Where the archive is; only the end of a long text.
    """

    position: Position
    table_id: str = ""
    location: str = ""

    @property
    def archive_name(self) -> str:
        """The location, otherwise the table ID; UNKNOWN_ARCHIVE_NAME if both are empty."""
        return self.location or self.table_id or UNKNOWN_ARCHIVE_NAME

    @property
    def has_entries(self) -> bool:
        """Whether the archive has an entry of the stream."""
        return self.position.id != START

    def __str__(self) -> str:
        return " ".join(
            part
            for part in (str(self.position), self.table_id, percent_encoded_location(self.location))
            if part
        )


def percent_encoded_location(location: str) -> str:
    """Return a location without spaces and control characters, cut to its last LOCATION_BYTES_MAX bytes."""
    return quote(location, safe="/:@.~+=,").encode()[-LOCATION_BYTES_MAX:].decode()


def watermark_key(stream: str) -> bytes:
    """Return the key of the stream's watermarks; its hash tag puts it into the stream's slot of a cluster."""
    return companion_keys.watermark_name(stream_key(stream))


def published_watermarks(client: Any, stream: str) -> list[Watermark]:
    """Return the watermarks of a stream, the lowest first.

    Raises:
        HeadraceError: if the key holds something else.
    """
    return parse_watermarks(stream, client.get(watermark_key(stream)))


def lowest_published_id(client: Any, stream: str) -> str | None:
    """Return the ID up to which all archives have a stream; None if there is no archive, or one has no entry.

    Raises:
        HeadraceError: if the key holds something else.
    """
    watermarks = published_watermarks(client, stream)
    return watermarks[0].position.id if watermarks and watermarks[0].has_entries else None


def parse_watermarks(stream: str, value: bytes | str | None) -> list[Watermark]:
    """Parse the value of the key: watermarks, the lowest first. Raises HeadraceError if it is malformed."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value or ""
    try:
        found = [parse_watermark(line) for line in text.split("\n") if text]
    except ValueError as error:
        key = stream_name(watermark_key(stream))
        raise HeadraceError(
            f"the key {key!r} holds {text!r}, which is not a watermark; delete the key and run "
            "the archive job again to publish it"
        ) from error
    return sorted(found, key=lambda each: parse_id(each.position.id))


def parse_watermark(line: str) -> Watermark:
    """Parse a line of the key. Raises ValueError if it is not a watermark."""
    position, table, location, *others = [*line.split(" "), "", ""]
    if any(others):
        raise ValueError(f"{line!r} has more than three words")
    return Watermark(parse_position(position), table, unquote(location))


def change_watermarks(
    client: Any, stream: str, change: Callable[[Any, list[Watermark]], Sequence[Watermark]]
) -> list[Watermark]:
    """Replace the watermarks of a stream, atomically.

    Args:
        client: A client of redis-py.
        stream: The stream's name.
        change: Called with a client for reading and the present watermarks; returns the new ones. It is
            called again if another client has changed them meanwhile.

    Returns:
        The watermarks after the call, the lowest first.

    Raises:
        HeadraceError: if the key holds something other than watermarks.
    """
    key = watermark_key(stream)
    while True:
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(key)
            present = parse_watermarks(stream, pipe.get(key))
            wanted = sorted(change(pipe, present), key=lambda each: parse_id(each.position.id))
            if wanted == present:
                return present
            pipe.multi()
            if wanted:
                pipe.set(key, "\n".join(map(str, wanted)))
            else:
                pipe.delete(key)
            try:
                pipe.execute()
                return wanted
            except redis.WatchError:
                continue


def raise_watermark(client: Any, stream: str, wanted: Watermark) -> str | None:
    """Raise the watermark of an archive, if the new one is higher.

    A watermark of an earlier stream of this name is replaced even by a lower one. A position that is not of
    the current stream is not published.

    Args:
        client: A client of redis-py that does not decode replies.
        stream: The stream's name.
        wanted: The new watermark.

    Returns:
        The ID of the archive's watermark after the call; None if it has none.

    Raises:
        HeadraceError: if the key holds something other than watermarks.
    """

    def change(pipe: Any, present: list[Watermark]) -> list[Watermark]:
        own, others = split_by_table(present, wanted.table_id)
        current = None if own is None else own.position
        if not replaces_watermark(pipe, stream_key(stream), current, wanted.position):
            return present
        return [*others, wanted]

    own, _ = split_by_table(change_watermarks(client, stream, change), wanted.table_id)
    return None if own is None else own.position.id


def lower_watermark(client: Any, stream: str, limit: Watermark, *, is_job: bool) -> None:
    """Lower the watermark of an archive to what its table has.

    Args:
        client: A client of redis-py.
        stream: The stream's name.
        limit: What the table has.
        is_job: Whether a job archives the stream now. Then a missing watermark is added, with 0-0, which
            keeps what the job has not read yet.

    Raises:
        HeadraceError: if the key holds something other than watermarks.
    """

    def change(pipe: Any, present: list[Watermark]) -> list[Watermark]:
        own, others = split_by_table(present, limit.table_id)
        if own is None:
            return [*others, replace(limit, position=Position())] if is_job else others
        is_higher = parse_id(own.position.id) > parse_id(limit.position.id)
        return [*others, limit if is_higher else replace(own, location=limit.location)]

    change_watermarks(client, stream, change)


def split_by_table(watermarks: list[Watermark], table: str) -> tuple[Watermark | None, list[Watermark]]:
    """Return the watermark of a table, if there is one, and the others."""
    own = [each for each in watermarks if each.table_id == table]
    return own[0] if own else None, [each for each in watermarks if each.table_id != table]


def replaces_watermark(client: Any, name: bytes, current: Position | None, wanted: Position) -> bool:
    """Return whether a position replaces the current watermark, if there is one."""
    if current == wanted or is_same_stream(client, name, wanted) is False:
        return False
    if current is None or is_same_stream(client, name, current) is False:
        return True
    if wanted.generation > current.generation:
        return True
    higher = parse_id(wanted.id) > parse_id(current.id)
    return higher or (wanted.id == current.id and not current.has_identity)


def is_same_stream(client: Any, name: bytes, position: Position) -> bool | None:
    """Return whether the current stream is the one of the position; None if there is no stream."""
    entries = client.xrange(name, position.id, position.id, 1) if position.fingerprint else []
    try:
        tail = parse_stream_state(client.xinfo_stream(name))
    except redis.ResponseError:
        return None
    fingerprint = entry_fingerprint(entries[0][1]) if entries else None
    return identity_mismatch_reason(position, StreamObservation(tail, fingerprint)) is None
