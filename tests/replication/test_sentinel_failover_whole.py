"""Redis's own Sentinel over Headrace servers: a killed primary is replaced, and comes back as a replica."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from nodes import Node, nodes
from redis.sentinel import Sentinel

import headrace
from redis_server import free_port
from waiting import answers, wait_until

pytestmark = pytest.mark.whole

CONFIGURATION = """\
port {port}
dir {directory}
sentinel monitor orders 127.0.0.1 {primary} 2
sentinel down-after-milliseconds orders 3000
sentinel failover-timeout orders 20000
"""


@contextlib.contextmanager
def sentinels(directory: Path, primary: int) -> Iterator[list[int]]:
    """Three processes of redis-server as Sentinels of the primary: their ports."""
    ports, processes = [], []
    try:
        for number in range(3):
            port = free_port()
            place = directory / f"sentinel-{number}"
            place.mkdir()
            file = place / "sentinel.conf"
            file.write_text(CONFIGURATION.format(port=port, directory=place, primary=primary))
            with (place / "log").open("wb") as log:
                command = ["redis-server", str(file), "--sentinel"]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
            client = redis.Redis(port=port)
            wait_until(lambda client=client: answers(client))  # type: ignore[misc]
            ports.append(port)
        yield ports
    finally:
        for process in processes:
            process.kill()
            process.wait()


def add_until_accepted(sentinel: Sentinel, number: int) -> bool:
    """Add an entry at the present primary; return whether a replica has it, too."""
    while True:
        try:
            with sentinel.master_for("orders", socket_timeout=2) as client:
                connection = client.connection_pool.get_connection()
                connection.send_command("XADD", "s", "*", "n", number)
                connection.read_response()
                connection.send_command("WAIT", 1, 1000)
                confirmed = connection.read_response() >= 1
                client.connection_pool.release(connection)
                return bool(confirmed)
        except redis.RedisError:
            time.sleep(0.1)


def test_a_killed_primary_is_replaced_and_comes_back_as_a_replica(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "headrace") as found:
        first, *others = found
        for other in others:
            other.follow(first.port)
            other.wait_for(first)
        with sentinels(tmp_path, first.port) as ports:
            sentinel = Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=2)
            knows = sentinel.sentinels[0].sentinel_master
            wait_until(
                lambda: knows("orders")["num-slaves"] == 2 and knows("orders")["num-other-sentinels"] == 2
            )
            url = "sentinel://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/orders"
            with headrace.connect(url) as database:
                stream = database.stream("by headrace")
                stream.add({"n": 0})
                confirmed = [n for n in range(20) if add_until_accepted(sentinel, n)]
                first.kill()
                confirmed += [n for n in range(20, 40) if add_until_accepted(sentinel, n)]
                stream.add({"n": 1})
            first.start()
            wait_until(lambda: has_one_primary(found))
            primary = next(node for node in found if node.replication()["role"] == "master")
            assert primary is not first
            stored = [int(fields[b"n"]) for _, fields in primary.client.xrange("s")]
            assert set(confirmed) <= set(stored) and len(confirmed) >= 20
            assert primary.client.xlen("by headrace") >= 1
            for node in found:
                assert node.state() == primary.state()


def has_one_primary(found: list[Node]) -> bool:
    """Whether one of the servers is the primary, and all others have its data."""
    states = [node.replication() for node in found]
    primaries = [state for state in states if state["role"] == "master"]
    return len(primaries) == 1 and all(
        state is primaries[0]
        or (
            state["master_link_status"] == "up"
            and state["master_repl_offset"] == primaries[0]["master_repl_offset"]
        )
        for state in states
    )
