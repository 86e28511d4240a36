"""How far micro-batches go: limits, waiting, new streams, vanished streams, and what is reported."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark.sql.types import LongType, StructField, StructType

from headrace.client.servers import Servers
from headrace.errors import UsageError
from headrace.positions.entry_ids import parse_id
from headrace.positions.position import ids_by_stream, parse_positions
from headrace.spark import progress
from headrace.spark.options import parse_options
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.stream_reader import HeadraceStreamReader
from headrace.spark.source.trigger_limits import proportional_shares
from support.stream_server import StreamServer

N = StructType([StructField("n", LongType())])
ALL = ReadAllAvailable()


@pytest.fixture
def opened(stream_server: StreamServer) -> Iterator[Callable[..., HeadraceStreamReader]]:
    readers = []

    def made(**options: str) -> HeadraceStreamReader:
        raw = {"url": stream_server.url, **options}
        if not any(name in ("subscribePattern", "assign") for name in raw):
            raw.setdefault("subscribe", "s")
        readers.append(HeadraceStreamReader(parse_options(raw, "stream"), N))
        return readers[-1]

    yield made
    for reader in readers:
        reader.stop()


def ids(offsets: dict[str, str]) -> dict[str, str]:
    """The IDs in offsets, without what identifies the streams."""
    return ids_by_stream(parse_positions(offsets))


def numbers(reader: HeadraceStreamReader, start: dict[str, str], end: dict[str, str]) -> list[int]:
    parts = [part for part in reader.partitions(start, end) if part.value is not None]
    return sorted(n for part in parts for batch in reader.read(part) for n in batch.column("n").to_pylist())


def run(
    reader: HeadraceStreamReader, start: dict[str, str] | None = None
) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """What Spark does with AvailableNow: start and end of each micro-batch, but for an empty first one."""
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    is_new = start is None
    start = reader.initialOffset() if start is None else start
    for _ in range(100):
        end = reader.latestOffset(start, limit)
        if end != start:
            yield start, end
        elif not is_new:
            return
        reader.commit(end)
        start, is_new = end, False
    raise AssertionError("it does not end")


def counts(reader: HeadraceStreamReader) -> list[int]:
    return [len(numbers(reader, *batch)) for batch in run(reader)]


Opened = Callable[..., HeadraceStreamReader]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ALL),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "9"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1k", "minOffsetsPerTrigger": "5"}, ReadMaxBytes(1024)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
    ],
)
def test_spark_gets_one_limit(opened: Opened, options: dict[str, str], limit: ReadLimit) -> None:
    assert opened(**options).getDefaultReadLimit() == limit


def test_every_batch_respects_a_limit_of_entries(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 250)
    assert counts(opened(startingOffsets="earliest", maxOffsetsPerTrigger="100")) == [100, 100, 50]


def test_a_limit_is_shared_by_backlog_and_a_short_stream_gets_some(
    stream_server: StreamServer, opened: Opened
) -> None:
    stream_server.fill("a", 900)
    stream_server.fill("b", 300)
    stream_server.fill("c", 1)
    reader = opened(subscribe="a,b,c", startingOffsets="earliest", maxOffsetsPerTrigger="400")
    start, end = next(run(reader))
    taken = {s: len(numbers(reader, start, {s: end[s]})) for s in end}
    assert sum(taken.values()) == 400
    assert 280 <= taken["a"] <= 320 and taken["c"] == 1
    again = opened(subscribe="a,b,c", startingOffsets="earliest", maxOffsetsPerTrigger="400")
    assert sum(counts(again)) == 1201


def test_shares_add_up_to_the_limit() -> None:
    assert proportional_shares({"a": 1.0, "b": 1.0, "c": 1.0}, 10) == {"a": 4, "b": 3, "c": 3}
    assert proportional_shares({"a": 0.0}, 10) == {"a": 0}


def test_a_limit_of_bytes_is_about_respected(stream_server: StreamServer, opened: Opened) -> None:
    pipe = stream_server.client.pipeline(transaction=False)
    for n in range(1000):
        pipe.xadd("s", {"n": n, "more": "x" * 1000}, id=f"{n + 1}-0")
    pipe.execute()
    sizes = counts(opened(startingOffsets="earliest", maxBytesPerTrigger="200k"))
    assert sum(sizes) == 1000
    assert all(100 <= size <= 250 for size in sizes[:-1]) and len(sizes) > 3
    reader = opened(startingOffsets="earliest", maxBytesPerTrigger="1")
    assert numbers(reader, *next(run(reader))) == [0]


def test_a_limit_of_bytes_needs_memory_usage(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 10)
    client: Any = stream_server.client
    client.execute_command("ACL SETUSER", "reader", "on", ">secret", "~*", "+@all", "-memory")
    try:
        url = f"redis://reader:secret@127.0.0.1:{stream_server.port}"
        reader = opened(url=url, startingOffsets="earliest", maxBytesPerTrigger="1k")
        with pytest.raises(UsageError, match=r"maxBytesPerTrigger needs MEMORY USAGE, which fails: .*perm"):
            next(run(reader))
    finally:
        client.execute_command("ACL DELUSER", "reader")


def test_a_trigger_without_limits_gets_all_entries(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 50)
    reader = opened(startingOffsets="earliest", maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    assert ids(reader.latestOffset(reader.initialOffset(), ALL)) == {"s": "1000049-0"}


def test_a_batch_waits_for_its_minimum_or_the_maximum_delay(
    stream_server: StreamServer, opened: Opened
) -> None:
    stream_server.fill("s", 10)
    patient = opened(startingOffsets="earliest", minOffsetsPerTrigger="20")
    start = patient.initialOffset()
    assert patient.latestOffset(start, ReadMinRows(20)) == start
    stream_server.fill("s", 10, first=10)
    end = patient.latestOffset(start, ReadMinRows(20))
    assert ids(end) == {"s": "1000019-0"}
    stream_server.fill("s", 5, first=20)
    assert patient.latestOffset(end, ReadMinRows(20)) == end
    hasty = opened(startingOffsets="earliest", minOffsetsPerTrigger="200", maxTriggerDelay="1ms")
    start = hasty.initialOffset()
    time.sleep(0.002)
    assert ids(hasty.latestOffset(start, ReadMinRows(200))) == {"s": "1000024-0"}


def test_available_now_does_not_wait_and_ends_at_the_streams_end(
    stream_server: StreamServer, opened: Opened
) -> None:
    stream_server.fill("s", 10)
    reader = opened(startingOffsets="earliest", minOffsetsPerTrigger="200", maxOffsetsPerTrigger="300")
    batches = []
    for start, end in run(reader):
        stream_server.fill("s", 10, first=10)
        batches.append(numbers(reader, start, end))
    assert batches == [list(range(10))]


def test_streams_that_match_later_are_read_from_their_beginning(
    stream_server: StreamServer, opened: Opened
) -> None:
    stream_server.fill("s1", 3)
    reader = opened(subscribePattern="s.", discoveryInterval="1ms")
    start = reader.initialOffset()
    assert ids(start) == {"s1": "1000002-0"}
    assert reader.latestOffset(start, ALL) == start, "the pin"
    stream_server.fill("s2", 2, first=3)
    stream_server.fill("other", 2)
    time.sleep(0.002)
    end = reader.latestOffset(start, ALL)
    assert ids(end) == {"s1": "1000002-0", "s2": "1000004-0"} and list(end) == sorted(end)
    assert numbers(reader, start, end) == [3, 4]


def test_latest_is_checkpointed_also_if_no_stream_matches_yet(
    stream_server: StreamServer, opened: Opened
) -> None:
    reader = opened(subscribePattern="s.", discoveryInterval="1ms")
    start = reader.initialOffset()
    stream_server.fill("s1", 3)
    time.sleep(0.002)
    assert reader.latestOffset(start, ALL) == start == {}
    assert ids(reader.latestOffset(start, ALL)) == {"s1": "1000002-0"}


def test_a_query_can_start_at_a_time(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 100)
    stream_server.client.xtrim("s", maxlen=50, approximate=False)
    reader = opened(startingTimestamp="1000060")
    [(start, end)] = run(reader)
    assert start == {"s": f"1000059-{2**64 - 1}"}
    assert numbers(reader, start, end) == list(range(60, 100)), "no loss is seen where nothing was read"


@pytest.mark.parametrize("further", [{"startingTimestamp": "1500000"}, {"startingTimestamp": "5"}, {}])
def test_a_query_can_start_at_a_future_time(
    stream_server: StreamServer, opened: Opened, further: dict[str, str]
) -> None:
    stream_server.fill("s", 100)
    reader = opened(startingTimestamp="1500000")
    start = reader.initialOffset()
    for _ in range(2):
        assert reader.latestOffset(start, ALL) == start == {"s": f"1499999-{2**64 - 1}"}
    restarted = opened(**further)
    assert restarted.latestOffset(start, ALL) == start
    stream_server.fill("s", 2, first=499_999)
    end = restarted.latestOffset(start, ALL)
    assert ids(end) == {"s": "1500000-0"} and numbers(restarted, start, end) == [500_000]


def test_the_start_is_checkpointed_before_the_first_read(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 100)
    reader = opened(startingTimestamp="1000060")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    restarted = opened(startingTimestamp="1000080")
    end = restarted.latestOffset(start, ALL)
    assert numbers(restarted, start, end) == list(range(60, 100))


def test_assigned_streams_must_exist(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 1)
    assert ids(opened(assign='["s"]').initialOffset()) == {"s": "1000000-0"}
    with pytest.raises(UsageError, match="There is no stream t"):
        opened(assign='["s", "t"]').initialOffset()
    with pytest.raises(UsageError, match="startingOffsets names t"):
        opened(startingOffsets='{"t": "5-0"}').initialOffset()
    with pytest.raises(UsageError, match="No stream is named"):
        HeadraceStreamReader(parse_options({"url": stream_server.url}, "stream"), N).initialOffset()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_deleting_a_stream_with_unread_entries_is_a_loss(
    stream_server: StreamServer, opened: Opened, fail: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream_server.fill("s", 10)
    stream_server.fill("t", 10)
    reader = opened(
        subscribe="s,t", startingOffsets="earliest", maxOffsetsPerTrigger="10", failOnDataLoss=fail
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    stream_server.client.delete("s")
    if fail == "true":
        with pytest.raises(DataLoss, match=r"'s' was deleted: it had entries up to 1000009-0"):
            reader.latestOffset(end, ReadMaxRows(10))
    else:
        last = reader.latestOffset(end, ReadMaxRows(10))
        assert last["s"] == end["s"] and ids(last)["t"] == "1000009-0"
        assert "was deleted" in caplog.text


def test_deleting_a_stream_that_was_read_is_no_loss(
    stream_server: StreamServer, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    stream_server.fill("s", 10)
    reader = opened(startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    stream_server.client.delete("s")
    assert reader.latestOffset(end, ALL) == end
    assert "'s' was deleted" in caplog.text


def test_the_report_has_the_lag_of_each_stream(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 100)
    stream_server.client.xtrim("s", maxlen=90, approximate=False)
    reader = opened(startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert reader.reportLatestOffset() is None
    lags = []
    for _ in run(reader):
        report = reader.reportLatestOffset() or {}
        assert report["s"]["id"] == "1000099-0"
        assert bool(report["s"]["lagBytes"]) == bool(report["s"]["lag"])
        lags.append(report["s"]["lag"])
    assert lags == [60, 30, 0]


def test_the_lag_of_a_query_restarted_in_the_middle_is_about_right(
    stream_server: StreamServer, opened: Opened
) -> None:
    stream_server.fill("s", 5000)
    reader = opened(maxOffsetsPerTrigger="1000")
    reader.latestOffset({"s": "1000999-0"}, ReadMaxRows(1000))
    report = reader.reportLatestOffset() or {}
    assert 2000 <= report["s"]["lag"] <= 4000


def test_deleted_entries_never_make_the_lag_too_small(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 100)
    stream_server.client.xdel("s", "1000050-0", "1000051-0")
    reader = opened(startingOffsets="earliest", maxOffsetsPerTrigger="30")
    for (_, end), there in zip(run(reader), [68, 38, 8, 0], strict=True):
        left = len(stream_server.client.xrange("s", min=f"({ids(end)['s']}") or [])
        assert left == there
        lag = (reader.reportLatestOffset() or {})["s"]["lag"]
        assert lag == left


def test_losses_are_counted_from_where_a_batch_began(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 100)
    reader = opened(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    batches = run(reader)
    next(batches)
    start, end = next(batches)
    stream_server.client.xtrim("s", maxlen=83, approximate=False)
    with pytest.raises(DataLoss, match=r"\(7 of them\)"):
        numbers(reader, start, end)


def test_an_idle_query_asks_at_most_ten_times_a_second(
    stream_server: StreamServer, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    as_ever = Servers.wait_for_entries

    def wait(servers: Servers, after: Any, milliseconds: int) -> bool:
        waits.append(milliseconds)
        return as_ever(servers, after, milliseconds)

    stream_server.fill("s", 1)
    reader = opened()
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    monkeypatch.setattr(Servers, "wait_for_entries", wait)
    before = stream_server.client.info("commandstats")
    for _ in range(3):
        assert reader.latestOffset(start, ALL) == start
    after = stream_server.client.info("commandstats")
    assert waits == [200, 200, 200], "each poll waits at the server, five times a second"
    asked = {c: after[c]["calls"] - before.get(c, {"calls": 0})["calls"] for c in after}
    assert asked.get("cmdstat_xread", 3) == 3 and asked.get("cmdstat_xinfo|stream", 3) == 3


def test_new_entries_end_the_wait(
    stream_server: StreamServer, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_server.fill("s", 1)
    reader = opened(startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ALL)

    def wait(servers: Servers, after: Any, milliseconds: int) -> bool:
        assert after == ids(start)
        stream_server.fill("s", 1, first=1)
        return as_ever(servers, after, 60_000)

    as_ever = Servers.wait_for_entries
    monkeypatch.setattr(Servers, "wait_for_entries", wait)
    assert ids(reader.latestOffset(start, ALL)) == {"s": "1000001-0"}


def test_offsets_of_missing_streams_are_kept(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 5)
    reader = opened(subscribe="s,old", startingOffsets="earliest")
    ahead = {"old": "7-7", "s": "1000004-0"}
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(ahead, ALL)
    assert ids(end) == ahead and list(end) == sorted(end)


def test_progress_is_read_from_a_report_of_spark(stream_server: StreamServer, opened: Opened) -> None:
    stream_server.fill("s", 100)
    stream_server.fill("t", 10)
    reader = opened(subscribe="s,t", startingOffsets='{"s": "1000009-0"}', maxOffsetsPerTrigger="10")
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    end = reader.latestOffset(start, ReadMaxRows(10))
    ours = {
        "endOffset": json.dumps(end),
        "latestOffset": json.dumps(reader.reportLatestOffset()),
        "numInputRows": 10,
        "processedRowsPerSecond": 20.5,
    }
    theirs = {"endOffset": "7", "latestOffset": None, "numInputRows": 3, "processedRowsPerSecond": 1.0}
    for report in ({"sources": [theirs, ours]}, json.dumps({"sources": [ours, theirs]})):
        found = progress(report)
        assert found and (found.entries, found.entries_per_second, found.lag) == (10, 20.5, 90)
        assert {s: p.read_to for s, p in found.streams.items()} == ids(end)
        assert found.streams["s"].last_id == "1000099-0"
        assert found.streams["s"].lag_seconds == (99 - parse_id(ids(end)["s"])[0] + 1_000_000) / 1000
    assert progress(None) is None
