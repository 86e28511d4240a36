"""Blocked clients: which keys each waits for, in order of arrival, and until when.

    queues:     (database, key) -> {wait_class: {waiter: None, ...}}   oldest first; removal is O(1)
    ready:      (database, key) -> None                   keys with new data, in order of arrival
    heap:       (deadline, number, waiter)                dead waiters stay in it until they reach the top
    timers:     (time, (database, key))                   when to signal a key because of the time alone
    scheduled:  (database, key) -> time                   the valid timer of a key; others are stale

A waiter that is served or closed leaves all its queues at once. One that finds nothing keeps its position.

Waiters of one class wait for the same thing: if one of them finds nothing, nor would those after it. So new
data on a key with ten thousand waiting group members costs as much as with one. Waiters with nothing in
common (plain readers, each with an ID of its own) have the class None: each of them is tried.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush

import cython

# With fewer dead waiters or stale timers, cleaning their heap is not worth the cost.
HEAP_DEAD_MIN = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.cclass
class Waiter:
    """One blocked session.

    serve(call) retries the command and returns whether it replied. on_timeout(call) replies when the deadline
    (milliseconds since 1970, 0 for never) passes. wait_class is hashable, or None.
    may_be_served(database, key), if not None, returns in constant time whether a retry makes sense.
    """

    session: object
    database: cython.Py_ssize_t
    argv: list[bytes]  # the request
    keys: list[bytes]
    deadline: cython.longlong
    serve: Callable[..., bool]
    on_timeout: Callable[..., None]
    command_name: bytes  # of the blocked command
    wait_class: Hashable
    may_be_served: Callable[..., bool] | None
    number: cython.longlong  # order of arrival among all waiters
    tried: cython.longlong  # the latest round of take_ready() in which it was tried
    alive: cython.bint

    def __init__(
        self,
        session: object,
        database: cython.Py_ssize_t,
        argv: list[bytes],
        keys: list[bytes],
        deadline: cython.longlong,
        serve: Callable[..., bool],
        on_timeout: Callable[..., None],
        command_name: bytes = b"",
        wait_class: Hashable = None,
        may_be_served: Callable[..., bool] | None = None,
    ) -> None:
        self.session = session
        self.database = database
        self.argv = argv
        self.keys = keys
        self.deadline = deadline
        self.serve = serve
        self.on_timeout = on_timeout
        self.command_name = command_name
        self.wait_class = wait_class
        self.may_be_served = may_be_served
        self.number = 0
        self.tried = 0
        self.alive = True

    @cython.ccall
    def should_retry(self, round_number: cython.longlong, database: object, key: bytes) -> cython.bint:
        """Return whether new data on the key is worth a retry, and mark the waiter as tried in this round.

        A waiter of several keys is tried once in a round: the first key would have served it already.
        """
        if self.tried == round_number or (
            self.may_be_served is not None and not self.may_be_served(database, key)
        ):
            return False
        self.tried = round_number
        return True


def number_of(waiter: Waiter) -> int:
    """Return the waiter's order of arrival."""
    return waiter.number


@cython.final
@cython.cclass
class WakeOrder:
    """The order in which a key's waiters are tried: by arrival; a class ends at the first unserved one."""

    wait_classes: dict[Hashable, OrderedDict[Waiter, None]]
    heads: list[tuple[int, Waiter]]  # the first of each class
    unclassed: Iterator[Waiter]  # the waiters of class None when the retries began

    def __init__(self, wait_classes: dict[Hashable, OrderedDict[Waiter, None]]) -> None:
        self.wait_classes = wait_classes
        self.heads = []
        self.unclassed = iter(list(wait_classes.get(None, ())))
        for wait_class in wait_classes:
            self._advance(wait_class)

    @cython.ccall
    def next(self) -> Waiter | None:
        """Return the waiter to try next, or None. Call record_result() before the next call."""
        return heappop(self.heads)[1] if self.heads else None

    @cython.ccall
    def record_result(self, waiter: Waiter, served: cython.bint) -> cython.void:
        """Record whether the waiter was served."""
        if served or waiter.wait_class is None:
            self._advance(waiter.wait_class)

    @cython.cfunc
    def _advance(self, wait_class: object) -> cython.void:
        """Move the class's next waiter into `heads`. A served waiter has left the class."""
        waiter: Waiter | None = next(
            self.unclassed if wait_class is None else iter(self.wait_classes.get(wait_class, ())), None
        )
        if waiter is not None:
            heappush(self.heads, (waiter.number, waiter))


@cython.final
@cython.cclass
class Blocking:
    """All waiters of a keyspace."""

    count: cython.Py_ssize_t  # live waiters
    number: cython.longlong
    round: cython.longlong  # number of take_ready() calls
    queues: dict[tuple[int, bytes], dict[Hashable, OrderedDict[Waiter, None]]]
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
        """Add the waiter at the end of its class for each of its keys, and schedule its deadline."""
        self.count += 1
        self.number += 1
        waiter.number = self.number
        for key in waiter.keys:
            self._enter(waiter, key)
        if waiter.deadline:
            heappush(self.heap, (waiter.deadline, self.number, waiter))

    @cython.ccall
    def remove(self, waiter: Waiter) -> cython.void:
        """Remove a waiter that is served, expired or closed. A second call does nothing."""
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
            return  # already left: the same key was named twice
        wait_classes[waiter.wait_class].pop(waiter, None)
        if not wait_classes[waiter.wait_class]:
            del wait_classes[waiter.wait_class]
        if not wait_classes:
            del self.queues[location]
            self.scheduled.pop(location, None)

    @cython.ccall
    def signal(self, database: cython.Py_ssize_t, key: bytes) -> cython.void:
        """Mark the key as having new data; cheap if no client waits for it."""
        if self.count:
            location = (database, key)
            if location in self.queues:
                self.ready[location] = None

    @cython.ccall
    def signal_all(self, database: cython.Py_ssize_t) -> cython.void:
        """Mark every key of the database with waiters as having new data: it was swapped or flushed."""
        for location in self.queues:
            if location[0] == database:
                self.ready[location] = None

    def take_ready(self) -> list[tuple[int, bytes]]:
        """Return the keys with new data, in order of arrival, and clear the list."""
        self.round += 1
        locations = list(self.ready)
        self.ready.clear()
        return locations

    @cython.ccall
    def waiters(self, database: cython.Py_ssize_t, key: bytes) -> list[Waiter]:
        """Return the clients that wait for the key, in order of arrival."""
        wait_classes = self.queues.get((database, key), {})
        return sorted(
            [waiter for wait_class in wait_classes.values() for waiter in wait_class], key=number_of
        )

    @cython.ccall
    def separate_waiters(self, database: cython.Py_ssize_t, key: bytes) -> cython.void:
        """Let each client that waits for the key be tried by itself: consumers may find different entries."""
        waiter: Waiter
        for waiter in self.waiters(database, key):
            if waiter.wait_class is None:
                continue
            for other in waiter.keys:
                self._leave(waiter, other)
            waiter.wait_class = None
            for other in waiter.keys:
                self._enter(waiter, other)

    @cython.cfunc
    def _enter(self, waiter: Waiter, key: bytes) -> cython.void:
        location = (waiter.database, key)
        wait_classes = self.queues.get(location)
        if wait_classes is None:
            wait_classes = self.queues[location] = {}
        wait_class = wait_classes.get(waiter.wait_class)
        if wait_class is None:
            wait_class = wait_classes[waiter.wait_class] = OrderedDict()
        wait_class[waiter] = None

    @cython.ccall
    def wake_order(self, database: cython.Py_ssize_t, key: bytes) -> WakeOrder:
        """Return the order in which to try the waiters of the key."""
        return WakeOrder(self.queues.get((database, key), {}))

    # Timers.

    @cython.ccall
    def schedule(self, database: cython.Py_ssize_t, key: bytes, at: cython.longlong) -> cython.void:
        """Signal the key at that time (milliseconds since 1970), if clients wait for it then.

        A key has one timer, the earliest one requested. It fires once.
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
        """Signal the keys whose timer is due."""
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
        """Remove the waiters whose deadline has passed and return them, earliest first."""
        due: list[Waiter] = []
        waiter: Waiter
        while self.heap and (not self.heap[0][2].alive or self.heap[0][0] <= now):
            waiter = heappop(self.heap)[2]
            if waiter.alive:
                self.remove(waiter)
                due.append(waiter)
        return due

    def shift(self, by_ms: int) -> None:
        """Shift all deadlines by the milliseconds by which the clock was set. Timers are points in time."""
        waiter: Waiter
        moved: list[tuple[int, int, Waiter]] = []
        for _, number, waiter in self.heap:
            waiter.deadline = max(waiter.deadline + by_ms, 1)
            moved.append((waiter.deadline, number, waiter))
        heapify(moved)
        self.heap = moved

    @cython.ccall
    def next_deadline(self) -> cython.longlong:
        """Return when pop_expired() or fire() next has work; -1 means never."""
        while self.heap and not self.heap[0][2].alive:
            heappop(self.heap)
        timer: cython.longlong = self._next_timer()
        deadline: cython.longlong = self.heap[0][0] if self.heap else -1
        return deadline if timer < 0 or 0 <= deadline < timer else timer
