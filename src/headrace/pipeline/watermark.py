"""How far each stream is archived: read off the archive's logs (spark.archive.files), told to the server.

    DIR/_spark_metadata/7              the files of batch 7 count: written when they are complete
    DIR/_headrace/checkpoint/offsets/7     {"orders": "1763676000000-4"}: how far batch 7 reaches
    {orders}:headrace:archived         1763676000000-4:5:9af3c01e, the same in the server, for trimming

The batch that the first names last is done, whatever became of the query afterwards; the second was written
before it began. So together they are the seam, at any moment, and no reader has to ask Spark.

What the server is told may be trimmed there: so all of it is on the disk first. The key is only ever raised,
unless the stream was recreated: what is archived of it then is what is archived of the stream that is there.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import redis

from headrace.errors import CommandError, HeadraceError
from headrace.spark.archive.files import LOG, OURS, last_batch, logged_files, look
from headrace.spark.archive.files import seams as seams
from headrace.spark.servers import CONNECTION_ERRORS, Servers
from headrace.spark.sink.marker import tagged
from headrace.spark.sink.write_timeouts import timeouts_explained
from headrace.spark.source.history import Sight, difference
from headrace.spark.source.offsets import parse_id
from headrace.spark.source.positions import Position, fingerprint_of, parse_position
from headrace.spark.source.stream_state import tail_of
from headrace.spark.stream_names import key, name_of

MAGIC = b"PAR1"  # how a Parquet file ends that was written to its end


def key_of(stream: str) -> bytes:
    """The key that holds the stream's watermark; in a cluster it lies with the stream."""
    return b"%b:headrace:archived" % tagged(key(stream))


def published(client: Any, stream: str) -> str | None:
    """The watermark that the server knows, or None. HeadraceError if the key holds something else."""
    position = published_position(client, stream)
    return None if position is None else position.id


def published_position(client: Any, stream: str) -> Position | None:
    """The same with what identifies the stream that was archived.

    Raises:
        HeadraceError: if the key holds something else.
    """
    value = client.get(key_of(stream))
    return None if value is None else checked(stream, value)


def publish(client: Any, stream: str, position: str) -> str:
    """Raise the stream's watermark to a position, if it is higher.

    One that is of an earlier stream of this name is replaced, also by a lower one. And one that is not of the
    stream that is there now is not published.

    Returns:
        The ID where the watermark stands then.
    """
    watermark, name = key_of(stream), key(stream)
    wanted = parse_position(position)
    while True:
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(watermark)
            value = pipe.get(watermark)
            now = None if value is None else checked(stream, value)
            if now is not None and not is_next(pipe, name, now, wanted):
                return now.id
            pipe.multi()
            pipe.set(watermark, str(wanted))
            try:
                pipe.execute()
                return wanted.id
            except redis.WatchError:
                continue


def is_next(client: Any, name: bytes, now: Position, wanted: Position) -> bool:
    """Whether a position is to take the place of the watermark that is there."""
    if now == wanted:
        return False
    here = [at_position(client, name, each) for each in (now, wanted)]
    if here[1] is False:
        return False
    if here[0] is False or wanted.generation > now.generation:
        return True
    higher = parse_id(wanted.id) > parse_id(now.id)
    return higher or (wanted.id == now.id and not now.is_marked)


def at_position(client: Any, name: bytes, position: Position) -> bool | None:
    """Whether the stream that is there is the one of the position; None if there is none."""
    entries = client.xrange(name, position.id, position.id, 1) if position.fingerprint else []
    try:
        tail = tail_of(client.xinfo_stream(name))
    except redis.ResponseError:
        return None
    fingerprint = fingerprint_of(entries[0][1]) if entries else None
    return difference(position, Sight(tail, fingerprint)) is None


def checked(stream: str, value: bytes | str) -> Position:
    """The value of a watermark's key as a position."""
    said = value.decode(errors="replace") if isinstance(value, bytes) else value
    try:
        return parse_position(said)
    except ValueError as error:
        watermark = name_of(key_of(stream))
        raise HeadraceError(f"The key {watermark!r} holds {said!r}, which is no entry ID.") from error


class Watermark:
    """Tells the server how far an archive reaches, again and again while it grows."""

    def __init__(self, url: str, directory: Path) -> None:
        self._servers = Servers(url)
        self._directory = directory
        self._told: int | None = None
        self._on_disk: set[Path] = set()

    def tell(self) -> None:
        """Publishes the seams, if there is a batch more. HeadraceError if a file is not whole."""
        batch = last_batch(self._directory)
        if batch is None or batch == self._told:
            return
        now = look(self._directory)
        self._settle(batch)
        for stream, seam in now.seams.items():
            position = str(now.positions.get(stream, seam))
            self._servers.patiently(partial(self._publish, stream, position))
        self._told = batch

    def _publish(self, stream: str, position: str) -> None:
        try:
            with timeouts_explained(self._servers, stream):
                publish(self._servers.client(), stream, position)
        except (CommandError, redis.ResponseError) as error:
            if isinstance(
                error, (redis.exceptions.AskError, *CONNECTION_ERRORS)
            ):  # another server is to be asked
                raise
            raise HeadraceError(
                f"the server was not told that stream {stream!r} is archived up to {position}: {error}. "
                "The files are written; archive again to tell it"
            ) from error

    def close(self) -> None:
        """Closes the connection."""
        self._servers.close()

    def _settle(self, batch: int) -> None:
        """Puts on the disk what Spark has only written: files, logs, and the directories that name them."""
        log, checkpoint = self._directory / LOG, self._directory / OURS / "checkpoint"
        files = logged_files(self._directory, log)
        new = files - self._on_disk
        for path in new:
            settle_file(path)
        logs = [log / str(batch), log / f"{batch}.compact"]
        logs += [checkpoint / kind / str(batch) for kind in ("offsets", "commits")]
        for path in logs:
            if path.exists():
                sync(path)
        within = {parent for path in new for parent in path.parents if parent.is_relative_to(self._directory)}
        for folder in (*within, log, self._directory, checkpoint, checkpoint / "offsets"):
            if folder.is_dir():
                sync(folder)
        self._on_disk = files


def settle_file(path: Path) -> None:
    """Puts one Parquet file on the disk. HeadraceError if it is missing or not whole."""
    try:
        with path.open("rb") as file:
            file.seek(-len(MAGIC), os.SEEK_END)
            whole = file.read() == MAGIC
            os.fsync(file.fileno())
    except OSError as error:
        raise HeadraceError(f"{path}, which counts as archived, cannot be read: {error.strerror}") from error
    if not whole:
        raise HeadraceError(f"{path}, which counts as archived, is not a whole Parquet file")


def sync(path: Path) -> None:
    """Puts a file's bytes, or a directory's names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
