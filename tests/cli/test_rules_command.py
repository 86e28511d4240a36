"""headrace rules: shows, sets and explains the rules of a stream and its groups."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import redis

from headrace.cli.main import main
from support.headrace_server import headrace_server


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with headrace_server() as port, redis.Redis(port=port, decode_responses=True) as connected:
        for number in range(1, 21):
            connected.xadd("orders", {"n": number}, f"{number}-0")
        connected.xgroup_create("orders", "billing", "0")
        yield connected


def url_of(client: redis.Redis) -> str:
    return f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"


def run(client: redis.Redis, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return the exit code and everything printed."""
    code = main(["rules", "--url", url_of(client), "orders", *words])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_rules_are_set_shown_and_removed(client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(client, capsys) == (0, "stream orders has no rules\n")
    code, text = run(client, capsys, "--set", "max-age=7d", "--set", "KEEP-UNACKED=1")
    assert code == 0 and "MAX-AGE" in text and "7 d" in text
    code, text = run(client, capsys, "--group", "billing", "--set", "LEASE=30s", "--set", "BACKOFF=1s,2min")
    assert code == 0 and "group billing" in text and "1 s, 2 min" in text
    code, text = run(client, capsys, "--json")
    found = json.loads(text)
    assert found["stream"] == {"MAX-AGE": "604800000", "KEEP-UNACKED": "1"}
    assert found["groups"] == {"billing": {"LEASE": "30000", "BACKOFF": "1000,120000"}}
    run(client, capsys, "--remove", "MAX-AGE", "--remove", "KEEP-UNACKED")
    assert json.loads(run(client, capsys, "--json")[1])["stream"] == {}


def test_what_a_rule_keeps_is_explained(client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    client.xreadgroup("billing", "ann", {"orders": ">"}, count=3)
    _, text = run(client, capsys, "--set", "MAX-AGE=1h", "--set", "KEEP-UNACKED=1")
    assert "20 entries are older than MAX-AGE and kept by KEEP-UNACKED: group billing, 3 pending" in text
    _, text = run(client, capsys, "--remove", "MAX-AGE", "--set", "MAX-LEN=5")
    assert "15 entries are more than MAX-LEN and kept by KEEP-UNACKED: group billing" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "MAX-LEN"], "must be RULE=VALUE"),
        (["--set", "NO-SUCH=1"], "no such rule"),
        (["--set", "MAX-AGE=soon"], "not a duration"),
        (["--set", "EXACT=1"], "EXACT requires MAX-LEN"),
        (["--group", "nobody", "--set", "LEASE=1s"], "has no group 'nobody'"),
        (["--set", "LEASE=30s"], "LEASE is a rule of groups: add --group NAME"),
        (["--group", "g", "--set", "MAX-AGE=1d"], "MAX-AGE is a rule of streams: leave out --group"),
        (["--set", "MAXAGE=1d"], "no such rule: 'MAXAGE'; did you mean 'MAX-AGE'?"),
    ],
)
def test_a_mistake_is_one_line(
    client: redis.Redis, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, text = run(client, capsys, *words)
    assert code == 2 and message in text and len(text.splitlines()) == 1


def test_a_similar_group_is_named(client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(client, capsys, "--group", "biling", "--set", "LEASE=1s")
    assert code == 2 and "has no group 'biling'; did you mean 'billing'?" in text


def test_a_redis_server_has_no_rules(server_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with redis.Redis.from_url(server_url) as client:
        client.xadd("plain", {"f": "v"})
    code = main(["rules", "--url", server_url, "plain", "--set", "MAX-LEN=5"])
    assert code == 2 and "only Headrace" in capsys.readouterr().err


def test_what_a_group_waits_for_is_explained(client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(21, 25):
        client.xadd("orders", {"customer": "ada"}, f"{number}-0")
    rules = ["--set", "LEASE=50ms", "--set", "ORDERED-BY=customer", "--set", "MAX-PENDING=21"]
    assert run(client, capsys, "--group", "billing", *rules)[0] == 0
    client.xreadgroup("billing", "ann", {"orders": ">"}, count=21)
    client.xreadgroup("billing", "bob", {"orders": ">"})
    _, text = run(client, capsys)
    assert "24 pending" not in text and "3 wait for earlier ones with the same customer" in text
    assert "consumer ann of group billing has MAX-PENDING entries" in text
    time.sleep(0.06)
    assert "21 are due for redelivery" in run(client, capsys)[1]
    assert main(["inspect", "--url", url_of(client), "orders", "--pending", "30"]) == 0
    drawn = capsys.readouterr().out
    assert "ORDERED-BY customer" in drawn and drawn.count("waits for its turn") == 3
    assert client.info("rules")["rules_waiting_entries"] == 3
