"""Real servers killed under load, and failovers to the most advanced replica: the history is checked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from replication.nodes import Node, nodes
from simulation.history_checker import FAIL, OK, Append, Entry, OperationHistory
from support.waiting import wait_until

pytestmark = pytest.mark.whole
WRITERS = 3
KILLS = ("primary", "replica", "primary")
WAIT_MS = 2000
NO_RETRY = Retry(NoBackoff(), 0)


def parse_id(text: bytes) -> tuple[int, int]:
    ms, seq = text.split(b"-")
    return int(ms), int(seq)


class Load:
    """Writers that add values to the present primary, and confirm each by WAIT."""

    def __init__(self, primary: Node) -> None:
        self.primary = primary
        self.history = OperationHistory()
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.confirmed = 0

    def write(self, number: int) -> None:
        """Write until the end, and connect again when a connection is lost."""
        count = 0
        while not self.ended.is_set():
            with (
                contextlib.suppress(redis.ConnectionError, redis.TimeoutError),
                # A request that is sent again could be executed twice, or rejected after it was executed.
                redis.Redis(port=self.primary.port, single_connection_client=True, retry=NO_RETRY) as client,
            ):
                while not self.ended.is_set():
                    count += 1
                    with self.lock:
                        append = self.history.invoke(b"%d-%d" % (number, count))
                    if not self.add(client, append):
                        break

    def add(self, client: redis.Redis, append: Append) -> bool:
        """Add one value; return False if the server is no primary."""
        try:
            found = client.xadd("log", {"v": append.value})
        except redis.ResponseError:
            with self.lock:
                self.history.complete(append, FAIL)
            return False
        with self.lock:
            self.history.complete(append, OK, parse_id(found))
        try:
            confirmed = client.wait(1, WAIT_MS) >= 1
        except redis.ResponseError:  # it has become a replica
            return False
        if confirmed:
            append.confirmed = True
            with self.lock:
                self.confirmed += 1
        return True

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let the writers run."""
        threads = [threading.Thread(target=self.write, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.ended.set()
            for thread in threads:
                thread.join()

    def let_run(self, count: int) -> None:
        """Wait until so many more values are confirmed."""
        target = self.confirmed + count
        wait_until(lambda: self.confirmed >= target)


def wait_until_repaired(primary: Node, replicas: list[Node]) -> None:
    """Wait until every replica has what the primary has now."""
    needed = primary.replication()["master_repl_offset"]

    def is_repaired() -> bool:
        history = primary.replication()["master_replid"]
        seen = [replica.replication() for replica in replicas]
        return all(
            one.get("master_link_status") == "up"
            and one["master_replid"] == history
            and one["master_repl_offset"] >= needed
            for one in seen
        )

    wait_until(is_repaired, "the replicas")


def fail_over(load: Load, servers: list[Node]) -> None:
    """Kill the primary, promote the most advanced replica, and let all others follow it."""
    failed = load.primary
    failed.kill()
    replicas = [server for server in servers if server is not failed]
    chosen = max(replicas, key=lambda replica: replica.replication()["slave_repl_offset"])
    chosen.promote()
    for replica in replicas:
        if replica is not chosen:
            replica.follow(chosen.port)  # before the failed server is back: it would follow that one again
    load.primary = chosen
    failed.start()
    failed.follow(chosen.port)


def test_what_wait_has_confirmed_survives_killed_servers(tmp_path: Path) -> None:
    chance = Random(1)
    options = ("--appendonly", "yes")
    with nodes(tmp_path, "headrace", "headrace", "headrace", options=options) as servers:
        load = Load(servers[0])
        for replica in servers[1:]:
            replica.follow(servers[0].port)
        wait_until_repaired(servers[0], servers[1:])
        with load.running():
            for kill in KILLS:
                load.let_run(100)
                if kill == "primary":
                    fail_over(load, servers)
                else:
                    victim = chance.choice([server for server in servers if server is not load.primary])
                    victim.kill()
                    victim.start()
                    victim.follow(load.primary.port)
                replicas = [server for server in servers if server is not load.primary]
                wait_until_repaired(load.primary, replicas)
        final: list[Entry] = [
            (parse_id(found), fields[b"v"]) for found, fields in load.primary.client.xrange("log")
        ]
        assert load.history.check(final).errors == {}
        assert load.confirmed >= 100 * len(KILLS)
        for replica in servers:
            if replica is not load.primary:
                replica.wait_for(load.primary)
                assert replica.state() == load.primary.state()
