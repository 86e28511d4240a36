"""The names of keys that belong to a stream, in the same slot of a cluster as the stream.

    stream            dead letters         scheduled entries          archived through
    orders            {orders}:dead        {orders}:scheduled         {orders}:headrace:archived
    {shop}orders      {shop}orders:dead    {shop}orders::scheduled    {shop}orders::headrace:archived

Redis Cluster chooses the slot by the hash tag, the text between the first `{` and the next `}`. A name
without a tag becomes the tag. A name with a `}` but no tag cannot become one: its keys work with a single
server only.
"""

from __future__ import annotations

SCHEDULED_SUFFIX = b":scheduled"
WATERMARK_SUFFIX = b":headrace:archived"


def has_hash_tag(key: bytes) -> bool:
    """Return whether the key has a hash tag that is not empty."""
    begin = key.find(b"{")
    return 0 <= begin < key.find(b"}", begin + 1) - 1


def companion_key_prefix(key: bytes) -> bytes:
    """Return the prefix of the stream's companion keys: in its slot, and different for each stream."""
    return key + b":" if has_hash_tag(key) else b"{%b}" % key


def dead_letter_name(key: bytes) -> bytes:
    """Return the default name of a stream's dead-letter stream."""
    if not has_hash_tag(key) and b"}" in key:
        return key + b":dead"
    return (key if has_hash_tag(key) else b"{%b}" % key) + b":dead"


def schedule_name(key: bytes) -> bytes:
    """Return the key that holds the scheduled entries of a stream."""
    return companion_key_prefix(key) + SCHEDULED_SUFFIX


def stream_of_schedule_key(key: bytes) -> bytes | None:
    """Return the stream of which this key holds the scheduled entries; None if the key holds none."""
    return _stream_of(key, SCHEDULED_SUFFIX)


def schedule_target_streams(key: bytes) -> list[bytes]:
    """Return the streams that a scheduled entry of this key is moved to, one after the other.

    There are several if the key is the schedule of a schedule, and none if the key is not a schedule.
    """
    streams: list[bytes] = []
    target = stream_of_schedule_key(key)
    while target is not None:
        streams.append(target)
        target = stream_of_schedule_key(target)
    return streams


def stream_of_watermark_key(key: bytes) -> bytes | None:
    """Return the stream of which this key holds the watermarks; None if the key holds none."""
    return _stream_of(key, WATERMARK_SUFFIX)


def _stream_of(key: bytes, suffix: bytes) -> bytes | None:
    if not key.endswith(suffix):
        return None
    prefix = key.removesuffix(suffix)
    stream = prefix[:-1] if prefix.endswith(b":") else prefix[1:-1]
    return stream if stream and companion_key_prefix(stream) == prefix else None


def watermark_name(key: bytes) -> bytes:
    """Return the key of the watermarks of a stream: the ID up to which each archive has it."""
    return companion_key_prefix(key) + WATERMARK_SUFFIX
