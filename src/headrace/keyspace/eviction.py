"""Room when memory is full: the oldest entries of the biggest streams go, node by node.

    memory.limit                what the data may weigh: `maxmemory`
    noeviction                 nothing goes, and requests that need memory are refused
    stream-oldest              nodes go from the front of the biggest streams, as by XTRIM MINID

A stream never loses its last node, its groups, its counters or what is pending, and a key of another type is
never touched. So there can be nothing left to go: then, too, requests are refused.

Which stream is the biggest? Streams that have closed a node are on a list (memory.evictable), so there is no
search among keys that could give nothing. Of that list each search looks at some, in turn, and at the one
it chose the last time, which stands first: with up to LOOKED_AT such streams that is the biggest, with more
of them one of the biggest. A heap would be exact, but it would cost every stream that grows.
"""

from __future__ import annotations

from typing import Protocol

from headrace.keyspace.keyspace import Database, Keyspace
from headrace.streams.stream import Stream
from headrace.structures import stream_id

SAMPLE_SIZE = 16  # streams, in one search
NODES_MAX = 16  # that go for one request, unless it brings more than they held

NO_EVICTION = "noeviction"
STREAM_OLDEST = "stream-oldest"
POLICIES = (NO_EVICTION, STREAM_OLDEST)


class EffectRecorder(Protocol):
    """Keeps what has changed: engine/effects.py."""

    def record(self, database: int, request: list[bytes], /) -> None:
        """Words, a whole request, have changed that database."""


class Eviction:
    """Makes room in one keyspace, and has it recorded, a request for each stream."""

    def __init__(self, keyspace: Keyspace, effects: EffectRecorder) -> None:
        self.keyspace = keyspace
        self.effects = effects
        self.policy = NO_EVICTION
        self.evicted_entries = 0  # that had to go so far
        self.peak = 0  # the most that keys and values ever weighed, as far as anybody looked

    def make_room(self, wanted: int) -> bool:
        """Try to get below the limit before `wanted` more bytes come; False when nothing more can go.

        The work is bounded: it is enough when NODES_MAX nodes have gone and twice the bytes that come.
        """
        memory = self.keyspace.memory
        most = memory.limit
        start = memory.total
        nodes = 0
        evicted: dict[Stream, int] = {}  # entries that went
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
        """Counts start anew."""
        self.evicted_entries = 0
        self.peak = self.keyspace.memory.total

    def _biggest(self) -> Stream | None:
        """One of the biggest streams that have a node to give; None when there is none."""
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
        """Let the first node go; how many entries it held."""
        node = stream.first_node()
        assert node is not None
        evicted_entries = node.live
        stream.drop_node(node)
        return evicted_entries

    def _record_trim(self, stream: Stream, evicted_entries: int) -> None:
        """So many entries of the stream have gone: all who must hear of it do, as of an XTRIM."""
        stream.update_first_id()
        self.evicted_entries += evicted_entries
        first = stream.first_node()
        key = stream.memory.key
        assert first is not None and key is not None
        database = self._database_of(stream, key)
        request = [b"XTRIM", key, b"MINID", b"=", stream_id.text_of(first.ms, first.seq)]
        self.effects.record(database.index, request)
        self.keyspace.changes += evicted_entries - 1
        database.mark_modified(key)
        if self.keyspace.settings.notify_keyspace_events:
            self.keyspace.events.notify("t", b"xtrim", key, database.index)

    def _database_of(self, stream: Stream, key: bytes) -> Database:
        """The database that has the stream. (SWAPDB moves all streams at once, so none knows its own.)"""
        databases: list[Database] = self.keyspace.databases
        return next(database for database in databases if database.values.get(key) is stream)
