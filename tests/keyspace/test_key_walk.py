"""Walks over keys that are copied in parts."""

import pytest

from headrace.keyspace.key_table import KeyTable
from headrace.keyspace.key_walk import KeyWalk

ONE_PART = 8192
MANY = 9000


def table_of(count: int) -> KeyTable:
    table = KeyTable()
    for i in range(count):
        table.put(b"%d" % i, i, True)
    return table


def rest_of(walk: KeyWalk) -> list[bytes | None]:
    return list(iter(walk.next, None))


@pytest.mark.parametrize("count", [0, 1, ONE_PART, ONE_PART + 1, MANY])
def test_all_keys_in_the_order_of_the_table(count: int) -> None:
    table = table_of(count)
    walk = KeyWalk(table.parts)
    assert rest_of(walk) == list(table)
    assert walk.next() is None


@pytest.mark.parametrize("count", [1, ONE_PART, ONE_PART + 1, MANY])
@pytest.mark.parametrize("taken", [0, 1, 1024, ONE_PART, MANY])
def test_keys_are_added_and_removed_during_a_walk(count: int, taken: int) -> None:
    table = table_of(count)
    keys = list(table)
    walk = KeyWalk(table.parts)
    found = [walk.next() for _ in range(min(taken, count))]
    for i in range(0, count, 3):
        walk.before_change(table.part_index(b"%d" % i))
        table.delete(b"%d" % i)
    for i in range(MANY):
        walk.before_change(table.part_index(b"new %d" % i))
        table.put(b"new %d" % i, i, True)
    assert found + rest_of(walk) == keys


def test_a_change_copies_one_part_of_many() -> None:
    table = table_of(MANY)
    walk = KeyWalk(table.parts)
    walk.before_change(table.part_index(b"5"))
    other = next(key for key in table if table.part_index(key) not in (0, table.part_index(b"5")))
    table.delete(b"5")
    table.delete(other)  # without before_change()
    found = rest_of(walk)
    assert b"5" in found and other not in found


def test_a_walk_does_not_go_on_after_close() -> None:
    walk = KeyWalk(table_of(2).parts)
    walk.next()
    walk.close()
    walk.before_change(0)
    with pytest.raises(RuntimeError, match="ended early"):
        walk.next()
