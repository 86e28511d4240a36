"""What `ls`, `top`, `inspect` and the metrics show of a stream whose oldest entries are in files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from rich.console import Console

import headrace
from headrace.cli.commands.inspect import draw, fetch_stream_snapshot
from headrace.cli.commands.ls import StreamSummary, summary_json_object
from headrace.console.exposition import exposition
from headrace.console.server_stats import ServerStats, StreamStats, stream_stats
from headrace.console.stream_snapshot import ColdStats, StreamSnapshot, from_file, from_payload
from headrace.console.top_picture import StatsHistory, top_picture
from headrace.errors import HeadraceError
from support.headrace_server import headrace_server
from support.waiting import wait_until

ENTRIES = 3000


def text(picture: object, width: int = 200) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(picture)
    return console.export_text()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[headrace.Database]:
    """A database with three quarters of a stream in files, and a log that refers to them."""
    path = tmp_path_factory.mktemp("cold")
    with headrace.open(path, fsync="no", hot_memory="60kb") as db:
        cold = db.backend.engine.cold_storage
        cold.run_bytes = 20_000
        for first in range(1, ENTRIES, 100):
            db.backend.request_all(
                [[b"XADD", b"s", b"%d-0" % n, b"text", b"x" * 50] for n in range(first, first + 100)]
            )
        wait_until(lambda: cold.data_bytes() <= 60 << 10)
        db.execute("XGROUP", "CREATE", "s", "g", "0")
        db.execute("XREADGROUP", "GROUP", "g", "ann", "COUNT", 5, "STREAMS", "s", ">")
        db.execute("XDEL", "s", "7-0")
        db.compact()
        yield db


@pytest.fixture
def base(database: headrace.Database) -> StreamSnapshot:
    [path] = Path(str(database.path), "appendonlydir").glob("*.base.rdb")
    return from_file("s", path, 0)


def test_a_cold_run_is_a_node_with_its_file_and_counts(base):
    runs = [pack for pack in base.packed_nodes if pack.cold_run is not None]
    assert len(runs) > 2
    assert sum(pack.live for pack in base.packed_nodes) == ENTRIES - 1
    memory_bytes = sum(run.cold_run.bytes_if_loaded for run in runs)
    assert base.cold_stats == ColdStats(sum(run.live for run in runs), memory_bytes, 1)
    drawn = text(draw(base, "0", 3, 5, ("tree",)))
    first = next(line for line in drawn.splitlines() if "▸ 1-0" in line)
    assert "1.cold" in first
    assert f"{runs[0].live} entries + 1 deleted" in first
    assert f"{runs[0].cold_run.inner_count()} nodes in " in first
    assert f"in files   {base.cold_stats.entries:,} entries, which would take" in drawn
    assert "of memory, in 1 file: 1.cold" in drawn


def test_the_chosen_node_may_be_a_cold_run(base):
    drawn = text(draw(base, "7-0", 3, 5, ("node", "groups")))
    assert "1-0: a cold run" in drawn
    assert "deleted since   1 entry" in drawn
    assert "2,994 entries not delivered yet" in drawn


def test_a_missing_file_is_an_error(base, database):
    [path] = Path(str(database.path), "appendonlydir").glob("*.base.rdb")
    moved = path.parent / "elsewhere"
    (path.parent / "cold").rename(moved)
    try:
        with pytest.raises(HeadraceError, match=r"cold/1\.cold.*missing"):
            from_file("s", path, 0)
    finally:
        moved.rename(path.parent / "cold")


def test_nodes_of_a_server_that_are_in_files_are_marked(database):
    snapshot = from_payload("s", "here", database.execute("DUMP", "s"), ColdStats(2000, 150_000, 2))
    assert snapshot.is_cold(0)
    assert not snapshot.is_cold(len(snapshot.packed_nodes) - 1)
    drawn = text(draw(snapshot, "0", 3, 5, ("tree",)))
    assert "in a file" in next(line for line in drawn.splitlines() if "▸ 1-0" in line)
    assert "in files   2,000 entries, which would take 146.5 KiB of memory, in 2 files" in drawn


def test_top_shows_a_column_and_a_line(database):
    reply = database.execute("XINFO", "STREAM", "s")
    about = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    stream = stream_stats(0, b"s", about)
    assert (stream.cold_entries, stream.cold_files) == (about["cold-entries"], 1)
    info = {"cold_entries": "2000", "cold_bytes": "150000", "cold_files": "2", "cold_stored_bytes": "9000"}
    info |= {"cold_cache_hits": "3", "cold_cache_misses": "1"}
    history = StatsHistory()
    history.add(ServerStats(1.0, info, [stream, StreamStats(0, b"hot", 1, 1, 1, b"1-0")]))
    drawn = text(top_picture(history, "here", "name", None))
    head = (
        "in files   2,000 entries of 146.5 KiB of memory   2 files of 8.8 KiB   75% of reads from the cache"
    )
    assert head in drawn
    assert f"{stream.cold_entries:,} (" in next(line for line in drawn.splitlines() if line.startswith("s "))
    history.add(ServerStats(2.0, info | {"cold_last_error": "no space left on device"}, []))
    assert "no others can be moved: no space left on device" in text(
        top_picture(history, "here", "name", None)
    )
    history.add(ServerStats(3.0, {}, [StreamStats(0, b"hot", 1, 1, 1, b"1-0")]))
    assert "in files" not in text(top_picture(history, "here", "name", None))


def test_the_metrics_are_there_if_something_is_in_files():
    hot = StreamStats(0, b"hot", 1, 1, 1, b"1-0")
    cold = StreamStats(0, b"cold", 9, 1, 1, b"9-0", cold_entries=8, cold_bytes=700, cold_files=1)
    lines = exposition(ServerStats(1.0, {"cold_entries": "8"}, [hot, cold])).splitlines()
    assert 'headrace_stream_cold_bytes{db="db0",stream="cold"} 700' in lines
    assert "redis_cold_entries 8" in lines
    assert not [line for line in lines if "headrace_stream_cold" in line and 'stream="hot"' in line]


def test_ls_prints_the_numbers():
    summary = StreamSummary(b"s", 9, "1-0", "9-0", 500, 0, 8, 700, 1)
    assert {
        name: value for name, value in summary_json_object(summary).items() if name.startswith("cold")
    } == {
        "cold_entries": 8,
        "cold_bytes": 700,
        "cold_files": 1,
    }


def test_inspect_names_the_cold_files_of_a_running_server(tmp_path: Path):
    options = ("--appendonly", "yes", "--stream-hot-memory", "60kb")
    with headrace_server(tmp_path, *options) as port, redis.Redis(port=port) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(1, ENTRIES + 1):
            pipe.xadd("s", {"text": "x" * 50}, id=f"{number}-0")
        pipe.execute()
        wait_until(lambda: client.info("memory")["cold_entries"] > 0)
        drawn = text(
            draw(fetch_stream_snapshot("s", f"redis://127.0.0.1:{port}", False), "0", 3, 5, ("tree",))
        )
    assert "of memory, in 1 file: 1.cold" in drawn
