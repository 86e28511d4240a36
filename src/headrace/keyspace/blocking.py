"""Blocked clients: which keys each waits for, in order of arrival, and until when.

    queues:         (database, key) -> {wait_class: {waiter: None, ...}}   oldest first; removal is O(1)
    ready_keys:     (database, key) -> None                   keys with new data, in order of arrival
    deadlines:      waiters by deadline
    timers:         (database, key), by time                  when to signal a key because of the time alone
    timers_by_key:  (database, key) -> number of its timer

A waiter that is served or closed leaves all its queues at once. One that finds nothing keeps its position.

Waiters of one class wait for the same thing: if one of them finds nothing, the later ones are not tried. So
new data on a key with ten thousand waiting group members costs as much as with one. Waiters with nothing in
common (plain readers, each with an ID of its own) have the class None: each of them is tried.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush

import cython

from headrace.streams.memory_account import MemoryAccount
from headrace.structures.timer_heap import TimerQueue

NO_TIMER = cython.declare(cython.Py_ssize_t, -1)
# Measured bytes: of a waiter; of each of its keys, with its place in the request; of a class of waiters of a
# key; and of a key with waiters beside its name.
WAITER_BYTES = cython.declare(cython.Py_ssize_t, 600)
WAITED_KEY_BYTES = cython.declare(cython.Py_ssize_t, 160)
WAIT_CLASS_BYTES = cython.declare(cython.Py_ssize_t, 400)
QUEUE_BYTES = cython.declare(cython.Py_ssize_t, 340)


def never_serve(call: object) -> bool:
    """Return False. The `serve` function of a wait that neither data nor CLIENT UNBLOCK ends.

    Requests wait so during a pause, for a cold run, and in SHUTDOWN for the replicas.
    """
    return False


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
    arrival_number: cython.longlong  # order of arrival among all waiters
    timer: cython.Py_ssize_t  # of its deadline; -1: none
    last_tried_round: cython.longlong  # the latest round of take_ready() in which it was tried
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
        self.arrival_number = 0
        self.timer = NO_TIMER
        self.last_tried_round = 0
        self.alive = True

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return about how many bytes the wait takes, as if no other client waited for the same keys."""
        total: cython.Py_ssize_t = WAITER_BYTES
        for key in self.keys:
            total += WAITED_KEY_BYTES + WAIT_CLASS_BYTES + QUEUE_BYTES + len(key)
        return total

    @cython.ccall
    def begin_retry_if_useful(
        self, round_number: cython.longlong, database: object, key: bytes
    ) -> cython.bint:
        """Return whether new data on the key is worth a retry, and mark the waiter as tried in this round.

        A waiter of several keys is tried once in a round: the first key would have served it already.
        """
        if self.last_tried_round == round_number or (
            self.may_be_served is not None and not self.may_be_served(database, key)
        ):
            return False
        self.last_tried_round = round_number
        return True


def arrival_number(waiter: Waiter) -> int:
    """Return the waiter's order of arrival."""
    return waiter.arrival_number


@cython.final
@cython.cclass
class WakeOrder:
    """The order in which the waiters of a key are tried: by arrival.

    The rest of a class is skipped after its first waiter that is not served.
    """

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
            heappush(self.heads, (waiter.arrival_number, waiter))


@cython.final
@cython.cclass
class Blocking:
    """All waiters of a keyspace."""

    memory: MemoryAccount  # of waiting clients
    count: cython.Py_ssize_t  # live waiters
    last_arrival_number: cython.longlong
    round_number: cython.longlong  # number of take_ready() calls
    queues: dict[tuple[int, bytes], dict[Hashable, OrderedDict[Waiter, None]]]
    ready_keys: dict[tuple[int, bytes], None]
    deadlines: TimerQueue
    timers: TimerQueue
    timers_by_key: dict[tuple[int, bytes], int]

    def __init__(self, memory: MemoryAccount) -> None:
        self.memory = memory
        self.count = 0
        self.last_arrival_number = 0
        self.round_number = 0
        self.queues = {}
        self.ready_keys = {}
        self.deadlines = TimerQueue()
        self.timers = TimerQueue()
        self.timers_by_key = {}

    @cython.ccall
    def add_waiter(self, waiter: Waiter) -> cython.void:
        """Add the waiter at the end of its class for each of its keys, and schedule its deadline."""
        self.count += 1
        self.last_arrival_number += 1
        waiter.arrival_number = self.last_arrival_number
        self.memory.add(WAITER_BYTES)
        for key in waiter.keys:
            self._enter(waiter, key)
        if waiter.deadline:
            waiter.timer = self.deadlines.add(waiter.deadline, waiter)

    @cython.ccall
    def remove(self, waiter: Waiter) -> cython.void:
        """Remove a waiter that is served, expired or closed. A second call does nothing."""
        if not waiter.alive:
            return
        waiter.alive = False
        self.count -= 1
        self.memory.add(-WAITER_BYTES)
        for key in waiter.keys:
            self._leave(waiter, key)
        if waiter.timer >= 0:
            self.deadlines.remove(waiter.timer)
            waiter.timer = NO_TIMER

    @cython.cfunc
    def _leave(self, waiter: Waiter, key: bytes) -> cython.void:
        location = (waiter.database, key)
        wait_classes = self.queues.get(location)
        wait_class = None if wait_classes is None else wait_classes.get(waiter.wait_class)
        if wait_classes is None or wait_class is None or waiter not in wait_class:
            return  # already left: the same key was named twice
        freed: cython.Py_ssize_t = WAITED_KEY_BYTES
        del wait_class[waiter]
        if not wait_class:
            del wait_classes[waiter.wait_class]
            freed += WAIT_CLASS_BYTES
        if not wait_classes:
            del self.queues[location]
            freed += QUEUE_BYTES + len(key)
            if location in self.timers_by_key:
                self.timers.remove(self.timers_by_key.pop(location))
        self.memory.add(-freed)

    @cython.ccall
    def signal(self, database: cython.Py_ssize_t, key: bytes) -> cython.void:
        """Mark the key as having new data; cheap if no client waits for it."""
        if self.count:
            location = (database, key)
            if location in self.queues:
                self.ready_keys[location] = None

    @cython.ccall
    def signal_all(self, database: cython.Py_ssize_t) -> cython.void:
        """Mark every key of the database with waiters as having new data: it was swapped or flushed."""
        for key in self.waited_keys(database):
            self.ready_keys[(database, key)] = None

    @cython.ccall
    def waited_keys(self, database: cython.Py_ssize_t) -> list[bytes]:
        """Return the keys of a database that clients wait for."""
        return [key for number, key in self.queues if number == database]

    def take_ready(self) -> list[tuple[int, bytes]]:
        """Return the keys with new data, in order of arrival, and clear the list."""
        self.round_number += 1
        locations = list(self.ready_keys)
        self.ready_keys.clear()
        return locations

    @cython.ccall
    def waiters(self, database: cython.Py_ssize_t, key: bytes) -> list[Waiter]:
        """Return the clients that wait for the key, in order of arrival."""
        wait_classes = self.queues.get((database, key), {})
        return sorted(
            [waiter for wait_class in wait_classes.values() for waiter in wait_class], key=arrival_number
        )

    @cython.ccall
    def clear_wait_classes(self, database: cython.Py_ssize_t, key: bytes) -> cython.void:
        """Take the waiters of the key out of their classes, so that each of them is tried.

        The rule ORDERED-BY needs this: consumers may find different entries.
        """
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
        used: cython.Py_ssize_t = WAITED_KEY_BYTES
        wait_classes = self.queues.get(location)
        if wait_classes is None:
            wait_classes = self.queues[location] = {}
            used += QUEUE_BYTES + len(key)
        wait_class = wait_classes.get(waiter.wait_class)
        if wait_class is None:
            wait_class = wait_classes[waiter.wait_class] = OrderedDict()
            used += WAIT_CLASS_BYTES
        if waiter not in wait_class:
            wait_class[waiter] = None
            self.memory.add(used)

    @cython.ccall
    def wake_order(self, database: cython.Py_ssize_t, key: bytes) -> WakeOrder:
        """Return the order in which to try the waiters of the key."""
        return WakeOrder(self.queues.get((database, key), {}))

    # Timers.

    @cython.ccall
    def schedule_key_signal(
        self, database: cython.Py_ssize_t, key: bytes, at: cython.longlong
    ) -> cython.void:
        """Signal the key at that time (milliseconds since 1970), if clients wait for it then.

        A key has one timer, the earliest one requested. It fires once.
        """
        location = (database, key)
        if location not in self.timers_by_key:
            self.timers_by_key[location] = self.timers.add(at, location)
        elif at < self.timers.deadline_of(self.timers_by_key[location]):
            self.timers.change_deadline(self.timers_by_key[location], at)

    @cython.ccall
    def fire(self, now: cython.longlong) -> cython.void:
        """Signal the keys whose timer is due."""
        location: tuple[int, bytes] | None = self.timers.first_due(now)
        while location is not None:
            self.timers.remove(self.timers_by_key.pop(location))
            self.signal(location[0], location[1])
            location = self.timers.first_due(now)

    # Deadlines.

    @cython.ccall
    def pop_expired(self, now: cython.longlong) -> list[Waiter]:
        """Remove the waiters whose deadline has passed and return them, earliest first."""
        due: list[Waiter] = []
        waiter: Waiter | None = self.deadlines.first_due(now)
        while waiter is not None:
            self.remove(waiter)
            due.append(waiter)
            waiter = self.deadlines.first_due(now)
        return due

    def shift_deadlines(self, by_ms: int) -> None:
        """Shift all deadlines, but not timers, by the milliseconds by which the clock was set."""
        waiter: Waiter
        for waiter in self.deadlines.all():
            waiter.deadline = max(waiter.deadline + by_ms, 1)
            self.deadlines.change_deadline(waiter.timer, waiter.deadline)

    @cython.ccall
    def next_deadline(self) -> cython.longlong:
        """Return when pop_expired() or fire() next has work; -1 means never."""
        timer: cython.longlong = self.timers.next_deadline()
        deadline: cython.longlong = self.deadlines.next_deadline()
        return deadline if timer < 0 or 0 <= deadline < timer else timer
