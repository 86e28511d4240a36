"""Replays: order, position, speed, and interruptions."""

from __future__ import annotations

import pathlib
import random

import pyarrow as pa
import pytest

from headrace.archive.files import read_archive
from headrace.archive.ordered_reader import entries_in_order, overlapping_row_groups
from headrace.errors import CommandError, UsageError
from headrace.pipeline.replaying.replay_entries import ReplayResult, replay_entries
from headrace.pipeline.replaying.source import MAX_ID, ReplaySource, id_before, last_included_id
from headrace.pipeline.shared.pacing import RateLimiter, ReplayPacer
from headrace.positions.entry_ids import parse_id
from headrace.spark.source.data_loss import DataLoss
from support.archives import ArchiveMaker, Entry
from support.stream_server import StreamServer

FIRST = 1_577_836_800_000  # 2020-01-01


def entries(count: int, step: int = 60_000, first: int = FIRST) -> list[Entry]:
    return [(f"{first + n // 2 * step}-{n % 2}", {"n": n, "t": f"text {n}"}) for n in range(count)]


def entries_of(server: StreamServer, stream: str) -> list[Entry]:
    """Return the entries of a stream; numeric values as numbers."""
    return [
        (i.decode(), {k.decode(): int(v) if v.isdigit() else v.decode() for k, v in fields.items()})
        for i, fields in server.client.xrange(stream)
    ]


def numbers(server: StreamServer, stream: str) -> list[int]:
    return [int(fields[b"n"]) for _, fields in server.client.xrange(stream)]


def test_a_live_range_is_replayed_with_its_ids_into_an_empty_stream(stream_server: StreamServer) -> None:
    some = entries(5000)
    stream_server.add("a", some)
    source = ReplaySource("a", stream_server.url)
    report = replay_entries(source, stream_server.url, "b", name="x", after=some[99][0], upto=some[4000][0])
    assert entries_of(stream_server, "b") == some[100:4001]
    assert (report.added, report.ids_kept) == (3901, True)
    assert (report.first_id, report.last_id) == (some[100][0], some[4000][0])
    [key] = stream_server.client.keys("*headrace*")
    assert key == b"{b}:headrace:replay:x" and stream_server.client.pttl(key) > 0


def test_bytes_that_are_not_utf8_are_copied_unchanged(stream_server: StreamServer) -> None:
    stream_server.client.xadd("a", {b"\xff\x00": b"\xfe", "empty": b""}, id="5-5")
    replay_entries(ReplaySource("a", stream_server.url), stream_server.url, "b", name="x")
    assert stream_server.client.xrange("b") == stream_server.client.xrange("a")


@pytest.mark.parametrize("repeated", [0, 7, 99])
def test_an_archive_with_a_duplicate_id_is_replayed_only_under_new_ids(
    stream_server: StreamServer, tmp_path: pathlib.Path, repeated: int
) -> None:
    some = entries(100)
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", some)
    maker.add("s", [(some[repeated][0], {"n": 1, "t": "recreated"})])
    source = ReplaySource("s", None, maker.directory)
    with pytest.raises(UsageError, match=rf"^entry {some[repeated][0]} is in the archive twice, .*--new-ids"):
        replay_entries(source, stream_server.url, "b", name="x")
    report = replay_entries(source, stream_server.url, "c", name="x", keep_ids=False)
    assert report.added == 101 == len(entries_of(stream_server, "c"))


def test_archive_and_live_stream_are_replayed_as_one(
    stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    some = entries(3000, step=3 * 3600 * 1000)
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", some[:1000])
    maker.add("s", some[1000:2000])
    maker.add("s", some[:500], committed=False)
    maker.add("other", some)
    stream_server.add("s", some[1500:])  # a part is in both, a part no longer live
    replay_entries(
        ReplaySource("s", stream_server.url, tmp_path / "archive"), stream_server.url, "again", name="x"
    )
    assert entries_of(stream_server, "again") == some

    replay_entries(ReplaySource("s", None, tmp_path / "archive"), stream_server.url, "archived", name="x")
    assert entries_of(stream_server, "archived") == some[:2000]


def test_a_typed_archive_is_replayed_as_fields_without_nulls(
    stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.string()), ("x", pa.float64())])
    some: list[Entry] = [("7-1", {"n": 1, "t": "a"}), ("8-0", {"n": 2, "x": 0.5})]
    maker = ArchiveMaker(tmp_path / "archive", schema)
    maker.add("s", some)
    for keep in (True, False):
        replay_entries(
            ReplaySource("s", None, tmp_path / "archive"),
            stream_server.url,
            f"{keep}",
            name="x",
            keep_ids=keep,
        )
    assert stream_server.client.xrange("True") == [
        (b"7-1", {b"n": b"1", b"t": b"a"}),
        (b"8-0", {b"n": b"2", b"x": b"0.5"}),
    ]
    assert numbers(stream_server, "False") == [1, 2]
    assert stream_server.client.xrange("False")[0][0] != b"7-1"


def test_a_stream_replayed_into_itself_ends_at_its_last_entry_at_the_start(
    stream_server: StreamServer,
) -> None:
    stream_server.add("a", entries(2500))
    source = ReplaySource("a", stream_server.url)
    report = replay_entries(source, stream_server.url, "a", name="x", keep_ids=False, into_itself=True)
    assert (report.added, report.ids_kept) == (2500, False)
    assert numbers(stream_server, "a") == [*range(2500), *range(2500)]


@pytest.mark.parametrize("kept", [100, 30, 0])
def test_an_archive_is_replayed_into_its_existing_stream_only_under_new_ids(
    stream_server: StreamServer, tmp_path: pathlib.Path, kept: int
) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("a", entries(100))
    stream_server.add("a", entries(100))
    stream_server.client.xtrim("a", maxlen=kept, approximate=False)
    source = ReplaySource("a", None, maker.directory)
    for restart in (False, True):
        with pytest.raises(UsageError, match=r"^--into a is the stream itself, .*--new-ids adds its entries"):
            replay_entries(source, stream_server.url, "a", name="x", into_itself=True, restart=restart)
    assert numbers(stream_server, "a") == list(range(100 - kept, 100))
    report = replay_entries(source, stream_server.url, "a", name="x", keep_ids=False, into_itself=True)
    assert (report.added, report.ids_kept) == (100, False)


@pytest.mark.parametrize("recreated", [False, True])
def test_a_deleted_stream_is_restored_from_its_archive_once(
    stream_server: StreamServer, tmp_path: pathlib.Path, recreated: bool
) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("a", entries(700))
    if recreated:
        stream_server.client.xgroup_create("a", "g", "$", mkstream=True)
    source = ReplaySource("a", None, maker.directory)
    with pytest.raises(KeyboardInterrupt):
        replay_entries(
            source, stream_server.url, "a", name="x", pacer=Slices(), on_progress=break_off, into_itself=True
        )
    assert len(numbers(stream_server, "a")) < 700
    assert replay_entries(source, stream_server.url, "a", name="x", into_itself=True).ids_kept
    assert replay_entries(source, stream_server.url, "a", name="x", into_itself=True).was_complete
    with pytest.raises(UsageError, match="is the stream itself"):
        replay_entries(source, stream_server.url, "a", name="x", into_itself=True, restart=True)
    assert entries_of(stream_server, "a") == entries(700)


def test_ids_that_cannot_be_kept_are_rejected_before_anything_is_added(stream_server: StreamServer) -> None:
    stream_server.add("a", entries(10))
    stream_server.add("b", [("9999999999999-0", {"n": 1})])
    with pytest.raises(UsageError, match="up to 9999999999999-0"):
        replay_entries(ReplaySource("a", stream_server.url), stream_server.url, "b", name="x", keep_ids=True)
    assert stream_server.client.xlen("b") == 1
    with pytest.raises(UsageError, match="no stream 'missing'"):
        replay_entries(ReplaySource("missing", stream_server.url), stream_server.url, "b", name="x")


@pytest.mark.parametrize("keep", [True, False])
def test_an_interrupted_replay_continues_from_its_position(
    stream_server: StreamServer, tmp_path: pathlib.Path, keep: bool
) -> None:
    some = entries(9000, step=600_000)
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", some[:6000])
    stream_server.add("s", some[6000:])
    source = ReplaySource("s", stream_server.url, tmp_path / "archive")
    stops = [2500, 3000, 7500]
    for stop in stops:

        def break_off_there(now: ReplayResult, stop: int = stop) -> None:
            if now.last_id and parse_id(now.last_id) >= parse_id(some[stop][0]):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            replay_entries(
                source,
                stream_server.url,
                "t",
                name="x",
                keep_ids=keep,
                pacer=Slices(),
                on_progress=break_off_there,
            )
        assert stop < stream_server.client.xlen("t") < 9000
    stream_server.add("s", [("9999999999999-0", {"n": -1})])  # comes after the end that was fixed
    report = replay_entries(source, stream_server.url, "t", name="x", keep_ids=keep)
    assert report.resumed_after
    assert numbers(stream_server, "t") == list(range(9000))
    if keep:
        assert entries_of(stream_server, "t") == some


def test_entries_trimmed_while_a_replay_is_interrupted_are_reported(stream_server: StreamServer) -> None:
    some = entries(3000)
    stream_server.add("s", some)

    source = ReplaySource("s", stream_server.url)
    with pytest.raises(KeyboardInterrupt):
        replay_entries(source, stream_server.url, "t", name="x", pacer=Slices(), on_progress=break_off)
    there = stream_server.client.xlen("t")
    stream_server.client.xtrim("s", minid=some[2000][0], approximate=False)
    with pytest.raises(
        DataLoss, match=f"first entry there is {some[2000][0]}. To replay the remaining entries"
    ):
        replay_entries(source, stream_server.url, "t", name="x")
    assert stream_server.client.xlen("t") == there
    replay_entries(source, stream_server.url, "t", name="y", after=id_before(some[2000][0]), keep_ids=True)
    assert entries_of(stream_server, "t") == some[:there] + some[2000:]


def break_off(now: ReplayResult) -> None:
    """Raise KeyboardInterrupt after 500 entries."""
    if now.added >= 500:
        raise KeyboardInterrupt


class Slices(ReplayPacer):
    """A pacer that sends batches of 100 entries without delay."""

    def __init__(self) -> None:
        super().__init__(None)

    def due_slices(self, times: list[int]):  # type: ignore[no-untyped-def]
        yield from ((at, min(at + 100, len(times))) for at in range(0, len(times), 100))


def test_restart_begins_again_and_a_new_name_is_a_new_replay(stream_server: StreamServer) -> None:
    some = entries(1000)
    stream_server.add("a", some)

    source = ReplaySource("a", stream_server.url)
    with pytest.raises(KeyboardInterrupt):
        replay_entries(
            source, stream_server.url, "b", name="x", keep_ids=False, pacer=Slices(), on_progress=break_off
        )
    first = stream_server.client.xlen("b")
    assert 500 <= first < 1000
    replay_entries(source, stream_server.url, "b", name="x", keep_ids=False, restart=True)
    replay_entries(source, stream_server.url, "b", name="y", keep_ids=False)
    assert numbers(stream_server, "b") == [*range(first), *range(1000), *range(1000)]


@pytest.mark.parametrize("keep", [True, False])
def test_a_complete_replay_adds_nothing_when_it_is_run_again(stream_server: StreamServer, keep: bool) -> None:
    some = entries(700)
    stream_server.add("a", some)
    source = ReplaySource("a", stream_server.url)
    with pytest.raises(KeyboardInterrupt):
        replay_entries(
            source, stream_server.url, "b", name="x", keep_ids=keep, pacer=Slices(), on_progress=break_off
        )
    for _ in range(2):
        report = replay_entries(source, stream_server.url, "b", name="x", keep_ids=keep)
    assert (report.added, report.was_complete, report.has_newer_entries, report.upto) == (
        0,
        True,
        False,
        some[-1][0],
    )
    assert numbers(stream_server, "b") == list(range(700))

    stream_server.add("a", [("9999999999999-0", {"n": 700})])
    report = replay_entries(source, stream_server.url, "b", name="x")
    assert (report.added, report.was_complete, report.has_newer_entries) == (0, True, True)
    replay_entries(source, stream_server.url, "b", name="y", after=report.upto)
    assert numbers(stream_server, "b") == list(range(701))

    report = replay_entries(source, stream_server.url, "b", name="x", keep_ids=False, restart=True)
    assert (report.added, report.was_complete) == (701, False)
    assert numbers(stream_server, "b") == [*range(701), *range(701)]


@pytest.mark.parametrize("complete", [True, False])
def test_a_replay_whose_target_was_deleted_begins_again(stream_server: StreamServer, complete: bool) -> None:
    stream_server.add("a", entries(700))
    source = ReplaySource("a", stream_server.url)
    if complete:
        replay_entries(source, stream_server.url, "b", name="x")
    else:
        with pytest.raises(KeyboardInterrupt):
            replay_entries(source, stream_server.url, "b", name="x", pacer=Slices(), on_progress=break_off)
    stream_server.client.delete("b")
    report = replay_entries(source, stream_server.url, "b", name="x")
    assert (report.added, report.target_was_deleted, report.was_complete) == (700, True, False)
    assert numbers(stream_server, "b") == list(range(700))


def test_an_empty_replay_is_rejected_or_leaves_no_marker(stream_server: StreamServer) -> None:
    stream_server.add("a", entries(2))
    source = ReplaySource("a", stream_server.url)
    with pytest.raises(UsageError, match="no entry can be after 9-0 and up to 8-0"):
        replay_entries(source, stream_server.url, "b", name="x", after="9-0", upto="8-0")
    assert replay_entries(source, stream_server.url, "b", name="x", upto="8-0").added == 0
    assert stream_server.client.keys("*headrace*") == []


def test_an_invalid_position_is_reported(stream_server: StreamServer) -> None:
    stream_server.add("a", entries(1))
    stream_server.client.set("{b}:headrace:replay:x", "nonsense")
    with pytest.raises(CommandError, match="nonsense"):
        replay_entries(ReplaySource("a", stream_server.url), stream_server.url, "b", name="x")


@pytest.mark.parametrize("seed", range(4))
def test_entries_of_files_in_any_order_are_read_in_order(tmp_path: pathlib.Path, seed: int) -> None:
    dice = random.Random(seed)
    some = entries(2000, step=900_000)
    maker = ArchiveMaker(tmp_path)
    left = some
    while left:
        size = dice.randrange(1, 400)
        batch, left = left[:size], left[size:]
        if dice.random() < 0.3:
            dice.shuffle(batch)
        shift = dice.choice([0, 0, -12, 14])
        maker.add("s", batch[::2], shift_hours=shift, group_rows=dice.choice([7, 50, 1000]))
        maker.add("s", batch[1::2], shift_hours=dice.choice([0, 14]))
    archive = read_archive(maker.location)
    after, upto = some[dice.randrange(900)][0], some[dice.randrange(1000, 2000)][0]
    got = [
        row["id"]
        for batch in entries_in_order(archive.files, archive.columns, after, upto)
        for row in batch.to_pylist()
    ]
    assert got == [i for i, _ in some if parse_id(after) < parse_id(i) <= parse_id(upto)]
    assert sum(len(cluster) for cluster in overlapping_row_groups(archive.files)) >= len(archive.files)


def test_replayed_entries_are_sent_when_they_are_due() -> None:
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = ReplayPacer(10, clock=lambda: now[0], sleep=sleep)
    gone: list[tuple[float, int]] = []
    times = [0, 0, 100, 5000, 5100, 60_000]
    for start, stop in pace.due_slices(times):
        gone += [(now[0] - 100, times[row]) for row in range(start, stop)]
    assert [time for _, time in gone] == times
    for at, time in gone:
        assert at == pytest.approx(time / 10_000, abs=0.021)
    assert max(slept) <= 0.1
    assert list(ReplayPacer(None).due_slices([1, 5, 9])) == [(0, 3)]


def test_a_rate_spreads_rows_evenly() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    rate = RateLimiter(500, clock=lambda: now[0], sleep=sleep)
    rows = 0
    while rows < 5000:
        rate.wait(rate.batch_rows(2000))
        rows += rate.batch_rows(2000)
        assert rows <= 500 * (now[0] + 0.1) + 1e-6
    assert now[0] == pytest.approx(10, abs=0.2)
    assert (rate.batch_rows(2000), RateLimiter(3).batch_rows(2000), RateLimiter(None).batch_rows(2000)) == (
        50,
        1,
        2000,
    )


def test_bounds_are_ids_or_times() -> None:
    assert id_before("1577836800000-5") == "1577836800000-4"
    assert id_before("2020-01-01") == id_before("1577836800000") == "1577836799999-18446744073709551615"
    assert id_before("2020-01-01T01:00+01:00") == id_before("2020-01-01")
    assert id_before("0-0") == "0-0"
    assert last_included_id("1577836800000-5") == "1577836800000-5"
    assert last_included_id("1577836800000") == "1577836800000-18446744073709551615"
    assert last_included_id("2020-01-01") == "1577836799999-18446744073709551615"
    assert parse_id(MAX_ID) > parse_id(last_included_id("9999-12-31"))
    for wrong in ("soon", "1-2-3", "1960-01-01", "99999999999999999999-0"):
        with pytest.raises(UsageError):
            id_before(wrong)
