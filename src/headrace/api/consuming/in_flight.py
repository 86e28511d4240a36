"""What a consumer has in hand: entries that run, are ready, wait for another try, or stand in line.

    ready       handed out next, in order
    waiting     due at a time: after a failure, or taken over and not begun
    lanes       with ordered_by: a line for each key of which an entry is ready, runs or waits for another try
    dead        on their way to the dead letters
    acks        done with; the server is to be told

The Worker's, under the Worker's lock.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from headrace.api.delivery import DONE, DYING, HELD, LOST, READY, RUNNING, WAITING, Delivery
from headrace.api.retry_policy import SECONDS_MAX, Policy

log = logging.getLogger("headrace.consumer")


def told(error: BaseException) -> str:
    """What an exception says; those whose own text fails have a name, too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


@dataclass(slots=True)
class Counters:
    """What a consumer has done so far, in entries."""

    handled: int = 0  # and acknowledged, or about to be
    retried: int = 0  # failures after which an entry is delivered again
    dead: int = 0  # for the dead letters, or given up where there are none
    taken_over: int = 0  # from consumers that were silent for longer than the lease
    given_back: int = 0  # not finished when it stopped
    lost: int = 0  # taken over by others while in this one's hand
    gone: int = 0  # pending, but deleted from the stream, or acknowledged by others


class Hand:
    """Entries in hand, and the ways from one state to another; see delivery.py for the states."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        ordered_by: Callable[[Delivery[Any]], Any] | None,
        counters: Counters | None,
    ) -> None:
        self.counters = Counters() if counters is None else counters
        self.all: dict[bytes, Delivery[Any]] = {}  # by ID, those that are not DONE or LOST
        self.dead: deque[Delivery[Any]] = deque()
        self.acks: dict[bytes, None] = {}
        self.acks_since = 0  # when the first of them began
        self.acks_urgent = False  # at once: another death, and what is done might be buried as never settled
        self.running = 0
        self._name = name
        self._policy = policy
        self._ordered_by = ordered_by
        self._ready: deque[Delivery[Any]] = deque()
        self._waiting: list[tuple[int, int, Delivery[Any]]] = []  # a heap
        self._waited = 0
        self._lanes: dict[Any, deque[Delivery[Any]]] = {}

    def has(self, key: bytes) -> bool:
        """Whether the entry is in hand, or done with and not yet acknowledged."""
        return key in self.all or key in self.acks

    # Into the hand.

    def add(self, delivery: Delivery[Any], now: int) -> None:
        """A new entry, as it was fetched."""
        self.all[delivery.key] = delivery
        if self._ordered_by is None:
            self._ready.append(delivery)
        else:
            self.enqueue(delivery, now)

    def wait(self, delivery: Delivery[Any], due: int) -> None:
        """It is to be delivered again, at the time `due`."""
        self.all[delivery.key] = delivery
        delivery.state = WAITING
        delivery.due = due
        self._waited += 1
        heappush(self._waiting, (due, self._waited, delivery))

    def enqueue(self, delivery: Delivery[Any], now: int) -> None:
        """It can be handled, as soon as those with its key are that came before."""
        if self._ordered_by is not None and delivery.lane is None:
            try:
                lane = (self._ordered_by(delivery),)
                behind = self._lanes.get(lane)
            except Exception as error:  # of the user's function, or its key is not hashable
                delivery.state = RUNNING
                self.running += 1
                self.retry(delivery, None, f"ordered_by: {told(error)}", now, error)
                return
            delivery.lane = lane
            if behind is not None:
                delivery.state = HELD
                behind.append(delivery)
                return
            self._lanes[lane] = deque()
        delivery.state = READY
        self._ready.append(delivery)

    # Out to the handler.

    def first_ready(self) -> Delivery[Any] | None:
        """The next to run."""
        while self._ready:
            if self._ready[0].state == READY:
                return self._ready[0]
            self._ready.popleft()
        return None

    def run_first(self, now: int) -> None:
        """It runs."""
        delivery = self._ready.popleft()
        delivery.state = RUNNING
        delivery.begun = now
        self.running += 1

    def several_ready(self) -> bool:
        """Whether more than one thread finds something to do."""
        return len(self._ready) > 1

    def next_due(self) -> int | None:
        """When the first of those that wait is due."""
        while self._waiting and self._waiting[0][2].state != WAITING:
            heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else None

    def pop_due(self, now: int) -> Delivery[Any] | None:
        """One that waits and is due."""
        due = self.next_due()
        return heappop(self._waiting)[2] if due is not None and due <= now else None

    # And what became of it.

    def ack(self, delivery: Delivery[Any]) -> None:
        """It is done."""
        if not self.acks:
            self.acks_since = delivery.begun
        self.acks[delivery.key] = None
        if delivery.times_delivered > 1 or self._policy.max_deliveries == 1:
            self.acks_urgent = True
        self.counters.handled += 1
        self.drop(delivery, DONE)

    def retry(
        self, delivery: Delivery[Any], after: float | None, error: str, now: int, cause: BaseException | None
    ) -> None:
        """It failed: to wait, or to the dead letters if that was the last time."""
        delivery.error = error
        most = self._policy.max_deliveries
        count = delivery.times_delivered
        if most is not None and count >= most:
            self.give_up(delivery, error, now, cause)
            return
        log.warning("%s: %s failed, delivery %d: %s", self._name, delivery.id, count, error, exc_info=cause)
        if delivery.lost:
            self.drop(delivery, LOST)
            return
        self.running -= 1
        self.counters.retried += 1
        seconds = self._policy.backoff.after(count) if after is None else max(0.0, after)
        self.wait(delivery, now + round(min(seconds, SECONDS_MAX) * 1000))

    def give_up(
        self, delivery: Delivery[Any], error: str, now: int, cause: BaseException | None = None
    ) -> None:
        """No further delivery: to the dead letters, if there are any and it is still ours."""
        delivery.error = error
        count = delivery.times_delivered
        log.error("%s: %s given up, delivery %d: %s", self._name, delivery.id, count, error, exc_info=cause)
        if delivery.lost:
            self.drop(delivery, LOST)
            return
        self.counters.dead += 1
        if self._policy.dead_letters is None:
            if not self.acks:
                self.acks_since = now
            self.acks[delivery.key] = None
            self.drop(delivery, DONE)
            return
        if delivery.state == RUNNING:
            self.running -= 1
        delivery.state = DYING
        self.dead.append(delivery)

    def lose(self, delivery: Delivery[Any]) -> None:
        """Another consumer has it."""
        if delivery.state in (DONE, LOST):
            return
        delivery.lost = True
        self.counters.lost += 1
        if delivery.state != RUNNING:
            self.drop(delivery, LOST)

    def drop(self, delivery: Delivery[Any], state: int) -> None:
        """Out of hand, if it is not yet; whoever stood in line behind it may go."""
        if delivery.state in (DONE, LOST):
            return
        if delivery.state == RUNNING:
            self.running -= 1
        delivery.state = state
        self.all.pop(delivery.key, None)
        if delivery.lane is not None:
            self._release(delivery)

    def forget(self) -> None:
        """Nothing is in hand any more but what runs."""
        self.all = {key: one for key, one in self.all.items() if one.state == RUNNING}
        for collection in (self.dead, self.acks, self._ready, self._waiting, self._lanes):
            collection.clear()
        for one in self.all.values():
            one.lane = None

    def _release(self, delivery: Delivery[Any]) -> None:
        """The first in line behind it is ready."""
        behind = self._lanes[delivery.lane]
        if delivery in behind:  # it stood in line itself
            behind.remove(delivery)
        elif behind:
            following = behind.popleft()
            following.state = READY
            self._ready.append(following)
        else:
            del self._lanes[delivery.lane]
