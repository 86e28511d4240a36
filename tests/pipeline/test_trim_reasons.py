"""What trimming removes, what it keeps, and what it says about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from archive_maker import ArchiveMaker
from trim_world import Disturbed

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline import trim as trim_module
from headrace.pipeline import trim_horizon
from headrace.pipeline.durations import duration, milliseconds_in
from headrace.pipeline.trim import Trimmed, trim, trim_stream
from headrace.pipeline.trim_horizon import Wishes
from headrace.pipeline.watermark import key_of, publish, published
from headrace_server import headrace_server


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


def trimmed(port: int, *streams: str, **how: object) -> Trimmed:
    return trim(f"redis://127.0.0.1:{port}", streams or ["s"], **how)[0]  # type: ignore[arg-type]


def test_the_lowest_hold_stops_it_and_stays_itself(port: int, server: redis.Redis) -> None:
    publish(server, "s", "700-0")
    server.xgroup_create("s", "mail", "500-0")
    server.xgroup_create("s", "billing", "0")
    server.xreadgroup("billing", "worker-3", {"s": ">"}, count=900)
    server.xack("s", "billing", *(f"{n}-0" for n in range(1, 901) if n not in (300, 310)))
    done = trimmed(port)
    assert (done.removed, done.left) == (299, 701)
    assert server.xrange("s", count=1)[0][0] == "300-0"
    assert done.whys[0].startswith("group billing: 2 pending, oldest 300-0 held by worker-3 for ")
    assert done.whys[1].startswith("group mail has read up to 500-0")
    assert done.whys[2:] == ("archived up to 700-0", "group billing has read up to 900-0, 100 entries behind")
    server.xack("s", "billing", "300-0", "310-0")
    assert (trimmed(port).removed, trimmed(port).removed) == (200, 0)
    server.xgroup_setid("s", "mail", "950-0")
    done = trimmed(port)
    assert (done.removed, done.whys[0]) == (200, "archived up to 700-0")
    assert server.xrange("s", count=1)[0][0] == "700-0"


def test_a_dry_run_removes_nothing_and_says_how_many(
    port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim_module, "PAGE", 64)
    publish(server, "s", "700-0")
    server.xgroup_create("s", "g", "$")
    done = trimmed(port, dry_run=True)
    assert (done.removed, done.left, done.at_least) == (699, 301, False)
    assert server.xlen("s") == 1000


def test_counting_by_reading_ends_somewhere(
    port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim_module, "PAGE", 50)
    monkeypatch.setattr(trim_module, "COUNT_MOST", 100)
    publish(server, "s", "700-0")
    server.xgroup_create("s", "g", "$")
    done = trimmed(port, dry_run=True)
    assert (done.removed, done.at_least) in [(100, True), (699, False)]


def test_large_streams_go_in_steps(port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim_module, "STEP", 200)
    publish(server, "s", "990-0")
    server.xgroup_create("s", "g", "$")
    steps: list[int] = []
    done = trimmed(port, on_progress=lambda stream, n: steps.append(n))
    assert done.removed == sum(steps) == 989
    assert len(steps) > 3 and max(steps[:-1]) <= 200


def test_what_is_to_be_kept_is_kept(port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim_horizon, "PAGE", 64)
    publish(server, "s", "990-0")
    server.xgroup_create("s", "g", "$")
    monkeypatch.setattr(trim_horizon.time, "time", lambda: 1.0)
    assert trimmed(port, wishes=Wishes(keep_ms=400)).whys[0] == "entries of the last 400 ms are kept"
    assert server.xrange("s", count=1)[0][0] == "600-0"
    done = trimmed(port, wishes=Wishes(keep=150))
    assert (done.removed, done.left, done.whys[0]) == (251, 150, "the newest 150 entries are kept")
    assert trimmed(port, wishes=Wishes(keep=5000)).removed == 0


def test_without_archive_or_groups_nothing_goes(port: int, server: redis.Redis) -> None:
    server.xgroup_create("s", "g", "$")
    assert trimmed(port).whys[0] == "nothing of it is archived (headrace archive)"
    publish(server, "s", "700-0")
    server.xgroup_destroy("s", "g")
    done = trimmed(port)
    assert done.removed == 0 and "no consumer group (--no-groups-ok" in done.whys[0]
    assert trimmed(port, wishes=Wishes(no_groups_ok=True)).removed == 699


def test_a_stream_made_anew_is_not_the_one_that_was_archived(port: int, server: redis.Redis) -> None:
    publish(server, "s", "700-5")
    done = trimmed(port, wishes=Wishes(no_groups_ok=True))
    assert done.removed == 0
    assert done.whys[0].startswith("entry 700-5, the last one archived, is not there")
    server.delete("s")
    server.xadd("s", {"n": 1}, "5-0")
    assert trimmed(port, wishes=Wishes(no_groups_ok=True)).removed == 0


def test_an_archive_of_one_s_choice_counts(tmp_path: Path, port: int, server: redis.Redis) -> None:
    maker = ArchiveMaker(tmp_path / "x")
    maker.add({"s": [(n, 0) for n in range(1, 301)]})
    maker.add({"s": [(n, 0) for n in range(301, 501)]}, commit=False)
    publish(server, "s", "900-0")
    done = trimmed(port, archive=maker.directory, wishes=Wishes(no_groups_ok=True))
    assert (done.removed, done.whys[0]) == (299, "archived up to 300-0")
    server.xadd("t", {"n": 1})
    assert trimmed(port, "t", archive=maker.directory, wishes=Wishes(no_groups_ok=True)).removed == 0


def test_a_watermark_is_only_ever_raised(server: redis.Redis) -> None:
    assert published(server, "s") is None
    assert publish(server, "s", "9-5") == "9-5"
    assert publish(server, "s", "10-0") == "10-0"
    assert publish(server, "s", "9-9") == "10-0"
    assert published(server, "s") == "10-0" == server.get("{s}:headrace:archived")
    server.set(key_of("s"), "nonsense")
    with pytest.raises(HeadraceError, match="'nonsense', which is no entry ID"):
        published(server, "s")


def test_what_cannot_be_trimmed_is_said(port: int, server: redis.Redis) -> None:
    with pytest.raises(UsageError, match="there is no stream 'nothing'"):
        trimmed(port, "nothing")
    server.set("text", "x")
    with pytest.raises(HeadraceError, match="'text': the server refused: WRONGTYPE"):
        trimmed(port, "text")
    with pytest.raises(HeadraceError, match="headrace serve"):
        trim("redis://127.0.0.1:1", ["s"])


def test_a_stream_that_never_stands_still_is_left_or_trimmed_and_never_wrongly(
    port: int, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts need no stillness; where there are none, trimming gives up after a while, and says so."""
    monkeypatch.setattr(trim_module, "PATIENCE_SECONDS", 0.1)
    publish(server, "s", "700-0")
    server.xgroup_create("s", "g", "$")
    with Disturbed(port=port) as busy:
        busy.disturb = lambda: server.xadd("s", {"n": 0})  # type: ignore[method-assign,assign,return-value]
        if "headrace_version" in server.info("server"):
            with monkeypatch.context() as patched:
                patched.setattr(trim_module, "SCRIPT", "return 0  -- which nobody knows there")
                done = trim_stream(busy, "s", (700, 0), Wishes())
            assert done.removed == 0 and done.whys[0].startswith("it changes too fast")
        done = trim_stream(busy, "s", (700, 0), Wishes())
    assert done.removed == 699


def test_users_who_may_run_no_scripts_need_acked(port: int, server: redis.Redis) -> None:
    if "headrace_version" in server.info("server"):
        pytest.skip("has no scripts to forbid")
    publish(server, "s", "700-0")
    server.acl_setuser("mild", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-eval"])
    try:
        with pytest.raises(HeadraceError, match="one of both is needed"):
            trim(f"redis://mild:x@127.0.0.1:{port}", ["s"], wishes=Wishes(no_groups_ok=True))
        assert server.xlen("s") == 1000
    finally:
        server.acl_deluser("mild")


@pytest.mark.parametrize(
    ("text", "ms"),
    [("2h", 7_200_000), ("1.5 d", 129_600_000), ("30min", 1_800_000), ("45s", 45_000), ("5m", 300_000)],
)
def test_times_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert milliseconds_in(text) == ms


def test_times_are_said_in_their_largest_unit() -> None:
    assert [duration(n) for n in (999, 59_999, 3_599_999, 86_399_999, 172_800_000)] == [
        "999 ms", "59 s", "59 min", "23 h", "2 d",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="'soon' is no length of time"):
        milliseconds_in("soon")
