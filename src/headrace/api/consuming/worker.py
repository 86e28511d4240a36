"""The decisions of a consumer: what to do next, given the replies so far. No socket, thread or sleep.

    next_action() ──▶ Delivery or Batch, SendRequests, BlockingRead, Idle or FINISHED: the driver performs it
    handle_replies(), handle_request_error(), ack(), retry(), fail() ◀── the result
    next_lease_renewal() ──▶ requests that keep the leases of long work

Actions by priority:

    1. acknowledge done entries, if they are many or some time has passed
    2. deliver a fetched entry, or a batch that is complete, to the handler
    3. move entries that failed too often to the dead letters; redeliver entries that are due
    4. once: list the entries that this consumer had pending at its start; regularly: claim idle entries
    5. fetch; if nothing is new, acknowledge all done entries and wait

Guarantee: an entry is acknowledged only after ack(), or in one transaction with its copy among the dead
letters. Until then it is pending on the server and is delivered again, whatever happens here: at least once.
It is handled twice after a crash between the end of the handler and the acknowledgement, after a lease that
ran out (the process stopped, or the connection was lost for long), and when two consumers have the same name.

The server counts deliveries. A claimed entry is counted when its handler begins, not when it is claimed.
So entries queued after one that kills its consumers do not reach their own delivery limit. A server with the
rule LEASE counts an entry when it is fetched: see InFlight.add().

All methods are thread-safe.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace.api.batch import Batch, DeliveryOrBatch
from headrace.api.codecs.codec import Codec
from headrace.api.consuming.actions import FINISHED, Action, BlockingRead, Idle, Replies, SendRequests
from headrace.api.consuming.batching import BatchSettings, BatchTimer
from headrace.api.consuming.in_flight import Counters, InFlight, describe_error, log
from headrace.api.consuming.pending_entry_requests import PendingEntryActions
from headrace.api.consuming.requests import FIRST_ID, ConsumerRequestBuilder
from headrace.api.delivery import LOST, QUEUED, READY, RUNNING, UNKNOWN_DELIVERIES, WAITING, Delivery
from headrace.api.group_gaps import GroupGapWatch
from headrace.api.retry_policy import RetryPolicy
from headrace.api.stream_gaps import StreamGap
from headrace.errors import AccessDenied, CodecError, CommandError, ConnectionLost, NotOnDisk, UsageError

IN_FLIGHT_MAX = 1024  # entries that one consumer has, fetched, running or to be retried; or concurrency
CLAIM_COUNT_MIN = 32  # idle entries claimed at a time; a server examines ten times as many
ACK_BATCH_MAX = 256  # acknowledgements collected, to be sent together
ACK_DELAY_MS = 20  # how long they are collected, from the start of the first of them
FETCH_COUNT_MAX = 512
FETCH_FAST_MS, FETCH_SLOW_MS = 50, 200  # what is handled faster is doubled, what is slower is halved
RETRY_DELAY_MIN_MS, RETRY_DELAY_MAX_MS = 100, 5000  # before a request is retried after an error
DELIVERIES_MAX = (1 << 63) - 1  # the largest count that Redis stores, as after XNACK FATAL
STOP_TIMEOUT_MS = 5000  # how long a stopping consumer retries to release its entries

# Transient errors: the server is loading, full, has a disk error, or is changing its role.
TRANSIENT_CODES = {"LOADING", "OOM", "MISCONF", "BUSY", "READONLY", "MASTERDOWN", "UNBLOCKED", "NOREPLICAS"}
TRANSIENT_CODES |= {"NOQUORUM", "TRYAGAIN", "CLUSTERDOWN", "EXECABORT"}


class Worker:
    """The decisions of one consumer.

    Args:
        clock: the current time in milliseconds: backend.now_ms.
        fetch_count: entries to fetch at a time; None: as many as are handled in about a tenth of a second,
            or the size of a batch.
        batches: next_action() returns a Batch and not a Delivery.
        block: seconds without work after which the worker finishes, even if retries wait; inf: never.
        concurrency: how many threads or tasks call next_action(). At least this many entries can be in
            flight. It is also the number of entries of the first fetch if fetch_count and batches are None.
        ordered_by: returns the hashable order key of an entry. Entries with an equal key are handled one by
            one in the order of the stream; while one waits for a retry, the later ones wait too.
        codec: decodes the stream's values.
        gaps: finds entries that were removed before the group read them.
    """

    def __init__(
        self,
        requests: ConsumerRequestBuilder,
        policy: RetryPolicy,
        clock: Callable[[], int],
        *,
        fetch_count: int | None = None,
        batches: BatchSettings | None = None,
        block: float = math.inf,
        concurrency: int = 1,
        ordered_by: Callable[[Delivery[Any]], Any] | None = None,
        codec: Codec[Any] | None = None,
        counters: Counters | None = None,
        gaps: GroupGapWatch | None = None,
    ) -> None:
        self.policy = policy
        self.revision = 0  # incremented when idle or waiting callers should call next_action()
        self.on_change: Callable[[], None] = lambda: None  # called from any thread, under the Worker's lock
        self._requests = requests
        self._clock = clock
        self._lock = threading.RLock()
        self._in_flight = InFlight(str(requests), policy, ordered_by, counters, batches is not None)
        self._entry_requests = PendingEntryActions(
            self._in_flight, requests, policy, clock, self._retry_or_raise
        )
        fixed = fetch_count or (None if batches is None else batches.size)
        self._fetch_count = self._fetch_count_min = fixed or concurrency
        self._fetch_count_max = fixed or max(FETCH_COUNT_MAX, concurrency)
        self._block_ms = None if math.isinf(block) else round(block * 1000)
        self._batch_timer = None if batches is None else BatchTimer(batches, self._block_ms)
        wanted = concurrency if batches is None else (concurrency + 1) * batches.size
        self._in_flight_max = max(IN_FLIGHT_MAX, wanted)
        self._codec = codec
        self._gaps = GroupGapWatch(str(requests)) if gaps is None else gaps
        self._gaps.forget_deliveries()
        self._gaps.server_counts_lost_entries = (
            bool(policy.server_rule_arguments) or self._gaps.server_counts_lost_entries
        )
        self._lease_ms = policy.lease_ms
        self._fetching = False  # one of the callers fetches
        self._fetch_waits = False  # and nothing else is to be done, so it waits for new entries
        self._fetch_started_ms = 0  # entries of that fetch were delivered later than this
        self._own_pending_after: bytes | None = FIRST_ID  # None: no entry is left from before its start
        self._claim_cursor = FIRST_ID
        self._next_claim_ms = 0
        self._claimed_since_fetch = False  # idle entries were claimed since the last fetch
        self._nothing_new = False  # the last fetch found nothing
        self._full_fetch_ms: int | None = None  # when as many were fetched as requested
        self._idle_since_ms: int | None = None
        self._group_lost = False
        self._retry_at_ms = 0
        self._retry_delay_ms = 0
        self._stopped_ms: int | None = None
        self._releasing = False  # one of the callers releases the remaining entries
        self._must_check_gaps = False  # look for gaps before the next delivery
        self._checked_gaps_at_stop = False  # gaps were looked for when it was stopped

    @property
    def counters(self) -> Counters:
        """What the consumer has done so far."""
        return self._in_flight.counters

    @property
    def renewal_interval(self) -> float:
        """Seconds between calls of next_lease_renewal(): a third of lease or CONSUMER-TTL, at most 1."""
        return min(self.policy.ownership_ms / 3000, 1.0)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is ending: stop() was called, or `block` seconds passed without work."""
        return self._stopped_ms is not None

    @property
    def has_unsettled_entries(self) -> bool:
        """Whether any entry is in flight or waits for its acknowledgement."""
        return bool(self._in_flight.by_id or self._in_flight.unsent_acks)

    # What to do next.

    def next_action(self) -> Action:
        """Return what the caller must do now. A returned Delivery is RUNNING until it is settled."""
        with self._lock:
            now = self._clock()
            if self._acks_overdue(now, ACK_BATCH_MAX):
                return self._send_acks()
            if self._stopped_ms is not None:
                return self._next_other_action(now)
            if self._must_check_gaps:
                waits = now < self._retry_at_ms
                return self._idle(now, self._retry_at_ms) if waits else self._request_gap_check()
            if self._batch_timer is not None:
                return self._next_batch(now, complete=False) or self._next_other_action(now)
            first = self._in_flight.first_ready()
            if first is not None and self._entry_requests.lease_is_valid(first, now):
                self._in_flight.mark_running([first], now)
                self._idle_since_ms = None
                return first
            return self._next_other_action(now)

    def _next_batch(self, now: int, complete: bool) -> Batch[Any] | SendRequests | None:
        """Return a batch that is full or due, or the requests that it needs first; None if there is none.

        complete: no other action is left that could add entries to a batch that is due.
        """
        timer, in_flight = self._batch_timer, self._in_flight
        assert timer is not None
        timer.start_or_stop(in_flight.first_ready() is not None, now)
        is_full = in_flight.ready_count() >= timer.size or in_flight.has_last_try()
        if not is_full and not timer.is_due(now, complete):
            return None
        entries = in_flight.ready_batch(timer.size)
        if not all(self._entry_requests.lease_is_valid(one, now) for one in entries):
            return (
                self._entry_requests.check_and_renew_leases(entries, now)
                if now >= self._retry_at_ms
                else None
            )
        if not entries:
            return None
        in_flight.mark_running(entries, now)
        timer.reset_after_delivery()
        self._idle_since_ms = None
        return Batch(entries, self)

    def next_lease_renewal(self) -> SendRequests | None:
        """Return requests that keep entries in flight from being claimed; None if there are none.

        Call it every renewal_interval seconds, and then again after each reply until it returns None.
        """
        with self._lock:
            now = self._clock()
            if now < self._retry_at_ms or self._group_lost:
                return None
            if self._acks_overdue(now, 1 << 30):
                return self._send_acks()
            third = self.policy.ownership_ms // 3
            old = [
                one
                for one in self._in_flight.by_id.values()
                if not one.lost and not 0 <= now - one.lease_renewed_ms < third
            ]
            return self._entry_requests.check_and_renew_leases(old[:ACK_BATCH_MAX], now) if old else None

    def _acks_overdue(self, now: int, most: int) -> bool:
        in_flight = self._in_flight
        if not in_flight.unsent_acks or now < self._retry_at_ms:
            return False
        return (
            in_flight.has_urgent_ack
            or len(in_flight.unsent_acks) >= most
            or not 0 <= now - in_flight.first_unsent_ack_ms < ACK_DELAY_MS
        )

    def _next_other_action(self, now: int) -> Action:
        """Return the next action that is not a ready delivery."""
        in_flight = self._in_flight
        if now < self._retry_at_ms:
            return self._idle(now, self._retry_at_ms)
        if self._group_lost:
            return self._recreate_group(now)
        if in_flight.unsent_dead_letters:
            return self._entry_requests.move_to_dead_letters(in_flight.unsent_dead_letters.popleft(), now)
        if self._stopped_ms is not None:
            return self._finish(now)
        if self._batch_timer is None and in_flight.first_ready() is not None:
            # Its lease ran out, so its owner is unknown.
            return self._entry_requests.check_and_renew_leases(
                [one for one in in_flight.by_id.values() if one.state == READY], now
            )
        if (redelivery := self._redeliver_due(now)) is not None:
            return redelivery
        capacity = self._in_flight_max - len(in_flight.by_id)
        if capacity > 0 and not self._fetching:
            taken = min(max(self._fetch_count, CLAIM_COUNT_MIN), capacity)
            if self._own_pending_after is not None:
                return self._list_own_pending(self._own_pending_after, taken)
            if (
                now >= self._next_claim_ms
                and not self._claimed_since_fetch
                and not self.policy.server_rule_arguments
            ):
                return self._claim_idle(taken, now)
            if not self._nothing_new:
                return self._fetch(now, capacity)
        if in_flight.unsent_acks:
            return self._send_acks()
        return self._wait(now, capacity)

    def _redeliver_due(self, now: int) -> SendRequests | None:
        """Return the requests that deliver due entries again, one or a batch of them; None if none is due."""
        if self._batch_timer is None:
            due = self._in_flight.pop_due(now)
            return None if due is None else self._entry_requests.redeliver([due], now)
        several = self._in_flight.pop_due_batch(now, min(self._batch_timer.size, ACK_BATCH_MAX))
        if not several:
            return None
        uncounted = [one for one in several if one.times_delivered == UNKNOWN_DELIVERIES]
        if not uncounted or self.policy.max_deliveries is None:
            return self._entry_requests.redeliver(several, now)
        for one in several:
            if one.times_delivered != UNKNOWN_DELIVERIES:
                self._in_flight.schedule_redelivery(one, one.due_ms)
        return self._entry_requests.read_delivery_counts(uncounted, now)

    def _wait(self, now: int, capacity: int) -> Action:
        """Wait for new entries if there is capacity and no other caller fetches."""
        until = self._in_flight.next_due_ms()
        if self._batch_timer is not None:
            if (batch := self._next_batch(now, complete=True)) is not None:
                return batch
            if self._batch_timer.due_ms is not None:
                until = min(until or self._batch_timer.due_ms, self._batch_timer.due_ms)
        over = self._idle_end_ms(now)
        if over is not None:
            if over <= now:
                self.stop()
                return self._finish(now)
            until = over if until is None else min(until, over)
        if capacity <= 0 or self._fetching:
            return self._idle(now, until)
        next_claim = (
            now + self.policy.claim_interval_ms if self.policy.server_rule_arguments else self._next_claim_ms
        )
        until = next_claim if until is None else min(until, next_claim)
        self._nothing_new = False
        self._claimed_since_fetch = False
        if until <= now:
            return self._next_other_action(now)
        self._fetching = self._fetch_waits = True
        self._fetch_started_ms = now
        words = self._requests.read_new(min(self._fetch_count, capacity))
        return BlockingRead(
            words, (until - now) / 1000, self.revision, self._on_waited, self._on_fetch_failed
        )

    def _idle_end_ms(self, now: int) -> int | None:
        """Return when `block` is over, if there is no work; None if there is, or if `block` is inf.

        While another caller fetches without waiting, there may be work.
        """
        in_flight = self._in_flight
        if self._block_ms is None or (self._fetching and not self._fetch_waits):
            return None
        if in_flight.running_count or in_flight.ready_count():
            return None
        self._idle_since_ms = now if self._idle_since_ms is None else self._idle_since_ms
        return self._idle_since_ms + self._block_ms

    def _on_waited(self, replies: Replies) -> None:
        """Process the reply of a read that waited."""
        self._on_fetched(replies)
        self._must_check_gaps = bool(self._gaps.raises_gaps and replies[-1])

    def _idle(self, now: int, until: int | None) -> Idle:
        return Idle(None if until is None else max(0, until - now) / 1000, self.revision)

    def _finish(self, now: int) -> Action:
        """Return the next action while stopping: acknowledge and release."""
        if self._in_flight.unsent_acks:
            return self._send_acks()
        if self._gaps.has_unchecked_deliveries and not self._checked_gaps_at_stop:
            self._checked_gaps_at_stop = True
            return self._request_gap_check()
        rest = [one for one in self._in_flight.by_id.values() if one.state in (READY, QUEUED, WAITING)]
        if not rest or self._releasing:
            return FINISHED
        self._releasing = True

        def then() -> None:
            self._releasing = False

        return self._entry_requests.release(rest[:ACK_BATCH_MAX], now, then)

    # Results of actions.

    def handle_replies(self, action: SendRequests | BlockingRead, replies: Replies) -> SendRequests | None:
        """Process the replies to an action; return the request that follows at once.

        An error reply that the action does not handle goes to handle_request_error(), which may raise it.
        """
        with self._lock:
            if not action.handles_errors:
                for reply in replies:
                    if isinstance(reply, CommandError):
                        self.handle_request_error(action, reply)
                        return None
            self._retry_delay_ms = 0
            return action.on_replies(replies)

    def handle_request_error(self, action: SendRequests | BlockingRead, error: Exception) -> None:
        """Undo a failed action. Raises the error unless it is transient or the group can be recreated."""
        with self._lock:
            action.undo()
            self._retry_or_raise(error)

    def _retry_or_raise(self, error: Exception) -> None:
        """Schedule a retry after a transient error; raise any other one."""
        now = self._clock()
        code = str(error).partition(" ")[0] if isinstance(error, CommandError) else ""
        if code == "NOGROUP" and self._stopped_ms is not None:
            self._in_flight.clear_except_running()
            return
        if code == "NOGROUP" and self.policy.recreate_start is not None:
            self._group_lost = True
            return
        if code not in TRANSIENT_CODES and not isinstance(error, ConnectionLost | NotOnDisk):
            raise error
        self._retry_delay_ms = min(max(RETRY_DELAY_MIN_MS, 2 * self._retry_delay_ms), RETRY_DELAY_MAX_MS)
        self._retry_at_ms = now + self._retry_delay_ms
        log.warning("%s: %s; retrying in %.1f s", self._requests, error, self._retry_delay_ms / 1000)
        if self._stopped_ms is not None and now - self._stopped_ms >= STOP_TIMEOUT_MS:
            log.warning("%s: stopped, but could not release its entries: they stay pending", self._requests)
            self._in_flight.clear_except_running()
            self._retry_at_ms = 0

    def stop(self) -> None:
        """Begin no other entry; next_action() returns what is left to do until it returns FINISHED."""
        with self._lock:
            if self._stopped_ms is None:
                self._stopped_ms = self._clock()
            self._notify_change()

    def _notify_change(self) -> None:
        self.revision += 1
        self.on_change()

    # Settle a delivery. Only the first call has an effect.

    def ack(self, work: DeliveryOrBatch | Sequence[Delivery[Any]]) -> None:
        """Record that entries are done; they are acknowledged even if their lease was lost."""
        with self._lock:
            for delivery in deliveries_of(work):
                if delivery.state == RUNNING:
                    self._in_flight.ack(delivery)
            self._notify_change()

    def record_failure(self, work: DeliveryOrBatch | Sequence[Delivery[Any]], error: BaseException) -> None:
        """Record that the handler raised: retry after the back-off, or move entries to the dead letters.

        The same fields would fail to decode each time, so such an entry is moved to the dead letters at once.
        """
        deliveries = deliveries_of(work)
        cause: BaseException | None = error
        level = logging.WARNING
        text = describe_error(error)
        if len(deliveries) > 1:  # one line and one traceback are enough
            count = len(deliveries)
            log.warning("%s: a batch of %d failed: %s", self._requests, count, text, exc_info=error)
            cause, level = None, logging.DEBUG
        gives_up = self.policy.max_deliveries is not None and self.policy.dead_letters is not None
        for delivery in deliveries:
            if gives_up and isinstance(error, CodecError) and error.entry is delivery:
                self.fail(delivery, text, cause)
            else:
                self.retry(delivery, None, text, cause, level)

    def retry(
        self,
        work: DeliveryOrBatch | Sequence[Delivery[Any]],
        after: float | None,
        error: str,
        cause: BaseException | None = None,
        level: int = logging.WARNING,
    ) -> None:
        """Deliver entries again after `after` seconds; None for the back-off.

        Raises UsageError if `after` is not a number.
        """
        if after is not None and not (isinstance(after, int | float) and after == after):  # not a NaN
            raise UsageError(f"retry(after={after!r}): must be a number of seconds")
        with self._lock:
            for delivery in deliveries_of(work):
                if delivery.state == RUNNING:
                    self._in_flight.retry_or_give_up(delivery, after, error, self._clock(), cause, level)
            self._notify_change()

    def fail(
        self, work: DeliveryOrBatch | Sequence[Delivery[Any]], reason: str, cause: BaseException | None = None
    ) -> None:
        """Move entries to the dead letters."""
        with self._lock:
            for delivery in deliveries_of(work):
                if delivery.state == RUNNING:
                    self._in_flight.give_up(delivery, reason, self._clock(), cause)
            self._notify_change()

    def abandon(self, work: DeliveryOrBatch) -> None:
        """Leave unfinished entries pending until their lease is over."""
        with self._lock:
            for delivery in deliveries_of(work):
                if delivery.state == RUNNING:
                    self._in_flight.remove(delivery, LOST)
            self._notify_change()

    # The requests. Each has a callback for its replies, and one for no reply.

    def _send_acks(self) -> SendRequests:
        """Acknowledge all done entries in one request."""
        taken = self._take_acks()
        return SendRequests(
            [self._requests.acknowledge(taken)], lambda replies: None, lambda: self._restore_acks(taken)
        )

    def _take_acks(self) -> dict[bytes, None]:
        taken = self._in_flight.unsent_acks
        self._in_flight.unsent_acks = {}
        self._in_flight.has_urgent_ack = False
        return taken

    def _restore_acks(self, taken: dict[bytes, None]) -> None:
        self._in_flight.unsent_acks = taken | self._in_flight.unsent_acks

    def _fetch(self, now: int, capacity: int) -> SendRequests:
        """Fetch new entries without waiting; acknowledge done entries in the same round trip."""
        self._fetching = True
        self._fetch_started_ms = now
        self._claimed_since_fetch = False
        if self._full_fetch_ms is not None:
            took = now - self._full_fetch_ms
            if took < FETCH_FAST_MS:
                self._fetch_count = min(2 * self._fetch_count, self._fetch_count_max)
            elif took > FETCH_SLOW_MS:
                self._fetch_count = max(self._fetch_count // 2, self._fetch_count_min)
            self._full_fetch_ms = None
        requests = [self._requests.read_new(min(self._fetch_count, capacity))]
        checks = self._gaps.is_due(now)
        if checks:
            self._gaps.schedule_next_check(now)
            requests = [*self._requests.stream_and_groups_info(), *requests]
        if not self._in_flight.unsent_acks and not checks:
            return SendRequests(requests, self._on_fetched, self._on_fetch_failed)
        taken = self._take_acks()
        if taken:
            requests.insert(0, self._requests.acknowledge(taken))

        def undo() -> None:
            self._restore_acks(taken)
            self._on_fetch_failed()

        def on_replies(replies: Replies) -> None:
            self._on_checked(replies, undo)

        return SendRequests(requests, on_replies if checks else self._on_fetched, undo, handles_errors=checks)

    def _on_checked(self, replies: Replies, undo: Callable[[], None]) -> None:
        """Process the replies of a fetch before which the state of the group was read."""
        *others, about, groups, read = replies
        for reply in (*others, read):
            if isinstance(reply, CommandError):
                undo()
                self._retry_or_raise(reply)
                return
        gap = self._find_gap(about, groups)
        self._on_fetched([read])
        self._raise_gap(gap)

    def _request_gap_check(self) -> SendRequests:
        """Look for entries that were removed before the group read them."""

        def on_replies(replies: Replies) -> None:
            self._must_check_gaps = False
            self._raise_gap(self._find_gap(*replies))

        return SendRequests(
            self._requests.stream_and_groups_info(), on_replies, lambda: None, handles_errors=True
        )

    def _find_gap(self, about: Any, groups: Any) -> StreamGap | AccessDenied | None:
        """Count and return entries that were removed before the group read them, or why they are unknown."""
        gap = self._gaps.find_gap(about, groups, self._requests.group)
        if isinstance(gap, StreamGap):
            self.counters.skipped += gap.missing or 0
        return gap

    def _raise_gap(self, gap: StreamGap | AccessDenied | None) -> None:
        """Raise a gap, if gaps are to be raised. Entries that were read after it are released."""
        if gap is not None and self._gaps.raises_gaps and self._stopped_ms is None:
            raise gap

    def _on_fetched(self, replies: Replies) -> None:
        """Process the reply of a read, which is the last one: None, or the stream's name and its entries."""
        self._fetching = self._fetch_waits = False
        if self._batch_timer is not None:
            self._batch_timer.has_fetched = True
        reply = replies[-1]
        if not reply:
            self._nothing_new = True
            return
        now = self._clock()
        in_flight = self._in_flight
        entries = reply[0][1]
        self._gaps.record_deliveries(len(entries), entries[-1][0])
        for key, flat, *counts in entries:
            if not in_flight.has(key):
                delivery = Delivery(key, flat, self._fetch_started_ms, self, self._codec)
                if counts:  # idle time, and deliveries before this one
                    delivery.times_delivered = min(counts[1] + 1, DELIVERIES_MAX)
                in_flight.add(delivery, now)
            elif counts and key in in_flight.by_id:
                in_flight.by_id[key].lease_renewed_ms = self._fetch_started_ms
                in_flight.by_id[key].lost = False
        self._idle_since_ms = None
        if len(entries) >= self._fetch_count:
            self._full_fetch_ms = now
        if in_flight.ready_count() > 1:
            self._notify_change()

    def _on_fetch_failed(self) -> None:
        self._fetching = self._fetch_waits = False
        self._gaps.forget_deliveries()

    def _list_own_pending(self, after: bytes, count: int) -> SendRequests:
        """List the entries that were pending with this consumer at its start, and renew their leases.

        This does not count as a delivery.
        """
        self._fetching = True

        def on_replies(replies: Replies) -> SendRequests | None:
            rows = replies[0]
            self._fetching = self._fetch_waits = False
            self._own_pending_after = rows[-1][0] if len(rows) == count else None
            now = self._clock()
            if self.policy.server_rule_arguments:  # the server delivers the others
                rows = [row for row in rows if row[2] < self._own_pending_idle_ms() and row[3] > 0]
            found = [row[0] for row in rows if not self._in_flight.has(row[0])]
            for key in found:
                self._schedule_pending(key, now)
            entries = [self._in_flight.by_id[key] for key in found]
            return self._entry_requests.renew_without_check(entries, now) if entries else None

        return SendRequests([self._requests.own_pending(after, count)], on_replies, self._on_fetch_failed)

    def _own_pending_idle_ms(self) -> int:
        """Return the idle time from which the server delivers pending entries of this consumer again.

        With ORDERED-BY the consumer begins with all entries whose back-off is not over. The server gives it
        the later entries of their keys, which must not be handled first.
        """
        return self._lease_ms if self.policy.ordered_by is None else self.policy.released_idle_ms

    def _claim_idle(self, count: int, asked_at: int) -> SendRequests:
        """Claim entries that other consumers left idle, or this one after a lost reply.

        Claims alternate with fetches.
        """
        self._fetching = True

        def on_replies(replies: Replies) -> None:
            self._fetching = self._fetch_waits = False
            self._claimed_since_fetch = True
            self._claim_cursor, keys, *deleted = replies[0]
            now = self._clock()
            self._next_claim_ms = (
                now + self.policy.claim_interval_ms if self._claim_cursor == FIRST_ID else now
            )
            for key in keys:
                if key in self._in_flight.by_id:
                    self._in_flight.by_id[key].lease_renewed_ms = asked_at
                    self._in_flight.by_id[key].lost = False
                elif key not in self._in_flight.unsent_acks:
                    self._schedule_pending(key, asked_at)
                    self.counters.claimed += 1
            self.counters.missing += len(deleted[0]) if deleted else 0

        return SendRequests(
            [self._requests.claim_idle(self._lease_ms, self._claim_cursor, count)],
            on_replies,
            self._on_fetch_failed,
        )

    def _schedule_pending(self, key: bytes, seen: int) -> None:
        """Schedule an entry that is pending with this consumer and not begun: it is due now."""
        self._idle_since_ms = None
        delivery = Delivery(key, [], seen, self, self._codec)
        if self._batch_timer is not None:
            delivery.times_delivered = UNKNOWN_DELIVERIES
        self._in_flight.schedule_redelivery(delivery, self._clock())

    def _recreate_group(self, now: int) -> SendRequests:
        """Recreate a lost group, and make the entries in flight pending again."""
        assert self.policy.recreate_start is not None
        self._group_lost = False
        kept = [one for one in self._in_flight.by_id.values() if not one.lost]

        def undo() -> None:
            self._group_lost = True

        def on_replies(replies: Replies) -> None:
            made = replies[0]
            if isinstance(made, CommandError) and not str(made).startswith("BUSYGROUP"):
                undo()
                self._retry_or_raise(made)
                return
            log.warning("%s: the group was deleted and has been recreated", self._requests)
            for one in kept:
                one.lease_renewed_ms = now

        restored = [self._requests.make_pending_again(one.raw_id, abs(one.times_delivered)) for one in kept]
        if self.policy.server_rule_arguments:
            restored.insert(0, self._requests.set_rules(self.policy.server_rule_arguments))
        return SendRequests(
            [self._requests.create_group(self.policy.recreate_start), *restored],
            on_replies,
            undo,
            handles_errors=True,
        )

    def __str__(self) -> str:
        return str(self._requests)


def deliveries_of(work: DeliveryOrBatch | Sequence[Delivery[Any]]) -> Sequence[Delivery[Any]]:
    """Return the entries of a batch, or a single entry as a sequence of one."""
    return (work,) if isinstance(work, Delivery) else work
