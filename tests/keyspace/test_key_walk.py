"""Walks over keys that are copied in parts."""

from collections.abc import Callable, Iterator

import pytest

from headrace.keyspace.key_walk import PART_KEYS, PARTS_AHEAD, KeyWalk

MANY = PART_KEYS * PARTS_AHEAD * 3 + 1


def rest_of(walk: KeyWalk) -> list[bytes | None]:
    return list(iter(walk.next, None))


@pytest.mark.parametrize("count", [0, 1, PART_KEYS - 1, PART_KEYS, PART_KEYS + 1, MANY])
def test_all_keys_in_their_order(count: int) -> None:
    keys = [b"%d" % i for i in range(count)]
    walk = KeyWalk(dict.fromkeys(keys))
    assert rest_of(walk) == keys
    assert walk.next() is None


@pytest.mark.parametrize("taken", [0, 1, PART_KEYS, 5 * PART_KEYS + 7, MANY])
def test_keys_are_added_and_removed_after_copy_all(taken: int) -> None:
    keys = [b"%d" % i for i in range(MANY)]
    values = dict.fromkeys(keys, 0)
    walk = KeyWalk(values)
    found = [walk.next() for _ in range(taken)]
    values[b"5"] = 1
    walk.copy_all()
    del values[b"7"]
    for i in range(MANY):
        values[b"new %d" % i] = 2
    walk.copy_all()
    assert found + rest_of(walk) == keys


def test_a_key_that_is_added_without_copy_all_is_an_error() -> None:
    values = dict.fromkeys([b"%d" % i for i in range(MANY)], 0)
    walk = KeyWalk(values)
    walk.next()
    values[b"new"] = 1
    with pytest.raises(RuntimeError, match="changed size"):
        rest_of(walk)


@pytest.mark.parametrize("copy", [KeyWalk.next, KeyWalk.copy_all])
def test_a_walk_does_not_go_on_after_a_copy_that_failed(copy: Callable[[KeyWalk], object]) -> None:
    """Else a snapshot would be complete without the keys that the failed copy has taken."""

    def keys() -> Iterator[bytes]:
        yield b"1"
        raise MemoryError

    walk = KeyWalk(keys())
    with pytest.raises(MemoryError):
        copy(walk)
    with pytest.raises(RuntimeError, match="ended early"):
        walk.next()


def test_a_walk_does_not_go_on_after_close() -> None:
    walk = KeyWalk({b"1": 1, b"2": 2})
    walk.next()
    walk.close()
    walk.copy_all()
    with pytest.raises(RuntimeError, match="ended early"):
        walk.next()
