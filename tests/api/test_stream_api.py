"""Stream: the same words near, on a Headrace server and on redis-server."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace
from api.engine_clients import blocked
from headrace import StreamID
from headrace.api import stream_gaps
from headrace.api.backend import Stop
from headrace.api.follower_hub import hub_of
from headrace.errors import (
    CodecError,
    CommandError,
    IdTooSmall,
    InvalidID,
    NoSuchStream,
    NotSupported,
    UsageError,
    WrongType,
)
from support.headrace_server import headrace_server
from support.waiting import wait_until

FEW = 20  # ids 1000-0, 1000-1, 1001-0, ...
MORE_THAN_PAGES = 1500


@pytest.fixture
def stream(database: headrace.Database) -> headrace.Stream[dict[bytes, bytes]]:
    return database.stream("s")


@pytest.fixture
def filled(stream: Any) -> tuple[Any, list[StreamID]]:
    """A stream, and its IDs: two in each millisecond."""
    ids = [stream.add({"n": n}, id=StreamID(1000 + n // 2, n % 2)) for n in range(FEW)]
    return stream, ids


def numbers(entries: Any) -> list[int]:
    return [int(entry["n"]) for entry in entries]


def test_what_is_added_is_there(stream: Any) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    id = stream.add({"customer": "ada", b"cents": 999, "part": 0.5, "raw": b"\xff"})
    entry = stream[id]
    assert entry.id == id and before < id.datetime < before + timedelta(seconds=30)
    assert (
        entry.fields
        == entry.value
        == {b"customer": b"ada", b"cents": b"999", b"part": b"0.5", b"raw": b"\xff"}
    )
    assert entry["customer"] == entry[b"customer"] == b"ada"
    assert entry.text["raw"] == "\\xff" and list(entry) == [b"customer", b"cents", b"part", b"raw"]
    assert "cents" in entry and "x" not in entry and entry.get("x", b"?") == b"?"
    assert stream[str(id)] == entry and hash(stream[str(id)]) == hash(entry)
    with pytest.raises(KeyError, match=r"'x'.*customer"):
        entry["x"]


def test_an_empty_stream_is_like_an_empty_list(stream: Any) -> None:
    assert len(stream) == 0 and not stream
    assert list(stream) == list(reversed(stream)) == stream[:] == stream.read("0") == []
    assert stream.first() is stream.last() is None
    assert stream.groups() == []
    assert stream.delete("1-1") == stream.delete() == stream.trim(maxlen=0) == 0
    assert not stream.destroy()
    with pytest.raises(KeyError, match="5-1"):
        stream["5-1"]
    with pytest.raises(NoSuchStream, match="'s'"):
        stream.info()


def test_what_cannot_be_a_field_is_refused(stream: Any) -> None:
    for wrong in ({}, {"a": None}, {"a": True}, {"a": [1]}, {None: "a"}, "text"):
        with pytest.raises(CodecError):
            stream.add(wrong)
        with pytest.raises(CodecError):
            stream.add_many([{"a": 1}, wrong])
    assert len(stream) == 0


def test_ids_of_ones_own(stream: Any) -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    assert stream.add({"n": 1}, id="5-*") == StreamID(5, 0)
    assert stream.add({"n": 1}, id="5-*") == StreamID(5, 1)
    assert stream.add({"n": 1}, id=StreamID(6, 7)) == StreamID(6, 7)
    assert stream.add({"n": 1}, id=moment) == StreamID.at(moment)
    assert stream.add({"n": 1}, id=moment) == StreamID.at(moment).next()
    with pytest.raises(IdTooSmall):
        stream.add({"n": 1}, id="6-7")
    for wrong in ("x", "5-", "1-2-*", 5, None):
        with pytest.raises(InvalidID):
            stream.add({"n": 1}, id=wrong)


def test_many_are_added_at_once_in_their_order(stream: Any) -> None:
    ids = stream.add_many({"n": n} for n in range(MORE_THAN_PAGES))
    assert ids == sorted(ids) and len(set(ids)) == MORE_THAN_PAGES
    assert [entry.id for entry in stream] == ids
    assert numbers(stream) == list(range(MORE_THAN_PAGES))
    assert numbers(stream.reverse()) == list(range(MORE_THAN_PAGES))[::-1]
    assert stream.add_many([]) == []
    assert stream.add_many([{"n": 1}, {"n": 2}], maxlen=5, approximate=False)[-1] == stream.last().id
    assert len(stream) == 5


def test_ranges_have_both_ends(filled: tuple[Any, list[StreamID]]) -> None:
    stream, ids = filled
    chosen = random.Random(7)
    for _ in range(10):
        a, b = chosen.randrange(FEW), chosen.randrange(FEW)
        expected = list(range(a, b + 1))
        assert numbers(stream.range(ids[a], str(ids[b]))) == expected
        assert numbers(stream.reverse(bytes(ids[a]), ids[b])) == expected[::-1]
        assert numbers(stream[ids[a] : ids[b]]) == expected[:-1]
    assert numbers(stream.range(count=3)) == [0, 1, 2]
    assert numbers(stream.reverse(count=3)) == [FEW - 1, FEW - 2, FEW - 3]
    assert numbers(stream.range(start="1002", end="1003")) == [4, 5, 6, 7]
    assert numbers(stream["1002":"1003"]) == [4, 5]
    assert numbers(stream.range("-", "+")) == numbers(stream[:]) == list(range(FEW))
    assert stream[: StreamID.MIN] == [] and list(stream.range(count=0)) == []
    assert stream.first().id == ids[0] and stream.last().id == ids[-1]


def test_ranges_of_time(filled: tuple[Any, list[StreamID]]) -> None:
    stream, ids = filled
    two, four = ids[4].datetime, ids[8].datetime
    assert numbers(stream.range(two, four)) == [4, 5, 6, 7, 8, 9]  # all of the last millisecond
    assert numbers(stream[two:four]) == [4, 5, 6, 7]
    assert numbers(stream.reverse(start=four)) == list(range(8, FEW))[::-1]


def test_a_range_is_fetched_as_it_is_asked_for(stream: Any) -> None:
    stream.add_many({"n": n} for n in range(MORE_THAN_PAGES))
    walk = iter(stream)
    assert int(next(walk)["n"]) == 0
    stream.trim(maxlen=1)
    assert numbers(walk)[-1] == MORE_THAN_PAGES - 1  # it went on behind what is gone
    assert len(stream) == 1


def test_pages_end_where_count_does(stream: Any) -> None:
    stream.add_many({"n": n} for n in range(MORE_THAN_PAGES))
    for count in (1, 63, 64, 65, 320, 321, MORE_THAN_PAGES - 1, MORE_THAN_PAGES, MORE_THAN_PAGES + 1):
        assert numbers(stream.range(count=count)) == list(range(min(count, MORE_THAN_PAGES)))


def test_the_largest_id_ends_a_range(stream: Any) -> None:
    stream.add({"n": 1}, id=StreamID.MAX)
    assert numbers(stream) == numbers(reversed(stream)) == numbers(stream.range(count=5)) == [1]
    assert StreamID.MAX in stream and StreamID.MAX.previous() not in stream
    with pytest.raises(CommandError):
        stream.add({"n": 2})


def test_what_no_range_can_be(filled: tuple[Any, list[StreamID]]) -> None:
    stream, _ = filled
    for wrong in (5, "x", slice("x", None), slice(None, "x"), slice(1.5, None)):
        with pytest.raises(InvalidID):
            stream[wrong]
    with pytest.raises(UsageError, match="reverse"):
        stream[::2]
    with pytest.raises(UsageError, match="count"):
        stream.range(count=-1)
    with pytest.raises(InvalidID, match="time zone"):
        stream[datetime(2024, 1, 1) :]


def test_trimming(filled: tuple[Any, list[StreamID]]) -> None:
    stream, ids = filled
    assert stream.trim(maxlen=15) == 5 and len(stream) == 15
    assert stream.trim(minid=ids[10]) == 5 and stream.first().id == ids[10]
    assert stream.trim(minid=ids[12].datetime) == 2
    stream.add({"n": FEW}, minid=ids[-1], approximate=False)
    assert numbers(stream) == [FEW - 1, FEW]
    stream.add({"n": 99}, maxlen=1, approximate=False)
    assert numbers(stream) == [99]
    stream.add({"n": 100})
    assert stream.trim(maxlen=1, approximate=True) == 0  # nothing can go cheaply
    with pytest.raises(UsageError, match="maxlen"):
        stream.trim()
    with pytest.raises(UsageError, match="one of them"):
        stream.trim(maxlen=1, minid="1-1")
    with pytest.raises(UsageError, match="'acknowledged'"):
        stream.trim(maxlen=1, references="nobody")


def test_deleting(filled: tuple[Any, list[StreamID]]) -> None:
    stream, ids = filled
    assert stream.delete(ids[0], str(ids[1]), "7-7") == 2
    assert ids[0] not in stream and ids[2] in stream
    assert stream.destroy() and len(stream) == 0


def test_info_and_groups(filled: tuple[Any, list[StreamID]], database: headrace.Database) -> None:
    stream, ids = filled
    stream.delete(ids[0])
    database.execute("XGROUP", "CREATE", "s", "billing", str(ids[4]))
    database.execute("XREADGROUP", "GROUP", "billing", "one", "COUNT", 2, "STREAMS", "s", ">")
    info = stream.info()
    assert (info.length, info.last_id, info.groups, info.entries_added) == (FEW - 1, ids[-1], 1, FEW)
    assert (info.first, info.last, info.max_deleted_id) == (stream[ids[1]], stream[ids[-1]], ids[0])
    assert info.raw["length"] == FEW - 1
    [group] = stream.groups()
    assert (group.name, group.consumers, group.pending, group.last_delivered_id) == ("billing", 1, 2, ids[6])


def test_create_false_makes_no_stream(stream: Any) -> None:
    with pytest.raises(NoSuchStream, match="'s'"):
        stream.add({"n": 1}, create=False)
    stream.add({"n": 1})
    stream.add({"n": 2}, create=False)
    assert numbers(stream) == [1, 2]


def test_what_servers_before_8_do_not_know(stream: Any, kind: str, database: headrace.Database) -> None:
    def everything() -> None:
        first = stream.add({"n": 1}, idempotency=("me", "request 1"))
        assert stream.add({"n": 1}, idempotency=("me", b"request 1")) == first
        assert len(stream) == 1
        database.execute("XGROUP", "CREATE", "s", "billing", "0")
        assert stream.delete(first, references="acknowledged") == 0
        assert stream.trim(maxlen=0, references="acknowledged") == 0
        stream.add({"n": 2}, maxlen=1, approximate=False, references="delete")
        assert stream.delete(first, stream.last().id, references="delete") == 1

    if kind == "redis":
        stream.add({"n": 0})
        for refused in (
            lambda: stream.add({"n": 1}, idempotency=("me", "1")),
            lambda: stream.add({"n": 1}, references="delete"),
            lambda: stream.add_many([{"n": 1}, {"n": 2}], references="delete"),
            lambda: stream.trim(maxlen=1, references="acknowledged"),
            lambda: stream.delete("1-1", references="delete"),
        ):
            with pytest.raises(NotSupported, match=r"Redis 8\.[26]"):
                refused()
        assert len(stream) == 1
    else:
        everything()
    with pytest.raises(UsageError, match="empty"):
        stream.add({"n": 1}, idempotency=("", "1"))


def test_another_kind_of_key_is_refused(stream: Any, database: headrace.Database) -> None:
    database.execute("SET", "s", "text")
    for refused in (
        lambda: stream.add({"n": 1}),
        lambda: len(stream),
        lambda: stream.add_many([{"n": 1}] * 2),
    ):
        with pytest.raises(WrongType):
            refused()


def waiting(database: headrace.Database) -> int:
    """How many readers wait; on a server they share one request that blocks."""
    if not database.backend.is_remote:
        return blocked(database)
    hub = hub_of(database.backend, b"")
    return len(hub._waiting) if blocked(database) and all(one.is_caught_up for one in hub._waiting) else 0


def test_reading_behind_an_id(filled: tuple[Any, list[StreamID]]) -> None:
    stream, ids = filled
    assert numbers(stream.read(after="0")) == list(range(FEW))
    assert numbers(stream.read(after=ids[3], count=2)) == [4, 5]
    assert numbers(stream.read(after=ids[3].datetime, count=2)) == [3, 4]
    assert stream.read() == stream.read(after=ids[-1]) == stream.read("0", count=0) == []
    assert stream.read(after=ids[-1], block=0) == []
    start = time.monotonic()
    assert stream.read(after=ids[-1], block=0.05) == []
    assert time.monotonic() - start >= 0.045
    with pytest.raises(UsageError, match="block"):
        stream.read(after="0", block=-1)
    for after in ("0", "$"):
        with pytest.raises(UsageError, match=r"^block='5': must be seconds"):
            stream.read(after=after, block="5")


def test_a_read_that_does_not_wait_returns_what_is_there(filled: tuple[Any, list[StreamID]]) -> None:
    stream, ids = filled
    for block in (0, 0.0001):
        assert [entry.id for entry in stream.read("0", block=block)] == ids
        assert [entry.id for entry in stream.read(ids[-2], count=1, block=block)] == ids[-1:]
    assert stream.read(ids[-1], block=0) == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_follower_that_is_stopped_has_all_gaps(
    stream: Any, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", 3600.0)  # only the first check, and that at the end
    stream.add_many([{"n": n} for n in range(MORE_THAN_PAGES)])
    stop = Stop()
    read = []

    def trim_then_stop(entry: Any) -> None:
        read.append(entry.id)
        if len(read) == 1:  # the next pages are lost
            stream.trim(maxlen=0)
            stream.add({"n": "last"})
        elif entry["n"] == b"last":
            stop.set()

    async def follow() -> Any:
        follower = stream.follow_async("0", stop)
        async for entry in follower:
            trim_then_stop(entry)
        return follower

    if asynchronous:
        follower = asyncio.run(follow())
    else:
        follower = stream.follow("0", stop)
        for entry in follower:
            trim_then_stop(entry)
    assert [gap.missing for gap in follower.gaps] == [MORE_THAN_PAGES + 1 - len(read)]


def test_the_end_of_a_follower_does_not_wait_for_a_server_that_is_away() -> None:
    stop = Stop()
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(headrace_server())
        with headrace.connect(f"redis://127.0.0.1:{port}", reconnect_timeout=3600) as db:
            stream = db.stream("s")
            stream.add({"n": 1})

            def follow() -> None:
                for _ in stream.follow("0", stop):
                    stack.close()  # shuts the server down
                    stop.set()

            following = threading.Thread(target=follow, daemon=True)
            following.start()
            following.join(60)
            assert stop.is_set() and not following.is_alive()


@pytest.mark.parametrize("block", [20, math.inf])
def test_a_read_waits_for_what_is_added(
    stream: Any, aside: Callable[..., Any], block: float, database: headrace.Database
) -> None:
    first = stream.add({"n": 0})
    old = aside(lambda: stream.read(after=first, block=block))
    new = aside(lambda: stream.read(block=block, count=5))
    wait_until(lambda: waiting(database) >= 2)
    stream.add({"n": 1})
    assert numbers(old.result()) == numbers(new.result()) == [1]


def test_a_stop_ends_a_read_that_waits(
    stream: Any, aside: Callable[..., Any], stop: Stop, database: headrace.Database
) -> None:
    reading = aside(lambda: stream.read(after="0", block=math.inf, stop=stop))
    wait_until(lambda: blocked(database) >= 1)
    assert reading.running()
    stop.set()
    assert reading.result() == []
    assert stream.read(after="0", block=math.inf, stop=stop) == []


def test_following_sees_all_there_is_and_all_that_comes(
    stream: Any, aside: Callable[..., Any], stop: Stop, database: headrace.Database
) -> None:
    stream.add_many({"n": n} for n in range(600))
    seen: list[int] = []
    fresh: list[int] = []

    def follow(entries: Any, into: list[int]) -> None:
        for entry in entries:
            into.append(int(entry["n"]))
            if into[-1] == 700:
                return

    everything = aside(lambda: follow(stream.follow(after="0", stop=stop), seen))
    news = stream.follow(stop=stop)  # from now on, though nobody asks for the first one yet
    stream.add({"n": 600})
    only_new = aside(lambda: follow(news, fresh))
    wait_until(lambda: waiting(database) >= 2)
    stream.add_many({"n": n} for n in range(601, 701))
    everything.result()
    only_new.result()
    assert seen == list(range(701)) and fresh == list(range(600, 701))


def test_following_ends_with_its_stop(stream: Any, stop: Stop) -> None:
    stream.add_many({"n": n} for n in range(5))
    seen = []
    for entry in stream.follow(after="0", stop=stop):
        seen.append(int(entry["n"]))
        if len(seen) == 3:
            stop.set()
    assert seen == [0, 1, 2]


def test_names_are_bytes_or_text(database: headrace.Database) -> None:
    raw = database.stream(b"\xff\x00")
    raw.add({"n": 1})
    assert len(database.stream(raw.name)) == 1
    assert repr(database.stream("orders")) == "Stream('orders')"
