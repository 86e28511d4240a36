"""Which entries in hand are whose: begun, renewed, buried and given back without taking them from anybody.

A consumer owns an entry as long as the server heard of it less than a lease ago: until then nobody takes it.
After that (its process stood still, its connection was lost) it looks before it does anything with the entry.
Between the look and the deed another may take it over: then both handle it, and none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.api.codecs.arguments import shown
from headrace.api.consuming.actions import Ask, Replies
from headrace.api.consuming.dead_letters import burial_fields
from headrace.api.consuming.in_flight import Hand
from headrace.api.consuming.requests import Requests
from headrace.api.delivery import DONE, DYING, LOST, WAITING, Delivery
from headrace.api.retry_policy import Policy
from headrace.errors import CommandError, HeadraceError


class Claims:
    """The requests about entries that are pending with this consumer. Under the Worker's lock."""

    def __init__(
        self,
        hand: Hand,
        requests: Requests,
        policy: Policy,
        clock: Callable[[], int],
        judge: Callable[[Exception], None],
    ) -> None:
        self._hand = hand
        self._requests = requests
        self._policy = policy
        self._clock = clock
        self._judge = judge
        self._lease_ms = policy.lease_ms

    def begin(self, delivery: Delivery[Any], now: int) -> Ask:
        """Deliver once more an entry that is pending with this consumer: this is what counts."""

        def undo() -> None:
            if delivery.state == WAITING:
                self._hand.wait(delivery, delivery.due)

        if not self.sure(delivery, now):
            return self.renewal([delivery], now, undo)

        def done(replies: Replies) -> None:
            claimed, pending = replies
            if delivery.state != WAITING:
                return
            if (
                not claimed or not claimed[0] or claimed[0][1] is None
            ):  # an old server gives nil for a deleted one
                self._hand.counters.gone += 1
                if pending:
                    self._hand.acks[delivery.key] = None
                self._hand.drop(delivery, LOST)
            elif not pending or pending[0][1] != self._requests.consumer:
                self._hand.lose(delivery)
            else:
                delivery.again(claimed[0][1], pending[0][3], now)
                self._begun(delivery)

        return Ask(self._requests.begin(delivery.key), done, undo)

    def _begun(self, delivery: Delivery[Any]) -> None:
        """It was delivered once more: to the handler, or if that never ended, to the dead letters."""
        now = self._clock()
        deliveries = delivery.times_delivered
        most = self._policy.max_deliveries
        if most is not None and deliveries > most:
            never = f"delivered {deliveries - 1} times and never settled: its consumers died or were stopped"
            self._hand.give_up(delivery, delivery.error or never, now)
        else:
            self._hand.enqueue(delivery, now)

    def burial(self, delivery: Delivery[Any], now: int) -> Ask:
        """To the dead letters. A transaction goes on when a part of it is refused: look at that first.

        Who replaces the stream of dead letters by a key of another type between the look and the transaction
        makes it acknowledge and not add. Then the entry is made pending again at once; it is lost if this
        process dies before that. XADD and XACK one after the other would lose nothing even then, and bury an
        entry twice in every death between the two, which is far likelier.
        """
        target = self._policy.dead_letters
        assert target is not None
        hand = self._hand

        def undo() -> None:
            if delivery.state == DYING:
                hand.dead.append(delivery)

        if not self.sure(delivery, now):
            return self.renewal([delivery], now, undo)

        def unknown() -> None:
            delivery.seen = now - self._lease_ms  # it may have been done: look before it is done again
            undo()

        def looked(replies: Replies) -> Ask:
            if replies[0] not in (b"none", b"stream"):
                undo()
                raise HeadraceError(
                    f"{shown(target)!r} holds no stream, so dead letters cannot go there: delete that key, or"
                    " give the group another name with dead_letters="
                )
            fields = burial_fields(delivery, self._requests)
            return Ask(
                self._requests.bury(target, delivery.key, fields), moved, unknown, atomic=True, judges=True
            )

        def moved(replies: Replies) -> Ask | None:
            refused = next((reply for reply in replies if isinstance(reply, CommandError)), None)
            if refused is None:
                hand.drop(delivery, DONE)
                return None

            def restored(_: Replies) -> None:
                undo()
                self._judge(refused)

            again = self._requests.restore(delivery.key, delivery.times_delivered)
            return Ask([again], restored, unknown)

        return Ask([(b"TYPE", target)], looked, undo)

    def give_back(self, rest: list[Delivery[Any]], now: int, then: Callable[[], None]) -> Ask:
        """For others to take at once; what waits for its next try, when that is due."""
        if not all(self.sure(one, now) for one in rest):
            return self.renewal(rest, now, then)
        requests = []
        for one in rest:
            left = max(0, one.due - now) if one.state == WAITING else 0
            before = None if one.state == WAITING else max(0, one.times_delivered - 1)
            requests.append(self._requests.give_back(one.key, max(0, self._lease_ms - left), before))

        def done(replies: Replies) -> None:
            for one in rest:
                if self._hand.all.get(one.key) is one:
                    self._hand.counters.given_back += 1
                    self._hand.drop(one, LOST)
            then()

        return Ask(requests, done, then)

    # Whose is it?

    def sure(self, delivery: Delivery[Any], now: int) -> bool:
        """Whether nobody can have taken it: the server heard of this consumer less than a lease ago."""
        return 0 <= now - delivery.seen < self._lease_ms

    def renewal(self, old: list[Delivery[Any]], now: int, then: Callable[[], None] = lambda: None) -> Ask:
        """A sign of life for each. After a stall it is asked first which of them others have taken."""
        doubtful = [one for one in old if not self.sure(one, now)]
        if not doubtful:
            return self.claim(old, now, then)

        def looked(replies: Replies) -> Ask | None:
            for one, rows in zip(doubtful, replies, strict=True):
                if not rows or rows[0][1] != self._requests.consumer:
                    self._hand.lose(one)
            ours = [one for one in old if not one.lost]
            if ours:
                return self.claim(ours, self._clock(), then)
            then()
            return None

        return Ask([self._requests.look(one.key) for one in doubtful], looked, then)

    def claim(self, ours: Iterable[Delivery[Any]], now: int, then: Callable[[], None] = lambda: None) -> Ask:
        """The lease of these begins anew; the count of their deliveries stays."""
        by_key = {one.key: one for one in ours}

        def done(replies: Replies) -> None:
            renewed = set(replies[0])
            for key, one in by_key.items():
                if key in renewed:
                    one.seen = now
                elif one.state not in (DONE, LOST):  # deleted, or acknowledged by someone else
                    self._hand.lose(one)
            then()

        return Ask([self._requests.renew(by_key)], done, then)
