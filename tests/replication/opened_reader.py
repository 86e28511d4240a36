"""A reader of a stream, as a link has it."""

from __future__ import annotations

from headrace.replication.stream_reader import StreamReader


def opened_reader(stream: bytes) -> StreamReader:
    """Return a reader that has these bytes of the stream."""
    reader = StreamReader(0, lambda: None)
    reader.is_open = True
    reader.feed(stream)
    return reader
