"""`headrace trim` as a whole."""

from __future__ import annotations

import pytest
import redis

from headrace.cli.main import main
from support.archives import publish


@pytest.fixture
def streams(client: redis.Redis) -> redis.Redis:
    """Streams orders.a and orders.b of 1-0 to 50-0, archived up to 40-0, and a group that read 30."""
    for name in ("orders.a", "orders.b"):
        for n in range(1, 51):
            client.xadd(name, {"n": n}, f"{n}-0")
        client.xgroup_create(name, "billing", "0")
        client.xreadgroup("billing", "worker-3", {name: ">"}, count=30)
        client.xack(name, "billing", *(f"{n}-0" for n in range(1, 31)))
        publish(client, name, "40-0")
    return client


def test_trim_prints_what_was_removed_and_what_keeps_the_rest(
    server_url: str, streams: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["trim", "--pattern", r"orders\..", "--url", server_url]
    assert main([*words, "--dry-run"]) == 0
    assert "orders.b: 29 entries would be removed, 21 left" in capsys.readouterr().out
    assert streams.xlen("orders.a") == 50
    assert main([*words, "--keep", "35"]) == 0
    assert "stopped by: the newest 35 entries are kept" in capsys.readouterr().out
    assert streams.xlen("orders.a") == streams.xlen("orders.b") == 35
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "orders.a: 14 entries removed, 21 left",
        "  stopped by: group billing has read up to 30-0, 20 entries behind",
        "  then        archived up to 40-0 in /lake/main",
    ]
    assert [streams.xrange(name, count=1)[0][0] for name in ("orders.a", "orders.b")] == ["30-0"] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no streams given: use --stream"),
        (["--stream", "orders.a", "--pattern", "x"], "--stream and --pattern exclude each other"),
        (["--stream", "nothing"], "there is no stream 'nothing'"),
        (["--pattern", "nothing"], "no stream matches 'nothing'"),
        (["--pattern", "("], "'(' is not a regular expression"),
        (["--pattern", "a{9999999999}"], "'a{9999999999}' is not a regular expression"),
        (["--stream", "orders.a", "--keep-for", "soon"], "not a duration: 'soon'"),
        (["--stream", "orders.a", "--keep", "0"], "0 is not in the range"),
        (["--stream", "orders.a", "--archive", "missing"], "missing: there is no archive"),
        (["--stream", "orders.a", "--storage-option", "A=b"], "--storage-option is for an archive"),
        (["--stream", "orders.a", "--release", "x", "--storage-option", "A=b"], "--release only takes"),
    ],
)
def test_bad_input_prints_one_line_and_exits_with_2(
    words: list[str],
    message: str,
    server_url: str,
    streams: redis.Redis,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["trim", "--url", server_url, *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("headrace: ") and error.count("\n") == 1


def test_a_missing_server_prints_one_line_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trim", "--stream", "s", "--url", "redis://127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert "headrace serve" in error and error.count("\n") == 1
