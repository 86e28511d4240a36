"""Streams copied by Spark while everything fails: every entry is there once, and in its stream's order.

100,000 entries; a million with HEADRACE_LONG=1 in the environment.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from spark.spark_workers import workers_below
from support.flaky_proxy import Cut, FlakyProxy
from support.redis_server import free_port
from support.stream_server import start_server

pytestmark = [pytest.mark.whole, pytest.mark.slow]

ENTRIES = 1_000_000 if os.environ.get("HEADRACE_LONG") else 100_000
BATCHES = 12
STREAMS = {"a": 0.6, "b": 0.3, "c": 0.1}  # the share of each
LOG = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")


class Server:
    """One that keeps everything, and can be killed and started again."""

    def __init__(self, kind: str, folder: pathlib.Path) -> None:
        self._kind = kind
        self._folder = folder
        self.port = free_port()
        self.client = redis.Redis(port=self.port)
        self.deaths = 0
        self._start()

    def _start(self) -> None:
        self._process = start_server(self._kind, self.port, self._folder, *LOG)

    def restart(self) -> None:
        """Without a chance to tidy up."""
        self._process.kill()
        self._process.wait()
        self._start()
        self.deaths += 1

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(params=["redis", "headrace"])
def server(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    running = Server(request.param, folder)
    yield running
    running.close()


def fill(server: Server) -> dict[str, int]:
    """Numbered entries in every stream; how many."""
    counts = {stream: int(ENTRIES * share) for stream, share in STREAMS.items()}
    with subprocess.Popen(
        ["redis-cli", "-p", str(server.port), "--pipe"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as pipe:
        assert pipe.stdin is not None
        for stream, count in counts.items():
            for n in range(count):
                words = stream.encode(), n // 3, n % 3 + 1, n, n
                pipe.stdin.write(b"XADD %s %d-%d n %d text t%d\r\n" % words)
    return counts


class Copy:
    """The query, and what is done to it."""

    def __init__(self, server: Server, proxy: FlakyProxy, folder: pathlib.Path) -> None:
        self._server = server
        self._words = [
            sys.executable,
            str(pathlib.Path(__file__).with_name("copy_child.py")),
            proxy.url,
            str(folder),
            str(ENTRIES // BATCHES),
        ]
        self._commits = folder / "checkpoint" / "commits"
        self._log = folder / "log"
        self.workers_killed = 0

    def batches(self) -> int:
        """How many are committed."""
        return sum(name.isdigit() for name in os.listdir(self._commits)) if self._commits.exists() else 0

    def run(self, *faults: tuple[int, Callable[[int], bool]]) -> int:
        """One run of the query; its exit code.

        faults: (after so many batches, what then happens, given the process; True once it has happened).
        """
        due = list(faults)
        with self._log.open("ab") as log:
            child = subprocess.Popen(self._words, start_new_session=True, stdout=log, stderr=log)
        deadline = time.monotonic() + 400 + ENTRIES / 2000
        try:
            while child.poll() is None:
                assert time.monotonic() < deadline, "the query does not end"
                if due and self.batches() >= due[0][0] and due[0][1](child.pid):
                    due.pop(0)
                time.sleep(0.02)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        assert not due, f"not all faults happened: {self.text()}"
        return child.returncode

    def kill_a_worker(self, pid: int) -> bool:
        workers = workers_below(pid)
        for worker in workers[:1]:
            os.kill(worker, signal.SIGKILL)
            self.workers_killed += 1
        return bool(workers)

    def restart_the_server(self, pid: int) -> bool:
        self._server.restart()
        return True

    def kill_the_driver(self, pid: int) -> bool:
        os.killpg(pid, signal.SIGKILL)
        return True

    def text(self) -> str:
        """The end of what the runs have printed."""
        return self._log.read_text(errors="replace")[-3000:]


@pytest.mark.mainly("headrace")
def test_every_entry_is_copied_once_and_in_order_despite_all_failures(
    server: Server, tmp_path: pathlib.Path
) -> None:
    counts = fill(server)
    size = ENTRIES // 2  # bytes; every connection carries far more in all
    cuts = [Cut(up=size // n) if n % 2 else Cut(down=size // n, reset=True) for n in range(1, 25)]
    proxy = FlakyProxy(server.port, cuts)
    copy = Copy(server, proxy, tmp_path)
    worker, restart = copy.kill_a_worker, copy.restart_the_server
    code = copy.run((0, worker), (1, worker), (2, restart), (4, worker), (5, copy.kill_the_driver))
    assert code == -signal.SIGKILL and copy.batches() < BATCHES, copy.text()
    code = copy.run((6, worker), (7, restart), (8, worker))
    assert code == 0, copy.text()
    assert copy.workers_killed == 5 and server.deaths == 2
    assert proxy.connections > len(cuts), "the cuts were not met"
    proxy.close()
    for stream, count in counts.items():
        assert numbers(server, f"copy of {stream}") == list(range(count))


def numbers(server: Server, stream: str) -> list[int]:
    """n of every entry of the stream, in its order."""
    found: list[int] = []
    after = "-"
    while page := server.client.xrange(stream, after, "+", 10_000):
        assert all(fields[b"text"] == b"t" + fields[b"n"] for _, fields in page)
        found += [int(fields[b"n"]) for _, fields in page]
        after = f"({page[-1][0].decode()}"
    return found
