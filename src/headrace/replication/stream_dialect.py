"""Set how a replication stream is applied: by its dialect, which depends on the program that wrote it.

    HEADRACE   records of rules are applied: clients of Headrace cannot write them
    REDIS_7    deliveries are counted here: Redis 7 does not send the count
    REDIS_8    ENTRIESREAD is limited here: Redis 8 sends it as it was given
    OTHER      none of these

A Headrace primary tells its replicas the dialect: it may itself be a replica that passes on the stream of
another server. For other primaries only a snapshot shows the version. A primary whose snapshot was not seen
may be Redis 7, so deliveries are counted. This is harmless if the primary sends the count, too.
"""

from __future__ import annotations

from headrace.persistence.rdb.reader import LoadedSnapshot
from headrace.replication.snapshot_loading import is_of_headrace, is_of_redis_7, is_of_redis_8
from headrace.replication.stream_applier import StreamApplier

HEADRACE, REDIS_7, REDIS_8, OTHER = "headrace", "redis-7", "redis-8", "other"


def dialect_of(applier: StreamApplier) -> str:
    """Return the dialect of the stream that the applier applies."""
    if applier.accepts_rules:
        return HEADRACE
    if applier.counts_deliveries:
        return REDIS_7
    return REDIS_8 if applier.limits_entries_read else OTHER


def set_dialect(applier: StreamApplier, announced: str, snapshot: LoadedSnapshot | None) -> None:
    """Set how the applier applies the stream of a primary.

    Args:
        announced: the dialect that the primary has reported; empty if it is not Headrace.
        snapshot: the loaded snapshot that the stream continues; None if the stream continues the present
            data of this server.
    """
    if announced:
        applier.accepts_rules = announced == HEADRACE
        applier.counts_deliveries = announced == REDIS_7
        applier.limits_entries_read = announced == REDIS_8
    elif snapshot is not None:
        applier.accepts_rules = is_of_headrace(snapshot)
        applier.counts_deliveries = is_of_redis_7(snapshot)
        applier.limits_entries_read = is_of_redis_8(snapshot)
    elif applier.accepts_rules:
        applier.accepts_rules = applier.limits_entries_read = False
        applier.counts_deliveries = True
