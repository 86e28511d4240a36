"""The program that writes a stream, its origin: it decides how the stream is applied.

    FROM_HEADRACE   records of rules are applied: clients of Headrace cannot write them
    FROM_REDIS_7    deliveries are counted here: Redis 7 does not send the count
    FROM_REDIS_8    ENTRIESREAD is limited here: Redis 8 sends it as it was given
    FROM_OTHER      none of them

A primary that is Headrace tells its replicas, because it may itself be a replica that passes a stream on. Of
other primaries only a snapshot shows the version. Without one they may be Redis 7: to count deliveries is
harmless if the count is sent, too.
"""

from __future__ import annotations

from headrace.persistence.rdb.reader import LoadedSnapshot
from headrace.replication.snapshot_loading import is_of_headrace, is_of_redis_7, is_of_redis_8
from headrace.replication.stream_applier import StreamApplier

FROM_HEADRACE, FROM_REDIS_7, FROM_REDIS_8, FROM_OTHER = "headrace", "redis-7", "redis-8", "other"


def origin_of(applier: StreamApplier) -> str:
    """Return the origin of the stream that the applier applies."""
    if applier.accepts_rules:
        return FROM_HEADRACE
    if applier.counts_deliveries:
        return FROM_REDIS_7
    return FROM_REDIS_8 if applier.limits_entries_read else FROM_OTHER


def set_origin(applier: StreamApplier, announced: str, snapshot: LoadedSnapshot | None) -> None:
    """Set how the applier applies the stream of a primary.

    Args:
        announced: what the primary said; empty if it is not Headrace.
        snapshot: that the stream continues; None if it continues the data that are here.
    """
    if announced:
        applier.accepts_rules = announced == FROM_HEADRACE
        applier.counts_deliveries = announced == FROM_REDIS_7
        applier.limits_entries_read = announced == FROM_REDIS_8
    elif snapshot is not None:
        applier.accepts_rules = is_of_headrace(snapshot)
        applier.counts_deliveries = is_of_redis_7(snapshot)
        applier.limits_entries_read = is_of_redis_8(snapshot)
    elif applier.accepts_rules:
        applier.accepts_rules = applier.limits_entries_read = False
        applier.counts_deliveries = True
