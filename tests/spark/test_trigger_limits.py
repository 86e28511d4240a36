"""Limits of a micro-batch: every stream gets its turn, and no estimate can stop a query."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.positions.offsets import Offsets
from headrace.positions.stream_state import stream_states
from headrace.spark.options import parse_options
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.trigger_limits import AdmissionControl, default_limit
from support.stream_server import StreamServer


class Batches:
    """Plans one micro-batch after another, as a streaming query does."""

    def __init__(self, server: StreamServer, streams: list[str], start: Offsets, **options: str) -> None:
        parsed = parse_options({"url": server.url, **options}, "stream")
        self._servers, self._numbers = parsed.servers(), EntryNumbers()
        self._control = AdmissionControl(self._servers, parsed, self._numbers)
        self._limit = default_limit(parsed)
        self._streams = streams
        self.start = start

    def next(self) -> tuple[Offsets, Offsets]:
        """Return the offsets after the next batch, and the ends of the streams."""
        states = stream_states(self._servers, self._streams)
        self._numbers.drop_before(self.start)
        self._numbers.record_last_numbers(states)
        ends = {stream: state.last_id for stream, state in states.items()}
        self.start = self._control.limit_batch(self.start, ends, states, self._limit)
        return self.start, ends

    def close(self) -> None:
        self._servers.close()


@pytest.fixture
def batches(stream_server: StreamServer, request: pytest.FixtureRequest) -> Callable[..., Batches]:
    def make(streams: list[str], start: Offsets, **options: str) -> Batches:
        made = Batches(stream_server, streams, start, **options)
        request.addfinalizer(made.close)
        return made

    return make


def fill_in_bursts(server: StreamServer, stream: str) -> list[str]:
    """Add bursts of entries between few, so that IDs say little about numbers; return the IDs."""
    pipe = server.client.pipeline(transaction=False)
    ms = 1_000_000
    for _ in range(8):
        for gap, count in ((1000, 40), (1, 300), (1000, 40)):
            for _ in range(count):
                ms += gap
                pipe.xadd(stream, {"n": 1}, id=f"{ms}-0")
    pipe.execute()
    ids = [entry_id.decode() for entry_id, _ in server.client.xrange(stream)]
    server.client.xdel(stream, ids[5])  # a hole: nothing says the number of the first entry
    return ids


@pytest.mark.parametrize("limit", [200, 700])
def test_a_backlog_that_was_estimated_too_low_is_estimated_again(
    stream_server: StreamServer, batches: Callable[..., Batches], limit: int
) -> None:
    """A query that was restarted in the middle: batches do not shrink when the estimate is used up."""
    ids = {stream: fill_in_bursts(stream_server, stream) for stream in "ab"}
    planned = batches(["a", "b"], {s: each[2] for s, each in ids.items()}, maxOffsetsPerTrigger=str(limit))
    unread = sum(len(each) - 4 for each in ids.values())
    for _ in range(2 * unread // limit):
        offsets, ends = planned.next()
    assert offsets == ends


def test_a_limit_of_one_entry_does_not_stop_a_query(
    stream_server: StreamServer, batches: Callable[..., Batches]
) -> None:
    for stream in "ab":
        stream_server.fill(stream, 300)
        stream_server.client.xdel(stream, "1000005-0")
    planned = batches(["a", "b"], dict.fromkeys("ab", "1000002-0"), maxOffsetsPerTrigger="1")
    for _ in range(2 * 300):
        before = dict(planned.start)
        offsets, ends = planned.next()
        if offsets == ends:
            break
        assert offsets != before
    assert offsets == ends


def test_a_short_stream_is_read_while_longer_ones_grow(
    stream_server: StreamServer, batches: Callable[..., Batches]
) -> None:
    for stream, count in (("a", 3000), ("b", 3000), ("c", 1)):
        stream_server.fill(stream, count)
    planned = batches(["a", "b", "c"], {}, maxOffsetsPerTrigger="2")
    read = set()
    for number in range(4):
        for stream in "ab":
            stream_server.client.xadd(stream, {"n": 1}, id=f"{2_000_000 + number}-0")
        read |= set(planned.next()[0])
    assert read == {"a", "b", "c"}


def test_offsets_pass_entries_that_were_deleted(
    stream_server: StreamServer, batches: Callable[..., Batches]
) -> None:
    for stream in "xyz":
        stream_server.fill(stream, 100)
        stream_server.client.xadd(stream, {"n": 1}, id="3000000-0")
        stream_server.client.xdel(stream, "3000000-0")
    planned = batches(["x", "y", "z"], dict.fromkeys("xyz", "1000099-0"), maxOffsetsPerTrigger="2")
    planned.next()
    offsets, ends = planned.next()
    assert offsets == ends


def test_a_short_stream_does_not_shrink_a_limit_of_bytes(
    stream_server: StreamServer, batches: Callable[..., Batches]
) -> None:
    """What a stream of one entry needs is mostly not for that entry."""
    stream_server.fill("long", 20_000)
    alone = batches(["long"], {}, maxBytesPerTrigger="256k").next()[0]["long"]
    stream_server.client.xadd("short", {"n": 1}, id="5000000-0")
    both = batches(["long", "short"], {}, maxBytesPerTrigger="256k").next()[0]["long"]
    rows = [int(entry_id.partition("-")[0]) - 1_000_000 for entry_id in (alone, both)]
    assert rows[1] > 0.8 * rows[0]


def test_an_empty_stream_does_not_shrink_a_limit_of_bytes(
    stream_server: StreamServer, batches: Callable[..., Batches]
) -> None:
    stream_server.fill("long", 20_000)
    for number in range(3000):
        stream_server.client.xadd("empty", {"n": 1}, id=f"{5_000_000 + number}-0")
    stream_server.client.xgroup_create("empty", "g", "0")
    stream_server.client.xreadgroup("g", "c", {"empty": ">"}, count=10_000)
    stream_server.client.xtrim("empty", maxlen=0, approximate=False)
    offsets, _ = batches(["long", "empty"], {}, maxBytesPerTrigger="256k").next()
    assert int(offsets["long"].partition("-")[0]) > 1_001_000
