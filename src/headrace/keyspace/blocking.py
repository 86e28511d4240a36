"""Who waits for which key, in order of arrival, until when. Waiters are known only as objects.

    queues: (database, key) -> {lane: {waiter: None, ...}}   oldest first; leaving a lane costs nothing
    ready:  (database, key) -> None                   keys with news, in the order the news came
    heap:   (deadline, number, waiter)                dead waiters stay in it until they come up
    alarms: (time, (database, key))                   when a key has news by the clock alone
    armed:  (database, key) -> time                   the alarm of a key that counts; others are stale

A waiter that is served or gone leaves all its queues at once; one that finds nothing keeps its place.

Those of one lane want the same: when one of them finds nothing, neither do those behind it. So news on a
key for which ten thousand members of a group wait costs as much as for one. Who shares his findings with
nobody (a plain reader, after an ID of its own) waits in the lane None, of which everybody has his turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

import cython

# Below this many dead waiters, or stale alarms, their heap is not worth sweeping.
HEAP_DEAD_MIN = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.cclass
class Waiter:
    """One session that waits.

    serve(call) tries again and says whether it answered; on_timeout(call) answers when the deadline
    (milliseconds, 0 for never) passes first. lane is anything hashable, or None. has_news(database, key),
    unless it is None, says in constant time whether news on that key is worth a try.
    """

    session: Any
    database: cython.Py_ssize_t
    keys: list[bytes]
    deadline: cython.longlong
    serve: Callable[[Any], bool]
    on_timeout: Callable[[Any], None]
    command: Any  # the blocked command's row
    wait_class: Any
    may_be_served: Callable[[Any, bytes], bool] | None
    number: cython.longlong  # of arrival, among all waiters
    tried: cython.longlong  # the round of take_ready() in which it was tried last
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
        wait_class: Any = None,
        may_be_served: Callable[[Any, bytes], bool] | None = None,
    ) -> None:
        self.session = session
        self.database = database
        self.keys = keys
        self.deadline = deadline
        self.serve = serve
        self.on_timeout = on_timeout
        self.command = command
        self.wait_class = wait_class
        self.may_be_served = may_be_served
        self.number = 0
        self.tried = 0
        self.alive = True

    @cython.ccall
    def should_retry(self, round_number: cython.longlong, database: object, key: bytes) -> cython.bint:
        """Return whether news on the key may serve it, which was not tried in this round yet.

        What would serve a waiter of many keys has been there at the first of them.
        """
        if self.tried == round_number or (
            self.may_be_served is not None and not self.may_be_served(database, key)
        ):
            return False
        self.tried = round_number
        return True


def number_of(waiter: Waiter) -> int:
    """The waiter's number of arrival."""
    return waiter.number


@cython.final
@cython.cclass
class WakeOrder:
    """Whose turn it is when a key has news: by arrival, but a lane ends with the first who finds nothing."""

    wait_classes: dict[Any, OrderedDict[Waiter, None]]
    heads: list[tuple[int, Waiter]]  # the foremost of each lane
    unclassed: Iterator[Waiter]  # the lane None, as it was at the start

    def __init__(self, wait_classes: dict[Any, OrderedDict[Waiter, None]]) -> None:
        self.wait_classes = wait_classes
        self.heads = []
        self.unclassed = iter(list(wait_classes.get(None, ())))
        for wait_class in wait_classes:
            self._advance(wait_class)

    @cython.ccall
    def next(self) -> Waiter | None:
        """Who is to try now; None when nobody is left. Say found() before asking again."""
        return heappop(self.heads)[1] if self.heads else None

    @cython.ccall
    def record_result(self, waiter: Waiter, served: cython.bint) -> cython.void:
        """Waiter has tried, and was served or not."""
        if served or waiter.wait_class is None:
            self._advance(waiter.wait_class)

    @cython.cfunc
    def _advance(self, wait_class: object) -> cython.void:
        """The next of the lane stands at its head. A waiter that was served has left it."""
        waiter: Waiter | None = next(
            self.unclassed if wait_class is None else iter(self.wait_classes.get(wait_class, ())), None
        )
        if waiter is not None:
            heappush(self.heads, (waiter.number, waiter))


@cython.final
@cython.cclass
class Blocking:
    """All waiters of a keyspace."""

    count: cython.Py_ssize_t  # waiters alive
    number: cython.longlong
    round: cython.longlong  # how often take_ready() was called
    queues: dict[tuple[int, bytes], dict[Any, OrderedDict[Waiter, None]]]
    ready: dict[tuple[int, bytes], None]
    heap: list[tuple[int, int, Waiter]]
    timers: list[tuple[int, tuple[int, bytes]]]
    scheduled: dict[tuple[int, bytes], int]

    def __init__(self) -> None:
        self.count = 0
        self.number = 0
        self.round = 0
        self.queues = {}
        self.ready = {}
        self.heap = []
        self.timers = []
        self.scheduled = {}

    @cython.ccall
    def wait(self, waiter: Waiter) -> cython.void:
        """Put waiter at the end of its lane for each of its keys, and on the clock."""
        self.count += 1
        self.number += 1
        waiter.number = self.number
        for key in waiter.keys:
            location = (waiter.database, key)
            wait_classes = self.queues.get(location)
            if wait_classes is None:
                wait_classes = self.queues[location] = {}
            wait_class = wait_classes.get(waiter.wait_class)
            if wait_class is None:
                wait_class = wait_classes[waiter.wait_class] = OrderedDict()
            wait_class[waiter] = None
        if waiter.deadline:
            heappush(self.heap, (waiter.deadline, self.number, waiter))

    @cython.ccall
    def remove(self, waiter: Waiter) -> cython.void:
        """Waiter is served, expired or gone. IdempotencySweeper twice does nothing."""
        if not waiter.alive:
            return
        waiter.alive = False
        self.count -= 1
        for key in waiter.keys:
            self._leave(waiter, key)
        if len(self.heap) > HEAP_DEAD_MIN and len(self.heap) > 2 * self.count:
            self.heap = [item for item in self.heap if item[2].alive]
            heapify(self.heap)

    @cython.cfunc
    def _leave(self, waiter: Waiter, key: bytes) -> cython.void:
        location = (waiter.database, key)
        wait_classes = self.queues.get(location)
        if wait_classes is None or waiter.wait_class not in wait_classes:
            return  # the same key named twice: left already
        wait_classes[waiter.wait_class].pop(waiter, None)
        if not wait_classes[waiter.wait_class]:
            del wait_classes[waiter.wait_class]
        if not wait_classes:
            del self.queues[location]
            self.scheduled.pop(location, None)

    @cython.ccall
    def signal(self, database: cython.Py_ssize_t, key: bytes) -> cython.void:
        """There is news on key; cheap when nobody waits for it."""
        if self.count:
            location = (database, key)
            if location in self.queues:
                self.ready[location] = None

    @cython.ccall
    def signal_all(self, database: cython.Py_ssize_t) -> cython.void:
        """There may be news on every key of the database: it was swapped or emptied."""
        for location in self.queues:
            if location[0] == database:
                self.ready[location] = None

    def take_ready(self) -> list[tuple[int, bytes]]:
        """The keys with news, oldest news first; they count as old from now on."""
        self.round += 1
        locations = list(self.ready)
        self.ready.clear()
        return locations

    @cython.ccall
    def waiters(self, database: cython.Py_ssize_t, key: bytes) -> list[Waiter]:
        """Who waits for key now, first come first."""
        wait_classes = self.queues.get((database, key), {})
        return sorted(
            [waiter for wait_class in wait_classes.values() for waiter in wait_class], key=number_of
        )

    @cython.ccall
    def wake_order(self, database: cython.Py_ssize_t, key: bytes) -> WakeOrder:
        """Those who wait for key, to be tried in turn."""
        return WakeOrder(self.queues.get((database, key), {}))

    # Alarms.

    @cython.ccall
    def schedule(self, database: cython.Py_ssize_t, key: bytes, at: cython.longlong) -> cython.void:
        """At that time, in milliseconds, there is news on key for those who wait for it then.

        A key has one alarm, the earliest asked for; it rings once, or never if nobody waits any more.
        """
        location = (database, key)
        if location in self.scheduled and self.scheduled[location] <= at:
            return
        self.scheduled[location] = at
        heappush(self.timers, (at, location))
        if len(self.timers) > HEAP_DEAD_MIN and len(self.timers) > 2 * len(self.scheduled):
            self.timers = [(at, location) for location, at in self.scheduled.items()]
            heapify(self.timers)

    @cython.ccall
    def fire(self, now: cython.longlong) -> cython.void:
        """Signal the keys whose alarm is due."""
        while self.timers and self.timers[0][0] <= now:
            at, location = heappop(self.timers)
            if self.scheduled.get(location) == at:
                del self.scheduled[location]
                self.signal(location[0], location[1])

    @cython.cfunc
    def _next_timer(self) -> cython.longlong:
        while self.timers and self.scheduled.get(self.timers[0][1]) != self.timers[0][0]:
            heappop(self.timers)
        return self.timers[0][0] if self.timers else -1

    # Deadlines.

    @cython.ccall
    def pop_expired(self, now: cython.longlong) -> list[Waiter]:
        """Take the waiters whose deadline is now or past, earliest first, out of everything."""
        due: list[Waiter] = []
        waiter: Waiter
        while self.heap and (not self.heap[0][2].alive or self.heap[0][0] <= now):
            waiter = heappop(self.heap)[2]
            if waiter.alive:
                self.remove(waiter)
                due.append(waiter)
        return due

    def shift(self, by_ms: int) -> None:
        """The clock was set by so much: who waits for a span of time waits that long. Alarms are moments."""
        waiter: Waiter
        moved: list[tuple[int, int, Waiter]] = []
        for _, number, waiter in self.heap:
            waiter.deadline = max(waiter.deadline + by_ms, 1)
            moved.append((waiter.deadline, number, waiter))
        heapify(moved)
        self.heap = moved

    @cython.ccall
    def next_deadline(self) -> cython.longlong:
        """When expired() or ring() has something to do next; -1 for never."""
        while self.heap and not self.heap[0][2].alive:
            heappop(self.heap)
        timer: cython.longlong = self._next_timer()
        deadline: cython.longlong = self.heap[0][0] if self.heap else -1
        return deadline if timer < 0 or 0 <= deadline < timer else timer
