"""Streams that were deleted and recreated while a query was reading them, was down, or ran a batch again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from headrace.fingerprint import entry_fingerprint
from headrace.positions.position import Position, ids_by_stream, parse_position, parse_positions
from headrace.spark.options import parse_options
from headrace.spark.source import stream_reader
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.reader import HeadraceReader
from headrace.spark.source.stream_reader import HeadraceStreamReader
from support.stream_server import StreamServer

N = StructType([StructField("n", LongType())])
ALL = ReadAllAvailable()
Offsets = dict[str, str]
Batch = tuple[Offsets, Offsets]


class Driver:
    """What Spark does with a stream reader: it keeps the offsets, and may be restarted."""

    def __init__(self, server: StreamServer, **options: str) -> None:
        self.server = server
        self.options = {"subscribe": "s", "startingOffsets": "earliest", **options}
        self.offsets: Offsets | None = None
        self.warned = 0
        self.reader = self.opened()

    def opened(self, **options: str) -> HeadraceStreamReader:
        raw = {"url": self.server.url, **self.options, **options}
        return HeadraceStreamReader(parse_options(raw, "stream"), N)

    def restart(self, **options: str) -> None:
        self.reader.stop()
        self.reader = self.opened(**options)

    def plan(self) -> Batch:
        if self.offsets is None:
            self.offsets = self.reader.initialOffset()
        return self.offsets, self.reader.latestOffset(self.offsets, self.reader.getDefaultReadLimit())

    def read(self, start: Offsets, end: Offsets) -> list[int]:
        parts = [part for part in self.reader.partitions(start, end) if part.value is not None]
        return sorted(
            n for part in parts for batch in self.reader.read(part) for n in batch.column("n").to_pylist()
        )

    def run(self) -> list[int]:
        """All micro-batches until nothing is new."""
        found: list[int] = []
        for _ in range(50):
            start, end = self.plan()
            if end == start:
                return found
            found += self.read(start, end)
            self.reader.commit(end)
            self.offsets = end
        raise AssertionError("it does not end")


@pytest.fixture(autouse=True)
def short_wait_for_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that finds nothing new waits for entries: here not for long."""
    monkeypatch.setattr(stream_reader, "IDLE_BLOCK_MS", 5)


@pytest.fixture
def driver(stream_server: StreamServer) -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def opened(**options: str) -> Driver:
        made.append(Driver(stream_server, **options))
        return made[-1]

    yield opened
    for each in made:
        each.reader.stop()


def add(server: StreamServer, ids: list[str], first: int = 100) -> list[int]:
    server.add("s", [(entry_id, {"n": first + n}) for n, entry_id in enumerate(ids)])
    return list(range(first, first + len(ids)))


def recreate(server: StreamServer, ids: list[str]) -> list[int]:
    server.client.delete("s")
    return add(server, ids)


def lower(count: int) -> list[str]:
    return [f"{n + 1}-0" for n in range(count)]


def higher(count: int) -> list[str]:
    return [f"{5_000_000 + n}-0" for n in range(count)]


def same(count: int) -> list[str]:
    return [f"{1_000_000 + n}-0" for n in range(count)]


def renamed(server: StreamServer) -> list[int]:
    server.add("other", [(entry_id, {"n": n + 100}) for n, entry_id in enumerate(higher(30))])
    server.client.rename("other", "s")
    return list(range(100, 130))


def restored(server: StreamServer) -> list[int]:
    """The stream as it was when it had 4 entries."""
    server.add("copy", [(entry_id, {"n": n}) for n, entry_id in enumerate(same(4))])
    server.client.restore("s", 0, server.client.dump("copy") or b"", replace=True)
    return list(range(4))


def flushed(server: StreamServer) -> list[int]:
    server.client.flushall()
    return add(server, higher(12))


def set_further(server: StreamServer) -> list[int]:
    """The stream comes to the same last ID, with fewer entries."""
    found = recreate(server, lower(3))
    server.client.execute_command("XSETID", "s", "1000009-0")
    return found


WAYS: dict[str, Callable[[StreamServer], list[int]]] = {
    "lower IDs, fewer": lambda server: recreate(server, lower(3)),
    "lower IDs, as many": lambda server: recreate(server, lower(10)),
    "lower IDs, more": lambda server: recreate(server, lower(30)),
    "lower and higher IDs": lambda server: recreate(server, [*lower(15), *higher(5)]),
    "higher IDs, fewer": lambda server: recreate(server, higher(3)),
    "higher IDs, as many": lambda server: recreate(server, higher(10)),
    "higher IDs, more": lambda server: recreate(server, higher(30)),
    "the same IDs, fewer": lambda server: recreate(server, same(4)),
    "the same IDs": lambda server: recreate(server, same(10)),
    "the same IDs, more": lambda server: recreate(server, same(30)),
    "renamed": renamed,
    "restored": restored,
    "flushed": flushed,
    "set further": set_further,
}
way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@way
@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_a_recreated_stream_fails_the_query(
    driver: Callable[..., Driver], way: Callable[[StreamServer], list[int]], down: bool
) -> None:
    query = driver()
    query.server.fill("s", 10)
    assert query.run() == list(range(10))
    way(query.server)
    if down:
        query.restart()
    for _ in range(2):  # an automatic restart is no way around it
        with pytest.raises(DataLoss, match="deleted and recreated"):
            query.run()
        query.restart()


@way
@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
@pytest.mark.parametrize("limit", ["7", "1000"])
def test_a_recreated_stream_is_read_from_its_beginning_if_loss_is_allowed(
    driver: Callable[..., Driver],
    way: Callable[[StreamServer], list[int]],
    down: bool,
    limit: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = driver(failOnDataLoss="false", maxOffsetsPerTrigger=limit)
    query.server.fill("s", 10)
    assert query.run() == list(range(10))
    expected = way(query.server)
    if down:
        query.restart()
    assert query.run() == expected
    assert caplog.text.count("deleted and recreated") == 1
    query.restart()
    assert query.run() == []
    query.server.client.xadd("s", {"n": 999}, "9000000-0")
    assert query.run() == [999]
    assert caplog.text.count("deleted and recreated") == 1, "what was reported is in the checkpoint"


@way
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_that_is_run_again_never_reads_another_stream(
    driver: Callable[..., Driver], way: Callable[[StreamServer], list[int]], fail: str
) -> None:
    query = driver(failOnDataLoss=fail)
    query.server.fill("s", 10)
    start, end = query.plan()  # in the checkpoint; then the driver dies
    expected = way(query.server)
    query.restart()
    if fail == "true":
        with pytest.raises(DataLoss, match="deleted and recreated"):
            query.read(start, end)
        return
    assert query.read(start, end) == []
    query.offsets = end
    assert query.run() == expected


@pytest.mark.parametrize("fetch", ["resp", "auto"])
@way
def test_a_stream_recreated_between_planning_and_reading_is_reported(
    driver: Callable[..., Driver], way: Callable[[StreamServer], list[int]], fetch: str
) -> None:
    query = driver(fetch=fetch)
    query.server.fill("s", 10)
    start, end = query.plan()
    parts = query.reader.partitions(start, end)
    way(query.server)
    with pytest.raises(DataLoss):
        [batch for part in parts for batch in query.reader.read(part)]


def test_a_batch_read_reports_a_stream_recreated_after_planning(stream_server: StreamServer) -> None:
    stream_server.fill("s", 10)
    options = parse_options({"url": stream_server.url, "subscribe": "s"}, "batch")
    reader = HeadraceReader(options, N)
    parts = reader.partitions()
    recreate(stream_server, higher(30))
    with pytest.raises(DataLoss, match="deleted and recreated"):
        [batch for part in parts for batch in reader.read(part)]


def test_a_first_batch_that_was_trimmed_away_is_reported(driver: Callable[..., Driver]) -> None:
    query = driver()
    query.server.fill("s", 10)
    start, end = query.plan()
    query.server.fill("s", 10, first=10)
    query.server.client.xtrim("s", maxlen=5, approximate=False)
    query.restart()
    with pytest.raises(DataLoss, match="trimmed before they were read"):
        query.read(start, end)


def test_a_stream_that_was_missing_for_a_time_counts_as_recreated(
    driver: Callable[..., Driver],
) -> None:
    query = driver(failOnDataLoss="false")
    query.server.fill("s", 10)
    query.run()
    query.server.client.delete("s")
    assert query.run() == []
    query.server.fill("s", 10)  # the same IDs and fields
    assert query.run() == list(range(10))


def test_an_empty_recreated_stream_is_reported_once(
    driver: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    query = driver(failOnDataLoss="false")
    query.server.fill("s", 10)
    query.run()
    query.server.client.delete("s")
    query.server.client.xgroup_create("s", "g", mkstream=True)
    assert query.run() == []
    query.restart()
    assert query.run() == []
    assert add(query.server, lower(3)) == query.run()
    assert caplog.text.count("deleted and recreated") == 1


def test_other_streams_of_the_query_are_still_read(driver: Callable[..., Driver]) -> None:
    query = driver(subscribe="s,t", failOnDataLoss="false")
    query.server.fill("s", 10)
    query.server.fill("t", 10, first=20)
    assert query.run() == [*range(10), *range(20, 30)]
    recreate(query.server, lower(3))
    query.server.fill("t", 5, first=30)
    assert sorted(query.run()) == [*range(30, 35), *range(100, 103)]


def test_available_now_reads_a_recreated_stream(driver: Callable[..., Driver]) -> None:
    query = driver(failOnDataLoss="false", maxOffsetsPerTrigger="4")
    query.server.fill("s", 10)
    query.run()
    recreate(query.server, [*lower(5), *higher(5)])
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert query.run() == list(range(100, 110))


def test_a_stream_recreated_while_available_now_runs_is_read(driver: Callable[..., Driver]) -> None:
    query = driver(failOnDataLoss="false", maxOffsetsPerTrigger="4")
    query.server.fill("s", 10)
    query.reader.prepareForTriggerAvailableNow()
    start, end = query.plan()
    assert query.read(start, end) == [0, 1, 2, 3]
    query.offsets = end
    expected = recreate(query.server, lower(7))
    assert query.run() == expected


# What is no loss


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
@pytest.mark.parametrize("gone", [[9], [8, 9], list(range(10)), [0, 5, 9]])
def test_deleting_entries_that_were_read_is_no_loss(
    driver: Callable[..., Driver], gone: list[int], down: bool
) -> None:
    query = driver(maxOffsetsPerTrigger="5")
    query.server.fill("s", 10)
    assert query.run() == list(range(10))
    query.server.client.xdel("s", *(f"{1_000_000 + n}-0" for n in gone))
    if down:
        query.restart()
    query.server.fill("s", 5, first=10)
    assert query.run() == list(range(10, 15))
    query.server.client.xdel("s", *(f"{1_000_000 + n}-0" for n in range(15)))
    query.server.fill("s", 3, first=15)
    query.server.client.xdel("s", "1000016-0")
    assert query.run() == [15, 17], "nor is deleting one by itself that was not read yet"


def test_entries_deleted_as_they_are_read_in_pieces_are_no_loss(driver: Callable[..., Driver]) -> None:
    query = driver(maxOffsetsPerTrigger="5")
    query.server.fill("s", 30)
    found: list[int] = []
    for _ in range(6):
        start, end = query.plan()
        found += query.read(start, end)
        query.offsets = end
        query.server.client.xdel("s", *(f"{1_000_000 + n}-0" for n in found))
        query.restart()
    assert found == list(range(30))


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_trimming_entries_that_were_read_is_no_loss(driver: Callable[..., Driver], down: bool) -> None:
    query = driver()
    query.server.fill("s", 10)
    query.run()
    query.server.client.xtrim("s", maxlen=0, approximate=False)
    if down:
        query.restart()
    query.server.fill("s", 5, first=10)
    assert query.run() == list(range(10, 15))


def test_trimmed_unread_entries_are_counted_also_after_a_restart(driver: Callable[..., Driver]) -> None:
    query = driver()
    query.server.fill("s", 10)
    query.run()
    query.server.fill("s", 10, first=10)
    query.server.client.xtrim("s", maxlen=7, approximate=False)
    query.restart()
    with pytest.raises(DataLoss, match=r"\(3 of them\)"):
        query.run()


@pytest.mark.parametrize("seed", range(8))
def test_deleting_and_trimming_read_entries_never_looks_like_a_loss(
    driver: Callable[..., Driver], seed: int
) -> None:
    dice = random.Random(seed)
    query = driver(maxOffsetsPerTrigger=str(dice.choice([3, 7, 1000])))
    client, added, found = query.server.client, 0, list[int]()
    for _ in range(60):
        step = dice.choice(["add", "add", "batch", "batch", "again", "restart", "delete", "trim", "group"])
        done = [f"{1_000_000 + n}-0" for n in found]
        if step == "add":
            count = dice.randint(1, 6)
            query.server.fill("s", count, first=added)
            added += count
        elif step in ("batch", "again"):
            start, end = query.plan()
            if step == "again" and end != start:  # the driver dies before the batch is noted as done
                query.read(start, end)
                query.restart()
            if end != start:
                found += query.read(start, end)
            query.offsets = end
        elif step == "restart":
            query.restart()
        elif step == "delete" and done:
            client.xdel("s", *dice.sample(done, dice.randint(1, min(4, len(done)))), done[-1])
        elif step == "trim" and done:
            client.xtrim("s", minid=dice.choice([*done, f"{1_000_000 + len(done)}-0"]), approximate=False)
        elif step == "group" and added:
            client.xgroup_create("s", f"g{dice.random()}", "$")
    found += query.run()
    assert found == list(range(added))


def test_a_batch_runs_again_although_its_last_entry_was_deleted(driver: Callable[..., Driver]) -> None:
    query = driver()
    query.server.fill("s", 10)
    start, end = query.plan()
    query.server.client.xdel("s", "1000009-0", "1000004-0")
    query.restart()
    assert query.read(start, end) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_the_group_of_a_query_is_reset_for_a_recreated_stream(driver: Callable[..., Driver]) -> None:
    query = driver(groupId="spark", failOnDataLoss="false", maxOffsetsPerTrigger="4")
    query.server.fill("s", 10)
    query.run()
    recreate(query.server, lower(8))
    start, end = query.plan()
    [group] = query.server.client.xinfo_groups("s")
    assert group["last-delivered-id"] == b"0-0", "no entry counts as read that was not"
    query.read(start, end)
    query.reader.commit(end)
    [group] = query.server.client.xinfo_groups("s")
    assert group["last-delivered-id"] == b"4-0"


# Offsets


def test_offsets_of_an_old_checkpoint_work_and_are_upgraded(driver: Callable[..., Driver]) -> None:
    query = driver()
    query.server.fill("s", 10)
    query.offsets = {"s": "1000004-0"}
    assert query.run() == list(range(5, 10))
    assert parse_position(query.offsets["s"]).entry_number == 10
    query.restart()
    query.offsets = {"s": "1000009-0"}
    assert query.run() == []
    assert parse_position(query.offsets["s"]).entry_number == 10, "also if there is nothing to read"
    recreate(query.server, higher(30))
    with pytest.raises(DataLoss, match="deleted and recreated"):
        query.run()


def test_an_old_offset_after_the_end_of_the_stream_is_a_loss(driver: Callable[..., Driver]) -> None:
    query = driver(failOnDataLoss="false")
    query.server.fill("s", 10)
    query.offsets = {"s": "2000000-0"}
    assert query.run() == list(range(10))


def test_offsets_of_a_checkpoint_work_as_starting_offsets(driver: Callable[..., Driver]) -> None:
    query = driver(maxOffsetsPerTrigger="4")
    query.server.fill("s", 10)
    _, end = query.plan()
    other = driver(startingOffsets=json.dumps(end))
    assert other.run() == [], "the start is pinned"
    assert other.run() == list(range(4, 10))


def test_offsets_cut_by_a_limit_are_numbered_and_fingerprinted(driver: Callable[..., Driver]) -> None:
    query = driver(maxOffsetsPerTrigger="4")
    query.server.fill("s", 10)
    start, end = query.plan()
    fields = {b"n": b"3", b"name": b"n3", b"half": b"1.5"}
    assert parse_positions(end) == {"s": Position("1000003-0", 4, True, entry_fingerprint(fields))}
    assert query.reader.latestOffset(start, ReadMaxRows(4)) == end, "the same offset is the same text"
    query.server.client.xdel("s", "1000001-0", "1000005-0")
    query.restart()
    _, further = query.reader, query.reader.latestOffset(end, ReadMaxRows(4))
    found = parse_position(further["s"])
    assert ids_by_stream({"s": found}) == {"s": "1000008-0"} and (
        found.entry_number,
        found.entry_number_is_exact,
    ) == (
        8,
        False,
    )


@pytest.mark.parametrize(
    "position",
    [
        Position("5-1"),
        Position("5-1", 7),
        Position("5-1", 7, False),
        Position("5-1", 7, True, "01234567"),
        Position("5-1", None, True, "01234567", 3),
        Position("0-0", generation=2),
    ],
)
def test_a_position_is_parsed_from_its_text(position: Position) -> None:
    assert parse_position(str(position)) == position


@pytest.mark.parametrize("text", ["", "x", "5-1:x", "5-1:7:zz", "5-1:1:01234567:2:3", "5:-1"])
def test_texts_that_are_not_positions_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not an entry ID"):
        parse_position(text)
