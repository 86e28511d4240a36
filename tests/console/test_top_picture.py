"""What `headrace top` computes from two readings of any server."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from headrace.cli.commands.top import request_sender
from headrace.cli.main import main
from headrace.console.server_stats import GroupStats, ServerStats, StreamStats, collect_stats
from headrace.console.top_picture import (
    StatsHistory,
    loss_lines,
    server_lines,
    top_picture,
    unaccounted_bytes,
)

GROUP = GroupStats(b"billing", 2, 3, b"9-0", 90, 10)
STREAM = StreamStats(0, b"orders", 100, 5, 2, b"9-0", entries_added=100, groups=[GROUP], memory_bytes=2048)


def text(picture: object) -> str:
    console = Console(width=140, file=io.StringIO(), record=True)
    console.print(picture)
    return console.export_text()


def test_rates_are_computed_from_two_readings():
    history = StatsHistory()
    history.add(ServerStats(10.0, {"total_commands_processed": "1000"}, [STREAM]))
    assert history.added_rate(STREAM) is None and history.info_rate("total_commands_processed") is None
    later = replace(STREAM, entries_added=160, memory_bytes=None, groups=[replace(GROUP, entries_read=120)])
    history.add(ServerStats(12.0, {"total_commands_processed": "1500"}, [later]))
    assert history.info_rate("total_commands_processed") == 250
    assert history.added_rate(later) == 30
    assert history.group_read_rate(later, later.groups[0]) == 15
    assert history.memory_by_stream[0, b"orders"] == 2048  # of the last time that it was asked for


def test_unknown_values_and_reset_counters_are_a_dash():
    history = StatsHistory()
    history.add(ServerStats(10.0, {"total_commands_processed": "1000"}, [STREAM]))
    group = replace(GROUP, lag=None, entries_read=None)
    history.add(
        ServerStats(
            11.0, {"total_commands_processed": "3"}, [replace(STREAM, entries_added=1, groups=[group])]
        )
    )
    assert history.info_rate("total_commands_processed") is None
    line = next(
        line for line in text(top_picture(history, "here", "rate", None)).splitlines() if "billing" in line
    )
    assert line.split() == ["billing", "-", "2", "consumers", "-", "3", "-"]


def test_a_snapshot_that_is_being_written_is_shown():
    history = StatsHistory()
    info = {"rdb_bgsave_in_progress": "0", "aof_rewrite_in_progress": "0", "current_fork_perc": "0.00"}
    history.add(ServerStats(10.0, info))
    assert "snapshot" not in text(top_picture(history, "here", "rate", None))
    history.add(ServerStats(11.0, info | {"aof_rewrite_in_progress": "1", "current_fork_perc": "50.00"}))
    assert "rewrite of the log ▇▇▇▇▇▇▁▁▁▁▁▁  50%" in text(top_picture(history, "here", "rate", None))


def test_streams_are_sorted_and_those_that_do_not_fit_are_counted():
    streams = [replace(STREAM, key=b"%c" % (97 + n), length=n, groups=[]) for n in range(6)]
    history = StatsHistory()
    history.add(ServerStats(1.0, {}, streams, left_out_streams=4))
    lines = text(top_picture(history, "here", "length", 3)).splitlines()
    names = [line.split()[0] for line in lines if line[:1] in "abcdef" and line.strip()]
    assert names == ["f", "e", "d"]
    assert "7 streams more" in lines[-1]


def test_a_frame_shows_the_statistics_of_a_real_server(
    client, server_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "140")
    for n in range(1, 121):
        client.xadd("orders", {"a": n}, id=f"{n}-0")
    client.xgroup_create("orders", "billing", "0")
    client.xreadgroup("billing", "ann", {"orders": ">"}, count=20)
    client.set("no-stream", "x")
    with request_sender(server_url) as ask:
        stats = collect_stats(ask, memory=True)
    (stream,) = stats.streams
    (group,) = stream.groups
    assert (stream.key, stream.length, stream.entries_added, stream.radix_keys) == (b"orders", 120, 120, 2)
    assert stream.memory_bytes == client.memory_usage("orders")
    assert (group.pending, group.lag, group.oldest_pending_id) == (20, 100, b"1-0")
    assert [(member.name, member.pending) for member in group.consumer_stats] == [(b"ann", 20)]
    assert main(["top", "--once", "--every", "0.1", "--url", server_url]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["orders", "120"] for line in shown)
    assert any(
        line.split()[0] == "billing" and line.split()[2:6] == ["1", "consumer", "100", "20"]
        for line in shown
        if line.strip()
    )


def test_without_a_terminal_frames_are_printed_below_each_other(server_url: str):
    words = [sys.executable, "-m", "headrace", "top", "--every", "0.1", "--url", server_url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as top:
        late = threading.Timer(60, top.kill)
        late.start()
        assert top.stdout is not None and top.stderr is not None
        heads = (line for line in top.stdout if server_url in line)
        seen = [next(heads, "") for _ in range(3)]
        top.send_signal(signal.SIGINT)
        assert (top.stderr.read(), top.wait()) == ("", 0)
        late.cancel()
    assert all("redis" in line for line in seen)


def test_a_missing_server_prints_one_line(capsys: pytest.CaptureFixture[str]):
    assert main(["top", "--once", "--url", "redis://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["top", "--url", "cluster://127.0.0.1:1"]) == 2


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (40, ["entries", "lag"]),
        (60, ["entries", "per", "s", "lag", "pending", "oldest"]),
        (80, ["entries", "per", "s", "memory", "lag", "pending", "oldest"]),
        (120, ["entries", "per", "s", "memory", "lag", "pending", "oldest"]),
    ],
)
def test_a_narrow_console_drops_columns_and_keeps_names(width: int, titles: list[str]) -> None:
    names = [b"orders:europe", b"orders:america", b"payments"]
    group = replace(GROUP, name=b"billing-workers", oldest_pending_idle_ms=4200)
    streams = [replace(STREAM, key=name, length=1_471_210, groups=[group]) for name in names]
    history = StatsHistory()
    history.add(ServerStats(10.0, {}, streams))
    history.add(ServerStats(11.0, {}, [replace(stream, entries_added=12_510) for stream in streams]))
    console = Console(width=width, file=io.StringIO())
    console.print(top_picture(history, "redis://127.0.0.1:7777", "name", None))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("stream / group"))
    assert lines[head].split()[3:] == titles
    shown = [line.split()[0] for line in lines[head + 1 :] if line.strip()]
    expected = [[name.decode(), "billing-workers"] for name in sorted(names)]
    assert shown == [name for pair in expected for name in pair]
    assert all(len(line) <= width for line in lines)


def test_a_long_name_is_cut_only_as_far_as_the_console_needs() -> None:
    history = StatsHistory()
    history.add(ServerStats(10.0, {}, [replace(STREAM, key=b"n" * 30), replace(STREAM, key=b"m" * 30)]))
    for width, shown in ((120, "n" * 30), (40, "n" * 15)):
        console = Console(width=width, file=io.StringIO())
        console.print(top_picture(history, "here", "name", None))
        assert isinstance(console.file, io.StringIO)
        assert shown in console.file.getvalue()


def test_effects_of_rules_are_shown() -> None:
    history = StatsHistory()
    info = {"rules_streams": "2", "rules_removed_entries": "1200", "rules_dead_letters": "0"}
    history.add(ServerStats(10.0, info | {"scheduled_entries": "5"}, [STREAM]))
    shown = text(top_picture(history, "here", "rate", None))
    assert "rules of 2 streams   1,200 removed   5 scheduled" in shown and "dead letters" not in shown


def test_lost_entries_are_shown_if_there_are_any() -> None:
    stats = ServerStats(0.0, {})
    stream = StreamStats(0, b"orders", 1, 1, 1, b"9-0")
    stats.streams = [stream]
    for name in (b"billing", b"shipping", b"mail"):
        stream.groups.append(GroupStats(name, 1, 0, b"9-0", 9, 0))
    assert loss_lines(stats) == []
    stream.groups[0].lost_unread = 1200
    stream.groups[2].lost_unread, stream.groups[2].lost_pending = 34, 5
    (line,) = loss_lines(stats)
    assert line.plain == "lost by 2 groups   1,234 unread   5 pending"


def test_memory_that_no_account_explains_is_shown():
    info = {"used_memory": "1000000", "used_memory_rss": "50000000", "used_memory_rss_startup": "40000000"}
    stats = ServerStats(1.0, info)
    assert unaccounted_bytes(stats) == 9_000_000
    assert "not accounted" in server_lines(StatsHistory(), stats, "here").plain
    info["used_memory_rss"] = "41000000"
    assert unaccounted_bytes(stats) == 0
    assert "not accounted" not in server_lines(StatsHistory(), stats, "here").plain
