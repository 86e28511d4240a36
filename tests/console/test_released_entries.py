"""An entry released by XNACK has no owner and no delivery time, and none is shown."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import redis
from rich.console import Console

import headrace
from headrace.cli.commands.inspect import draw
from headrace.console.exposition import OLDEST_PENDING_METRIC, exposition
from headrace.console.server_stats import Request, ServerStats, collect_stats
from headrace.console.stream_snapshot import from_payload
from headrace.console.top_picture import StatsHistory, top_picture
from headrace.pipeline.trimming.horizon import group_blockers


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    """Of a database with a stream `s`, whose group `g` has one entry pending that nobody has."""
    with headrace.open() as db, db.client(protocol=2) as client:
        client.xadd("s", {"a": "b"}, "1-1")
        client.xgroup_create("s", "g", "0")
        client.xreadgroup("g", "ann", {"s": ">"})
        client.execute_command("XNACK", "s", "g", "FAIL", "IDS", 1, "1-1")
        yield client


def stats_of(client: redis.Redis) -> ServerStats:
    def ask(requests: list[Request]) -> list[object]:
        pipe = client.pipeline(transaction=False)
        for words in requests:
            pipe.execute_command(*(word.encode() if isinstance(word, str) else word for word in words))
        return pipe.execute(raise_on_error=False)

    return collect_stats(ask)


def drawn(picture: object) -> str:
    console = Console(width=140, file=io.StringIO(), record=True)
    console.print(picture)
    return console.export_text()


def test_metrics_and_top_show_no_age(client: redis.Redis) -> None:
    stats = stats_of(client)
    (group,) = stats.streams[0].groups
    assert (group.pending, group.oldest_pending_id, group.oldest_pending_idle_ms) == (1, b"1-1", None)
    assert OLDEST_PENDING_METRIC not in exposition(stats)
    history = StatsHistory()
    history.add(stats)
    (line,) = [
        line for line in drawn(top_picture(history, "here", "name", None)).splitlines() if " g " in line
    ]
    assert line.split()[-2:] == ["1", "-"]


def test_inspect_and_trim_show_that_the_entry_was_released(client: redis.Redis) -> None:
    snapshot = from_payload("s", "here", client.dump("s"))
    picture = drawn(draw(snapshot, "-1", 3, 12, ("groups",)))
    assert "unowned" in picture and "given back" in picture and " ago" not in picture
    (group,) = client.xinfo_groups("s")
    _, pending = group_blockers(client, "s", group)
    assert pending.reason == "group g: 1 pending, oldest 1-1 released and not claimed"
