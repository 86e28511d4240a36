"""A consumer whose server dies and comes back, with all that it had promised to keep."""

from __future__ import annotations

import pathlib
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
import redis

import headrace
from headrace.api.retry_policy import Backoff
from support.redis_programs import installed_redis
from support.redis_server import free_port
from support.waiting import answers, wait_until

SECONDS_MAX = 30.0


class Redis:
    """A redis-server that syncs all it is told, and can be killed."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.port = free_port()
        self.directory = directory
        self.url = f"redis://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [installed_redis(), "--port", str(self.port), "--dir", str(self.directory), "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        with redis.Redis(port=self.port) as client:
            wait_until(lambda: answers(client))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Redis]:
    server = Redis(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.mark.parametrize("reconnect_timeout", [0.0, None])
def test_a_server_that_is_killed_and_comes_back_costs_no_entry(
    server: Redis, reconnect_timeout: float | None
) -> None:
    """With reconnect_timeout the backend waits for the server; without, the consumer does."""
    options = {} if reconnect_timeout is None else {"reconnect_timeout": reconnect_timeout}
    with headrace.connect(server.url, **options) as database:
        orders = database.stream("orders")
        orders.add_many({"n": n} for n in range(400))
        group = orders.group("billing", lease=1.0, backoff=Backoff(initial=0.01), max_deliveries=20)
        seen: set[int] = set()
        consumer = group.consumer("w", concurrency=2, fetch_count=10)

        def handle(entry: headrace.Delivery[dict[bytes, bytes]]) -> None:
            time.sleep(0.001)
            if entry["n"] == b"77":
                entry.fail("never")
            seen.add(int(entry["n"]))

        thread = threading.Thread(target=consumer.run, args=(handle,))
        thread.start()
        for least in (50, 150, 250):
            wait_until(lambda: len(seen) >= least)  # noqa: B023
            server.kill()
            server.start()
        wait_until(lambda: len(seen) == 400)
        with redis.Redis(port=server.port) as client:
            wait_until(lambda: client.xpending("orders", "billing")["pending"] == 0)
        consumer.stop()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
        assert {letter["n"] for letter in group.dead_letters} == {b"77"}
