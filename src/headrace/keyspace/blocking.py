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
    lane: Any
    has_news: Callable[[Any, bytes], bool] | None
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
        lane: Any = None,
        has_news: Callable[[Any, bytes], bool] | None = None,
    ) -> None:
        self.session = session
        self.database = database
        self.keys = keys
        self.deadline = deadline
        self.serve = serve
        self.on_timeout = on_timeout
        self.command = command
        self.lane = lane
        self.has_news = has_news
        self.number = 0
        self.tried = 0
        self.alive = True

    @cython.ccall
    def is_worth_a_try(self, round_number: cython.longlong, database: object, key: bytes) -> cython.bint:
        """Return whether news on the key may serve it, which was not tried in this round yet.

        What would serve a waiter of many keys has been there at the first of them.
        """
        if self.tried == round_number or (self.has_news is not None and not self.has_news(database, key)):
            return False
        self.tried = round_number
        return True


def number_of(waiter: Waiter) -> int:
    """The waiter's number of arrival."""
    return waiter.number


@cython.final
@cython.cclass
class Turns:
    """Whose turn it is when a key has news: by arrival, but a lane ends with the first who finds nothing."""

    lanes: dict[Any, OrderedDict[Waiter, None]]
    heads: list[tuple[int, Waiter]]  # the foremost of each lane
    alone: Iterator[Waiter]  # the lane None, as it was at the start

    def __init__(self, lanes: dict[Any, OrderedDict[Waiter, None]]) -> None:
        self.lanes = lanes
        self.heads = []
        self.alone = iter(list(lanes.get(None, ())))
        for lane in lanes:
            self._advance(lane)

    @cython.ccall
    def next(self) -> Waiter | None:
        """Who is to try now; None when nobody is left. Say found() before asking again."""
        return heappop(self.heads)[1] if self.heads else None

    @cython.ccall
    def found(self, waiter: Waiter, served: cython.bint) -> cython.void:
        """Waiter has tried, and was served or not."""
        if served or waiter.lane is None:
            self._advance(waiter.lane)

    @cython.cfunc
    def _advance(self, lane: object) -> cython.void:
        """The next of the lane stands at its head. A waiter that was served has left it."""
        waiter: Waiter | None = next(self.alone if lane is None else iter(self.lanes.get(lane, ())), None)
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
    alarms: list[tuple[int, tuple[int, bytes]]]
    armed: dict[tuple[int, bytes], int]

    def __init__(self) -> None:
        self.count = 0
        self.number = 0
        self.round = 0
        self.queues = {}
        self.ready = {}
        self.heap = []
        self.alarms = []
        self.armed = {}

    @cython.ccall
    def wait(self, waiter: Waiter) -> cython.void:
        """Put waiter at the end of its lane for each of its keys, and on the clock."""
        self.count += 1
        self.number += 1
        waiter.number = self.number
        for key in waiter.keys:
            place = (waiter.database, key)
            lanes = self.queues.get(place)
            if lanes is None:
                lanes = self.queues[place] = {}
            lane = lanes.get(waiter.lane)
            if lane is None:
                lane = lanes[waiter.lane] = OrderedDict()
            lane[waiter] = None
        if waiter.deadline:
            heappush(self.heap, (waiter.deadline, self.number, waiter))

    @cython.ccall
    def forget(self, waiter: Waiter) -> cython.void:
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
        place = (waiter.database, key)
        lanes = self.queues.get(place)
        if lanes is None or waiter.lane not in lanes:
            return  # the same key named twice: left already
        lanes[waiter.lane].pop(waiter, None)
        if not lanes[waiter.lane]:
            del lanes[waiter.lane]
        if not lanes:
            del self.queues[place]
            self.armed.pop(place, None)

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
        self.round += 1
        places = list(self.ready)
        self.ready.clear()
        return places

    @cython.ccall
    def waiters(self, database: cython.Py_ssize_t, key: bytes) -> list[Waiter]:
        """Who waits for key now, first come first."""
        lanes = self.queues.get((database, key), {})
        return sorted([waiter for lane in lanes.values() for waiter in lane], key=number_of)

    @cython.ccall
    def turns(self, database: cython.Py_ssize_t, key: bytes) -> Turns:
        """Those who wait for key, to be tried in turn."""
        return Turns(self.queues.get((database, key), {}))

    # Alarms.

    @cython.ccall
    def arm(self, database: cython.Py_ssize_t, key: bytes, at: cython.longlong) -> cython.void:
        """At that time, in milliseconds, there is news on key for those who wait for it then.

        A key has one alarm, the earliest asked for; it rings once, or never if nobody waits any more.
        """
        place = (database, key)
        if place in self.armed and self.armed[place] <= at:
            return
        self.armed[place] = at
        heappush(self.alarms, (at, place))
        if len(self.alarms) > HEAP_DEAD_MIN and len(self.alarms) > 2 * len(self.armed):
            self.alarms = [(at, place) for place, at in self.armed.items()]
            heapify(self.alarms)

    @cython.ccall
    def ring(self, now: cython.longlong) -> cython.void:
        """Signal the keys whose alarm is due."""
        while self.alarms and self.alarms[0][0] <= now:
            at, place = heappop(self.alarms)
            if self.armed.get(place) == at:
                del self.armed[place]
                self.signal(place[0], place[1])

    @cython.cfunc
    def _next_alarm(self) -> cython.longlong:
        while self.alarms and self.armed.get(self.alarms[0][1]) != self.alarms[0][0]:
            heappop(self.alarms)
        return self.alarms[0][0] if self.alarms else -1

    # Deadlines.

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
        alarm: cython.longlong = self._next_alarm()
        deadline: cython.longlong = self.heap[0][0] if self.heap else -1
        return deadline if alarm < 0 or 0 <= deadline < alarm else alarm
