"""Eviction: when memory is full, drop the oldest entries of the biggest streams, node by node.

    maxmemory                  the limit for the data, in bytes: `Keyspace.memory.limit`
    noeviction                 nothing is dropped; requests that need memory are rejected
    stream-oldest              nodes are dropped from the front of the biggest streams, as by XTRIM MINID

A stream never loses its last node, its groups, its counters or its pending entries, and keys of other types
are never touched. Entries that rules keep stay, too:

    KEEP-UNACKED, KEEP-UNARCHIVED    entries that the limits of the stream must not remove either
    DISCARD NEW                      all: at a limit new entries are rejected, old ones are not removed
    DROP-ACKED                       all: a work queue holds what is still to be done
    {key}:scheduled                  all: they are not delivered yet
    a stream of dead letters         all: by MAX-DELIVERIES of a group, they are what could not be processed

So there may be nothing left to drop. Then requests are rejected, too.

Streams with more than one node are tracked (`Keyspace.evictable`), so that other keys are not searched. A
search looks at SAMPLE_SIZE of them in turn, first at the one that was chosen last. With up to SAMPLE_SIZE
such streams it finds the biggest one, otherwise one of the biggest. A heap would be exact, but every growing
stream would have to update it. A search looks at no more than LOOKED_AT_MAX streams that rules keep.
"""

from __future__ import annotations

import logging

from headrace.errors import log_text
from headrace.keyspace import watermark
from headrace.keyspace.effects import Effects
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.keyspace.log_rate_limiter import LogRateLimiter
from headrace.streams import retention
from headrace.streams.stream import Stream
from headrace.structures import stream_id

SAMPLE_SIZE = 16  # streams compared in one search
LOOKED_AT_MAX = 128  # streams looked at in one search, with those whose entries rules keep
EVICTED_NODES_MAX = 16  # nodes dropped for one request, unless the request is larger than they were

KEPT_LOG_INTERVAL_MS = 60_000  # at most one line in the log in this time

NO_EVICTION = "noeviction"
STREAM_OLDEST = "stream-oldest"
POLICIES = (NO_EVICTION, STREAM_OLDEST)


class Eviction:
    """Evicts entries of one keyspace and records one XTRIM for each stream."""

    def __init__(self, keyspace: Keyspace, effects: Effects) -> None:
        self.keyspace = keyspace
        self.effects = effects
        self.policy = NO_EVICTION
        self.evicted_entries = 0  # evicted in total
        self.peak = 0  # the highest memory use of keys and values that was seen
        self.peak_ms = 0  # when that was
        self._kept = b""  # a stream whose entries rules kept in the last search
        self._kept_log_limiter = LogRateLimiter(1, KEPT_LOG_INTERVAL_MS)

    def make_room(self, wanted: int) -> bool:
        """Evict until memory is within the limit; return False if it is above and nothing is left to evict.

        The work is bounded: it ends after EVICTED_NODES_MAX nodes, or later when twice the wanted bytes are
        freed. So True may be returned although memory is still above the limit.

        Args:
            wanted: the size of the request that needs memory, in bytes.
        """
        memory = self.keyspace.memory
        most = memory.limit
        start = memory.total
        nodes = 0
        evicted: dict[Stream, int] = {}  # entries evicted from each
        stream: Stream | None = None
        if memory.total > most and self.keyspace.cold_storage is not None:
            self.keyspace.cold_storage.cache.evict_bytes(memory.total - most)  # it can be read again
        while memory.total > most and (nodes < EVICTED_NODES_MAX or start - memory.total < 2 * wanted):
            stream = self._biggest() if self.policy == STREAM_OLDEST else None
            if stream is None:
                self._log_kept()
                break
            evicted[stream] = evicted.get(stream, 0) + self._evict_first_node(stream)
            nodes += 1
        for trimmed, evicted_entries in evicted.items():
            self._record_trim(trimmed, evicted_entries)
        return memory.total <= most or stream is not None

    def reset_counters(self) -> None:
        """Reset the number of evicted entries to 0, and the peak to the present memory use."""
        self.evicted_entries = 0
        self.peak, self.peak_ms = self.keyspace.memory.total, self.keyspace.now

    def _biggest(self) -> Stream | None:
        """Return one of the biggest streams with a node to drop, or None."""
        waiting = self.keyspace.evictable
        found: Stream | None = None
        self._kept = b""
        sampled = looked_at = 0
        while waiting and sampled < SAMPLE_SIZE and looked_at < min(LOOKED_AT_MAX, len(waiting)):
            stream: Stream = next(iter(waiting))
            if len(stream.nodes) < 2:
                del waiting[stream]  # until it closes a node again
                continue
            waiting.move_to_end(stream)
            looked_at += 1
            if self._is_kept(stream):
                self._kept = stream.memory.stream_key or b""
                continue
            sampled += 1
            if found is None or stream.memory.total > found.memory.total:
                found = stream
        if found is not None:
            waiting.move_to_end(found, last=False)
        return found

    def _is_kept(self, stream: Stream) -> bool:
        """Return whether a rule keeps an entry of the first node, or that node is cold, without memory."""
        if stream.run_count() > 0:
            return True
        registry, key = self.keyspace.rule_registry, stream.memory.stream_key
        if not registry.streams or key is None:
            return False
        ruled = registry.streams.get(stream)
        if ruled is not None and ruled.schedule_target_key is not None:
            return True
        rules = stream.rules
        if rules is not None and (rules.discard_new or rules.drop_acked):
            return True
        database = self._database_of(stream, key)
        if registry.is_dead_letter_key(database.index, key):
            return True
        if rules is None or not (rules.keep_unacked or rules.keep_unarchived):
            return False
        archived = watermark.archived_id(database, key, stream) if rules.keep_unarchived else None
        return not retention.is_first_node_removable(stream, rules, archived)

    def _log_kept(self) -> None:
        """Log that rules keep entries although memory is full, from time to time."""
        if not self._kept or not self._kept_log_limiter.try_acquire(self.keyspace.now):
            return
        logging.getLogger("headrace").warning(
            "memory is full and nothing can be evicted: rules keep the entries of streams, for example of %s;"
            " writes are rejected",
            log_text(self._kept),
        )

    def _evict_first_node(self, stream: Stream) -> int:
        """Drop the first node; return how many entries it held."""
        node = stream.first_node()
        key = stream.memory.stream_key
        assert node is not None and key is not None
        if self.keyspace.image is not None:
            self._database_of(stream, key).before_change(key)
        evicted_entries = node.live_count
        stream.drop_node(node)
        return evicted_entries

    def _record_trim(self, stream: Stream, evicted_entries: int) -> None:
        """Record, count and publish the eviction of so many entries, as an XTRIM does."""
        stream.update_first_id()
        self.evicted_entries += evicted_entries
        first = stream.first_node()
        key = stream.memory.stream_key
        assert first is not None and key is not None
        database = self._database_of(stream, key)
        request = [b"XTRIM", key, b"MINID", b"=", stream_id.text_of(first.ms, first.seq)]
        self.effects.record(database.index, request)
        self.keyspace.changes += evicted_entries - 1
        database.mark_modified_by_server(key)
        if self.keyspace.settings.notify_keyspace_events:
            self.keyspace.notifier.notify("t", b"xtrim", key, database.index)

    def _database_of(self, stream: Stream, key: bytes) -> Database:
        """Return the database that holds the stream. (SWAPDB moves streams, so they do not store it.)"""
        databases: list[Database] = self.keyspace.databases
        return next(database for database in databases if database.values.find(key) is stream)
