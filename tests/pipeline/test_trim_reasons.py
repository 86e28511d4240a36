"""What trimming removes, what it keeps, and the reasons that it reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from headrace.archive.watermark import (
    Watermark,
    lower_watermark,
    lowest_published_id,
    published_watermarks,
    raise_watermark,
    watermark_key,
)
from headrace.archive.watermark_release import delete_watermarks, iter_watermarks
from headrace.client.servers import servers_at
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.shared.durations import format_duration, parse_duration_ms
from headrace.pipeline.trimming import horizon as trim_horizon
from headrace.pipeline.trimming import trim_streams as trim_module
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import TrimResult, trim_stream, trim_streams
from headrace.positions.position import Position
from pipeline.trim_world import Disturbed
from support.archives import ArchiveMaker, entries_at, publish, watermark
from support.headrace_server import headrace_server


@pytest.fixture(scope="module", params=["redis", "headrace"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "redis":
        yield int(urlsplit(request.getfixturevalue("server_url")).port or 0)
    else:
        with headrace_server() as port:
            yield port


@pytest.fixture
def server(port: int) -> Iterator[redis.Redis]:
    """A server with a stream `s` of 1-0 to 1000-0."""
    with redis.Redis(port=port, decode_responses=True) as client:
        client.flushall()
        with client.pipeline(transaction=False) as pipe:
            for n in range(1, 1001):
                pipe.xadd("s", {"n": n}, f"{n}-0")
            pipe.execute()
        yield client


def trimmed(port: int, *streams: str, **how: object) -> TrimResult:
    return trim_streams(f"redis://127.0.0.1:{port}", streams or ["s"], **how)[0]  # type: ignore[arg-type]


def test_trimming_stops_at_the_lowest_blocker_and_keeps_its_entry(port: int, server: redis.Redis) -> None:
    publish(server, "s", "700-0")
    server.xgroup_create("s", "mail", "500-0")
    server.xgroup_create("s", "billing", "0")
    server.xreadgroup("billing", "worker-3", {"s": ">"}, count=900)
    server.xack("s", "billing", *(f"{n}-0" for n in range(1, 901) if n not in (300, 310)))
    done = trimmed(port)
    assert (done.removed, done.remaining) == (299, 701)
    assert server.xrange("s", count=1)[0][0] == "300-0"
    assert done.reasons[0].startswith("group billing: 2 pending, oldest 300-0 held by worker-3 for ")
    assert done.reasons[1].startswith("group mail has read up to 500-0")
    assert done.reasons[2:] == (
        "archived up to 700-0 in /lake/main",
        "group billing has read up to 900-0, 100 entries behind",
    )
    server.xack("s", "billing", "300-0", "310-0")
    assert (trimmed(port).removed, trimmed(port).removed) == (200, 0)
    server.xgroup_setid("s", "mail", "950-0")
    done = trimmed(port)
    assert (done.removed, done.reasons[0]) == (200, "archived up to 700-0 in /lake/main")
    assert server.xrange("s", count=1)[0][0] == "700-0"


def test_a_dry_run_removes_nothing_and_counts_removable_entries(
    port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim_module, "PAGE_ENTRIES", 64)
    publish(server, "s", "700-0")
    server.xgroup_create("s", "g", "$")
    done = trimmed(port, dry_run=True)
    assert (done.removed, done.remaining, done.is_lower_bound) == (699, 301, False)
    assert server.xlen("s") == 1000


def test_counting_by_reading_stops_at_a_limit(
    port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim_module, "PAGE_ENTRIES", 50)
    monkeypatch.setattr(trim_module, "COUNT_MAX", 100)
    publish(server, "s", "700-0")
    server.xgroup_create("s", "g", "$")
    done = trimmed(port, dry_run=True)
    assert (done.removed, done.is_lower_bound) in [(100, True), (699, False)]


def test_large_streams_are_trimmed_in_steps(
    port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim_module, "STEP_ENTRIES_MAX", 200)
    publish(server, "s", "990-0")
    server.xgroup_create("s", "g", "$")
    steps: list[int] = []
    done = trimmed(port, on_progress=lambda stream, n: steps.append(n))
    assert done.removed == sum(steps) == 989
    assert len(steps) > 3 and max(steps[:-1]) <= 200


def test_the_retention_policy_keeps_entries(
    port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim_horizon, "PAGE_ENTRIES", 64)
    publish(server, "s", "990-0")
    server.xgroup_create("s", "g", "$")
    monkeypatch.setattr(trim_horizon.time, "time", lambda: 1.0)
    assert (
        trimmed(port, retention=RetentionPolicy(keep_ms=400)).reasons[0]
        == "entries of the last 400 ms are kept"
    )
    assert server.xrange("s", count=1)[0][0] == "600-0"
    done = trimmed(port, retention=RetentionPolicy(keep_entries=150))
    assert (done.removed, done.remaining, done.reasons[0]) == (251, 150, "the newest 150 entries are kept")
    assert trimmed(port, retention=RetentionPolicy(keep_entries=5000)).removed == 0


def test_without_an_archive_or_groups_nothing_is_removed(port: int, server: redis.Redis) -> None:
    server.xgroup_create("s", "g", "$")
    assert trimmed(port).reasons[0] == "the stream is not archived (run headrace archive first)"
    publish(server, "s", "700-0")
    server.xgroup_destroy("s", "g")
    done = trimmed(port)
    assert done.removed == 0 and "no consumer group (--no-groups-ok" in done.reasons[0]
    assert trimmed(port, retention=RetentionPolicy(allow_no_groups=True)).removed == 699


def test_a_recreated_stream_is_not_trimmed_by_the_old_watermark(port: int, server: redis.Redis) -> None:
    publish(server, "s", "700-5")
    done = trimmed(port, retention=RetentionPolicy(allow_no_groups=True))
    assert done.removed == 0
    assert done.reasons[0].startswith("the last entry in /lake/main, 700-5, is not in the stream")
    server.delete("s")
    server.xadd("s", {"n": 1}, "5-0")
    assert trimmed(port, retention=RetentionPolicy(allow_no_groups=True)).removed == 0


def test_a_given_archive_decides_instead_of_the_watermark(
    tmp_path: Path, port: int, server: redis.Redis
) -> None:
    maker = ArchiveMaker(tmp_path / "x")
    maker.add("s", entries_at(*((n, 0) for n in range(1, 301))))
    maker.add("s", entries_at(*((n, 0) for n in range(301, 501))), committed=False)
    publish(server, "s", "900-0")
    done = trimmed(port, archive=maker.directory, retention=RetentionPolicy(allow_no_groups=True))
    assert (done.removed, done.reasons[0]) == (299, f"archived up to 300-0 in {maker.directory}")
    server.xadd("t", {"n": 1})
    assert (
        trimmed(port, "t", archive=maker.directory, retention=RetentionPolicy(allow_no_groups=True)).removed
        == 0
    )


def test_trimming_goes_to_the_least_of_all_archives(tmp_path: Path, port: int, server: redis.Redis) -> None:
    anyway = RetentionPolicy(allow_no_groups=True)
    publish(server, "s", "700-0", "first")
    publish(server, "s", "900-0", "second")
    done = trimmed(port, retention=anyway)
    assert (done.removed, done.remaining) == (699, 301)
    assert done.reasons == ("archived up to 700-0 in /lake/first", "archived up to 900-0 in /lake/second")
    maker = ArchiveMaker(tmp_path / "third")
    maker.add("s", entries_at(*((n, 0) for n in range(750, 801))))
    assert trimmed(port, archive=maker.directory, retention=anyway).removed == 0
    publish(server, "s", "950-0", "first")
    done = trimmed(port, archive=maker.directory, retention=anyway)
    assert (done.removed, done.reasons[0]) == (100, f"archived up to 800-0 in {maker.directory}")
    assert trimmed(port, retention=anyway).removed == 100


def test_an_archive_that_has_no_entry_yet_keeps_all_entries(port: int, server: redis.Redis) -> None:
    publish(server, "s", "900-0", "first")
    lower_watermark(server, "s", watermark("0-0", "second"), is_job=True)
    done = trimmed(port, retention=RetentionPolicy(allow_no_groups=True))
    assert done.removed == 0
    assert done.reasons[0].startswith("/lake/second has no entry of the stream yet")
    assert lowest_published_id(server, "s") is None


def test_what_an_earlier_version_published_stops_trimming_until_released(
    port: int, server: redis.Redis
) -> None:
    anyway, url = RetentionPolicy(allow_no_groups=True), f"redis://127.0.0.1:{port}"
    server.set("{s}:headrace:archived", "800-0:800")
    for number in (500, 900):
        publish(server, "s", f"{number}-0", "first")
        done = trimmed(port, retention=anyway)
        assert done.removed == 0
        assert done.reasons[0].startswith(
            "an earlier version published that the stream is archived up to 800-0"
        )
    assert delete_watermarks(url, ["s"], "unknown") == ["s"]
    assert trimmed(port, retention=anyway).removed == 899


@pytest.mark.parametrize("name", ["/lake/old one", "5f1e"])
def test_a_forgotten_archive_is_released_by_its_place_or_its_id(
    port: int, server: redis.Redis, name: str
) -> None:
    url = f"redis://127.0.0.1:{port}"
    server.xadd("t", {"n": 1}, "800-0")
    old = Watermark(Position("700-0"), "5f1e", "/lake/old one")
    for stream in ("s", "t"):
        raise_watermark(server, stream, old)
    publish(server, "s", "900-0")
    with pytest.raises(UsageError, match=r"no archive '/lake/olden'.*did you mean '/lake/old one'"):
        delete_watermarks(url, ["s", "t"], "/lake/olden")
    with servers_at(url) as servers:
        listed = [(stream, each.archive_name) for stream, each in iter_watermarks(servers, ["s", "t"])]
        assert listed == [("s", "/lake/old one"), ("s", "/lake/main"), ("t", "/lake/old one")]
    assert delete_watermarks(url, ["s", "t"], name) == ["s", "t"]
    assert published_watermarks(server, "s") == [watermark("900-0")]
    assert server.exists("{t}:headrace:archived") == 0


def test_archives_at_the_same_place_are_released_by_their_ids(port: int, server: redis.Redis) -> None:
    for table in ("one", "two"):
        raise_watermark(server, "s", Watermark(Position("700-0"), table, "/lake"))
    with pytest.raises(UsageError, match=r"several archives were at /lake; give the ID .*: one, two"):
        delete_watermarks(f"redis://127.0.0.1:{port}", ["s"], "/lake")


def test_a_watermark_is_only_ever_raised(server: redis.Redis) -> None:
    assert lowest_published_id(server, "s") is None
    assert publish(server, "s", "9-5") == "9-5"
    assert publish(server, "s", "10-0") == "10-0"
    assert publish(server, "s", "9-9") == "10-0"
    assert lowest_published_id(server, "s") == "10-0"
    assert server.get("{s}:headrace:archived") == "10-0 main /lake/main"
    server.set(watermark_key("s"), "nonsense")
    with pytest.raises(HeadraceError, match="'nonsense', which is not a watermark"):
        lowest_published_id(server, "s")


def test_a_position_of_an_earlier_stream_is_not_published(server: redis.Redis) -> None:
    assert publish(server, "s", "2000-0:2000") is None
    assert lowest_published_id(server, "s") is None


def test_errors_name_what_cannot_be_trimmed(port: int, server: redis.Redis) -> None:
    with pytest.raises(UsageError, match="there is no stream 'nothing'"):
        trimmed(port, "nothing")
    server.set("text", "x")
    with pytest.raises(HeadraceError, match="'text': the server rejected a command: WRONGTYPE"):
        trimmed(port, "text")
    with pytest.raises(HeadraceError, match="headrace serve"):
        trim_streams("redis://127.0.0.1:1", ["s"])


def test_a_stream_that_changes_all_the_time_is_trimmed_correctly_or_not_at_all(
    port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script is atomic; without scripts trimming gives up after a while and reports that."""
    monkeypatch.setattr(trim_module, "RETRY_SECONDS", 0.1)
    publish(server, "s", "700-0")
    server.xgroup_create("s", "g", "$")
    with Disturbed(port=port) as busy:
        busy.disturb = lambda: server.xadd("s", {"n": 0})  # type: ignore[method-assign,assign,return-value]
        if "headrace_version" in server.info("server"):
            with monkeypatch.context() as patched:
                patched.setattr(
                    trim_module, "TRIM_SCRIPT", "return redis.error_reply('ERR scripts need Lua')"
                )
                done = trim_stream(busy, "s", [watermark("700-0")], RetentionPolicy())
            assert done.removed == 0 and done.reasons[0].startswith(
                "the stream or its groups change too fast"
            )
        done = trim_stream(busy, "s", [watermark("700-0")], RetentionPolicy())
    assert done.removed == 699


def test_users_without_eval_need_acked(port: int, server: redis.Redis) -> None:
    if "headrace_version" in server.info("server"):
        pytest.skip("has no scripts to forbid")
    publish(server, "s", "700-0")
    server.acl_setuser("mild", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-eval"])
    try:
        with pytest.raises(HeadraceError, match="allow EVAL with ACL SETUSER"):
            trim_streams(
                f"redis://mild:x@127.0.0.1:{port}", ["s"], retention=RetentionPolicy(allow_no_groups=True)
            )
        assert server.xlen("s") == 1000
    finally:
        server.acl_deluser("mild")


@pytest.mark.parametrize(
    ("text", "ms"),
    [("2h", 7_200_000), ("1.5 d", 129_600_000), ("30min", 1_800_000), ("45s", 45_000), ("5m", 300_000)],
)
def test_durations_are_parsed(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


def test_durations_are_printed_in_their_largest_unit() -> None:
    assert [format_duration(n) for n in (999, 59_999, 3_599_999, 86_399_999, 172_800_000)] == [
        "999 ms", "59 s", "59 min", "23 h", "2 d",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="not a duration: 'soon'"):
        parse_duration_ms("soon")
