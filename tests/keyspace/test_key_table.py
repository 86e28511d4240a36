"""The table of keys of a database agrees with a dictionary."""

from random import Random

import pytest

from headrace.keyspace.key_table import PART_COUNT, KeyTable

SPLIT_AT = 1024


@pytest.mark.parametrize("seed", range(4))
def test_a_table_agrees_with_a_dictionary(seed: int) -> None:
    random = Random(seed)
    table, model = KeyTable(), dict[bytes, int]()
    for step in range(40_000):
        key = random.randbytes(random.randrange(3)) + b"%d" % random.randrange(30_000)
        if key in model and random.random() < 0.4:
            table.delete(key)
            del model[key]
        else:
            table.put(key, step, key not in model)
            model[key] = step
        assert table.find(key) == table.get(key) == model.get(key)
    assert len(table.parts) == PART_COUNT
    assert table.count == len(table) == len(model)
    assert dict(table.items()) == model
    assert sorted(table) == sorted(table.keys()) == sorted(model)
    assert sorted(table.values()) == sorted(model.values())  # type: ignore[type-var]
    assert b"no key" not in table and "text" not in table
    with pytest.raises(KeyError):
        table[b"no key"]
    with pytest.raises(KeyError):
        table.delete(b"no key")


def test_few_keys_are_in_the_order_of_arrival() -> None:
    table = KeyTable()
    keys = [b"%d" % i for i in range(SPLIT_AT, 0, -1)]
    for key in keys:
        table.put(key, key, True)
    assert list(table) == keys
    assert len(table.parts) == 1
    table.put(b"one more", 1, True)
    assert len(table.parts) == PART_COUNT and len(table) == SPLIT_AT + 1


@pytest.mark.parametrize("form", ["%d", "key:%08d:value", "{user}:%d", "%032d", "%d" + "x" * 64])
def test_similar_keys_are_distributed_evenly(form: str) -> None:
    table = KeyTable()
    for i in range(100 * PART_COUNT):
        table.put((form % i).encode(), i, True)
    sizes = [len(part) for part in table.parts]
    assert min(sizes) > 40 and max(sizes) < 160


def test_the_order_of_keys_does_not_depend_on_the_process() -> None:
    table = KeyTable()
    for i in range(SPLIT_AT + 1):
        table.put(b"key:%d" % i, i, True)
    assert list(table)[:3] == [b"key:321", b"key:888", b"key:479"]


def test_a_scan_that_begins_before_the_split_returns_all_keys() -> None:
    table = KeyTable()
    early = [b"%d" % i for i in range(SPLIT_AT - 100)]
    for key in early:
        table.put(key, 1, True)
    cursor, found = table.scan(0, 100)
    for i in range(1000):
        table.put(b"new %d" % i, i, True)
    assert table.single_part is None
    while cursor:
        cursor, keys = table.scan(cursor, 100)
        found += keys
    assert set(early) <= set(found)
    assert len(found) == len(set(found))


def test_keys_are_reached_by_index() -> None:
    table = KeyTable()
    for i in range(SPLIT_AT + 50):
        table.put(b"%d" % i, i, True)
        if i % 100 == 0:
            assert [table.key_at(index) for index in range(table.count)] == list(table)
    with pytest.raises(IndexError):
        table.key_at(table.count)
