"""Shells complete commands, options and the names of streams."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import redis

from cli.hostile import NAME
from headrace.cli.main import main


def completed(typed: str, **settings: str) -> list[str]:
    """Return what bash is offered for the last word of a line; zsh and fish get the same words."""
    words = typed.split(" ")
    asked = {"_HEADRACE_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "headrace"],
        env=os.environ | asked | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_and_options_are_completed() -> None:
    assert completed("headrace t") == ["tail", "top", "trim"]
    assert "--follow" in completed("headrace tail --f")


def test_streams_of_the_server_are_completed(server_url: str, client: redis.Redis) -> None:
    client.set("order-count", 1)
    for name in ("orders", "orders-eu", "payments", NAME):
        client.xadd(name, {"n": 1})
    assert completed("headrace tail or", HEADRACE_URL=server_url) == ["orders", "orders-eu"]
    assert completed(f"headrace groups --url {server_url} pay") == ["payments"]
    assert completed("headrace ack p", HEADRACE_URL=server_url) == ["payments"]


def test_without_a_server_nothing_is_completed_or_printed() -> None:
    assert completed("headrace tail or", HEADRACE_URL="redis://127.0.0.1:1") == []
    assert completed("headrace tail or", HEADRACE_URL="nonsense") == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("tial", "tail"), ("LS", "ls"), ("qeury", "query"), ("archve", "archive"), ("grops", "groups")],
)
def test_an_unknown_command_suggests_a_similar_one(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    assert f"unknown command {typed!r}; did you mean {meant!r}?" in capsys.readouterr().err


def test_an_unknown_option_or_stream_suggests_a_similar_one(
    server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    client.xadd("orders", {"n": 1})
    assert main(["tail", "--jsn", "orders"]) == 2
    assert (
        "unknown option '--jsn'; did you mean '--json'? (see headrace tail --help)" in capsys.readouterr().err
    )
    for words in (
        ["trim", "--stream", "ordres"],
        ["archive", "--stream", "ordres", "--to", "x"],
        ["inspect", "ordres"],
        ["tail", "Orders"],
    ):
        assert main([*words, "--url", server_url]) == 2
        error = capsys.readouterr().err
        assert "; did you mean 'orders'?\n" in error and error.count("\n") == 1
