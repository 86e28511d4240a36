"""Items are read by a thread, in their order, and no more than asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headrace.errors import UsageError
from headrace.pipeline.loading.read_ahead import read_ahead


def counted(read: list[int], failing_at: int | None = None) -> Iterator[int]:
    for number in range(1000):
        if number == failing_at:
            raise UsageError("row 7 is bad")
        read.append(threading.get_ident())
        yield number


def test_all_items_arrive_in_order_from_another_thread():
    read: list[int] = []
    with read_ahead(counted(read)) as items:
        assert list(items) == list(range(1000))
    assert set(read) != {threading.get_ident()} and len(set(read)) == 1


def test_an_error_is_raised_after_the_items_before_it():
    found: list[int] = []
    with read_ahead(counted([], failing_at=7)) as items:
        for _ in range(7):
            found.append(next(items))
        with pytest.raises(UsageError, match="row 7"):
            next(items)
    assert found == list(range(7))


def test_reading_stops_with_the_context():
    read: list[int] = []
    with read_ahead(counted(read), ahead=2) as items:
        assert [next(items), next(items)] == [0, 1]
    assert len(read) <= 7, "two used, two waiting, one in hand, and what stop() took"
    assert not any(thread.name == "headrace-read-ahead" for thread in threading.enumerate())
