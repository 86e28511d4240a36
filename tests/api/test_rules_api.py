"""Rules in Python: Retention, rules of groups, scheduled entries, if_last; and servers that have none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace
from headrace import Retention
from headrace.errors import LastIdMismatch, NotSupported, StreamFull, UsageError
from headrace.testing import ManualClock
from headrace_server import headrace_server
from redis_server import redis_server
from waiting import wait_until

NOW = 1_700_000_000_000


@pytest.fixture(params=["in memory", "server"])
def db(request: pytest.FixtureRequest) -> Iterator[headrace.Database]:
    if request.param == "in memory":
        with headrace.open() as opened:
            yield opened
    else:
        with headrace_server() as port, headrace.connect(f"redis://127.0.0.1:{port}") as connected:
            yield connected


def test_retention_trims_without_clients(db: headrace.Database) -> None:
    orders = db.stream("orders", retention=Retention(max_len=3, exact=True))
    assert orders.rules() == {"MAX-LEN": "3", "EXACT": "1"} and len(orders) == 0
    for number in range(10):
        orders.add({"n": number})
    assert len(orders) == 3
    orders.set_retention(Retention(max_age=timedelta(milliseconds=1)))
    assert orders.rules() == {"MAX-AGE": "1"}
    wait_until(lambda: len(orders) == 0, "the entries to become too old")
    orders.set_retention(None)
    assert orders.rules() == {} and db.stream("other").rules() == {}


def test_discard_new_raises_and_adds_nothing(db: headrace.Database) -> None:
    jobs = db.stream("jobs", retention=Retention(max_len=1, discard="new", drop_acked=True))
    workers = jobs.group("workers")
    jobs.add({"n": 1})
    with pytest.raises(StreamFull, match="MAX-LEN 1"):
        jobs.add({"n": 2})
    for delivery in workers.consumer("ann", block=0.1):
        delivery.ack()
    wait_until(lambda: len(jobs) == 0, "the acknowledged entry to be removed")
    jobs.add({"n": 2})


def test_scheduled_entries_come_when_they_are_due(db: headrace.Database) -> None:
    orders = db.stream("orders")
    orders.add({"n": "second"}, delay=0.2)
    orders.add({"n": "first"}, at=datetime.now(UTC) + timedelta(seconds=0.05))
    cancelled = orders.add({"n": "cancelled"}, delay=timedelta(seconds=0.1))
    later = orders.add({"n": "much later"}, delay=1000)
    assert orders.cancel(cancelled) and not orders.cancel(cancelled)
    wait_until(lambda: len(orders) == 2, "the scheduled entries")
    assert [entry["n"] for entry in orders.range()] == [b"first", b"second"]
    assert [entry.id for entry in db.stream("{orders}:scheduled").range()] == [later]


def test_if_last_makes_concurrent_writers_notice_each_other(db: headrace.Database) -> None:
    account = db.stream("account")
    first = account.add({"event": "opened"}, if_last="0-0")
    account.add({"event": "paid"}, if_last=first)
    with pytest.raises(LastIdMismatch, match=str(first)):
        account.add({"event": "closed"}, if_last=first)
    assert len(account) == 2


def test_rules_of_a_group_serve_plain_clients(db: headrace.Database) -> None:
    orders = db.stream("orders")
    group = orders.group("billing")
    group.set_rules(lease=0.05, max_deliveries=1, dead_letters="graves", backoff=[0.01], max_pending=5)
    assert group.rules() == {
        "LEASE": "50",
        "BACKOFF": "10",
        "MAX-DELIVERIES": "1",
        "DEAD-LETTER": "graves",
        "MAX-PENDING": "5",
    }
    orders.add({"n": 1})
    read = ("XREADGROUP", "GROUP", "billing", "ann", "STREAMS", "orders", ">")
    assert db.execute(*read) is not None

    def is_dead() -> bool:
        return db.execute(*read) is None and db.execute("XLEN", "graves") == 1

    wait_until(is_dead, "the dead letter")
    (letter,) = orders.group("billing", dead_letters="graves").dead_letters
    assert letter.error.startswith("delivered 1")
    group.set_rules()
    assert group.rules() == {}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delay": -1}, "delay: must be a positive number"),
        ({"delay": 1, "id": "5-0"}, "cannot be combined"),
        ({"delay": 1, "maxlen": 5}, "cannot be combined"),
        ({"delay": 1, "at": datetime.now(UTC)}, "pass one of them"),
    ],
)
def test_invalid_options_are_errors(db: headrace.Database, options: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        db.stream("s").add({"f": "v"}, **options)
    with pytest.raises(UsageError, match="discard"):
        Retention(discard="some").words()  # type: ignore[arg-type]


def test_a_redis_server_has_no_rules() -> None:
    with redis_server() as port, headrace.connect(f"redis://127.0.0.1:{port}") as db:
        orders = db.stream("orders")
        orders.add({"n": 1})
        for call in (
            lambda: orders.set_retention(Retention(max_len=5)),
            lambda: orders.group("g").set_rules(lease=5),
            lambda: orders.add({"n": 2}, delay=5),
            lambda: orders.add({"n": 2}, if_last="0-0"),
        ):
            with pytest.raises(NotSupported, match="Headrace server"):
                call()
        assert len(orders) == 1 and orders.rules() == {}


def test_a_manual_clock_moves_scheduled_entries() -> None:
    clock = ManualClock(NOW)
    with headrace.open(clock=clock) as db:
        orders = db.stream("orders")
        orders.add({"n": 1}, delay=3600)
        clock.advance(seconds=3599)
        assert len(orders) == 0
        clock.advance(seconds=1)
        wait_until(lambda: len(orders) == 1, "the entry")
