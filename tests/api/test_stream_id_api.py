"""StreamID: order, text, time, and what it refuses."""

from __future__ import annotations

import copy
import pickle
import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import StreamID
from headrace.api.stream_id import id_from_reply
from headrace.errors import HeadraceError, InvalidID

TOP = 2**64 - 1
numbers = st.integers(0, TOP)
ids = st.builds(StreamID, numbers, numbers)


@given(ids, ids)
def test_they_order_as_pairs_of_numbers(one: StreamID, other: StreamID) -> None:
    pairs = (one.ms, one.seq), (other.ms, other.seq)
    assert (one < other) == (pairs[0] < pairs[1])
    assert (one <= other) == (pairs[0] <= pairs[1])
    assert (one > other) == (pairs[0] > pairs[1])
    assert (one >= other) == (pairs[0] >= pairs[1])
    assert (one == other) == (pairs[0] == pairs[1])


@given(ids)
def test_text_and_bytes_make_the_same_id_again(id: StreamID) -> None:
    assert StreamID.parse(str(id)) == StreamID.parse(bytes(id)) == id_from_reply(bytes(id)) == id
    assert str(id) == f"{id.ms}-{id.seq}"
    assert eval(repr(id)) == id


@given(ids)
def test_neighbours(id: StreamID) -> None:
    if id != StreamID.MAX:
        assert id < id.next() and id.next().previous() == id
    if id != StreamID.MIN:
        assert id.previous() < id and id.previous().next() == id


def test_there_is_nothing_beyond_the_ends() -> None:
    assert StreamID(0, 0) == StreamID.MIN and StreamID(TOP, TOP) == StreamID.MAX
    assert StreamID(4, TOP).next() == StreamID(5, 0)
    assert StreamID(5, 0).previous() == StreamID(4, TOP)
    with pytest.raises(InvalidID):
        StreamID.MAX.next()
    with pytest.raises(InvalidID):
        StreamID.MIN.previous()


def test_they_are_values() -> None:
    id = StreamID(5, 1)
    assert {id: "found"}[StreamID.parse("5-1")] == "found"
    assert pickle.loads(pickle.dumps(id)) == copy.deepcopy(id) == id
    assert id != "5-1" and id != (5, 1)
    shuffled = [StreamID(ms, seq) for ms in range(5) for seq in range(5)]
    random.Random(5).shuffle(shuffled)
    assert [(i.ms, i.seq) for i in sorted(shuffled)] == sorted((i.ms, i.seq) for i in shuffled)
    with pytest.raises(TypeError):
        assert id < "5-1"
    with pytest.raises(AttributeError):
        id.ms = 6


def test_ms_alone_is_the_first_of_its_millisecond() -> None:
    assert StreamID.parse("1700000000000") == StreamID(1700000000000, 0) == StreamID(1700000000000)


@pytest.mark.parametrize(
    "text",
    ["", "-", "+", "*", "$", "1-", "-1", "1-2-3", " 1-2", "1_0-2", "+1-2", "a-b", "1-*", "\u0661-1"],
)
def test_what_is_no_id_is_refused_and_shown(text: str) -> None:
    with pytest.raises(InvalidID) as refused:
        StreamID.parse(text)
    assert repr(text) in str(refused.value)
    assert isinstance(refused.value, HeadraceError) and isinstance(refused.value, ValueError)


@pytest.mark.parametrize("pair", [(-1, 0), (0, -1), (TOP + 1, 0), (0, TOP + 1)])
def test_numbers_have_64_bits(pair: tuple[int, int]) -> None:
    with pytest.raises(InvalidID):
        StreamID(*pair)
    with pytest.raises(InvalidID):
        StreamID.parse(f"{TOP + 1}-0")


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 30), timezones=st.just(UTC)))
def test_a_moment_is_its_millisecond(when: datetime) -> None:
    id = StreamID.at(when)
    assert id.seq == 0
    assert timedelta(0) <= when - id.datetime < timedelta(milliseconds=1)
    assert StreamID.at(id.datetime) == id
    assert StreamID.at(when.astimezone(timezone(timedelta(hours=-7)))) == id


def test_times_that_cannot_be_told() -> None:
    with pytest.raises(InvalidID, match="time zone"):
        StreamID.at(datetime(2024, 1, 1))
    with pytest.raises(InvalidID, match="9999"):
        _ = StreamID.MAX.datetime
    with pytest.raises(InvalidID, match="is before 1970, so no ID has this time"):
        StreamID.at(datetime(1969, 12, 31, tzinfo=UTC))
