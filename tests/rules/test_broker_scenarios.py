"""What users know from NATS JetStream and Pulsar, with rules: the same outcome, or the difference explained.

Each function is a row of the table in docs/rules.md, with the documented behaviour of the broker. The client
is redis-py without Headrace's library.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from support.headrace_server import headrace_server
from support.waiting import wait_until

pytestmark = pytest.mark.whole

DOCS = Path(__file__).parents[2] / "docs" / "rules.md"
numbers = count()


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    with headrace_server() as port, redis.Redis(port=port, decode_responses=True) as connected:
        yield connected


class Stream:
    """A stream of the server with a group `workers`, under a key of its own."""

    def __init__(self, client: redis.Redis, *rules: Any) -> None:
        self.client = client
        self.key = f"s{next(numbers)}"
        client.xgroup_create(self.key, "workers", "0", mkstream=True)
        if rules:
            client.execute_command("XCFGSET", self.key, *rules)

    def rule(self, *rules: Any) -> Stream:
        self.client.execute_command("XGROUP", "CFGSET", self.key, "workers", *rules)
        return self

    def add(self, *values: Any) -> list[str]:
        return [str(self.client.xadd(self.key, {"v": value})) for value in values]

    def values(self) -> list[str]:
        return [fields["v"] for _, fields in self.client.xrange(self.key)]

    def read(self, consumer: str = "ann", most: int = 100, wait: int | None = None) -> list[str]:
        """Return the IDs that a consumer receives, within `wait` milliseconds."""
        reply = self.client.xreadgroup("workers", consumer, {self.key: ">"}, count=most, block=wait)
        return [entry for _, entries in reply for entry, _ in entries]

    def ack(self, *entries: str) -> None:
        self.client.xack(self.key, "workers", *entries)


@pytest.fixture
def make(client: redis.Redis) -> Any:
    return lambda *rules: Stream(client, *rules)


def test_nats_max_age(make: Any) -> None:
    stream = make("MAX-AGE", 100, "EXACT", 1)
    stream.add("a")
    wait_until(lambda: stream.values() == [], "the entry to expire")


def test_nats_max_msgs_discard_old(make: Any) -> None:
    stream = make("MAX-LEN", 2, "EXACT", 1)
    stream.add("a", "b", "c")
    assert stream.values() == ["b", "c"]


def test_nats_discard_new(make: Any) -> None:
    stream = make("MAX-LEN", 2, "DISCARD", "NEW")
    stream.add("a", "b")
    with pytest.raises(redis.ResponseError, match="FULL"):
        stream.add("c")
    assert stream.values() == ["a", "b"]


def test_nats_interest_policy(make: Any) -> None:
    stream = make("DROP-ACKED", 1)
    stream.client.xgroup_create(stream.key, "audit", "0")
    (entry,) = stream.add("a")
    stream.read()
    stream.ack(entry)
    assert stream.values() == ["a"]
    stream.client.xreadgroup("audit", "eve", {stream.key: ">"})
    stream.client.xack(stream.key, "audit", entry)
    assert stream.values() == []


def test_nats_work_queue_policy(make: Any) -> None:
    stream = make("DROP-ACKED", 1)
    first, second = stream.add("a", "b")
    assert stream.read(most=1) == [first]
    stream.ack(first)
    assert stream.values() == ["b"] and stream.read("bob") == [second]


def test_nats_ack_wait(make: Any) -> None:
    stream = make().rule("LEASE", 1000)
    entries = stream.add("a")
    assert stream.read("ann") == entries and stream.read("bob") == []
    assert stream.read("bob", wait=5000) == entries


def test_nats_in_progress(make: Any) -> None:
    stream = make().rule("LEASE", 2000)
    entries = stream.add("a")
    stream.read("ann")
    for _ in range(3):
        time.sleep(0.8)
        stream.client.xclaim(stream.key, "workers", "ann", 0, entries, justid=True)
        assert stream.read("bob") == []


def test_nats_nak(make: Any) -> None:
    stream = make().rule("LEASE", 100_000)
    entries = stream.add("a")
    stream.read("ann")
    stream.client.execute_command("XNACK", stream.key, "workers", "FAIL", "IDS", 1, *entries)
    assert stream.read("bob") == entries


def test_nats_max_deliver(make: Any) -> None:
    stream = make().rule("LEASE", 50, "MAX-DELIVERIES", 2)
    entries = stream.add("a")
    for consumer in ("ann", "bob"):
        assert stream.read(consumer, wait=5000) == entries
    assert stream.read("cid", wait=300) == []
    ((_, fields),) = stream.client.xrange(f"{{{stream.key}}}:dead")
    assert fields["v"] == "a" and fields["dead:id"] == entries[0] and fields["dead:deliveries"] == "2"
    assert stream.client.xpending(stream.key, "workers")["pending"] == 0


def test_nats_backoff(make: Any) -> None:
    stream = make().rule("LEASE", 1, "BACKOFF", "300,100000")
    entries = stream.add("a")
    stream.read("ann")
    begin = time.monotonic()
    assert stream.read("bob", wait=5000) == entries and time.monotonic() - begin > 0.25
    assert stream.read("cid", wait=300) == []


def test_nats_term(make: Any) -> None:
    stream = make().rule("LEASE", 50, "MAX-DELIVERIES", 9)
    entries = stream.add("a")
    stream.read("ann")
    stream.client.execute_command("XNACK", stream.key, "workers", "FATAL", "IDS", 1, *entries)
    assert stream.read("bob", wait=300) == []
    assert stream.client.xlen(f"{{{stream.key}}}:dead") == 1


def test_nats_max_ack_pending(make: Any) -> None:
    stream = make().rule("MAX-PENDING", 2)
    first, second, third = stream.add("a", "b", "c")
    assert stream.read("ann") == [first, second] and stream.read("ann") == []
    assert stream.read("bob") == [third]
    stream.ack(first)
    (fourth,) = stream.add("d")
    assert stream.read("ann") == [fourth]


def test_nats_expected_last_sequence(make: Any) -> None:
    stream = make()
    first, last = stream.add("a", "b")
    add = ("XADD", stream.key, "IFLAST")
    assert stream.client.execute_command(*add, first, "*", "v", "c") is None
    assert stream.client.execute_command(*add, last, "*", "v", "c")
    assert stream.values() == ["a", "b", "c"]


def test_pulsar_deliver_after(make: Any) -> None:
    stream = make()
    scheduled = str(stream.client.execute_command("XADD", stream.key, "DELAY", 200, "*", "v", "late"))
    stream.add("now")
    assert stream.read() and stream.values() == ["now"]
    (late,) = stream.read(wait=5000)
    # Both IDs are times of the server's clock, which may be a part of a millisecond behind another clock.
    assert int(late.partition("-")[0]) - int(scheduled.partition("-")[0]) >= 200
    assert stream.values() == ["now", "late"]


def test_pulsar_key_shared(make: Any) -> None:
    stream = make().rule("LEASE", 100_000, "ORDERED-BY", "v")
    entries = stream.add("k1", "k1", "k2", "k1")
    assert stream.read("ann", most=1) == entries[:1]
    assert stream.read("bob") == [entries[2]]
    assert stream.read("ann") == [entries[1], entries[3]]


def test_pulsar_dead_letter_topic(make: Any) -> None:
    stream = make().rule("LEASE", 50, "MAX-DELIVERIES", 3, "DEAD-LETTER", "graveyard")
    stream.add("a")
    for _ in range(3):
        assert len(stream.read(wait=5000)) == 1
    assert stream.read(wait=300) == [] and stream.client.xlen("graveyard") == 1


def test_pulsar_message_ttl(make: Any) -> None:
    stream = make("MAX-AGE", 100, "EXACT", 1).rule("LEASE", 50)
    stream.add("a")
    stream.read("ann")
    wait_until(lambda: stream.values() == [], "the entry to expire")
    assert stream.read("bob", wait=300) == []
    assert stream.client.xpending(stream.key, "workers")["pending"] == 0


def test_pulsar_consumer_closes(make: Any) -> None:
    stream = make().rule("LEASE", 100_000, "CONSUMER-TTL", 200)
    entries = stream.add("a")
    stream.read("ann")
    assert stream.read("bob", wait=5000) == entries


def test_pulsar_backlog_quota(make: Any) -> None:
    stream = make("MAX-LEN", 2, "KEEP-UNACKED", 1, "EXACT", 1)
    entries = stream.add("a", "b")
    with pytest.raises(redis.ResponseError, match="FULL"):
        stream.add("c")
    stream.read()
    stream.ack(*entries)
    stream.add("c")
    assert stream.values() == ["b", "c"]


def test_the_table_names_every_scenario() -> None:
    table = DOCS.read_text()
    names = [
        name.removeprefix("test_") for name in globals() if name.startswith(("test_nats", "test_pulsar"))
    ]
    assert len(names) == 19 and [name for name in names if f"`{name}`" not in table] == []


def test_the_commands_of_the_documentation_work_with_redis_cli(client: redis.Redis) -> None:
    """Run the first example of docs/rules.md, as it is written there."""
    port = str(client.connection_pool.connection_kwargs["port"])
    block = DOCS.read_text().split("```")[1]
    lines = [line for line in block.splitlines() if line.startswith("$ redis-cli -p 7777 ")]
    for line in lines:
        words = ["redis-cli", "-p", port, "-e", *shlex.split(line)[4:]]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert len(lines) == 6 and client.xlen("orders") == 1 and client.xlen("{orders}:scheduled") == 1
    assert client.xinfo_stream("orders")["rules"] == {"MAX-AGE": "604800000", "KEEP-UNACKED": "1"}
    assert client.xinfo_groups("orders")[0]["rules"] == {"LEASE": "30000", "MAX-DELIVERIES": "5"}
