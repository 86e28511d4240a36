"""A reader of a stream, as a link has it."""

from __future__ import annotations

from headrace.replication.stream_reader import ReplicationReader


def opened_reader(stream: bytes) -> ReplicationReader:
    """Return a reader that has these bytes of the stream."""
    reader = ReplicationReader(0, lambda: None)
    reader.is_open = True
    reader.feed(stream)
    return reader
