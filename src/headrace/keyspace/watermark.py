"""Read how far a stream is archived: archive jobs publish it in a key beside the stream.

    {orders}:headrace:archived    1763676000000-4:5:9af3c01e 5f1e…c2 /lake/orders

A line for each archive: the last archived ID, the number of entries added up to it and its fingerprint, the
archive's ID, and where it is. All of them have the entries up to the lowest ID.

A stream that was deleted and created again must not be trimmed by the watermark of its predecessor. So a
watermark counts only if the stream has reached its ID, and if as many entries were added up to it or the
entry itself is the same. A watermark that was published without a number and a fingerprint counts if the
stream has reached its ID. If one of the watermarks does not count, nothing is known to be in all archives.
"""

from __future__ import annotations

from headrace import companion_keys
from headrace.errors import CommandError
from headrace.fingerprint import entry_fingerprint
from headrace.keyspace.keyspace import Database
from headrace.streams import entry_counts
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

# Of an archive, and of all archives of a stream.
LINE_BYTES_MAX = 300
VALUE_BYTES_MAX = 3000
DIGITS_MAX = 20  # of a number of entries; any client that may SET the key can write more


def has_watermark_size(value: bytes) -> bool:
    """Return whether a value is short enough to be the watermarks of a stream."""
    return len(value) <= VALUE_BYTES_MAX and max(map(len, value.split(b"\n"))) <= LINE_BYTES_MAX


def archived_id(database: Database, key: bytes, stream: Stream) -> StreamId | None:
    """Return the last ID that all archives of the stream at the key have; None if that is not known."""
    name = companion_keys.watermark_name(key)
    value = database.values.find(name) if database.contains(name) else None
    if not isinstance(value, (bytes, bytearray)):
        return None
    lowest: StreamId | None = None
    for line in bytes(value).split(b"\n"):
        archived = _parse_watermark(stream, line.partition(b" ")[0])
        if archived is None:
            return None
        if lowest is None or archived.precedes(lowest):
            lowest = archived
    return lowest


def _parse_watermark(stream: Stream, text: bytes) -> StreamId | None:
    """Return the ID of a watermark; None if it does not count for the stream."""
    parts = text.split(b":")
    try:
        archived = stream_id.parse(parts[0], 0)
    except CommandError:
        return None
    if stream.last_id().precedes(archived):
        return None
    number = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() and len(parts[1]) <= DIGITS_MAX else None
    fingerprint = parts[2].decode(errors="replace") if len(parts) > 2 else ""
    if number is None and not fingerprint:
        return archived
    return archived if _is_same(stream, archived, number, fingerprint) else None


def _is_same(stream: Stream, archived: StreamId, number: int | None, fingerprint: str) -> bool:
    """Return whether the stream is known to be the one with this number of entries and this last entry."""
    if number is not None and stream.max_deleted_id().precedes(archived):
        after = entry_counts.count_up_to(stream, archived.ms, archived.seq)
        return number == stream.entries_added - (stream.length - after)
    entry = StreamIterator(stream, archived.ms, archived.seq, archived.ms, archived.seq, False)
    if not fingerprint or not entry.next():
        return False
    words = entry.remaining_pieces()
    return entry_fingerprint(dict(zip(words[::2], words[1::2], strict=True))) == fingerprint
