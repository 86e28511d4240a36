"""Entries in flight: running, ready, waiting for a retry, or queued.

    ready          to be delivered next, in order
    last tries     with batches: ready for the last delivery, each in a batch of its own
    waiting        due at a time: after a failure, or claimed and not begun
    queues by key  with ordered_by: the later entries of each key that has an entry ready, running or waiting
    dead letters   given up, to be moved to the dead-letter stream
    acks           done, and not acknowledged on the server yet

Used only by the Worker, under the Worker's lock.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from headrace.api.delivery import DONE, GIVEN_UP, LOST, QUEUED, READY, RUNNING, WAITING, Delivery
from headrace.api.retry_policy import SECONDS_MAX, RetryPolicy

log = logging.getLogger("headrace.consumer")


def describe_error(error: BaseException) -> str:
    """Return type and text of an exception; only the type if its text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


@dataclass(slots=True)
class Counters:
    """What a consumer has done so far, in entries."""

    handled: int = 0  # acknowledged, or about to be
    retried: int = 0  # failures after which an entry is delivered again
    dead_lettered: int = 0  # moved to the dead letters, or given up without them
    claimed: int = 0  # claimed from consumers that were idle for longer than the lease
    released: int = 0  # unfinished when it stopped, for other consumers
    lost: int = 0  # claimed by others while this consumer had them
    missing: int = 0  # pending, but deleted from the stream, or acknowledged by another client
    skipped: int = 0  # removed before the group read them; each consumer of the group counts them


class InFlight:
    """Entries in flight and their state transitions; see delivery.py for the states."""

    def __init__(
        self,
        name: str,
        policy: RetryPolicy,
        ordered_by: Callable[[Delivery[Any]], Any] | None,
        counters: Counters | None,
        isolates_last_tries: bool = False,
    ) -> None:
        self.counters = Counters() if counters is None else counters
        self.by_id: dict[bytes, Delivery[Any]] = {}  # by ID, without those that are DONE or LOST
        self.unsent_dead_letters: deque[Delivery[Any]] = deque()
        self.unsent_acks: dict[bytes, None] = {}
        self.first_unsent_ack_ms = 0  # when the first of them began (ms)
        self.has_urgent_ack = False  # at once: after another crash the entry might count as never settled
        self.running_count = 0
        self._name = name
        self._policy = policy
        self._ordered_by = ordered_by
        self._isolates_last_tries = isolates_last_tries
        self._ready: deque[Delivery[Any]] = deque()
        self._last_tries: deque[Delivery[Any]] = deque()
        self._waiting: list[tuple[int, int, Delivery[Any]]] = []  # a heap
        self._schedule_count = 0
        self._queues_by_key: dict[Any, deque[Delivery[Any]]] = {}

    def has(self, key: bytes) -> bool:
        """Return whether the entry is in flight, or done and not acknowledged yet."""
        return key in self.by_id or key in self.unsent_acks

    # Adding entries.

    def add(self, delivery: Delivery[Any], now: int) -> None:
        """Add a newly fetched entry; give it up if it has often ended the consumers that fetched it.

        A server that redelivers counts an entry when it is fetched. So entries that were only fetched
        together with one that ends its consumers have a high count, too. A new consumer receives that one
        first, unless several consumers share the entries: then its count goes on growing.
        """
        policy, count = self._policy, delivery.times_delivered
        most = None if policy.server_limits_deliveries else policy.max_deliveries
        is_first = not self.by_id
        self.by_id[delivery.raw_id] = delivery
        if most is not None and count > most and (is_first or count > 2 * most):
            self._give_up_unsettled(delivery, now)
        else:
            self._make_ready_or_queue(delivery, now)

    def schedule_redelivery(self, delivery: Delivery[Any], due: int) -> None:
        """Deliver the entry again at the time `due` (milliseconds)."""
        self.by_id[delivery.raw_id] = delivery
        delivery.state = WAITING
        delivery.due_ms = due
        self._schedule_count += 1
        heappush(self._waiting, (due, self._schedule_count, delivery))

    def make_ready_or_give_up(self, delivery: Delivery[Any], now: int) -> None:
        """Let an entry run that was just claimed again; give it up if it exceeds the limit.

        The limit is max_deliveries of the policy. With ordered_by, the entry is queued if an earlier one of
        its order key is still in flight.
        """
        most = self._policy.max_deliveries
        if most is not None and delivery.times_delivered > most:
            self._give_up_unsettled(delivery, now)
        else:
            self._make_ready_or_queue(delivery, now)

    def _give_up_unsettled(self, delivery: Delivery[Any], now: int) -> None:
        before = delivery.times_delivered - 1
        unsettled = f"delivered {before} times and never settled: its consumers died or were stopped"
        self.give_up(delivery, delivery.error or unsettled, now)

    def _make_ready_or_queue(self, delivery: Delivery[Any], now: int) -> None:
        """Make the entry ready, or queue it after earlier entries of its order key."""
        if self._ordered_by is not None and delivery.order_key is None:
            try:
                lane = (self._ordered_by(delivery),)
                behind = self._queues_by_key.get(lane)
            except Exception as error:  # of the user's function, or its key is not hashable
                delivery.state = RUNNING
                self.running_count += 1
                self.retry_or_give_up(delivery, None, f"ordered_by: {describe_error(error)}", now, error)
                return
            delivery.order_key = lane
            if behind is not None:
                delivery.state = QUEUED
                behind.append(delivery)
                return
            self._queues_by_key[lane] = deque()
        self._append_ready(delivery)

    def _append_ready(self, delivery: Delivery[Any]) -> None:
        delivery.state = READY
        (self._last_tries if self.is_last_try(delivery) else self._ready).append(delivery)

    def is_last_try(self, delivery: Delivery[Any], deliveries: int = 0) -> bool:
        """Return whether the entry is in its last delivery, and must be delivered alone.

        False for its first delivery: nothing suggests that the entry causes failures.
        deliveries: how many more deliveries to assume.
        """
        most = self._policy.max_deliveries
        count = delivery.times_delivered + deliveries
        return self._isolates_last_tries and most is not None and count > 1 and count >= most

    # Delivering to the handler.

    def first_ready(self) -> Delivery[Any] | None:
        """Return the next entry to run, or None."""
        for ready in (self._last_tries, self._ready):
            while ready:
                if ready[0].state == READY:
                    return ready[0]
                ready.popleft()
        return None

    def ready_batch(self, size: int) -> list[Delivery[Any]]:
        """Return up to `size` entries to run together; an entry in its last delivery is returned alone."""
        first = self.first_ready()
        if first is None or self._last_tries:
            return [] if first is None else [first]
        return list(islice((one for one in self._ready if one.state == READY), size))

    def mark_running(self, deliveries: Sequence[Delivery[Any]], now: int) -> None:
        """Mark the first ready entries, which first_ready() or ready_batch() has returned, as running."""
        for delivery in deliveries:
            ready = self._last_tries or self._ready
            while ready.popleft() is not delivery:
                pass  # it was claimed by another consumer meanwhile, or deleted
            delivery.state = RUNNING
            delivery.started_ms = now
            self.running_count += 1

    def ready_count(self) -> int:
        """Return how many entries are queued as ready: an upper bound, because some may be lost by now."""
        return len(self._ready) + len(self._last_tries)

    def has_last_try(self) -> bool:
        """Return whether one of the ready entries must be delivered alone."""
        return bool(self._last_tries)

    def next_due_ms(self) -> int | None:
        """Return when the first waiting entry is due; None if none waits."""
        while self._waiting and self._waiting[0][2].state != WAITING:
            heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else None

    def pop_due(self, now: int) -> Delivery[Any] | None:
        """Remove and return a waiting entry that is due, or None."""
        due = self.next_due_ms()
        return heappop(self._waiting)[2] if due is not None and due <= now else None

    def pop_due_batch(self, now: int, size: int) -> list[Delivery[Any]]:
        """Remove and return up to `size` waiting entries that are due.

        An entry whose next delivery is its last one is returned alone.
        """
        found: list[Delivery[Any]] = []
        while len(found) < size and (due := self.next_due_ms()) is not None and due <= now:
            is_last = self.is_last_try(self._waiting[0][2], 1)
            if is_last and found:
                break
            found.append(heappop(self._waiting)[2])
            if is_last:
                break
        return found

    # Results.

    def ack(self, delivery: Delivery[Any]) -> None:
        """Record that the entry is done."""
        if not self.unsent_acks:
            self.first_unsent_ack_ms = delivery.started_ms
        self.unsent_acks[delivery.raw_id] = None
        if delivery.times_delivered > 1 or self._policy.max_deliveries == 1:
            self.has_urgent_ack = True
        self.counters.handled += 1
        self.remove(delivery, DONE)

    def retry_or_give_up(
        self,
        delivery: Delivery[Any],
        after: float | None,
        error: str,
        now: int,
        cause: BaseException | None,
        level: int = logging.WARNING,
    ) -> None:
        """Record a failure: schedule a retry, or give the entry up after the last delivery.

        cause: its traceback is logged; None: there is none, or it was logged before. level: of the log line.
        """
        delivery.error = error
        most = self._policy.max_deliveries
        count = delivery.times_delivered
        if most is not None and count >= most:
            self.give_up(delivery, error, now, cause)
            return
        log.log(
            level, "%s: %s failed, delivery %d: %s", self._name, delivery.id, count, error, exc_info=cause
        )
        if delivery.lost:
            self.remove(delivery, LOST)
            return
        self.running_count -= 1
        self.counters.retried += 1
        seconds = self._policy.backoff.delay(count) if after is None else max(0.0, after)
        self.schedule_redelivery(delivery, now + round(min(seconds, SECONDS_MAX) * 1000))

    def give_up(
        self, delivery: Delivery[Any], error: str, now: int, cause: BaseException | None = None
    ) -> None:
        """Move the entry to the dead letters, or acknowledge it if the group keeps none.

        If the lease was lost, only forget the entry.
        """
        delivery.error = error
        count = delivery.times_delivered
        log.error("%s: %s given up, delivery %d: %s", self._name, delivery.id, count, error, exc_info=cause)
        if delivery.lost:
            self.remove(delivery, LOST)
            return
        self.counters.dead_lettered += 1
        if self._policy.dead_letters is None:
            if not self.unsent_acks:
                self.first_unsent_ack_ms = now
            self.unsent_acks[delivery.raw_id] = None
            self.remove(delivery, DONE)
            return
        if delivery.state == RUNNING:
            self.running_count -= 1
        delivery.state = GIVEN_UP
        self.unsent_dead_letters.append(delivery)

    def mark_lost(self, delivery: Delivery[Any]) -> None:
        """Record that another consumer claimed the entry."""
        if delivery.state not in (DONE, LOST):
            self.counters.lost += 1
            self._set_lost(delivery)

    def mark_missing(self, delivery: Delivery[Any]) -> None:
        """Record that the entry was deleted, or acknowledged by another client."""
        if delivery.state not in (DONE, LOST):
            self.counters.missing += 1
            self._set_lost(delivery)

    def _set_lost(self, delivery: Delivery[Any]) -> None:
        delivery.lost = True
        if delivery.state != RUNNING:
            self.remove(delivery, LOST)

    def remove(self, delivery: Delivery[Any], state: int) -> None:
        """Remove the entry; the next one of its order key becomes ready."""
        if delivery.state in (DONE, LOST):
            return
        if delivery.state == RUNNING:
            self.running_count -= 1
        delivery.state = state
        self.by_id.pop(delivery.raw_id, None)
        if delivery.order_key is not None:
            self._release_next(delivery)

    def clear_except_running(self) -> None:
        """Remove all entries except running ones."""
        self.by_id = {key: one for key, one in self.by_id.items() if one.state == RUNNING}
        queues = (self._ready, self._last_tries, self._waiting, self._queues_by_key)
        for collection in (self.unsent_dead_letters, self.unsent_acks, *queues):
            collection.clear()
        for one in self.by_id.values():
            one.order_key = None

    def _release_next(self, delivery: Delivery[Any]) -> None:
        """Make the next entry of the order key ready."""
        behind = self._queues_by_key[delivery.order_key]
        if delivery in behind:  # it was queued itself
            behind.remove(delivery)
        elif behind:
            self._append_ready(behind.popleft())
        else:
            del self._queues_by_key[delivery.order_key]
