"""Where entries go that failed too often, and how they come back."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

import headrace
from api.stepping import Stepper
from headrace.api.retry_policy import Backoff
from headrace.companion_keys import dead_letter_name
from headrace.errors import CodecError, UsageError
from support.redis_server import free_port, redis_server
from support.waiting import wait_until


def fail(entry: Any) -> None:
    raise ValueError(f"no {entry['n'].decode()}")


def buried(database: Any, count: int = 3, **policy: Any) -> Any:
    """A group that has given up all its entries."""
    orders = database.stream("orders")
    for n in range(count):
        orders.add({"n": n, "customer": "ada"})
    group = orders.group("billing", max_deliveries=1, **policy)
    Stepper(group.consumer("w")).handle_all(fail)
    return group


def test_a_dead_letter_tells_where_it_comes_from_and_why(database: Any) -> None:
    group = buried(database)
    letters = list(group.dead_letters)
    assert [letter.origin for letter in letters] == [entry.id for entry in group.stream]
    first = letters[0]
    assert first.fields == {b"n": b"0", b"customer": b"ada"}
    assert (first.stream, first.group, first.consumer, first.deliveries) == ("orders", "billing", "w", 1)
    assert first.error == "ValueError: no 0"
    assert group.dead_letters.name == "{orders}:dead" and len(group.dead_letters) == 3
    assert database.stream("{orders}:dead").first()["dead:id"] == bytes(first.origin)
    assert group.info().pending == 0


def test_a_name_that_stands_twice_keeps_both_values(database: Any) -> None:
    database.execute("XADD", "orders", "*", "n", "0", "tag", "a", "tag", "b")
    group = database.stream("orders").group("billing", max_deliveries=1)
    Stepper(group.consumer("w")).handle_all(fail)
    fields = database.execute("XRANGE", "{orders}:dead", "-", "+")[0][1]
    assert fields[:6] == [b"n", b"0", b"tag", b"a", b"tag", b"b"]


def test_a_field_that_only_looks_like_one_of_a_dead_letter_stays(database: Any) -> None:
    orders = database.stream("orders")
    id = orders.add({"n": 0, "dead:line": "5"})
    group = orders.group("billing", max_deliveries=1)
    Stepper(group.consumer("w")).handle_all(fail)
    assert [letter.fields for letter in group.dead_letters] == [{b"n": b"0", b"dead:line": b"5"}]
    orders.delete(id)
    assert group.dead_letters.retry() == 1
    assert [entry.fields for entry in orders] == [{b"n": b"0", b"dead:line": b"5"}]


def test_retried_ones_are_pending_in_their_group_and_in_no_other(database: Any) -> None:
    group = buried(database)
    other = group.stream.group("other", start="$")
    second = list(group.dead_letters)[1]
    assert group.dead_letters.retry(second.id) == 1
    assert [letter["n"] for letter in group.dead_letters] == [b"0", b"2"]
    assert group.dead_letters.retry() == 2 and len(group.dead_letters) == 0
    entries = Stepper(group.consumer("w2")).all()
    assert sorted((entry["n"], entry.times_delivered) for entry in entries) == [
        (b"0", 1),
        (b"1", 1),
        (b"2", 1),
    ]
    assert Stepper(other.consumer("w")).all() == [] and len(group.stream) == 3


def test_retried_ones_that_were_trimmed_are_added_anew(database: Any) -> None:
    group = buried(database)
    group.stream.trim(maxlen=1)
    assert group.dead_letters.retry() == 3
    entries = Stepper(group.consumer("w2")).all()
    assert sorted(entry["n"] for entry in entries) == [b"0", b"1", b"2"]
    assert all(set(entry) == {b"n", b"customer"} for entry in entries) and len(group.stream) == 3


def test_one_stream_serves_several_groups(database: Any) -> None:
    billing = buried(database, 2)
    other = billing.stream.group("shipping", max_deliveries=1)
    Stepper(other.consumer("w")).handle_all(fail)
    assert len(database.stream("{orders}:dead")) == 4
    assert billing.dead_letters.delete() == 2 and len(other.dead_letters) == 2
    assert other.dead_letters.delete(next(iter(other.dead_letters)).id) == 1 and len(other.dead_letters) == 1


def test_only_dead_letters_of_the_group_are_deleted(database: Any) -> None:
    billing = buried(database, 2)
    other = billing.stream.group("shipping", max_deliveries=1)
    Stepper(other.consumer("w")).handle_all(fail)
    foreign = database.stream("{orders}:dead").add({"note": "of another program"})
    theirs, own = [letter.id for letter in other.dead_letters], [letter.id for letter in billing.dead_letters]
    assert billing.dead_letters.delete(foreign, *theirs, "1-0") == 0
    assert billing.dead_letters.delete(own[0], theirs[0], own[0]) == 1
    assert [letter.id for letter in billing.dead_letters] == own[1:] and len(other.dead_letters) == 2


def test_another_name_and_none_at_all(database: Any) -> None:
    group = buried(database, dead_letters="graveyard")
    assert len(database.stream("graveyard")) == 3
    orders = group.stream
    silent = orders.group("silent", max_deliveries=1, dead_letters=False)
    stepper = Stepper(silent.consumer("w"))
    stepper.handle_all(fail)
    assert stepper.worker.counters.dead_lettered == 3 and silent.info().pending == 0
    with pytest.raises(UsageError):
        silent.dead_letters  # noqa: B018


def test_without_a_limit_nothing_is_given_up(database: Any) -> None:
    database.stream("orders").add({"n": 0})
    group = database.stream("orders").group("billing", max_deliveries=None, backoff=Backoff(initial=0))
    stepper = Stepper(group.consumer("w"))
    for times in range(1, 30):
        delivery = stepper.next()
        while delivery is None:  # a millisecond may have to pass
            delivery = stepper.next()
        assert delivery.times_delivered == times
        delivery.retry(after=0)


@dataclass
class Bill:
    cents: int


def pay(entry: Any) -> None:
    assert entry.value.cents


def test_an_entry_that_cannot_be_decoded_is_a_dead_letter_at_once(database: Any) -> None:
    database.stream("bills").add({"cents": "x"})
    group = database.stream("bills", codec=Bill).group("billing")
    stepper = Stepper(group.consumer("w"))
    stepper.handle_all(pay)
    assert [(one.deliveries, one["cents"]) for one in group.dead_letters] == [(1, b"x")]
    assert "CodecError: entry" in next(iter(group.dead_letters)).error
    assert group.info().pending == 0 and stepper.worker.counters.retried == 0


def test_other_codec_errors_of_a_handler_are_retried(database: Any) -> None:
    database.stream("other").add({"cents": "x"})
    other = database.stream("other", codec=Bill)
    database.stream("bills").add({"cents": "x"})
    group = database.stream("bills", codec=Bill).group("billing", backoff=Backoff(initial=60))
    stepper = Stepper(group.consumer("w"))
    stepper.handle_all(lambda _: other.first().value)
    assert stepper.worker.counters.retried == 1 and not len(group.dead_letters)
    for policy in ({"max_deliveries": None}, {"dead_letters": False}):
        endless = database.stream("bills", codec=Bill).group(
            str(policy), backoff=Backoff(initial=60), **policy
        )
        stepper = Stepper(endless.consumer("w"))
        stepper.handle_all(pay)
        assert stepper.worker.counters.retried == 1 and endless.info().pending == 1


def test_a_codec_error_can_be_pickled(database: Any) -> None:
    orders = database.stream("bills", codec=Bill)
    database.stream("bills").add({"cents": "x"})
    with pytest.raises(CodecError) as raised:
        _ = orders.first().value
    copy = pickle.loads(pickle.dumps(raised.value))
    assert str(copy) == str(raised.value) and copy.entry is None


def slot_tag(key: bytes) -> bytes:
    """What a cluster computes the slot of: between the first { and the next }, or all of it."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if start >= 0 and end > start + 1 else key


@pytest.fixture
def cluster_url(tmp_path: pathlib.Path) -> Iterator[str]:
    """A cluster of one server, which refuses transactions across slots like any."""
    options = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]
    options += ["--cluster-port", str(free_port())]
    with redis_server(tmp_path, *options) as port:
        with redis.Redis(port=port) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield f"cluster://127.0.0.1:{port}"


def test_in_a_cluster_dead_letters_are_moved_at_once_and_come_back(cluster_url: str) -> None:
    with headrace.connect(cluster_url) as database:
        group = buried(database)
        assert len(group.dead_letters) == 3 and group.info().pending == 0
        assert group.dead_letters.retry() == 3
        assert len(list(group.consumer("w2", block=0))) == 3


@pytest.mark.parametrize("name", [b"orders", b"{shop}:orders", b"a{b", b"x{y}z", b"{a}{b}"])
def test_dead_letters_are_in_the_slot_of_their_stream(name: bytes) -> None:
    assert slot_tag(dead_letter_name(name)) == slot_tag(name)
    assert dead_letter_name(name) != name
