"""The RDB versions that can be written, and which servers load them.

    name          magic       stream type    what the stream type adds          loaded by
    compatible    REDIS0010   19                                                Redis 7.0 on, Valkey
    redis-7.2     REDIS0011   21             when consumers were last active    Redis 7.2 on, Valkey
    redis-8.0     REDIS0012   21                                                Redis 8.0 on
    redis-8.6     REDIS0013   26             idempotent producers               Redis 8.6 on
    redis-8.8     REDIS0014   27             pending entries without an owner   Redis 8.8 on

Headrace itself loses nothing in any of them: see stream_extras.py. A full synchronisation sends `compatible`,
which every replica loads.
"""

from __future__ import annotations

from typing import NamedTuple

# What the stream types add to those below them.
TYPE_ACTIVE_TIMES = 21
TYPE_IDEMPOTENCY = 26
TYPE_UNOWNED = 27
# A stream that refers to cold files: see cold_stream.py. No other server is known to use it.
TYPE_COLD = 150


class RdbVersion(NamedTuple):
    """A version of RDB: its name for rdb-stream-types, the number in the magic, the type byte of streams."""

    name: str
    rdb_version: int
    stream_type: int


COMPATIBLE_VERSION = RdbVersion("compatible", 10, 19)
VERSIONS = (
    COMPATIBLE_VERSION,
    RdbVersion("redis-7.2", 11, 21),
    RdbVersion("redis-8.0", 12, 21),
    RdbVersion("redis-8.6", 13, 26),
    RdbVersion("redis-8.8", 14, 27),
)


def by_name(name: str) -> RdbVersion:
    """Return the version of this name; raise ValueError if there is none."""
    for version in VERSIONS:
        if version.name == name:
            return version
    raise ValueError(f"no such RDB version: {name!r}; there are {', '.join(v.name for v in VERSIONS)}")
