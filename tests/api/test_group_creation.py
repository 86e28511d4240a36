"""Looking at a group or a stream creates neither; a consumer, or create=True, does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace
from headrace.errors import NoSuchGroup, NoSuchStream

LOOKS: dict[str, Callable[[Any], object]] = {
    "info": lambda group: group.info(),
    "dead_letters": lambda group: group.dead_letters,
    "consumers": lambda group: group.consumers(),
    "pending": lambda group: group.pending(),
    "rules": lambda group: group.rules(),
    "set_position": lambda group: group.set_position("0"),
    "remove_consumer": lambda group: group.remove_consumer("w"),
}


def keys(database: headrace.Database) -> int:
    return int(database.execute("DBSIZE"))


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_a_group_that_does_not_exist_creates_nothing(
    database: headrace.Database, look: str
) -> None:
    group = database.stream("orders").group("billing")
    with pytest.raises(NoSuchGroup, match="no group 'billing' of stream 'orders'") as missing:
        LOOKS[look](group)
    assert "create=True" in missing.value.__notes__[0]
    assert keys(database) == 0
    database.stream("orders").add({"n": 1})
    with pytest.raises(NoSuchGroup, match="no group 'billing' of stream 'orders'"):
        LOOKS[look](group)
    assert database.stream("orders").groups() == []


def test_looking_at_a_stream_that_does_not_exist_creates_nothing(database: headrace.Database) -> None:
    orders = database.stream("orders")
    with pytest.raises(NoSuchStream):
        orders.info()
    assert orders.groups() == [] and list(orders) == [] and len(orders) == 0 and orders.rules() == {}
    assert not orders.group("billing").destroy()
    assert keys(database) == 0


def test_the_first_consumer_creates_the_group(database: headrace.Database) -> None:
    orders = database.stream("orders")
    billing = orders.group("billing", start="$")
    orders.add({"n": 1})
    consumer = billing.consumer("w", block=0)
    orders.add({"n": 2})
    assert [entry["n"] for entry in consumer] == [b"2"], "it starts when the consumer is made"


def test_a_handler_creates_the_group(database: headrace.Database) -> None:
    billing = database.stream("orders").group("billing")
    billing.handler(consumer="w")(print)
    assert billing.info().pending == 0


def test_create_makes_the_group_at_once(database: headrace.Database) -> None:
    orders = database.stream("orders")
    billing = orders.group("billing", start="$", create=True)
    assert billing.info().lag in (0, None)
    orders.add({"n": 1})
    assert [entry["n"] for entry in orders.group("billing").consumer("w", block=0)] == [b"1"]


def test_a_consumer_does_not_recreate_a_group_that_was_deleted(database: headrace.Database) -> None:
    billing = database.stream("orders").group("billing")
    assert list(billing.consumer("w", block=0)) == []
    billing.destroy()
    with pytest.raises(NoSuchGroup):
        list(billing.consumer("w", block=0))


def test_dead_letters_of_the_rules_are_found_without_a_consumer() -> None:
    with headrace.open() as db:
        orders = db.stream("orders")
        rules = orders.group("billing", create=True)
        rules.set_rules(lease=5, max_deliveries=1, dead_letters="graves")
        assert orders.group("billing").dead_letters.name == "graves"
