"""How far each stream is archived: read off the archive's logs (spark.archive_files), told to the server.

    DIR/_spark_metadata/7              the files of batch 7 count: written when they are complete
    DIR/_headrace/checkpoint/offsets/7     {"orders": "1763676000000-4"}: how far batch 7 reaches
    {orders}:headrace:archived         the same in the server, where trimming looks for it

The batch that the first names last is done, whatever became of the query afterwards; the second was written
before it began. So together they are the seam, at any moment, and no reader has to ask Spark.

What the server is told may be trimmed there: so all of it is on the disk first. The key is only ever raised.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import redis

from headrace.errors import CommandError, HeadraceError
from headrace.spark.archive_files import LOG, OURS, last_batch, logged_files
from headrace.spark.archive_files import seams as seams
from headrace.spark.marker import tagged
from headrace.spark.offsets import parse_id
from headrace.spark.shards import LOST, Servers
from headrace.spark.silence import timeouts_explained

MAGIC = b"PAR1"  # how a Parquet file ends that was written to its end


def key_of(stream: str) -> str:
    """The key that holds the stream's watermark; in a cluster it lies with the stream."""
    return f"{tagged(stream.encode()).decode()}:headrace:archived"


def published(client: Any, stream: str) -> str | None:
    """The watermark that the server knows, or None. HeadraceError if the key holds something else."""
    value = client.get(key_of(stream))
    return None if value is None else checked(stream, value)


def publish(client: Any, stream: str, entry_id: str) -> str:
    """Raises the stream's watermark to the ID, if it is higher; returns where it stands then."""
    key = key_of(stream)
    parse_id(entry_id)
    while True:
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(key)
            value = pipe.get(key)
            now = None if value is None else checked(stream, value)
            if now is not None and parse_id(now) >= parse_id(entry_id):
                return now
            pipe.multi()
            pipe.set(key, entry_id)
            try:
                pipe.execute()
                return entry_id
            except redis.WatchError:
                continue


def checked(stream: str, value: bytes | str) -> str:
    """The value of a watermark's key as an ID."""
    said = value.decode(errors="replace") if isinstance(value, bytes) else value
    try:
        parse_id(said)
    except ValueError as error:
        raise HeadraceError(f"The key {key_of(stream)!r} holds {said!r}, which is no entry ID.") from error
    return said


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
        reached = seams(self._directory)
        self._settle(batch)
        for stream, entry_id in reached.items():
            self._servers.patiently(partial(self._publish, stream, entry_id))
        self._told = batch

    def _publish(self, stream: str, entry_id: str) -> None:
        try:
            with timeouts_explained(self._servers, stream):
                publish(self._servers.client(), stream, entry_id)
        except (CommandError, redis.ResponseError) as error:
            if isinstance(error, (redis.exceptions.AskError, *LOST)):  # another server is to be asked
                raise
            raise HeadraceError(
                f"the server was not told that stream {stream!r} is archived up to {entry_id}: {error}. "
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
