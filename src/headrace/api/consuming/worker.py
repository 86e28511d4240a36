"""A consumer's mind without its hands: what to do next, given what was answered. No socket, thread or sleep.

    next() ──▶ Delivery, Ask, Read, Idle or FINISHED: whoever drives it does that
    answered(), refused(), ack(), retry(), fail() ◀── how it went
    keep() ──▶ what a keeper asks now and then, so that long work is not taken away

In this order, whenever something is to be done:

    1. acknowledge what is done, if that is a lot or some time ago
    2. hand out what was fetched
    3. move to the dead letters what failed too often; deliver again what is due
    4. once: whatever this consumer had pending when it began; then, now and then: what others left behind
    5. fetch; when nothing is new, acknowledge all that is done, and wait

What is promised: an entry is acknowledged only after ack(), or in one transaction with its copy among the
dead letters. Until then it is pending on the server, whatever happens here, and delivered again: at least
once. It is handled twice after a crash between the handler's end and the acknowledgement, after a lease that
ran out (a process stood still, a connection was lost for long), and when two consumers have one name.

Deliveries are counted on the server. What is taken over is counted when it begins, not when taken: whoever
stood in line behind an entry that kills its consumers does not share its fate.

All methods may be called from any thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from headrace.api.codecs.codec import Codec
from headrace.api.consuming.actions import FINISHED, Ask, Idle, Read, Replies, Step
from headrace.api.consuming.claims import Claims
from headrace.api.consuming.in_flight import Counters, Hand, log, told
from headrace.api.consuming.requests import NONE_YET, Requests
from headrace.api.delivery import HELD, LOST, READY, RUNNING, WAITING, Delivery
from headrace.api.retry_policy import Policy
from headrace.errors import CommandError, ConnectionLost, NotOnDisk, UsageError

IN_HAND_MAX = 1024  # entries that one consumer has: fetched, running, or waiting for their next try
TAKE_MIN = 32  # that were left behind, at a time; a server looks at ten times so many
ACKS_MAX = 256  # that are kept back, to be sent together
ACK_MS = 20  # and for how long, from when the first of them began
BATCH_MAX = 512
BATCH_QUICK_MS, BATCH_SLOW_MS = 50, 200  # a batch handled faster is doubled, one slower halved
PAUSE_FIRST_MS, PAUSE_MOST_MS = 100, 5000  # before a server that refused is asked again
STOP_MS = 5000  # for so long a consumer that stops tries to say so

# Refusals that pass: the server is loading, full, without a disk, or changing its part.
PASSING = {"LOADING", "OOM", "MISCONF", "BUSY", "READONLY", "MASTERDOWN", "UNBLOCKED", "NOREPLICAS"}
PASSING |= {"TRYAGAIN", "CLUSTERDOWN", "EXECABORT"}


class Worker:
    """The decisions of one consumer.

    clock        now, in milliseconds: link.now_ms
    batch        entries to fetch at a time; None: as many as are handled in about a tenth of a second
    block        seconds without anything to do after which it is finished, inf: never
    concurrency  how many threads or tasks call next(); only the first batch goes by it
    ordered_by   what entries have in common that must be handled one by one, in the order of the stream:
                 those with an equal, hashable key; while one waits for its next try, so do those behind it
    codec        what the stream's values are made with
    """

    def __init__(
        self,
        requests: Requests,
        policy: Policy,
        clock: Callable[[], int],
        *,
        batch: int | None = None,
        block: float = math.inf,
        concurrency: int = 1,
        ordered_by: Callable[[Delivery[Any]], Any] | None = None,
        codec: Codec[Any] | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.policy = policy
        self.changes = 0  # grows whenever one who idles or waits should call next()
        self.on_change: Callable[[], None] = lambda: None  # called from any thread, under the Worker's lock
        self._requests = requests
        self._clock = clock
        self._lock = threading.RLock()
        self._hand = Hand(str(requests), policy, ordered_by, counters)
        self._claims = Claims(self._hand, requests, policy, clock, self._judge)
        self._batch = batch or concurrency
        self._batch_min = batch or concurrency
        self._batch_max = batch or BATCH_MAX
        self._block_ms = None if math.isinf(block) else round(block * 1000)
        self._codec = codec
        self._lease_ms = policy.lease_ms
        self._fetching = False  # one of the callers does
        self._asked_at = 0  # then: what comes was delivered after that
        self._own_after: bytes | None = NONE_YET  # None: none of its own is left from before
        self._sweep_from = NONE_YET
        self._sweep_at = 0
        self._swept = False  # since it last fetched
        self._dry = False  # the last fetch found nothing
        self._full_at: int | None = None  # when a whole batch was fetched
        self._quiet_since: int | None = None
        self._group_lost = False
        self._paused_until = 0
        self._pause_ms = 0
        self._stopped_at: int | None = None
        self._giving = False  # one of the callers gives back what is left

    @property
    def counters(self) -> Counters:
        """What it has done so far."""
        return self._hand.counters

    @property
    def keep_seconds(self) -> float:
        """How often keep() is to be called: by thirds of the lease, and at least once a second."""
        return min(self.policy.lease / 3, 1.0)

    @property
    def stopped(self) -> bool:
        """Whether it is to end: stop() was called, or there was nothing to do for too long."""
        return self._stopped_at is not None

    @property
    def busy(self) -> bool:
        """Whether anything is in hand, or to be acknowledged."""
        return bool(self._hand.all or self._hand.acks)

    # What to do next.

    def next(self) -> Step:
        """What the caller is to do now. A Delivery is RUNNING from here on, until it is settled."""
        with self._lock:
            now = self._clock()
            if self._acks_overdue(now, ACKS_MAX):
                return self._ask_acks()
            first = self._hand.first_ready() if self._stopped_at is None else None
            if first is not None and self._claims.sure(first, now):
                self._hand.run_first(now)
                self._quiet_since = None
                return first
            return self._errand(now)

    def keep(self) -> Ask | None:
        """What to ask, if anything, so that nothing in hand is taken away; to be called every keep_seconds.

        Then again after each answer, until it returns None.
        """
        with self._lock:
            now = self._clock()
            if now < self._paused_until or self._group_lost:
                return None
            if self._acks_overdue(now, 1 << 30):
                return self._ask_acks()
            third = self._lease_ms // 3
            old = [one for one in self._hand.all.values() if not one.lost and not 0 <= now - one.seen < third]
            return self._claims.renewal(old[:ACKS_MAX], now) if old else None

    def _acks_overdue(self, now: int, most: int) -> bool:
        hand = self._hand
        if not hand.acks or now < self._paused_until:
            return False
        return hand.acks_urgent or len(hand.acks) >= most or not 0 <= now - hand.acks_since < ACK_MS

    def _errand(self, now: int) -> Step:
        """Whatever is to be done between deliveries."""
        hand = self._hand
        if now < self._paused_until:
            return self._idle(now, self._paused_until)
        if self._group_lost:
            return self._ask_group(now)
        if hand.dead:
            return self._claims.burial(hand.dead.popleft(), now)
        if self._stopped_at is not None:
            return self._end(now)
        if hand.first_ready() is not None:  # too old by now to be sure whose it is
            return self._claims.renewal([one for one in hand.all.values() if one.state == READY], now)
        if (due := hand.pop_due(now)) is not None:
            return self._claims.begin(due, now)
        room = IN_HAND_MAX - len(hand.all)
        if room > 0 and not self._fetching:
            taken = min(max(self._batch, TAKE_MIN), room)
            if self._own_after is not None:
                return self._ask_own(self._own_after, taken)
            if now >= self._sweep_at and not self._swept:
                return self._ask_sweep(taken, now)
            if not self._dry:
                return self._ask_fetch(now, room)
        if hand.acks:
            return self._ask_acks()
        return self._wait(now, room)

    def _wait(self, now: int, room: int) -> Step:
        """Nothing is to be done now: wait for new entries, if there is room and nobody else does."""
        until = self._hand.next_due()
        if room <= 0 or self._fetching:
            return self._idle(now, until)
        until = self._sweep_at if until is None else min(until, self._sweep_at)
        if self._block_ms is not None and self._hand.running == 0:
            self._quiet_since = now if self._quiet_since is None else self._quiet_since
            over = self._quiet_since + self._block_ms
            if over <= now:
                self.stop()
                return self._end(now)
            until = min(until, over)
        self._dry = False
        self._swept = False
        if until <= now:
            return self._errand(now)
        self._fetching = True
        self._asked_at = now
        words = self._requests.read(min(self._batch, room))
        return Read(words, (until - now) / 1000, self.changes, self._fetched, self._unfetched)

    def _idle(self, now: int, until: int | None) -> Idle:
        return Idle(None if until is None else max(0, until - now) / 1000, self.changes)

    def _end(self, now: int) -> Step:
        """Stopping: acknowledge, give back, and nothing else."""
        if self._hand.acks:
            return self._ask_acks()
        rest = [one for one in self._hand.all.values() if one.state in (READY, HELD, WAITING)]
        if not rest or self._giving:
            return FINISHED
        self._giving = True

        def then() -> None:
            self._giving = False

        return self._claims.give_back(rest[:ACKS_MAX], now, then)

    # How it went.

    def answered(self, step: Ask | Read, replies: Replies) -> Ask | None:
        """The replies to a step; returns what is to be asked at once after it. Raises as refused() does."""
        with self._lock:
            if not step.judges:
                for reply in replies:
                    if isinstance(reply, CommandError):
                        self.refused(step, reply)
                        return None
            self._pause_ms = 0
            return step.done(replies)

    def refused(self, step: Ask | Read, error: Exception) -> None:
        """A step failed: it is as if not taken. Raises the error unless it will pass, or be mended."""
        with self._lock:
            step.undo()
            self._judge(error)

    def _judge(self, error: Exception) -> None:
        """What an error means for what is next."""
        now = self._clock()
        code = str(error).partition(" ")[0] if isinstance(error, CommandError) else ""
        if code == "NOGROUP" and self._stopped_at is not None:
            self._hand.forget()
            return
        if code == "NOGROUP" and self.policy.recreate is not None:
            self._group_lost = True
            return
        if code not in PASSING and not isinstance(error, ConnectionLost | NotOnDisk):
            raise error
        self._pause_ms = min(max(PAUSE_FIRST_MS, 2 * self._pause_ms), PAUSE_MOST_MS)
        self._paused_until = now + self._pause_ms
        log.warning("%s: %s; asked again in %.1f s", self._requests, error, self._pause_ms / 1000)
        if self._stopped_at is not None and now - self._stopped_at >= STOP_MS:
            log.warning("%s: stopped, and could not say so: entries stay pending", self._requests)
            self._hand.forget()
            self._paused_until = 0

    def stop(self) -> None:
        """Begin nothing more; next() says what is to be done until it says FINISHED."""
        with self._lock:
            if self._stopped_at is None:
                self._stopped_at = self._clock()
            self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self.on_change()

    # Settling what was handed out. The first who does counts.

    def ack(self, delivery: Delivery[Any]) -> None:
        """It is done. A lost one, too: then it need not be handled again."""
        with self._lock:
            if delivery.state == RUNNING:
                self._hand.ack(delivery)
                self._changed()

    def failed(self, delivery: Delivery[Any], error: BaseException) -> None:
        """Its handler raised: once more after the back-off, or to the dead letters."""
        self.retry(delivery, None, told(error), error)

    def retry(
        self, delivery: Delivery[Any], after: float | None, error: str, cause: BaseException | None = None
    ) -> None:
        """It is to be delivered again, after so many seconds or (None) the back-off. UsageError."""
        if after is not None and not (isinstance(after, int | float) and after == after):  # not a NaN
            raise UsageError(f"retry(after={after!r}): it is a number of seconds")
        with self._lock:
            if delivery.state == RUNNING:
                self._hand.retry(delivery, after, error, self._clock(), cause)
                self._changed()

    def fail(self, delivery: Delivery[Any], reason: str) -> None:
        """It is to go to the dead letters."""
        with self._lock:
            if delivery.state == RUNNING:
                self._hand.give_up(delivery, reason, self._clock())
                self._changed()

    def leave(self, delivery: Delivery[Any]) -> None:
        """It was begun and will not be finished here: it stays pending until the lease is over."""
        with self._lock:
            if delivery.state == RUNNING:
                self._hand.drop(delivery, LOST)
                self._changed()

    # The requests. Each has an end for its replies, and one for none.

    def _ask_acks(self) -> Ask:
        """All that is done, in one go."""
        taken = self._take_acks()
        return Ask(
            [self._requests.acknowledge(taken)], lambda replies: None, lambda: self._untake_acks(taken)
        )

    def _take_acks(self) -> dict[bytes, None]:
        taken = self._hand.acks
        self._hand.acks = {}
        self._hand.acks_urgent = False
        return taken

    def _untake_acks(self, taken: dict[bytes, None]) -> None:
        self._hand.acks = taken | self._hand.acks

    def _ask_fetch(self, now: int, room: int) -> Ask:
        """New entries without waiting; what is done is acknowledged on the way."""
        self._fetching = True
        self._asked_at = now
        self._swept = False
        if self._full_at is not None:
            took = now - self._full_at
            if took < BATCH_QUICK_MS:
                self._batch = min(2 * self._batch, self._batch_max)
            elif took > BATCH_SLOW_MS:
                self._batch = max(self._batch // 2, self._batch_min)
            self._full_at = None
        read = self._requests.read(min(self._batch, room))
        if not self._hand.acks:
            return Ask([read], self._fetched, self._unfetched)
        taken = self._take_acks()

        def undo() -> None:
            self._untake_acks(taken)
            self._unfetched()

        return Ask([self._requests.acknowledge(taken), read], self._fetched, undo)

    def _fetched(self, replies: Replies) -> None:
        """The last reply is what was read: nothing, or the stream's name and its entries."""
        self._fetching = False
        reply = replies[-1]
        if not reply:
            self._dry = True
            return
        now = self._clock()
        hand = self._hand
        entries = reply[0][1]
        for key, flat in entries:
            if not hand.has(key):
                hand.add(Delivery(key, flat, self._asked_at, self, self._codec), now)
        self._quiet_since = None
        if len(entries) >= self._batch:
            self._full_at = now
        if hand.several_ready():
            self._changed()

    def _unfetched(self) -> None:
        self._fetching = False

    def _ask_own(self, after: bytes, count: int) -> Ask:
        """What is pending with this consumer from before it began. The lease is renewed, nothing counted."""
        self._fetching = True

        def done(replies: Replies) -> Ask | None:
            rows = replies[0]
            self._fetching = False
            self._own_after = rows[-1][0] if len(rows) == count else None
            found = [row[0] for row in rows if not self._hand.has(row[0])]
            for key in found:
                self._take(key, self._clock())
            now = self._clock()
            return self._claims.claim([self._hand.all[key] for key in found], now) if found else None

        return Ask([self._requests.own(after, count)], done, self._unfetched)

    def _ask_sweep(self, count: int, asked_at: int) -> Ask:
        """What others, or this consumer when a reply was lost, left behind. In turns with new entries."""
        self._fetching = True

        def done(replies: Replies) -> None:
            self._fetching = False
            self._swept = True
            self._sweep_from, keys, *deleted = replies[0]
            now = self._clock()
            self._sweep_at = now + self.policy.sweep_ms if self._sweep_from == NONE_YET else now
            for key in keys:
                if key in self._hand.all:
                    self._hand.all[key].seen = asked_at
                    self._hand.all[key].lost = False
                elif key not in self._hand.acks:
                    self._take(key, asked_at)
                    self.counters.taken_over += 1
            self.counters.gone += len(deleted[0]) if deleted else 0

        return Ask([self._requests.sweep(self._lease_ms, self._sweep_from, count)], done, self._unfetched)

    def _take(self, key: bytes, seen: int) -> None:
        """An entry that is pending with this consumer, and not begun: its turn comes at once."""
        self._quiet_since = None
        self._hand.wait(Delivery(key, [], seen, self, self._codec), self._clock())

    def _ask_group(self, now: int) -> Ask:
        """The group is gone: make it, and make pending again what is in hand."""
        assert self.policy.recreate is not None
        self._group_lost = False
        kept = [one for one in self._hand.all.values() if not one.lost]

        def undo() -> None:
            self._group_lost = True

        def done(replies: Replies) -> None:
            made = replies[0]
            if isinstance(made, CommandError) and not str(made).startswith("BUSYGROUP"):
                undo()
                self._judge(made)
                return
            log.warning("%s: the group was lost, and made again", self._requests)
            for one in kept:
                one.seen = now

        restored = [self._requests.restore(one.key, one.times_delivered) for one in kept]
        return Ask([self._requests.create(self.policy.recreate), *restored], done, undo, judges=True)

    def __str__(self) -> str:
        return str(self._requests)
