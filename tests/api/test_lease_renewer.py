"""The thread that renews leases, and consumers that meet trouble with their server."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from api.stepping import Stepper, on
from headrace.api.consuming.lease_renewer import LeaseRenewer
from headrace.api.local.clock import ManualClock
from headrace.api.retry_policy import Backoff
from headrace.errors import CommandError, ConnectionLost, DatabaseClosed
from support.waiting import wait_until

SECONDS_MAX = 20.0


class FaultyBackend:
    """A backend whose next calls fail: before they are carried out, or after."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.faults: list[tuple[Exception, bool]] = []
        self.of = b""  # only calls with that command in them

    def request_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        hit = not self.of or any(words[0] == self.of for words in requests)
        if hit and self.faults:
            error, done = self.faults.pop()
            if done:
                self.backend.request_all(requests, atomic)
            raise error
        replies: list[Any] = self.backend.request_all(requests, atomic)
        return replies

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


def test_leases_are_renewed_by_the_databases_clock(db: Any, clock: ManualClock) -> None:
    db.stream("orders").add({"n": 0})
    group = db.stream("orders").group("billing", lease=3)
    stepper = Stepper(group.consumer("w"))
    assert stepper.next() is not None
    renewer = LeaseRenewer(db.backend, stepper.worker)
    renewer.start()
    for _ in range(5):
        wait_until(clock.sleeping_threads)
        clock.advance(seconds=1)
        wait_until(lambda: group.pending()[0].idle == 0)
        assert group.pending()[0].times_delivered == 1
    renewer.stop()


def test_leases_are_renewed_in_time_for_a_shorter_consumer_ttl(db: Any, clock: ManualClock) -> None:
    """Otherwise the server takes the entries of a handler that works for longer than CONSUMER-TTL."""
    db.stream("orders").add({"n": 0})
    group = db.stream("orders").group("billing", lease=30, create=True)
    group.set_rules(lease=30, consumer_ttl=3)
    stepper = Stepper(group.consumer("w"))
    assert stepper.next() is not None
    assert stepper.worker.renewal_interval == 1.0
    for _ in range(10):
        clock.advance(seconds=1)
        stepper.keep()
        assert group.pending()[0].idle == 0
        assert db.execute("XREADGROUP", "GROUP", "billing", "other", "STREAMS", "orders", ">") is None
    group.set_rules(lease=30, consumer_ttl=0.3)
    assert round(Stepper(group.consumer("v")).worker.renewal_interval, 3) == 0.1


def test_the_renewer_ends_and_logs_when_the_group_is_deleted(
    db: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    db.stream("orders").add({"n": 0})
    group = db.stream("orders").group("billing", lease=3)
    stepper = Stepper(group.consumer("w"))
    assert stepper.next() is not None
    renewer = LeaseRenewer(db.backend, stepper.worker)
    renewer.start()
    group.destroy()
    wait_until(clock.sleeping_threads)
    clock.advance(seconds=1)
    renewer._thread.join(SECONDS_MAX)
    assert not renewer._thread.is_alive() and "no longer renewed" in caplog.text


def test_a_closed_database_ends_the_loop(db: Any) -> None:
    db.stream("orders").add({"n": 0})
    group = db.stream("orders").group("billing")
    loop = iter(group.consumer("w"))
    next(loop)
    db.close()
    with pytest.raises(DatabaseClosed):
        next(loop)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(
    "of", [b"XREADGROUP", b"XACK", b"XADD", b"XCLAIM", b"XPENDING", b"XAUTOCLAIM", b"TYPE"]
)
def test_a_lost_connection_loses_nothing(db: Any, clock: ManualClock, of: bytes, done: bool) -> None:
    db.stream("orders").add_many({"n": n} for n in range(10))
    group = db.stream("orders").group(
        "billing", max_deliveries=2, lease=2, backoff=Backoff(initial=1, maximum=1)
    )
    backend = FaultyBackend(db.backend)
    backend.of = of
    backend.faults = [(ConnectionLost("gone", done), done)] * 2
    stepper = Stepper(on(group, backend).consumer("w", fetch_count=4))
    seen: list[int] = []

    def handle(entry: Any) -> None:
        if entry["n"] == b"5":
            raise ValueError("no")
        seen.append(int(entry["n"]))

    for _ in range(40):
        stepper.handle_all(handle)
        stepper.keep()
        clock.advance(seconds=0.5)
    assert len(backend.faults) < 2  # what was carried out is not done again, so not all of them are met
    assert set(seen) == set(range(10)) - {5} and group.info().pending == 0
    assert [letter["n"] for letter in group.dead_letters] == [b"5"]


def test_a_reply_that_comes_late_is_looked_into_before_anything_is_handled(
    db: Any, clock: ManualClock
) -> None:
    """The process stands still between the server's deed and the reply: by then another has the entries."""
    db.stream("orders").add_many({"n": n} for n in range(4))
    group = db.stream("orders").group("billing", lease=30)

    class LateLink(FaultyBackend):
        def request_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
            replies = super().request_all(requests, atomic)
            if requests[-1][0] == b"XREADGROUP":
                clock.advance(seconds=31)
                quick = Stepper(group.consumer("quick", fetch_count=2))
                assert len([quick.next() for _ in range(2)]) == 2
            return replies

    stepper = Stepper(on(group, LateLink(db.backend)).consumer("slow", fetch_count=4))
    got = stepper.next()
    assert stepper.worker.counters.lost > 0
    assert got is None


@pytest.mark.parametrize("text", ["LOADING soon", "READONLY a replica", "OOM full", "MISCONF no disk"])
def test_refusals_that_pass_are_waited_for(db: Any, clock: ManualClock, text: str) -> None:
    db.stream("orders").add({"n": 0})
    group = db.stream("orders").group("billing")
    backend = FaultyBackend(db.backend)
    backend.faults = [(CommandError(text), False)] * 3
    stepper = Stepper(on(group, backend).consumer("w"))
    delays = []
    for _ in range(3):
        assert stepper.next() is None
        delays.append(stepper.waits[-1])
        clock.advance(seconds=stepper.waits[-1] or 0)
    assert delays == [0.1, 0.2, 0.4]
    assert stepper.next() is not None


def test_other_refusals_end_it(db: Any) -> None:
    db.stream("orders").add({"n": 0})
    group = db.stream("orders").group("billing")
    backend = FaultyBackend(db.backend)
    backend.faults = [(CommandError("NOPERM you may not"), False)]
    with pytest.raises(CommandError, match="NOPERM"):
        Stepper(on(group, backend).consumer("w")).next()


def test_a_dead_letter_that_is_refused_in_its_transaction_is_made_pending_again(
    db: Any, clock: ManualClock
) -> None:
    """The stream's IDs are used up: XADD is refused, and XACK beside it is not."""
    db.stream("orders").add({"n": 0})
    group = db.stream("orders").group("billing", max_deliveries=1)
    db.execute("XADD", "{orders}:dead", "18446744073709551615-18446744073709551615", "a", "b")
    stepper = Stepper(group.consumer("w"))
    delivery = stepper.next()
    assert delivery is not None
    delivery.fail("no")
    with pytest.raises(CommandError, match="exhausted"):
        stepper.next()
    (kept,) = group.pending()
    assert kept.consumer == "w" and kept.times_delivered == 1


def test_who_cannot_say_that_it_stops_gives_up_after_some_seconds(
    db: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    db.stream("orders").add_many({"n": n} for n in range(4))
    group = db.stream("orders").group("billing")
    backend = FaultyBackend(db.backend)
    stepper = Stepper(on(group, backend).consumer("w", fetch_count=4))
    first = stepper.next()
    assert first is not None
    first.ack()
    stepper.worker.stop()
    backend.faults = [(ConnectionLost("gone"), False)] * 100
    caplog.set_level(logging.WARNING)
    rounds = 0
    while stepper.waits[-1:] != [None] and not caplog.text.count("could not release its entries"):
        assert stepper.next() is None
        clock.advance(seconds=1)
        rounds += 1
    assert 3 < rounds < 20 and group.info().pending == 4
