"""Tasks cover a range once, are about even however the entries are spread, and limits count exactly."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.servers import Servers
from headrace.positions.entry_ids import parse_id
from headrace.spark.options import parse_options
from headrace.spark.source import planner
from headrace.spark.source.planner import OffsetRange, nth_id, plan_ranges
from support.stream_server import StreamServer

Id = tuple[int, int]


def uniform(rng: random.Random) -> list[Id]:
    return [(1_000_000 + n, 0) for n in range(4000)]


def skewed(rng: random.Random) -> list[Id]:
    """Nine tenths of the entries in a hundredth of the time."""
    dense = {(1_500_000 + rng.randrange(10_000), rng.randrange(4)) for _ in range(3600)}
    return sorted(dense | {(1_000_000 + rng.randrange(1_000_000), 0) for _ in range(400)})


def with_a_night(rng: random.Random) -> list[Id]:
    return [(1_000 + n, 0) for n in range(2000)] + [(90_000_000 + n, 0) for n in range(2000)]


def counted(rng: random.Random) -> list[Id]:
    return [(0, n + 1) for n in range(4000)]


def crowded(rng: random.Random) -> list[Id]:
    """Half of the entries in one millisecond, with time on both sides."""
    return (
        [(1_000 + n, 0) for n in range(1000)]
        + [(5_000, n) for n in range(2000)]
        + [(6_000 + n, 0) for n in range(1000)]
    )


def gusty(rng: random.Random) -> list[Id]:
    """Add fewer than a thousand entries, for which probes estimate more."""
    at, ids = 1000, []
    for _ in range(40):
        gap = rng.choice([1, 1, 10, 1000])
        for _ in range(rng.choice([1, 2, 50, 100])):
            at += rng.randint(1, gap)
            ids.append((at, 0))
    return ids[:990]


def single(rng: random.Random) -> list[Id]:
    return [(7, 7)]


def fill(server: StreamServer, stream: str, ids: list[Id]) -> list[str]:
    pipe = server.client.pipeline(transaction=False)
    names = [f"{ms}-{seq}" for ms, seq in ids]
    for name in names:
        pipe.xadd(stream, {"a": "1"}, id=name)
    pipe.execute()
    return names


def sizes(parts: list[OffsetRange], ids: list[Id]) -> list[int]:
    return [sum(parse_id(p.after) < i <= parse_id(p.upto) for i in ids) for p in parts]


@pytest.mark.parametrize("tasks", [1, 4, 16])
@pytest.mark.parametrize("spread", [uniform, skewed, with_a_night, counted, crowded, single])
def test_tasks_cover_a_stream_once_and_evenly(
    stream_server: StreamServer, spread: Callable[[random.Random], list[Id]], tasks: int
) -> None:
    ids = spread(random.Random(1))
    names = fill(stream_server, "s", ids)
    options = parse_options({"minPartitions": str(tasks)}, "batch")
    parts = plan_ranges(Servers(stream_server.url), {"s": "0-0"}, {"s": names[-1]}, options)
    assert (parts[0].after, parts[-1].upto) == ("0-0", names[-1])
    assert all(one.upto == two.after for one, two in itertools.pairwise(parts))
    assert [p.anchored for p in parts] == [False] + [True] * (len(parts) - 1)
    assert {p.upto for p in parts} <= set(names), "a cut that is no entry cannot be an anchor"
    counts = sizes(parts, ids)
    assert sum(counts) == len(ids) and len(parts) <= tasks
    assert max(counts) <= 2 * len(ids) / tasks + 1
    assert plan_ranges(Servers(stream_server.url), {"s": "0-0"}, {"s": names[-1]}, options) == parts


@pytest.mark.parametrize("seed", [20, 24, 32])
def test_a_range_has_the_same_tasks_when_the_stream_has_grown_or_was_trimmed(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(planner, "TASK_ENTRIES_MIN", 500)
    servers, options = Servers(stream_server.url), parse_options({}, "stream")
    before, ids = [(n + 1, 0) for n in range(5)], gusty(random.Random(seed))
    fill(stream_server, "s", before + ids)
    start, end = {"s": "5-0"}, {"s": f"{ids[-1][0]}-0"}
    parts = plan_ranges(servers, start, end, options)
    fill(stream_server, "s", [(ids[-1][0] + 1 + n, 0) for n in range(1000)])
    assert plan_ranges(servers, start, end, options) == parts
    stream_server.client.xtrim("s", minid="5-0", approximate=False)
    assert plan_ranges(servers, start, end, options) == parts


def test_probes_of_large_entries_ask_for_fewer_of_them(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, count = 1 << 14, 1000
    pipe = stream_server.client.pipeline(transaction=False)
    for n in range(count):
        pipe.xadd("s", {"a": bytes(size)}, id=f"{n + 1}-0")
    pipe.execute()
    asked = []

    def request_many(servers: Servers, streams: list[str], put: Callable[..., Any]) -> dict[str, list[Any]]:
        answers = ask_as_ever(servers, streams, put)
        asked.append(size * sum(len(entries) for entries in answers["s"] if isinstance(entries, list)))
        return answers

    ask_as_ever = Servers.request_many
    monkeypatch.setattr(Servers, "request_many", request_many)
    monkeypatch.setattr(planner, "PROBES_BYTES", 1 << 20)
    options = parse_options({"minPartitions": "4"}, "batch")
    parts = plan_ranges(Servers(stream_server.url), {}, {"s": f"{count}-0"}, options)
    assert 1 << 19 < max(asked) <= 2 << 20
    assert max(sizes(parts, [(n + 1, 0) for n in range(count)])) <= count / 4 * 1.2


def test_many_streams_are_planned_in_no_more_round_trips_than_one(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []

    def request_many(servers: Servers, streams: list[str], put: Callable[..., Any]) -> dict[str, list[Any]]:
        rounds.append(len(streams))
        return ask_as_ever(servers, streams, put)

    ask_as_ever = Servers.request_many
    monkeypatch.setattr(Servers, "request_many", request_many)
    for n in range(20):
        stream_server.fill(f"s{n}", 200)
    options = parse_options({"minPartitions": "40"}, "batch")
    parts = plan_ranges(Servers(stream_server.url), {}, {f"s{n}": "1000199-0" for n in range(20)}, options)
    assert len(parts) == 40
    assert max(rounds) == 20 and len(rounds) <= 8


def test_streams_share_the_tasks_and_those_without_new_entries_have_none(stream_server: StreamServer) -> None:
    stream_server.fill("large", 3000)
    stream_server.fill("small", 300)
    start = {"gone": "5-0", "large": "0-0", "old": "9-9", "small": "0-0"}
    end = {"gone": "5-0", "large": "1002999-0", "old": "9-9", "small": "1000299-0"}
    parts = plan_ranges(
        Servers(stream_server.url), start, end, parse_options({"minPartitions": "8"}, "batch")
    )
    tasks = [p.stream for p in parts]
    assert tasks.count("large") in (6, 7, 8) and tasks.count("small") == 1 and len(set(tasks)) == 2


def test_a_limit_on_the_records_of_a_task_makes_more_tasks(stream_server: StreamServer) -> None:
    stream_server.fill("s", 1000)
    options = parse_options({"maxRecordsPerPartition": "100"}, "batch")
    assert 10 <= len(plan_ranges(Servers(stream_server.url), {}, {"s": "1000999-0"}, options)) <= 12


def test_a_short_stream_is_one_task_by_default(stream_server: StreamServer) -> None:
    stream_server.fill("s", 1000)
    assert (
        len(plan_ranges(Servers(stream_server.url), {}, {"s": "1000999-0"}, parse_options({}, "batch"))) == 1
    )


def test_streams_of_large_entries_are_not_probed_by_default(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "TASK_ENTRIES_MIN", 1)
    monkeypatch.setattr(planner, "LARGE_ENTRY_BYTES", 1 << 10)
    for n in range(20):
        stream_server.client.xadd("s", {"a": bytes(1 << 11)}, id=f"{n + 1}-0")
    for asked, tasks in (({}, 1), ({"minPartitions": "2"}, 2)):
        assert (
            len(plan_ranges(Servers(stream_server.url), {}, {"s": "20-0"}, parse_options(asked, "batch")))
            == tasks
        )


def test_the_nth_entry_is_found_exactly(stream_server: StreamServer) -> None:
    stream_server.fill("s", 25_000)
    assert nth_id(Servers(stream_server.url), "s", "0-0", "1024999-0", 1) == "1000000-0"
    assert nth_id(Servers(stream_server.url), "s", "0-0", "1024999-0", 20_000) == "1019999-0"
    assert nth_id(Servers(stream_server.url), "s", "1000010-0", "1024999-0", 5) == "1000015-0"
    assert nth_id(Servers(stream_server.url), "s", "1024000-0", "1024999-0", 20_000) == "1024999-0"
