"""Free large values in steps: a million keys, or a stream of a gigabyte, take long to free at once.

    FLUSHALL, DEL ... ──▶ waiting: [ keys of a database, stream, ... ] ──step, once a millisecond──▶ freed
                                                     │   ▲
                                                     ▼   │ a container is replaced by what it contains
                                          tree of nodes, groups, blocks of pending entries

What waits here is in no database and in no memory account any more.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace.keyspace.key_expiry_times import KeyExpiryTimes
from headrace.keyspace.key_table import KeyTable
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.pending import PendingEntries
from headrace.streams.pending_index import PendingIndex
from headrace.streams.stream import Stream
from headrace.structures.rax import RaxNode
from headrace.visibility import Public

STEP_INTERVAL_MS = cython.declare(cython.longlong, 1)
STEP_OBJECTS = 1024  # freed in one step, in 0.1 to 0.3 ms
STEPS_MAX = cython.declare(cython.longlong, 4)  # at once, if the last one was long ago
BLOCK_COST = cython.declare(cython.longlong, 8)  # of a node or a block of pending entries, in objects
STREAM_BYTES_MIN = 1 << 18  # smaller streams are freed at once
KEYS_MIN = 1000  # so are dictionaries of fewer keys


@cython.final
@cython.cclass
class LazyFree:
    """Removed values that wait to be freed. Nothing else refers to them."""

    memory: MemoryAccount  # of the keyspace
    containers: list[Any]  # containers, the last one is emptied first
    due_ms: cython.longlong
    freed: Public[cython.longlong]  # values of keys

    def __init__(self, memory: MemoryAccount) -> None:
        self.memory = memory
        self.containers = []
        self.due_ms = 0
        self.freed = 0

    @cython.ccall
    def add_times(self, times: KeyExpiryTimes) -> cython.void:
        """Queue the expiry times of a database, if there are many, to be freed in steps."""
        if times.count >= KEYS_MIN:
            self.containers.extend(times.timer_numbers.parts)
            self.containers.append(times.queue.items)

    @cython.ccall
    def add_table(self, keys: KeyTable) -> cython.void:
        """Queue the keys of a database, if there are many, to be freed in steps."""
        if keys.count >= KEYS_MIN:
            self.containers.extend(keys.parts)

    @cython.ccall
    def add_stream(self, stream: Stream) -> cython.void:
        """Queue a removed stream, if it is large. It is not freed if it was stored again by then (RENAME)."""
        if stream.memory.total >= STREAM_BYTES_MIN:
            self.containers.append(stream)

    def pending_count(self) -> int:
        """Return about how many values wait to be freed."""
        count = 0
        for container in self.containers:
            count += len(container) if isinstance(container, dict) else 1
        return count

    @cython.ccall
    def next_step_ms(self) -> cython.longlong:
        """Return when step() has work, in Unix milliseconds; -1 for never."""
        return self.due_ms if self.containers else -1

    @cython.ccall
    def step(self, now_ms: cython.longlong) -> cython.void:
        """Free some objects, at most once per interval."""
        passed: cython.longlong = now_ms - self.due_ms + STEP_INTERVAL_MS
        if not self.containers or 0 <= passed < STEP_INTERVAL_MS:
            return
        if not 1 <= passed <= STEPS_MAX:
            passed = 1 if passed < 1 else STEPS_MAX
        self.due_ms = now_ms + STEP_INTERVAL_MS
        left: cython.longlong = STEP_OBJECTS * passed
        while left > 0 and self.containers:
            container: object = self.containers[-1]
            if isinstance(container, dict) and container:
                value: object = container.popitem()[1]
                if isinstance(value, (Stream, bytes, bytearray)):
                    self.freed += 1
                left -= self._queue_containers(value)
            elif isinstance(container, list) and container:
                left -= self._queue_containers(container.pop())
            else:
                self.containers.pop()
                left -= 1 if isinstance(container, (dict, list)) else self._queue_containers(container)

    @cython.cfunc
    def _queue_containers(self, value: object) -> cython.longlong:
        """Queue the containers of a value that nothing refers to any more; return what freeing it costs."""
        if isinstance(value, Stream):
            self._queue_stream_containers(value)
        elif isinstance(value, RaxNode):
            node: RaxNode = value
            if node.children is not None:
                self.containers.append(node.children)
            else:
                self.containers.append([node.child])
        elif isinstance(value, Group):
            self._queue_group_containers(value)
        elif isinstance(value, Consumer):
            consumer: Consumer = value
            self._add_blocks(consumer.owned_entries)
        elif isinstance(value, (dict, list)):
            if value:
                self.containers.append(value)
        elif value is not None and not isinstance(value, (bytes, bytearray, int)):
            return BLOCK_COST
        return 1

    @cython.cfunc
    def _queue_stream_containers(self, stream: Stream) -> cython.void:
        """Queue the containers of a stream that is not stored any more and in no snapshot."""
        if stream.memory.is_part_of(self.memory) or stream.image is not None:
            return
        if stream.memory.total < STREAM_BYTES_MIN:
            return
        self.containers.append([stream.nodes.take_root()])
        stream.cached_head = stream.tail = None
        if stream.groups_by_name is not None:
            self.containers.append(stream.groups_by_name)
        if stream.reference_index is not None:
            self.containers.append([stream.reference_index.tree.tree.take_root()])
        if stream.idempotency is not None:
            self.containers.append(stream.idempotency.iids_by_producer)

    @cython.cfunc
    def _queue_group_containers(self, group: Group) -> cython.void:
        pending: PendingEntries = group.pending
        self._add_blocks(pending.by_id)
        if pending.arena.chunks is not None:
            self.containers.append(pending.arena.chunks)
        if pending.key_order is not None:
            self.containers.append(pending.key_order.queues_by_slot)
            self.containers.append(pending.key_order.shards)
            self.containers.append(pending.key_order.check_timers.items)
        self.containers.append(group.consumers_by_name)

    @cython.cfunc
    def _add_blocks(self, index: PendingIndex) -> cython.void:
        if index.blocks is not None:
            self.containers.append(index.blocks)
