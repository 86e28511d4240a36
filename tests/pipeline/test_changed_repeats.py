"""Loads and replays that are run again with other content, or into another stream, than before."""

from __future__ import annotations

import json
import pathlib
import shutil
from collections.abc import Iterator
from contextlib import nullcontext

import pyarrow as pa
import pytest

from headrace.client.servers import Servers
from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.pipeline.loading.load_rows import load_rows
from headrace.pipeline.loading.loader import LoadIdentity, LoadReport
from headrace.pipeline.loading.time_columns import TimeColumn
from headrace.pipeline.replaying.replay_entries import ReplayResult, replay_entries
from headrace.pipeline.replaying.source import ReplaySource
from headrace.pipeline.shared.pacing import ReplayPacer
from headrace.spark.source.data_loss import DataLoss
from support.archives import ArchiveMaker, Entry
from support.stream_server import StreamServer

TIMES = TimeColumn("at", is_field=False)
JOB = LoadIdentity("x", "rows.csv", 100)


@pytest.fixture
def link(stream_server: StreamServer) -> Iterator[Servers]:
    with Servers(stream_server.url, reconnect_timeout=0) as link:
        yield link


def rows(numbers: range, late: int = 0) -> pa.RecordBatch:
    """Return a row for each number; its time is the number in milliseconds, or `late` ms after it."""
    times = pa.array([n + late for n in numbers], pa.timestamp("ms"))
    return pa.RecordBatch.from_pydict({"at": times, "n": [str(n) for n in numbers]})


def numbers(server: StreamServer, stream: str) -> list[int]:
    """Return the numbers of the entries; those of other producers have none."""
    return [int(fields[b"n"]) for _, fields in server.client.xrange(stream) if b"n" in fields]


def load_in_part(link: Servers, times: TimeColumn | None) -> None:
    """Load the first of 100 rows, at least 50."""

    def stop(report: LoadReport) -> None:
        if report.loaded >= 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_rows([rows(range(1, 101))], times, link, "s", job=JOB, rows_per_batch=10, on_progress=stop)


def test_a_file_with_other_times_of_loaded_rows_is_not_resumed(
    stream_server: StreamServer, link: Servers
) -> None:
    load_in_part(link, TIMES)
    loaded = numbers(stream_server, "s")
    assert 50 <= len(loaded) < 100
    with pytest.raises(UsageError, match=r"the times of the first \d+ rows of rows.csv are not those"):
        load_rows([rows(range(1, 101), late=7)], TIMES, link, "s", job=JOB, resume=True)
    assert numbers(stream_server, "s") == loaded
    load_rows([rows(range(1, 101))], TIMES, link, "s", job=JOB, resume=True)
    assert numbers(stream_server, "s") == list(range(1, 101))


def test_times_are_not_compared_if_they_do_not_give_the_ids_of_all_rows(
    stream_server: StreamServer, link: Servers
) -> None:
    times = TimeColumn("at", is_field=True)
    load_in_part(link, times)
    load_rows([rows(range(1, 101))], None, link, "s", job=JOB, resume=True)
    assert numbers(stream_server, "s") == list(range(1, 101))
    soon = (int(stream_server.client.time()[0]) + 3600) * 1000
    later = pa.RecordBatch.from_pydict({"at": pa.array([soon], pa.timestamp("ms")), "n": ["101"]})
    for _ in range(2):
        load_rows([rows(range(1, 101)), later], times, link, "s", job=JOB, resume=True)
    assert numbers(stream_server, "s") == list(range(1, 102))


def test_the_marker_of_an_earlier_version_without_times_is_accepted(
    stream_server: StreamServer, link: Servers
) -> None:
    load_in_part(link, TIMES)
    [key] = stream_server.client.keys("*headrace:load*")
    members = json.loads(stream_server.client.get(key))
    assert members.pop("times") and members.pop("process")
    stream_server.client.set(key, json.dumps(members))
    load_rows([rows(range(1, 101))], TIMES, link, "s", job=JOB, resume=True)
    assert numbers(stream_server, "s") == list(range(1, 101))


def test_a_load_does_not_continue_one_that_began_at_the_same_time(
    stream_server: StreamServer, link: Servers
) -> None:
    def read_late() -> Iterator[pa.RecordBatch]:
        load_rows([rows(range(30))], None, link, "s", job=JOB)
        yield rows(range(100, 150))

    with pytest.raises(CommandError, match=r"another process has started the same load into 's'"):
        load_rows(read_late(), None, link, "s", job=JOB)
    assert numbers(stream_server, "s") == list(range(30))


@pytest.mark.parametrize("times", [None, TIMES])
def test_a_load_is_not_resumed_into_a_stream_that_was_recreated(
    stream_server: StreamServer, link: Servers, times: TimeColumn | None
) -> None:
    load_in_part(link, times)
    stream_server.client.delete("s")
    stream_server.add("s", [(f"0-{seq}", {"other": 1}) for seq in range(1, 200 if times else 2)])
    found = "it ends at 0-199, and row" if times else "it has had only 1 entry"
    with pytest.raises(HeadraceError, match=f"loaded into stream 's', but {found}"):
        load_rows([rows(range(1, 101))], times, link, "s", job=JOB, resume=True)
    assert numbers(stream_server, "s") == []
    load_rows([rows(range(1, 101))], times, link, "s", job=JOB, append=True)
    assert numbers(stream_server, "s") == list(range(1, 101))


def entries(count: int, text: str = "a") -> list[Entry]:
    return [(f"{1_577_836_800_000 + n}-0", {"n": n, "t": text}) for n in range(count)]


class Slices(ReplayPacer):
    """A pacer that sends batches of 10 entries without delay."""

    def __init__(self) -> None:
        super().__init__(None)

    def due_slices(self, times: list[int]):  # type: ignore[no-untyped-def]
        yield from ((at, min(at + 10, len(times))) for at in range(0, len(times), 10))


def replay_first(source: ReplaySource, url: str, complete: bool) -> None:
    """Replay all entries, or the first ones: at least 50."""

    def stop(now: ReplayResult) -> None:
        if now.added >= 50 and not complete:
            raise KeyboardInterrupt

    with nullcontext() if complete else pytest.raises(KeyboardInterrupt):
        replay_entries(source, url, "t", name="x", pacer=Slices(), on_progress=stop)


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("others", [entries(100, "b"), entries(99)])
def test_a_replay_of_a_recreated_stream_is_not_continued(
    stream_server: StreamServer, others: list[Entry], complete: bool
) -> None:
    stream_server.add("s", entries(100))
    source = ReplaySource("s", stream_server.url)
    replay_first(source, stream_server.url, complete)
    there = stream_server.client.xrange("t")
    stream_server.client.delete("s")
    stream_server.add("s", others)
    with pytest.raises(DataLoss, match=r"since this replay began: it had entries up to .*--restart replays"):
        replay_entries(source, stream_server.url, "t", name="x")
    assert stream_server.client.xrange("t") == there
    stream_server.client.delete("t")
    replay_entries(source, stream_server.url, "t", name="x", restart=True)
    assert stream_server.client.xrange("t") == stream_server.client.xrange("s")


@pytest.mark.parametrize("complete", [True, False])
def test_a_replay_continues_after_entries_were_added_trimmed_and_deleted(
    stream_server: StreamServer, complete: bool
) -> None:
    some = entries(100)
    stream_server.add("s", some)
    source = ReplaySource("s", stream_server.url)
    replay_first(source, stream_server.url, complete)
    done = stream_server.client.xlen("t")
    stream_server.client.xtrim("s", minid=some[done - 1][0], approximate=False)
    if complete:
        stream_server.client.xdel("s", some[-1][0])
    stream_server.client.xadd("s", {"n": 100}, id="1577836900000-0")
    assert replay_entries(source, stream_server.url, "t", name="x").was_complete is complete
    assert numbers(stream_server, "t") == list(range(100))


@pytest.mark.parametrize("complete", [True, False])
def test_a_replay_of_an_archive_that_was_replaced_is_not_continued(
    stream_server: StreamServer, tmp_path: pathlib.Path, complete: bool
) -> None:
    ArchiveMaker(tmp_path / "archive").add("s", entries(100))
    source = ReplaySource("s", None, tmp_path / "archive")
    replay_first(source, stream_server.url, complete)
    done = numbers(stream_server, "t")
    shutil.rmtree(tmp_path / "archive")
    ArchiveMaker(tmp_path / "archive").add("s", entries(100, "b"))
    with pytest.raises(DataLoss, match=r"another archive is in .*--restart replays"):
        replay_entries(source, stream_server.url, "t", name="x")
    assert numbers(stream_server, "t") == done


def test_a_replay_does_not_continue_one_that_began_at_the_same_time(stream_server: StreamServer) -> None:
    stream_server.add("s", entries(100))
    source = ReplaySource("s", stream_server.url)
    begun = False

    def run_another(now: ReplayResult) -> None:
        nonlocal begun
        if not begun:
            begun = True
            replay_entries(source, stream_server.url, "t", name="x", upto=entries(30)[-1][0], keep_ids=False)

    with pytest.raises(CommandError, match="another process has started the same replay"):
        replay_entries(source, stream_server.url, "t", name="x", keep_ids=False, on_progress=run_another)
    assert numbers(stream_server, "t") == list(range(30))


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_a_replay_into_a_stream_that_was_recreated_is_not_continued(
    stream_server: StreamServer, complete: bool, keep: bool
) -> None:
    stream_server.add("s", entries(100))
    source = ReplaySource("s", stream_server.url)
    if not keep:
        stream_server.client.xadd("t", {"other": 1})
    replay_first(source, stream_server.url, complete)
    stream_server.client.delete("t")
    stream_server.add("t", [(f"0-{seq}", {"other": 1}) for seq in range(1, 200 if keep else 2)])
    found = "it ends at 0-199" if keep else "it has had only 1 entry"
    with pytest.raises(HeadraceError, match=f"replayed into stream 't', but {found}.*--restart"):
        replay_entries(source, stream_server.url, "t", name="x")
    assert numbers(stream_server, "t") == []
    replay_entries(source, stream_server.url, "t", name="x", restart=True)
    assert numbers(stream_server, "t") == list(range(100))


def test_the_position_of_an_earlier_version_without_the_source_is_accepted(
    stream_server: StreamServer,
) -> None:
    stream_server.add("s", entries(100))
    source = ReplaySource("s", stream_server.url)
    replay_first(source, stream_server.url, complete=False)
    [key] = stream_server.client.keys("*headrace:replay*")
    words = stream_server.client.get(key).split(b" ")
    assert len(words) == 5
    stream_server.client.set(key, words[0])
    replay_entries(source, stream_server.url, "t", name="x")
    assert numbers(stream_server, "t") == list(range(100))
    assert stream_server.client.get(key).split(b":done ")[1].split(b" ")[1:] == [b"100", b"-", b"-"]
