"""Eviction: when memory is full, drop the oldest entries of the biggest streams, node by node.

    maxmemory                  the limit for the data, in bytes: `Keyspace.memory.limit`
    noeviction                 nothing is dropped; requests that need memory are rejected
    stream-oldest              nodes are dropped from the front of the biggest streams, as by XTRIM MINID

A stream never loses its last node, its groups, its counters or its pending entries, and keys of other types
are never touched. So there may be nothing left to drop. Then requests are rejected, too.

Streams with more than one node are tracked (`memory.evictable`), so that other keys are not searched. A
search looks at SAMPLE_SIZE of them in turn, first at the one that was chosen last. With up to SAMPLE_SIZE
such streams it finds the biggest one, otherwise one of the biggest. A heap would be exact, but every growing
stream would have to update it.
"""

from __future__ import annotations

from headrace.keyspace.effects import Effects
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.streams.stream import Stream
from headrace.structures import stream_id

SAMPLE_SIZE = 16  # streams looked at in one search
NODES_MAX = 16  # nodes dropped for one request, unless the request is larger than they were

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

    def make_room(self, wanted: int) -> bool:
        """Evict until `wanted` more bytes fit below the limit; return False if nothing more can be evicted.

        The work is bounded: it ends after NODES_MAX nodes and twice the wanted bytes.
        """
        memory = self.keyspace.memory
        most = memory.limit
        start = memory.total
        nodes = 0
        evicted: dict[Stream, int] = {}  # entries evicted from each
        stream: Stream | None = None
        while memory.total > most and (nodes < NODES_MAX or start - memory.total < 2 * wanted):
            stream = self._biggest() if self.policy == STREAM_OLDEST else None
            if stream is None:
                break
            evicted[stream] = evicted.get(stream, 0) + self._evict_first_node(stream)
            nodes += 1
        for trimmed, evicted_entries in evicted.items():
            self._record_trim(trimmed, evicted_entries)
        return memory.total <= most or stream is not None

    def reset_counters(self) -> None:
        """Reset the counters."""
        self.evicted_entries = 0
        self.peak, self.peak_ms = self.keyspace.memory.total, self.keyspace.now

    def _biggest(self) -> Stream | None:
        """Return one of the biggest streams with a node to drop, or None."""
        waiting = self.keyspace.memory.evictable
        found: Stream | None = None
        sampled = 0
        while waiting and sampled < min(SAMPLE_SIZE, len(waiting)):
            stream: Stream = next(iter(waiting))
            if len(stream.nodes) < 2:
                del waiting[stream]  # until it closes a node again
                continue
            waiting.move_to_end(stream)
            sampled += 1
            if found is None or stream.memory.total > found.memory.total:
                found = stream
        if found is not None:
            waiting.move_to_end(found, last=False)
        return found

    def _evict_first_node(self, stream: Stream) -> int:
        """Drop the first node; return how many entries it held."""
        node = stream.first_node()
        key = stream.memory.key
        assert node is not None and key is not None
        if self.keyspace.image is not None:
            self._database_of(stream, key).before_change(key)
        evicted_entries = node.live
        stream.drop_node(node)
        return evicted_entries

    def _record_trim(self, stream: Stream, evicted_entries: int) -> None:
        """Record, count and publish the eviction of so many entries, as an XTRIM does."""
        stream.update_first_id()
        self.evicted_entries += evicted_entries
        first = stream.first_node()
        key = stream.memory.key
        assert first is not None and key is not None
        database = self._database_of(stream, key)
        request = [b"XTRIM", key, b"MINID", b"=", stream_id.text_of(first.ms, first.seq)]
        self.effects.record(database.index, request)
        self.keyspace.changes += evicted_entries - 1
        database.mark_evicted(key)
        if self.keyspace.settings.notify_keyspace_events:
            self.keyspace.events.notify("t", b"xtrim", key, database.index)

    def _database_of(self, stream: Stream, key: bytes) -> Database:
        """Return the database that holds the stream. (SWAPDB moves streams, so they do not store it.)"""
        databases: list[Database] = self.keyspace.databases
        return next(database for database in databases if database.values.get(key) is stream)
