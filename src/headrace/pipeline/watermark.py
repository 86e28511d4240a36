"""The watermark of a stream: its last archived ID, published on the server for trimming.

    {orders}:headrace:archived         1763676000000-4:5:9af3c01e

It is the position in a commit of the archive. Published entries may be trimmed, so it is published after the
commit and all its files are on disk. The key is only raised, except when the stream was recreated: then the
archived position of the current stream replaces it; and when another program has set the archive back.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import redis

from headrace import companion_keys
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key, stream_name
from headrace.errors import CommandError, HeadraceError
from headrace.spark.sink.write_timeouts import explain_timeouts
from headrace.spark.source.history import StreamObservation, identity_mismatch
from headrace.spark.source.offsets import START, parse_id
from headrace.spark.source.positions import Position, Positions, entry_fingerprint, parse_position
from headrace.spark.source.stream_state import parse_stream_state


def watermark_key(stream: str) -> bytes:
    """Return the key of the stream's watermark; its hash tag puts it into the stream's slot of a cluster."""
    return companion_keys.watermark_name(stream_key(stream))


def published_id(client: Any, stream: str) -> str | None:
    """Return the last archived ID according to the server; None if there is no watermark.

    Raises:
        HeadraceError: if the key holds something else.
    """
    position = published_position(client, stream)
    return None if position is None else position.id


def published_position(client: Any, stream: str) -> Position | None:
    """Return the watermark with the identity of the archived stream; None if there is none.

    Raises:
        HeadraceError: if the key holds something else.
    """
    value = client.get(watermark_key(stream))
    return None if value is None else parse_watermark(stream, value)


def raise_watermark(client: Any, stream: str, position: str) -> str | None:
    """Raise the stream's watermark to a position, if it is higher.

    A watermark of an earlier stream of this name is replaced even by a lower one. A position that is not of
    the current stream is not published.

    Args:
        client: A client of redis-py that does not decode replies.
        stream: The stream's name.
        position: An ID, or an ID with the stream's identity.

    Returns:
        The ID of the watermark after the call; None if there is none.
    """
    watermark, name = watermark_key(stream), stream_key(stream)
    wanted = parse_position(position)
    while True:
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(watermark)
            value = pipe.get(watermark)
            current = None if value is None else parse_watermark(stream, value)
            if not replaces_watermark(pipe, name, current, wanted):
                return None if current is None else current.id
            pipe.multi()
            pipe.set(watermark, str(wanted))
            try:
                pipe.execute()
                return wanted.id
            except redis.WatchError:
                continue


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
    return identity_mismatch(position, StreamObservation(tail, fingerprint)) is None


def parse_watermark(stream: str, value: bytes | str) -> Position:
    """Return the value of a watermark's key as a position. HeadraceError if it is not one."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    try:
        return parse_position(text)
    except ValueError as error:
        watermark = stream_name(watermark_key(stream))
        raise HeadraceError(
            f"the key {watermark!r} holds {text!r}, which is not a watermark; delete the key and run "
            "the archive job again to publish it"
        ) from error


class WatermarkPublisher:
    """Publishes the last archived ID of each stream on the server, after each batch of an archive."""

    def __init__(self, url: str) -> None:
        self._servers = Servers(url)
        self._published: Positions = {}

    def publish(self, positions: Positions) -> None:
        """Publish positions up to which streams are archived on disk.

        Raises:
            HeadraceError: if the server rejects one.
        """
        for stream, position in positions.items():
            if position != self._published.get(stream) and position.id != START:
                self._servers.with_retries(partial(self._raise_watermark, stream, str(position)))
                self._published[stream] = position

    def lower(self, positions: Positions) -> None:
        """Lower the watermarks of streams that are archived only up to these positions now."""
        for stream, position in positions.items():
            self._servers.with_retries(partial(self._lower_watermark, stream, position))

    def _lower_watermark(self, stream: str, position: Position) -> None:
        client = self._servers.client()
        current = published_position(client, stream)
        if current is None or parse_id(current.id) <= parse_id(position.id):
            return
        if position.id == START:
            client.delete(watermark_key(stream))
        else:
            client.set(watermark_key(stream), str(position))

    def _raise_watermark(self, stream: str, position: str) -> None:
        try:
            with explain_timeouts(self._servers, stream):
                raise_watermark(self._servers.client(), stream, position)
        except (CommandError, redis.ResponseError) as error:
            # Retried with another server.
            if isinstance(error, (redis.exceptions.AskError, *CONNECTION_ERRORS)):
                raise
            raise HeadraceError(
                f"stream {stream!r} is archived up to {position}, but the server rejected that watermark: "
                f"{error}. The files are complete; run the archive job again to publish it"
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self._servers.close()
