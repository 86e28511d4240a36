"""Three real Sentinels, configured as docs/replication.md says."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis

from replication.documented_commands import blocks
from support.redis_programs import INSTALLED, redis_program
from support.redis_server import free_port
from support.waiting import answers, wait_until


@contextlib.contextmanager
def sentinels(
    directory: Path, primary: int, down_after_ms: int = 3000, kind: str = INSTALLED
) -> Iterator[list[int]]:
    """Three processes of a redis-server of this kind as Sentinels of the primary: their ports."""
    (documented,) = blocks("Sentinel", language="")
    ports, processes = [], []
    try:
        for number in range(3):
            port = free_port()
            place = directory / f"sentinel-{number}"
            place.mkdir()
            file = place / "sentinel.conf"
            text = documented.replace("10.0.0.1 6400", f"127.0.0.1 {primary}").replace("26379", str(port))
            text = (
                text.replace("sentinel auth-pass orders ...\n", "")
                .replace("orders 5000", f"orders {down_after_ms}")
                .replace("orders 60000", "orders 20000")
            )
            file.write_text(f"{text}dir {place}\n")
            with (place / "log").open("wb") as log:
                command = [redis_program(kind), str(file), "--sentinel"]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
            client = redis.Redis(port=port)
            wait_until(lambda client=client: answers(client))  # type: ignore[misc]
            ports.append(port)
        yield ports
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for_discovery(ports: list[int], replicas: int) -> None:
    """Wait until each Sentinel knows the replicas and the other Sentinels."""
    for port in ports:
        with redis.Redis(port=port) as client:

            def knows_all(client: redis.Redis = client) -> bool:
                state = client.sentinel_master("orders")
                return state["num-slaves"] == replicas and state["num-other-sentinels"] == len(ports) - 1

            wait_until(knows_all)


def url_of_sentinels(ports: list[int]) -> str:
    """Return the URL of the primary that they name."""
    return "sentinel://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/orders"
