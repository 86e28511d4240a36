"""A server whose background sync fails and that is then killed: every acknowledged entry is there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from server.server_process import SECONDS_MAX, Process
from support.failing_sync import FailingSync
from support.waiting import wait_until

pytestmark = pytest.mark.whole

LOST = (redis.ConnectionError, redis.TimeoutError)
ROUNDS = 2


class AddingClient:
    """One connection that adds until the server refuses it or dies. `added`: the acknowledged entry IDs."""

    def __init__(self, process: Process, add: Callable[[redis.Redis], list[object]]) -> None:
        self.client = process.client()
        self.added: list[str] = []
        self.refused = False
        self.thread = threading.Thread(target=self.run, args=(add,))
        self.thread.start()

    def run(self, add: Callable[[redis.Redis], list[object]]) -> None:
        with contextlib.suppress(*LOST):
            while not self.refused:
                try:
                    replies = add(self.client)
                except redis.ResponseError:
                    replies = [None]
                self.refused = not all(isinstance(reply, str) for reply in replies)
                self.added += [reply for reply in replies if isinstance(reply, str)]


def add_one(client: redis.Redis) -> list[object]:
    return [client.xadd("s", {"f": "one"})]


def add_and_wait_for_sync(client: redis.Redis) -> list[object]:
    entry = client.xadd("s", {"f": "synced"})
    client.execute_command("WAITAOF", 1, 0, 100)
    return [entry]


def add_in_pipeline(client: redis.Redis) -> list[object]:
    with client.pipeline(transaction=False) as pipe:
        for _ in range(20):
            pipe.xadd("s", {"f": "pipelined"})
        return list(pipe.execute(raise_on_error=False))


def add_in_transaction(client: redis.Redis) -> list[object]:
    with client.pipeline(transaction=True) as pipe:
        for _ in range(3):
            pipe.xadd("s", {"f": "transaction"})
        return list(pipe.execute())


WAYS = [add_one, add_one, add_one, add_and_wait_for_sync, add_in_pipeline, add_in_transaction]


class GroupReader:
    """A blocked reader. `acknowledged`: the IDs whose XACK was answered with 1."""

    def __init__(self, process: Process) -> None:
        self.client = process.client()
        self.client.xgroup_create("s", "g", id="0", mkstream=True)
        self.acknowledged: list[str] = []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        with contextlib.suppress(*LOST, redis.ResponseError):
            while True:
                found = self.client.xreadgroup("g", "c", {"s": ">"}, count=5, block=1000)
                for entry, _ in found[0][1] if found else []:
                    if self.client.xack("s", "g", entry) == 1:
                        self.acknowledged.append(entry)


def is_failed(process: Process) -> bool:
    return process.client().info("persistence")["aof_last_write_status"] == "err"


@pytest.fixture
def failing(tmp_path: Path) -> FailingSync:
    return FailingSync(tmp_path)


@pytest.fixture
def launch(tmp_path: Path, failing: FailingSync) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []
    data = tmp_path / "data"
    data.mkdir()

    def run(*arguments: str) -> Process:
        started.append(Process(data, *arguments, environment=failing.environment))
        return started[-1]

    yield run
    for process in started:
        if process.child.poll() is None:
            process.kill()


def loaded(process: Process, failing: FailingSync) -> tuple[list[AddingClient], GroupReader]:
    """Clients that add until a background sync has failed and the server refuses writes."""
    reader = GroupReader(process)
    clients = [AddingClient(process, way) for way in WAYS]
    wait_until(lambda: all(len(client.added) > 10 for client in clients) and reader.acknowledged)
    failing.begin()
    if process.client().config_get("appendfsync")["appendfsync"] == "no":
        with contextlib.suppress(redis.ResponseError):  # the WAITAOF client has stopped: ask for a sync
            process.client().execute_command("WAITAOF", 1, 0, 2000)
    wait_until(lambda: is_failed(process), "the failed sync")
    return clients, reader


def check(client: redis.Redis, clients: list[AddingClient], reader: GroupReader) -> None:
    there = {entry for entry, _ in client.xrange("s")}
    for one in clients:
        assert [entry for entry in one.added if entry not in there] == []
    pending = {one["message_id"] for one in client.xpending_range("s", "g", "-", "+", 1_000_000)}
    assert [entry for entry in reader.acknowledged if entry in pending] == []


def join(clients: list[AddingClient], reader: GroupReader) -> None:
    for thread in [reader.thread, *(client.thread for client in clients)]:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_a_kill_after_a_failed_background_sync_loses_no_acknowledged_entry(launch, failing, policy):
    for _ in range(ROUNDS):
        process = launch("--appendfsync", policy)
        clients, reader = loaded(process, failing)
        process.kill()
        join(clients, reader)
        failing.end()
        process = launch("--appendfsync", policy)
        check(process.client(), clients, reader)
        process.client().delete("s")
        process.end()


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_held_replies_leave_when_the_log_was_rewritten_and_survive_a_kill(launch, failing, policy):
    process = launch("--appendfsync", policy)
    clients, reader = loaded(process, failing)
    failing.end()
    wait_until(lambda: not is_failed(process), "the rewrite")
    late = process.client().xadd("s", {"f": "late"})
    process.kill()
    join(clients, reader)
    client = launch("--appendfsync", policy).client()
    check(client, clients, reader)
    assert client.xrange("s", late, late)
