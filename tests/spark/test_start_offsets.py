"""Where reads start and end: precedence, named offsets, times, and misspelt names."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis
from pyspark.sql.types import LongType, StructField, StructType

from headrace.client.servers import Servers
from headrace.errors import UsageError
from headrace.spark.options import parse_options
from headrace.spark.source.reader import HeadraceReader
from headrace.spark.source.start_offsets import end_offsets, resolve_offsets, start_offsets
from headrace.spark.source.subscription import Subscription
from support.stream_server import StreamServer

N = StructType([StructField("n", LongType())])
U64_MAX = 2**64 - 1


def read(server: StreamServer, **options: str) -> list[int]:
    """The numbers that a batch read has, in order."""
    raw = {"url": server.url, **options}
    if not any(name.lower() in ("subscribe", "subscribepattern", "assign") for name in raw):
        raw["subscribe"] = "s"
    reader = HeadraceReader(parse_options(raw, "batch"), N)
    parts = reader.partitions()
    return [n for part in parts for batch in reader.read(part) for n in batch.column("n").to_pylist()]


def test_timestamps_override_those_by_stream_which_override_offsets() -> None:
    raw = {"startingOffsets": '{"a": "5-0"}'}
    assert start_offsets(parse_options(raw, "stream"), ["a", "b"], "latest") == {"a": "5-0", "b": "earliest"}
    raw |= {"startingOffsetsByTimestamp": '{"b": 9}'}
    by_time = {"a": "earliest", "b": f"8-{U64_MAX}"}
    assert start_offsets(parse_options(raw, "stream"), ["a", "b"], "latest") == by_time
    raw |= {"startingTimestamp": "7"}
    both = {"a": f"6-{U64_MAX}", "b": f"6-{U64_MAX}"}
    assert start_offsets(parse_options(raw, "stream"), ["a", "b"], "latest") == both
    assert start_offsets(parse_options({}, "stream"), ["a"], "latest") == {"a": "latest"}


def test_the_same_precedence_holds_for_ends() -> None:
    raw = {"endingOffsets": '{"a": "5-0"}'}
    assert end_offsets(parse_options(raw, "batch"), ["a", "b"]) == {"a": "5-0", "b": "latest"}
    raw |= {"endingOffsetsByTimestamp": '{"b": 9}'}
    assert end_offsets(parse_options(raw, "batch"), ["a", "b"]) == {"a": "latest", "b": f"8-{U64_MAX}"}
    raw |= {"endingTimestamp": "7"}
    assert end_offsets(parse_options(raw, "batch"), ["a"]) == {"a": f"6-{U64_MAX}"}


def test_named_offsets_become_ids() -> None:
    chosen = {"b": "latest", "a": "earliest", "c": "latest", "d": "5-1"}
    assert list(resolve_offsets(chosen, {"b": "7-7"}).items()) == [
        ("a", "0-0"),
        ("b", "7-7"),
        ("c", "0-0"),
        ("d", "5-1"),
    ]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, range(100)),
        ({"startingTimestamp": "1000090"}, range(90, 100)),
        ({"startingTimestamp": "1970-01-01T00:16:40.090Z"}, range(90, 100)),
        ({"startingTimestamp": "2000000"}, range(0)),
        ({"endingTimestamp": "1000010"}, range(10)),
        ({"startingTimestamp": "1000010", "endingTimestamp": "1000010"}, range(0)),
        ({"startingTimestamp": "1000020", "endingTimestamp": "1000010"}, range(0)),
        ({"startingOffsetsByTimestamp": '{"s": 1000095}', "startingOffsets": "earliest"}, range(95, 100)),
        ({"endingOffsetsByTimestamp": '{"s": 1000005}', "endingOffsets": "latest"}, range(5)),
        ({"startingOffsets": '{"s": "1000097-0"}'}, range(98, 100)),
        ({"startingOffsets": '{"s": -2}', "endingOffsets": '{"s": "1000001-0"}'}, range(2)),
        ({"stream.offsets": '{"offsets": {"s": {"offset": "1000098-0"}}}'}, range(99, 100)),
        ({"assign": '["s"]', "endingOffsets": '{"s": -1}'}, range(100)),
        ({"subscribePattern": "s|t", "startingTimestamp": "1000099"}, range(99, 100)),
    ],
)
def test_a_batch_read_has_the_entries_between_start_and_end(
    stream_server: StreamServer, options: dict[str, str], numbers: range
) -> None:
    stream_server.fill("s", 100)
    assert read(stream_server, **options) == list(numbers)


def test_several_entries_of_a_millisecond_belong_together(stream_server: StreamServer) -> None:
    for n, entry_id in enumerate(["5-1", "5-2", f"5-{U64_MAX}", "6-0", "6-1"]):
        stream_server.client.xadd("s", {"n": n}, id=entry_id)
    assert read(stream_server, startingTimestamp="6") == [3, 4]
    assert read(stream_server, endingTimestamp="6") == [0, 1, 2]
    assert read(stream_server, startingTimestamp="5", endingTimestamp="6") == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "s", "startingOffsets": '{"S": "earliest"}'}, "startingOffsets names S"),
        ({"subscribe": "s", "endingOffsetsByTimestamp": '{"t": 5}'}, "endingOffsetsByTimestamp names t"),
        ({"assign": '["s", "t"]'}, "no stream t, which the option assign names"),
        ({}, "No stream is named"),
    ],
)
def test_wrong_options_are_rejected_when_the_read_is_planned(
    stream_server: StreamServer, options: dict[str, str], message: str
) -> None:
    stream_server.fill("s", 1)
    reader = HeadraceReader(parse_options({"url": stream_server.url, **options}, "batch"), N)
    with pytest.raises(UsageError, match=message):
        reader.partitions()


def test_a_pattern_matches_whole_names_of_streams_only(stream_server: StreamServer) -> None:
    stream_server.fill("orders-1", 1)
    stream_server.fill("orders-12", 1, first=1)
    stream_server.fill("old-orders-3", 1, first=2)
    stream_server.client.set("orders-4", "text")
    stream_server.client.xadd(b"orders-\xff", {"n": 5})
    assert sorted(read(stream_server, subscribePattern=r"orders-\d")) == [0]
    assert sorted(read(stream_server, subscribePattern=r"orders-\d+")) == [0, 1]
    assert sorted(read(stream_server, subscribePattern=r".*orders.*")) == [0, 1, 2, 5]
    assert read(stream_server, subscribePattern="none") == []


def test_keys_are_scanned_for_a_pattern_once_an_interval(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[Any] = []
    as_ever = Servers.matching_streams

    def matching_streams(servers: Servers, pattern: str | re.Pattern[str]) -> list[str]:
        scans.append(pattern)
        return as_ever(servers, pattern)

    monkeypatch.setattr(Servers, "matching_streams", matching_streams)
    servers = Servers(stream_server.url)
    stream_server.fill("a", 1)
    rare = Subscription(servers, parse_options({"subscribePattern": "[ab]"}, "stream"))
    assert rare.streams() == ("a",)
    stream_server.fill("b", 1)
    assert rare.streams() == ("a",) and len(scans) == 1
    often = parse_options({"subscribePattern": "[ab]", "discoveryInterval": "0.0001ms"}, "stream")
    assert Subscription(servers, often).streams() == ("a", "b")
    servers.close()


def test_a_key_of_another_type_is_rejected_by_name(stream_server: StreamServer) -> None:
    redis.Redis(port=stream_server.port).set("s", "text")
    with pytest.raises(Exception, match="WRONGTYPE"):
        read(stream_server)
