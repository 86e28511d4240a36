"""Look at all streams of a keyspace in steps, so that other work can be done between two of them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.keyspace.keyspace import Database, Keyspace
from headrace.streams.stream import Stream

SCAN_KEYS = 500  # looked at in each step


def streams_in_steps(keyspace: Keyspace) -> Iterator[tuple[bytes, Stream] | None]:
    """Yield all streams with their keys, and None after each SCAN_KEYS keys.

    The keyspace may change between two steps; what is added then may be missed.
    """
    database: Database
    for database in keyspace.databases:
        cursor = 0
        while True:
            cursor, keys = database.values.scan(cursor, SCAN_KEYS)
            for key in keys:
                value = database.values.find(key)
                if isinstance(value, Stream):
                    yield key, value
            yield None
            if not cursor:
                break
