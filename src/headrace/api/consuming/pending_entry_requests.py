"""Redeliver, renew, release and give up entries without taking them from another consumer.

A consumer owns an entry for one lease after its last delivery or renewal: in that time no other consumer
claims it. After that time, for example because the process was stopped or its connection was lost, the
consumer checks the owner before it changes the entry. Another consumer may claim the entry between the check
and the request. Then both handle the entry, and no entry is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakMethod

from headrace.api.codecs.arguments import decode_name
from headrace.api.consuming.actions import Replies, SendRequests
from headrace.api.consuming.dead_letters import dead_letter_fields
from headrace.api.consuming.in_flight import InFlight
from headrace.api.consuming.requests import ConsumerRequestBuilder
from headrace.api.delivery import DONE, GIVEN_UP, LOST, WAITING, Delivery
from headrace.api.retry_policy import RetryPolicy
from headrace.errors import CommandError, HeadraceError


class PendingEntryActions:
    """Makes the requests that redeliver, renew, release or give up this consumer's pending entries.

    The caller must hold the Worker's lock.
    """

    def __init__(
        self,
        in_flight: InFlight,
        requests: ConsumerRequestBuilder,
        policy: RetryPolicy,
        clock: Callable[[], int],
        retry_or_raise: Callable[[Exception], None],
    ) -> None:
        self._in_flight = in_flight
        self._requests = requests
        self._policy = policy
        self._clock = clock
        self._retry_or_raise = WeakMethod(retry_or_raise)  # of the worker, which has this object
        self._lease_ms = policy.lease_ms

    def redeliver(self, due: list[Delivery[Any]], now: int) -> SendRequests:
        """Deliver entries pending with this consumer again. This counts as a delivery."""

        def undo() -> None:
            for one in due:
                if one.state == WAITING:
                    self._in_flight.schedule_redelivery(one, one.due_ms)

        if not all(self.lease_is_valid(one, now) for one in due):
            return self.check_and_renew_leases(due, now, undo)

        def on_replies(replies: Replies) -> None:
            for n, one in enumerate(due):
                if one.state == WAITING:
                    self._on_claimed(one, replies[2 * n], replies[2 * n + 1], now)

        requests = [words for one in due for words in self._requests.redeliver(one.raw_id)]
        return SendRequests(requests, on_replies, undo)

    def read_delivery_counts(self, due: list[Delivery[Any]], now: int) -> SendRequests:
        """Read how often these entries, pending with this consumer, were delivered.

        For batches: an entry whose next delivery is its last one must be redelivered alone.
        """

        def undo() -> None:
            for one in due:
                if one.state == WAITING:
                    self._in_flight.schedule_redelivery(one, one.due_ms)

        def on_replies(replies: Replies) -> None:
            for one, rows in zip(due, replies, strict=True):
                if one.state != WAITING:
                    continue
                if not rows:
                    self._in_flight.mark_missing(one)
                elif rows[0][1] != self._requests.consumer:
                    self._in_flight.mark_lost(one)
                else:
                    one.times_delivered = rows[0][3]
                    self._in_flight.schedule_redelivery(one, one.due_ms)

        return SendRequests([self._requests.pending_entry(one.raw_id) for one in due], on_replies, undo)

    def _on_claimed(self, delivery: Delivery[Any], claimed: Any, pending: Any, now: int) -> None:
        """Process the replies about an entry that was delivered again."""
        if (
            not claimed or not claimed[0] or claimed[0][1] is None
        ):  # an old server returns nil for a deleted entry
            self._in_flight.counters.missing += 1
            if pending:
                self._in_flight.unsent_acks[delivery.raw_id] = None
            self._in_flight.remove(delivery, LOST)
        elif not pending or pending[0][1] != self._requests.consumer:
            self._in_flight.mark_lost(delivery)
        else:
            delivery.reset_for_redelivery(claimed[0][1], pending[0][3], now)
            self._in_flight.make_ready_or_give_up(delivery, self._clock())

    def move_to_dead_letters(self, delivery: Delivery[Any], now: int) -> SendRequests:
        """Move the entry to the dead-letter stream. Check that key's type first: EXEC continues after errors.

        If another client replaces the dead-letter stream with a key of another type between check and
        transaction, the entry is acknowledged and not added. It is then made pending again at once; it is
        lost only if this process dies before that. XADD followed by XACK would lose nothing even then, but
        would add a dead letter twice after every crash between the two, which is far more likely.
        """
        target = self._policy.dead_letters
        assert target is not None
        in_flight = self._in_flight

        def undo() -> None:
            if delivery.state == GIVEN_UP:
                in_flight.unsent_dead_letters.append(delivery)

        if not self.lease_is_valid(delivery, now):
            return self.check_and_renew_leases([delivery], now, undo)

        def on_outcome_unknown() -> None:
            # It may have been executed: check before it is repeated.
            delivery.lease_renewed_ms = now - self._lease_ms
            undo()

        def on_type_reply(replies: Replies) -> SendRequests:
            if replies[0] not in (b"none", b"stream"):
                undo()
                raise HeadraceError(
                    f"{decode_name(target)!r} is not a stream and cannot hold dead letters: delete it, or"
                    " give the group another name with dead_letters="
                )
            fields = dead_letter_fields(delivery, self._requests)
            return SendRequests(
                self._requests.move_to_dead_letters(target, delivery.raw_id, fields),
                on_move_replies,
                on_outcome_unknown,
                atomic=True,
                handles_errors=True,
            )

        def on_move_replies(replies: Replies) -> SendRequests | None:
            refused = next((reply for reply in replies if isinstance(reply, CommandError)), None)
            if refused is None:
                in_flight.remove(delivery, DONE)
                return None

            def on_made_pending(_: Replies) -> None:
                undo()
                if (retry_or_raise := self._retry_or_raise()) is not None:
                    retry_or_raise(refused)

            again = self._requests.make_pending_again(delivery.raw_id, delivery.times_delivered)
            return SendRequests([again], on_made_pending, on_outcome_unknown)

        return SendRequests([(b"TYPE", target)], on_type_reply, undo)

    def release(self, rest: list[Delivery[Any]], now: int, then: Callable[[], None]) -> SendRequests:
        """Release entries to other consumers: waiting ones when they are due, the others at once.

        Calls then() at the end, also after an error.
        """
        if not all(self.lease_is_valid(one, now) for one in rest):
            return self.check_and_renew_leases(rest, now, then)
        requests = []
        for one in rest:
            left = max(0, one.due_ms - now) if one.state == WAITING else 0
            before = None if one.state == WAITING else max(0, one.times_delivered - 1)
            idle = max(0, self._policy.released_idle_ms - left)
            requests.append(self._requests.release(one.raw_id, idle, before))

        def on_replies(replies: Replies) -> None:
            for one in rest:
                if self._in_flight.by_id.get(one.raw_id) is one:
                    self._in_flight.counters.released += 1
                    self._in_flight.remove(one, LOST)
            then()

        return SendRequests(requests, on_replies, then)

    # Ownership.

    def lease_is_valid(self, delivery: Delivery[Any], now: int) -> bool:
        """Return whether the entry's lease still runs, so that no other consumer can have claimed it."""
        return 0 <= now - delivery.lease_renewed_ms < self._policy.ownership_ms

    def check_and_renew_leases(
        self, old: list[Delivery[Any]], now: int, then: Callable[[], None] = lambda: None
    ) -> SendRequests:
        """Renew leases. After a stall, first check which entries other consumers have claimed."""
        doubtful = [one for one in old if not self.lease_is_valid(one, now)]
        if not doubtful:
            return self.renew_without_check(old, now, then)

        def on_check_replies(replies: Replies) -> SendRequests | None:
            for one, rows in zip(doubtful, replies, strict=True):
                if not rows:
                    self._in_flight.mark_missing(one)
                elif rows[0][1] != self._requests.consumer:
                    self._in_flight.mark_lost(one)
            ours = [one for one in old if not one.lost]
            if ours:
                return self.renew_without_check(ours, self._clock(), then)
            then()
            return None

        return SendRequests(
            [self._requests.pending_entry(one.raw_id) for one in doubtful], on_check_replies, then
        )

    def renew_without_check(
        self, ours: Iterable[Delivery[Any]], now: int, then: Callable[[], None] = lambda: None
    ) -> SendRequests:
        """Renew the leases of these entries; the delivery counts stay."""
        by_key = {one.raw_id: one for one in ours}

        def on_replies(replies: Replies) -> None:
            renewed = set(replies[0])
            for key, one in by_key.items():
                if key in renewed:
                    one.lease_renewed_ms = now
                else:
                    self._in_flight.mark_missing(one)
            then()

        return SendRequests([self._requests.renew(by_key)], on_replies, then)
