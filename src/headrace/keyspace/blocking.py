"""Who waits for which key, in order of arrival, until when. Waiters are known only as objects.

    queues: (database, key) -> {waiter: None, ...}    oldest first; a dict, so that leaving costs nothing
    ready:  (database, key) -> None                   keys with news, in the order the news came
    heap:   (deadline, number, waiter)                dead waiters stay in it until they come up

A waiter that is served or gone leaves all its queues at once; one that finds nothing keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

import cython

# Below this many dead waiters the heap of deadlines is not worth sweeping.
HEAP_DEAD_MIN = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.cclass
class Waiter:
    """One session that waits.

    serve(call) tries again and says whether it answered; on_timeout(call) answers when the deadline
    (milliseconds, 0 for never) passes first.
    """

    __slots__ = ("alive", "command", "database", "deadline", "keys", "on_timeout", "serve", "session")

    session: Any
    database: cython.Py_ssize_t
    keys: list[bytes]
    deadline: cython.longlong
    serve: Callable[[Any], bool]
    on_timeout: Callable[[Any], None]
    command: Any  # the blocked command's row
    alive: cython.bint

    def __init__(
        self,
        session: Any,
        database: cython.Py_ssize_t,
        keys: list[bytes],
        deadline: cython.longlong,
        serve: Callable[[Any], bool],
        on_timeout: Callable[[Any], None],
        command: Any = None,
    ) -> None:
        self.session = session
        self.database = database
        self.keys = keys
        self.deadline = deadline
        self.serve = serve
        self.on_timeout = on_timeout
        self.command = command
        self.alive = True


@cython.final
@cython.cclass
class Blocking:
    """All waiters of a keyspace."""

    __slots__ = ("count", "heap", "number", "queues", "ready")

    count: cython.Py_ssize_t  # waiters alive
    number: cython.longlong
    queues: dict[tuple[int, bytes], dict[Waiter, None]]
    ready: dict[tuple[int, bytes], None]
    heap: list[tuple[int, int, Waiter]]

    def __init__(self) -> None:
        self.count = 0
        self.number = 0
        self.queues = {}
        self.ready = {}
        self.heap = []

    @cython.ccall
    def wait(self, waiter: Waiter) -> cython.void:
        """Put waiter at the end of the queue of each of its keys, and on the clock."""
        self.count += 1
        for key in waiter.keys:
            place = (waiter.database, key)
            queue = self.queues.get(place)
            if queue is None:
                queue = {}
                self.queues[place] = queue
            queue[waiter] = None
        if waiter.deadline:
            self.number += 1
            heappush(self.heap, (waiter.deadline, self.number, waiter))

    @cython.ccall
    def forget(self, waiter: Waiter) -> cython.void:
        """Waiter is served, expired or gone. Forgetting twice does nothing."""
        if not waiter.alive:
            return
        waiter.alive = False
        self.count -= 1
        for key in waiter.keys:
            place = (waiter.database, key)
            queue = self.queues.get(place)
            if queue is not None:
                queue.pop(waiter, None)
                if not queue:
                    del self.queues[place]
        if len(self.heap) > HEAP_DEAD_MIN and len(self.heap) > 2 * self.count:
            self.heap = [item for item in self.heap if item[2].alive]
            heapify(self.heap)

    @cython.ccall
    def signal(self, database: cython.Py_ssize_t, key: bytes) -> cython.void:
        """There is news on key; cheap when nobody waits for it."""
        if self.count:
            place = (database, key)
            if place in self.queues:
                self.ready[place] = None

    @cython.ccall
    def signal_all(self, database: cython.Py_ssize_t) -> cython.void:
        """There may be news on every key of the database: it was swapped or emptied."""
        for place in self.queues:
            if place[0] == database:
                self.ready[place] = None

    def take_ready(self) -> list[tuple[int, bytes]]:
        """The keys with news, oldest news first; they count as old from now on."""
        places = list(self.ready)
        self.ready.clear()
        return places

    @cython.ccall
    def waiters(self, database: cython.Py_ssize_t, key: bytes) -> list[Waiter]:
        """Who waits for key now, first come first."""
        return list(self.queues.get((database, key), ()))

    @cython.ccall
    def expired(self, now: cython.longlong) -> list[Waiter]:
        """Take the waiters whose deadline is now or past, earliest first, out of everything."""
        due: list[Waiter] = []
        waiter: Waiter
        while self.heap and (not self.heap[0][2].alive or self.heap[0][0] <= now):
            waiter = heappop(self.heap)[2]
            if waiter.alive:
                self.forget(waiter)
                due.append(waiter)
        return due

    @cython.ccall
    def next_deadline(self) -> cython.longlong:
        """When expired() has something to give next; -1 for never."""
        while self.heap and not self.heap[0][2].alive:
            heappop(self.heap)
        return self.heap[0][0] if self.heap else -1
