"""Filters narrow a read; Spark applies those that are not pushed down."""

from __future__ import annotations

import datetime
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import (
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.spark.options import parse_options
from headrace.spark.source.data_source import HeadraceSource
from headrace.spark.source.pushdown import PUSHDOWN_WORKER_MODULE, PushdownReader
from support.stream_server import StreamServer

TEXT, TIME = StringType(), TimestampType()
DEFAULT = StructType(
    [
        StructField("stream", TEXT),
        StructField("id", TEXT),
        StructField("timestamp", TIME),
        StructField("sequence", LongType()),
        StructField("fields", MapType(TEXT, TEXT)),
    ]
)
OWN = StructType(
    [
        StructField("_stream", TEXT),
        StructField("_id", TEXT),
        StructField("_timestamp", TimestampNTZType()),
        StructField("stream", TEXT),
    ]
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def at(ms: float) -> datetime.datetime:
    return EPOCH + datetime.timedelta(milliseconds=ms)


def read(
    server: StreamServer, filters: Iterable[Filter], *, schema: StructType = DEFAULT, **options: str
) -> tuple[list[dict[str, Any]], list[Filter]]:
    """The rows that come, and the filters that are left to Spark."""
    raw = {"url": server.url, "subscribe": "a,b", "mode": "DROPMALFORMED", **options}
    reader = PushdownReader(parse_options(raw, "batch"), schema)
    left = list(reader.pushFilters(list(filters)))
    parts = reader.partitions()
    return [row for p in parts for batch in reader.read(p) for row in batch.to_pylist()], left


def passes(condition: Filter, row: dict[str, Any]) -> bool:
    """What Spark makes of a filter."""
    value = row[condition.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(condition, IsNotNull):
        return value is not None
    if isinstance(condition, In):
        return value in condition.value
    tests: dict[type[Filter], Callable[[Any, Any], bool]] = {
        EqualTo: lambda a, b: a == b,
        EqualNullSafe: lambda a, b: a == b,
        GreaterThan: lambda a, b: a > b,
        GreaterThanOrEqual: lambda a, b: a >= b,
        LessThan: lambda a, b: a < b,
        LessThanOrEqual: lambda a, b: a <= b,
    }
    return tests[type(condition)](value, condition.value)  # type: ignore[attr-defined]


def fill(server: StreamServer) -> None:
    for stream in ("a", "b"):
        for ms, seq in ((1, 0), (1, 7), (2, 0), (2, 2**64 - 1), (5, 3), (9, 0), (10, 1), (11, 0)):
            server.client.xadd(stream, {"n": 1}, id=f"{ms}-{seq}")
        server.client.xdel(stream, f"2-{2**64 - 1}")  # its sequence would not fit a LONG


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("stream",), "a"),
        EqualNullSafe(("stream",), "b"),
        In(("stream",), ("b", "none", None)),
        EqualTo(("stream",), "none"),
        EqualTo(("timestamp",), at(2)),
        EqualTo(("timestamp",), at(2.5)),
        GreaterThan(("timestamp",), at(2)),
        GreaterThan(("timestamp",), at(1.999)),
        GreaterThanOrEqual(("timestamp",), at(2)),
        GreaterThanOrEqual(("timestamp",), at(2.001)),
        GreaterThanOrEqual(("timestamp",), at(-7)),
        LessThan(("timestamp",), at(10)),
        LessThan(("timestamp",), at(9.001)),
        LessThan(("timestamp",), at(0)),
        LessThanOrEqual(("timestamp",), at(10)),
        LessThanOrEqual(("timestamp",), at(9.999)),
        LessThanOrEqual(("timestamp",), at(-1)),
        EqualTo(("id",), "5-3"),
        EqualTo(("id",), "1-0"),
        EqualTo(("id",), "5"),
        EqualTo(("id",), "05-3"),
        EqualTo(("id",), "0-0"),
        EqualTo(("id",), "no ID"),
        In(("id",), ("5-3", "no ID")),
    ],
)
def test_a_pushed_filter_selects_exactly_the_matching_entries(
    stream_server: StreamServer, condition: Filter
) -> None:
    fill(stream_server)
    everything, _ = read(stream_server, [])
    assert len(everything) == 14
    rows, left = read(stream_server, [IsNotNull(condition.attribute), condition])  # type: ignore[attr-defined]
    assert left == []
    assert rows == [row for row in everything if passes(condition, row)]


def test_several_ids_are_read_from_the_first_to_the_last(stream_server: StreamServer) -> None:
    fill(stream_server)
    condition = In(("id",), ("9-0", "2-0"))
    rows, left = read(stream_server, [condition], subscribe="a")
    assert left == [condition] and [row["id"] for row in rows] == ["2-0", "5-3", "9-0"]


@pytest.mark.parametrize(
    "condition",
    [
        Not(EqualTo(("stream",), "a")),
        StringStartsWith(("stream",), "a"),
        GreaterThan(("id",), "5-3"),
        EqualTo(("sequence",), 0),
        EqualTo(("fields", "n"), "1"),
        GreaterThan(("stream",), "a"),
        In(("timestamp",), (at(1), at(2))),
        EqualTo(("timestamp",), 5),
    ],
)
def test_other_filters_are_left_to_spark(stream_server: StreamServer, condition: Filter) -> None:
    fill(stream_server)
    rows, left = read(stream_server, [condition])
    assert left == [condition] and len(rows) == 14


def test_filters_on_columns_of_a_users_schema_are_not_pushed(stream_server: StreamServer) -> None:
    fill(stream_server)
    field = EqualTo(("stream",), "a")
    rows, left = read(stream_server, [field, EqualTo(("_stream",), "b")], schema=OWN)
    assert left == [field] and [row["_stream"] for row in rows] == ["b"] * 7
    naive = at(9).replace(tzinfo=None)
    rows, left = read(stream_server, [GreaterThanOrEqual(("_timestamp",), naive)], schema=OWN)
    assert left == [] and len(rows) == 6


def test_filters_narrow_the_options_and_each_other(stream_server: StreamServer) -> None:
    fill(stream_server)
    rng = random.Random(1)
    kinds = [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    found = 0
    for _ in range(40):
        filters: list[Filter] = [
            rng.choice(kinds)(("timestamp",), at(rng.randrange(12))) for _ in range(rng.randrange(1, 4))
        ]
        options = {"startingTimestamp": str(rng.randrange(8)), "endingTimestamp": str(rng.randrange(6, 13))}
        everything, _ = read(stream_server, [], schema=DEFAULT, **options)
        rows, left = read(stream_server, filters, schema=DEFAULT, **options)
        assert left == [] and rows == [row for row in everything if all(passes(f, row) for f in filters)]
        found += len(rows)
    assert found > 50, "the filters let nothing through"


def test_only_the_pushdown_worker_gets_a_reader_with_pushdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = HeadraceSource({"subscribe": "s"})
    monkeypatch.delitem(sys.modules, PUSHDOWN_WORKER_MODULE, raising=False)
    assert not isinstance(source.reader(DEFAULT), PushdownReader)
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER_MODULE, sys)
    assert isinstance(source.reader(DEFAULT), PushdownReader)
