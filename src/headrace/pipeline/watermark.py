"""The watermark of a stream: its last archived ID, published on the server for trimming.

    DIR/_spark_metadata/7              the files of batch 7 are valid: written when they are complete
    DIR/_headrace/checkpoint/offsets/7     {"orders": "1763676000000-4"}: the last ID of batch 7
    {orders}:headrace:archived         1763676000000-4:5:9af3c01e, the same on the server

The last batch that the first directory names is complete, even if the query failed afterwards; its offsets
were written before it began. So the two files give the last archived ID at any moment, without Spark.

Published entries may be trimmed, so all files are synced to disk first. The key is only raised, except when
the stream was recreated: then the archived position of the current stream replaces it.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import redis

from headrace import companion_keys
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key, stream_name
from headrace.errors import CommandError, HeadraceError
from headrace.spark.archive.files import HEADRACE_DIRECTORY, SPARK_LOG, last_batch, logged_files, read_archive
from headrace.spark.archive.files import archived_through as archived_through
from headrace.spark.sink.write_timeouts import explain_timeouts
from headrace.spark.source.history import StreamObservation, identity_mismatch
from headrace.spark.source.offsets import parse_id
from headrace.spark.source.positions import Position, entry_fingerprint, parse_position
from headrace.spark.source.stream_state import parse_stream_state

PARQUET_MAGIC = b"PAR1"  # the last bytes of a complete Parquet file


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


def raise_watermark(client: Any, stream: str, position: str) -> str:
    """Raise the stream's watermark to a position, if it is higher.

    A watermark of an earlier stream of this name is replaced even by a lower one. A position that is not of
    the current stream is not published.

    Args:
        client: A client of redis-py.
        stream: The stream's name.
        position: An ID, or an ID with the stream's identity.

    Returns:
        The ID of the watermark after the call.
    """
    watermark, name = watermark_key(stream), stream_key(stream)
    wanted = parse_position(position)
    while True:
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(watermark)
            value = pipe.get(watermark)
            current = None if value is None else parse_watermark(stream, value)
            if current is not None and not replaces_watermark(pipe, name, current, wanted):
                return current.id
            pipe.multi()
            pipe.set(watermark, str(wanted))
            try:
                pipe.execute()
                return wanted.id
            except redis.WatchError:
                continue


def replaces_watermark(client: Any, name: bytes, current: Position, wanted: Position) -> bool:
    """Return whether a position replaces the current watermark."""
    if current == wanted:
        return False
    current_matches, wanted_matches = (is_same_stream(client, name, each) for each in (current, wanted))
    if wanted_matches is False:
        return False
    if current_matches is False or wanted.generation > current.generation:
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

    def __init__(self, url: str, directory: Path) -> None:
        self._servers = Servers(url)
        self._directory = directory
        self._published_batch: int | None = None
        self._on_disk: set[Path] = set()

    def publish_new(self) -> None:
        """Publish the last archived IDs, if there is a new batch. HeadraceError if a file is incomplete."""
        batch = last_batch(self._directory)
        if batch is None or batch == self._published_batch:
            return
        archive = read_archive(self._directory)
        self._sync_archive(batch)
        for stream, last_id in archive.archived_through.items():
            position = str(archive.positions.get(stream, last_id))
            self._servers.with_retries(partial(self._raise_watermark, stream, position))
        self._published_batch = batch

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

    def _sync_archive(self, batch: int) -> None:
        """Sync what Spark has written to disk: files, logs, and their directories."""
        log, checkpoint = self._directory / SPARK_LOG, self._directory / HEADRACE_DIRECTORY / "checkpoint"
        files = logged_files(self._directory, log)
        new = files - self._on_disk
        for path in new:
            sync_parquet_file(path)
        logs = [log / str(batch), log / f"{batch}.compact"]
        logs += [checkpoint / kind / str(batch) for kind in ("offsets", "commits")]
        for path in logs:
            if path.exists():
                sync_path(path)
        within = {parent for path in new for parent in path.parents if parent.is_relative_to(self._directory)}
        for folder in (*within, log, self._directory, checkpoint, checkpoint / "offsets"):
            if folder.is_dir():
                sync_path(folder)
        self._on_disk = files


def sync_parquet_file(path: Path) -> None:
    """Sync one Parquet file to disk. HeadraceError if it is missing or incomplete."""
    try:
        with path.open("rb") as file:
            file.seek(-len(PARQUET_MAGIC), os.SEEK_END)
            is_complete = file.read() == PARQUET_MAGIC
            os.fsync(file.fileno())
    except OSError as error:
        raise HeadraceError(f"{path} is listed as archived, but cannot be read: {error.strerror}") from error
    if not is_complete:
        raise HeadraceError(f"{path} is listed as archived, but is not a complete Parquet file")


def sync_path(path: Path) -> None:
    """Sync a file, or a directory's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
