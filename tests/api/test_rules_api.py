"""Rules in Python: Retention, rules of groups, scheduled entries, if_last; and servers that have none."""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace
from headrace import Retention
from headrace.api.backend import ids_or_raise
from headrace.errors import (
    EntriesKept,
    InvalidID,
    LastIdMismatch,
    NotConfirmed,
    NotSupported,
    StreamFull,
    UsageError,
)
from headrace.testing import ManualClock
from support.headrace_server import headrace_server
from support.redis_server import redis_server
from support.waiting import wait_until

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
    workers = jobs.group("workers", create=True)
    jobs.add({"n": 1})
    with pytest.raises(StreamFull, match="MAX-LEN 1"):
        jobs.add({"n": 2})
    for delivery in workers.consumer("ann", block=0.1):
        delivery.ack()
    wait_until(lambda: len(jobs) == 0, "the acknowledged entry to be removed")
    jobs.add({"n": 2})


def test_the_error_of_add_many_has_the_ids_of_what_was_stored(db: headrace.Database) -> None:
    jobs = db.stream("jobs", retention=Retention(max_len=2, discard="new"))
    with pytest.raises(StreamFull, match="MAX-LEN 2") as raised:
        jobs.add_many({"n": n} for n in range(4))
    first, second = (entry.id for entry in jobs)
    assert raised.value.stored_ids == [first, second, None, None]
    assert pickle.loads(pickle.dumps(raised.value)).stored_ids == raised.value.stored_ids
    assert len(jobs) == 2
    for count in (1, 2):
        with pytest.raises(StreamFull) as raised:
            jobs.add_many([{"n": 4}] * count)
        assert raised.value.stored_ids == [None] * count
    with pytest.raises(StreamFull) as raised:
        jobs.add({"n": 4})
    assert not raised.value.stored_ids


def test_the_error_of_add_many_that_waits_for_replicas_has_the_ids(db: headrace.Database) -> None:
    if not db.backend.is_remote:
        pytest.skip("a database in memory has no replicas")
    jobs = db.stream("jobs", retention=Retention(max_len=1, discard="new"))
    with pytest.raises(StreamFull) as raised:
        jobs.add_many([{"n": 1}, {"n": 2}], wait_replicas=1, timeout=0.01)
    assert raised.value.stored_ids == [*(entry.id for entry in jobs), None]


def test_the_error_of_an_entry_that_is_stored_but_not_confirmed_has_no_ids() -> None:
    with pytest.raises(NotConfirmed) as raised:
        ids_or_raise([NotConfirmed()])
    assert not raised.value.stored_ids


def test_a_strict_stream_rejects_the_removal_of_kept_entries(db: headrace.Database) -> None:
    orders = db.stream("orders", retention=Retention(keep_unacked=True, strict=True))
    billing = orders.group("billing", create=True)
    entry = orders.add({"n": 1})
    with pytest.raises(EntriesKept, match=f"KEEP-UNACKED keeps {entry}, and STRICT rejects XTRIM"):
        orders.trim(maxlen=0)
    with pytest.raises(EntriesKept, match="STRICT rejects XDEL"):
        orders.delete(entry)
    for delivery in billing.consumer("ann", block=0.1):
        delivery.ack()
    assert orders.delete(entry) == 1


def test_scheduled_entries_come_when_they_are_due(db: headrace.Database) -> None:
    orders = db.stream("orders")
    orders.add({"n": "second"}, delay=2.0)  # long enough for a busy machine to add the others
    orders.add({"n": "first"}, at=datetime.now(UTC) + timedelta(seconds=0.05))
    cancelled = orders.add({"n": "cancelled"}, delay=timedelta(seconds=30))
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
    group = orders.group("billing", create=True)
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
        Retention(discard="some").xcfgset_arguments()  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^exact=True: needs max_len"):
        db.stream("s").set_retention(Retention(exact=True))
    for wrong in ("5", 5.0, -1):
        for name in ("max_len", "max_bytes"):
            with pytest.raises(UsageError, match=f"^{name}="):
                db.stream("s").set_retention(Retention(**{name: wrong}))
        for name in ("max_deliveries", "max_pending"):
            with pytest.raises(UsageError, match=f"^{name}="):
                db.stream("s").group("g", create=True).set_rules(lease=1, **{name: wrong})


def test_wrong_arguments_are_named(db: headrace.Database) -> None:
    consumer = db.stream("s").group("g").consumer("w")
    with pytest.raises(UsageError, match=r"^work=3: must be an entry"), consumer.handling(3):  # type: ignore[arg-type]
        pass
    for words in (("XLEN s",), ("CONFIG GET", "port")):
        with pytest.raises(
            UsageError, match=r"takes the words separately, as in execute\('XLEN', 'orders'\)"
        ):
            db.execute(*words)


@pytest.mark.parametrize("name", ["0", b"-"])
def test_a_name_that_would_remove_a_rule_is_rejected(db: headrace.Database, name: str | bytes) -> None:
    group = db.stream("s").group("g", create=True)
    for call in (
        lambda: group.set_rules(lease=5, ordered_by=name),
        lambda: group.set_rules(lease=5, max_deliveries=2, dead_letters=name),
        lambda: db.stream("s").group("h", ordered_by=name),
        lambda: db.stream("s").group("h", ordered_by="f", dead_letters=name),
    ):
        with pytest.raises(UsageError, match="a rule cannot have this name"):
            call()
    assert group.rules() == {} and [each.name for each in db.stream("s").groups()] == ["g"]


def test_a_redis_server_has_no_rules() -> None:
    with redis_server() as port, headrace.connect(f"redis://127.0.0.1:{port}") as db:
        orders = db.stream("orders")
        orders.add({"n": 1})
        for call in (
            lambda: orders.set_retention(Retention(max_len=5)),
            lambda: orders.group("g", create=True).set_rules(lease=5),
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


# Consumers of groups with rules.


def test_consumers_handle_the_entries_of_a_key_in_order(db: headrace.Database) -> None:
    orders = db.stream("orders")
    for number in range(300):
        orders.add({"customer": f"c{number % 7}", "n": number})
    group = orders.group(
        "billing", lease=5, backoff=headrace.Backoff(0.01), ordered_by="customer", create=True
    )
    assert group.rules()["ORDERED-BY"] == "customer" and group.policy.server_rule_arguments
    chance, lock = random.Random(1), threading.Lock()
    running: dict[str, str] = {}
    handled: dict[str, list[int]] = {}

    def handle(entry: Any, consumer: str) -> None:
        customer = entry["customer"]
        with lock:
            assert running.setdefault(customer, consumer) == consumer, "two consumers at the same time"
            fails, pause = chance.random() < 0.1, chance.random() * 0.005
        time.sleep(pause)
        with lock:
            del running[customer]
            if fails and entry.times_delivered == 1:
                raise RuntimeError("fails the first time")
            handled.setdefault(customer, []).append(int(entry["n"]))

    consumers = [group.consumer(fetch_count=batch, block=0.3, concurrency=2) for batch in (1, 5, None)]
    threads = [
        threading.Thread(target=one.run, args=(lambda entry, name=one.name: handle(entry, name),))
        for one in consumers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {c: sorted(numbers) for c, numbers in handled.items()} == handled
    assert sorted(n for numbers in handled.values() for n in numbers) == list(range(300))
    assert sum(one.counters.handled > 0 for one in consumers) > 1
    assert group.pending() == []


def test_the_server_redelivers_what_a_consumer_left(db: headrace.Database) -> None:
    jobs = db.stream("jobs")
    jobs.add({"n": 1})
    group = jobs.group("workers", max_deliveries=2, create=True)
    group.set_rules(lease=0.2, max_deliveries=2)
    for delivery in group.consumer("ann"):
        assert delivery.times_delivered == 1
        break  # unfinished: pending until the lease is over
    for delivery in group.consumer("bob", block=2):
        assert delivery.times_delivered == 2
        break
    assert list(group.consumer("cid", block=1)) == []
    assert [letter.fields[b"n"] for letter in group.dead_letters] == [b"1"] and group.pending() == []


@pytest.mark.parametrize("ordered_by", [None, lambda entry: entry["n"]], ids=["any order", "by key"])
def test_without_a_rule_for_it_the_consumers_have_their_own_limit(
    db: headrace.Database, ordered_by: Any
) -> None:
    jobs = db.stream("jobs")
    jobs.add({"n": 1})
    group = jobs.group("workers", max_deliveries=2, create=True)
    group.set_rules(lease=0.2)
    for name in ("ann", "bob"):
        for _ in group.consumer(name, ordered_by=ordered_by):
            break  # as if its process had died
    cid = group.consumer("cid", block=1, ordered_by=ordered_by)
    assert list(cid) == [] and cid.counters.dead_lettered == 1
    (letter,) = group.dead_letters
    assert letter.error.startswith("delivered 2 times and never settled") and group.pending() == []
    jobs.add({"n": 2})
    later = group.consumer("dan", block=1, ordered_by=ordered_by)
    assert [entry["n"] for entry in later] == [b"2"]


def fetch_and_die(db: headrace.Database, consumer: str) -> None:
    """Fetch four entries of the group, like a consumer whose process is killed before it acknowledges one."""
    words = ("XREADGROUP", "GROUP", "workers", consumer, "COUNT", "4", "STREAMS", "jobs", ">")
    wait_until(lambda: db.execute(*words) is not None)


@pytest.mark.parametrize("batch", [False, True])
def test_entries_fetched_with_one_that_kills_consumers_are_handled(
    db: headrace.Database, batch: bool
) -> None:
    jobs = db.stream("jobs")
    jobs.add_many({"n": n} for n in range(4))
    group = jobs.group("workers", max_deliveries=2, create=True)
    group.set_rules(lease=0.1)
    for name in ("ann", "bob"):
        fetch_and_die(db, name)
    consumer = group.consumer("cid", block=1, fetch_count=4)
    if batch:
        handled = [[entry["n"] for entry in one] for one in consumer.batches(4)]
        assert handled == [[b"1"], [b"2"], [b"3"]]  # each alone: it could be the one
    else:
        assert [entry["n"] for entry in consumer] == [b"1", b"2", b"3"]
    assert [letter.fields[b"n"] for letter in group.dead_letters] == [b"0"] and group.pending() == []


def test_an_entry_is_given_up_at_twice_the_limit_also_beside_others(db: headrace.Database) -> None:
    jobs = db.stream("jobs")
    jobs.add_many({"n": n} for n in range(4))
    group = jobs.group("workers", max_deliveries=2, create=True)
    group.set_rules(lease=0.1)
    for _ in range(4):
        fetch_and_die(db, "ann")
    assert list(group.consumer("bob", block=1, fetch_count=4)) == []
    assert len(group.dead_letters) == 4 and group.pending() == []


def test_a_consumer_that_knows_an_old_limit_handles_what_the_server_delivers(db: headrace.Database) -> None:
    jobs = db.stream("jobs")
    jobs.add({"n": 1})
    group = jobs.group("workers", create=True)
    group.set_rules(lease=0.1, max_deliveries=2)
    consumer = group.consumer("bob", block=5)
    entries = iter(consumer)
    assert next(entries)["n"] == b"1"
    group.set_rules(lease=0.1, max_deliveries=10)
    jobs.add({"n": 2})
    for _ in range(3):
        wait_until(
            lambda: db.execute(*["XREADGROUP", "GROUP", "workers", "ann", "STREAMS", "jobs", ">"]) is not None
        )
    assert {entry["n"] for entry in entries} == {b"2"} and len(group.dead_letters) == 0


def test_a_recreated_group_has_its_rules_again(db: headrace.Database) -> None:
    jobs = db.stream("jobs")
    group = jobs.group("workers", ordered_by="k", recreate="0", create=True)
    rules = group.rules()
    jobs.add({"n": 1})
    group.destroy()
    assert [entry["n"] for entry in group.consumer("ann", block=0.5)] == [b"1"]
    assert group.rules() == rules


def test_a_consumer_of_an_ordered_group_is_removed_by_any_group_object(db: headrace.Database) -> None:
    jobs = db.stream("jobs")
    jobs.add({"k": "a"})
    jobs.group("workers", ordered_by="k", create=True)
    for _ in jobs.group("workers").consumer("ann"):
        break  # unfinished: the entry stays pending
    with pytest.raises(UsageError, match="consumer 'ann' has 1 pending entries"):
        jobs.group("workers").remove_consumer("ann")
    db.execute("XGROUP", "CREATECONSUMER", "jobs", "workers", "bob")
    group = jobs.group("workers")  # it has not read the rules yet
    group.remove_consumer("ann")
    assert [one.name for one in group.consumers()] == ["bob"] and len(group.pending()) == 1
    group.set_rules(lease=30)
    with pytest.raises(UsageError, match="'bob' has entries pending"):
        group.remove_consumer("bob")


def test_redis_has_no_ordered_groups() -> None:
    with redis_server() as port, headrace.connect(f"redis://127.0.0.1:{port}") as db:
        with pytest.raises(NotSupported):
            db.stream("s").group("g", ordered_by="k", create=True)
        assert db.stream("s").group("g", create=True).policy.server_rule_arguments == ()


def test_a_restarted_consumer_begins_with_the_entry_in_back_off(
    db: headrace.Database,
) -> None:
    jobs = db.stream("jobs")
    jobs.add_many({"k": "a", "n": n} for n in range(3))
    group = jobs.group("workers", backoff=headrace.Backoff(initial=60, maximum=60), create=True)
    group.set_rules(lease=60, backoff=(60,), ordered_by="k")
    handled: list[bytes] = []
    for last in (1, 4):
        consumer = group.consumer("ann")

        def handle(entry: Any, consumer: Any = consumer, last: int = last) -> None:
            handled.append(entry["n"])
            if len(handled) == last:
                consumer.stop()
            if len(handled) == 1:
                raise ValueError("fails while it is stopped")

        consumer.run(handle)
    assert handled == [b"0", b"0", b"1", b"2"]


def test_wrong_arguments_are_errors_of_the_library(db: headrace.Database) -> None:
    jobs = db.stream("jobs")
    jobs.add({"n": 1})
    group = jobs.group("workers", create=True)
    with pytest.raises(UsageError, match=r"^backoff=5: must be a list of delays"):
        group.set_rules(backoff=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidID, match="5 is not a datetime"):
        jobs.add({"n": 2}, at=5)  # type: ignore[call-overload]
    for wrong in (ValueError("a reason"), None, b"a reason"):
        for entry in group.consumer("ann", block=0):
            with pytest.raises(UsageError, match=r"^fail\(\): the reason must be text"):
                entry.fail(wrong)
            entry.retry(after=0)
            break
    assert [entry["n"] for entry in group.consumer("ann", block=0)] == [b"1"]
