"""`headrace tail -f` prints new entries, also after restarts, deletions and failovers."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headrace.cli.main import main
from support.headrace_server import headrace_server
from support.redis_cluster import Cluster, SentinelSetup
from support.redis_programs import installed_redis
from support.redis_server import free_port, redis_server
from support.waiting import SECONDS_MAX, answers, wait_until


class Tail:
    """A running `headrace tail`, its lines of output and error as they come."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "headrace", "tail", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.out = self._lines(self.process.stdout)
        self.err = self._lines(self.process.stderr)

    def _lines(self, source: object) -> queue.Queue[str]:
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            for line in source:  # type: ignore[attr-defined]
                lines.put(line.rstrip("\n"))

        threading.Thread(target=read, daemon=True).start()
        return lines

    def line(self) -> str:
        return self.out.get(timeout=SECONDS_MAX)

    def error(self) -> str:
        return self.err.get(timeout=SECONDS_MAX)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)


@contextlib.contextmanager
def tail(*words: str) -> Iterator[Tail]:
    running = Tail(*words)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_prints_new_entries_until_a_signal(
    number: signal.Signals, server_url: str, client: redis.Redis
) -> None:
    client.xadd("s", {"n": 1}, "1-0")
    client.xadd("t", {"n": 2}, "2-0")
    with tail("-f", "s", "t", "--url", server_url) as following:
        assert [following.line().split()[:2] for _ in range(2)] == [["s", "1-0"], ["t", "2-0"]]
        client.xadd("t", {"n": 3}, "3-0")
        assert following.line() == "t  3-0  1970-01-01 00:00:00.003  n=3"
        client.xadd("s", {"n": 4}, "4-0")
        assert following.line().split()[:2] == ["s", "4-0"]
        assert following.end(number) == 0
        assert following.out.empty() and following.err.empty()


def test_follow_exits_after_count_entries(server_url: str, client: redis.Redis) -> None:
    client.xadd("s", {"n": 1}, "1-0")
    with tail("-f", "-n", "0", "--count", "2", "s", "--url", server_url) as following:
        while following.process.poll() is None and following.out.qsize() < 2:
            client.xadd("s", {"n": 1})
            with contextlib.suppress(subprocess.TimeoutExpired):
                following.process.wait(0.2)
        assert following.process.wait(SECONDS_MAX) == 0
        lines = [following.line(), following.line()]
        assert following.out.empty() and not any(line.startswith("1-0") for line in lines)


def test_follow_reconnects_to_a_restarted_server(tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}"
    words = [installed_redis(), "--port", str(port), "--dir", str(tmp_path), "--appendonly", "yes"]
    words += ["--appendfsync", "always", "--save", ""]

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        with redis.Redis(port=port) as client:
            wait_until(lambda: answers(client), "redis-server")
        return process

    process = start()
    try:
        with redis.Redis(port=port) as client:
            client.xadd("s", {"n": 1}, "1-0")
        with tail("-f", "--json", "s", "--url", url) as following:
            assert json.loads(following.line())["id"] == "1-0"
            process.kill()
            process.wait()
            assert "connection lost, reconnecting" in following.error()
            process = start()
            with redis.Redis(port=port) as client:
                client.xadd("s", {"n": 2}, "2-0")
            assert json.loads(following.line())["id"] == "2-0"
            assert following.error() == "headrace: the server is back"
            assert following.end() == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", ["redis", "headrace"])
def test_a_stream_that_is_created_again_is_read_from_its_first_entry(kind: str) -> None:
    server = redis_server() if kind == "redis" else headrace_server()
    with server as port, redis.Redis(port=port) as client:
        client.xadd("s", {"n": 9}, "9-0")
        with tail("-f", "s", "--url", f"redis://127.0.0.1:{port}") as following:
            assert following.line().startswith("9-0")
            client.delete("s")
            assert following.error() == "headrace: stream 's' was deleted; waiting until it is created again"
            client.xadd("s", {"n": 1}, "1-0")
            assert following.line().startswith("1-0")
            with client.pipeline() as pipe:
                pipe.delete("s")
                pipe.xadd("s", {"n": 0}, "0-1")
                pipe.execute()
            assert "was deleted and created again" in following.error()
            assert following.line().startswith("0-1")


def test_follow_fails_if_a_stream_becomes_another_type(server_url: str, client: redis.Redis) -> None:
    client.xadd("s", {"n": 9})
    with tail("-f", "s", "--url", server_url) as following:
        following.line()  # the next XREAD or the check after it finds the other type
        with client.pipeline() as pipe:
            pipe.delete("s")
            pipe.set("s", "x")
            pipe.execute()
        assert following.process.wait(SECONDS_MAX) == 2
        error = following.error()
        assert "is not a stream" in error or "of another type" in error


def test_a_missing_server_prints_one_line_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "-f", "s", "--url", "redis://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_follow_exits_when_the_pipe_is_closed(server_url: str, client: redis.Redis) -> None:
    for n in range(1, 6):
        client.xadd("s", {"n": n}, f"{n}-0")
    command = f"{sys.executable} -m headrace tail -f s --url {server_url} | head -2"
    process = subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    done = threading.Event()

    def add() -> None:
        while not done.wait(0.2):
            client.xadd("s", {"n": 1})

    adding = threading.Thread(target=add)
    adding.start()
    try:
        out, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        done.set()
        adding.join()
    assert (len(out.splitlines()), err) == (2, "")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


def test_every_command_finds_the_nodes_of_a_cluster(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    names = sorted(cluster.stream_of(master) for master in cluster.masters)

    def run(*words: str) -> list[str]:
        assert main([*words, "--url", cluster.url]) == 0
        return capsys.readouterr().out.splitlines()

    for n, name in enumerate(names):
        assert run("add", name, "--id", f"{n + 1}-0", f"n={n}") == [f"{n + 1}-0"]
        cluster.client.xgroup_create(name, "g", "0")
        cluster.client.xreadgroup("g", "c", {name: ">"}, count=1)
    assert [line.split()[0] for line in run("ls")][1:] == names
    assert [line.split()[:2] for line in run("tail", *names)] == [
        [name, f"{n + 1}-0"] for n, name in enumerate(names)
    ]
    for n, name in enumerate(names):
        assert run("groups", name)[1].split()[:4] == ["g", "1", "0", "1"]
        assert run("pending", name, "g")[1].split()[:2] == [f"{n + 1}-0", "c"]
        assert run("ack", name, "g", f"{n + 1}-0") == ["1 acknowledged"]
    with tail("-f", "-n", "0", *names, "--url", cluster.url) as following:
        seen = 0
        while seen < 3:
            for name in names:
                cluster.client.xadd(name, {"n": 1})
            with contextlib.suppress(queue.Empty):
                seen += bool(following.out.get(timeout=0.2))
        assert following.end() == 0
    elsewhere = cluster.stream_of(cluster.masters[1])
    assert main(["tail", elsewhere, "--url", f"redis://127.0.0.1:{cluster.masters[0].port}"]) == 2
    assert "is a node of a cluster: use cluster://" in capsys.readouterr().err


def test_follow_survives_a_failover_by_sentinel(tmp_path: Path) -> None:
    watched = SentinelSetup(tmp_path)
    try:
        watched.master.client.xadd("s", {"n": 1}, "1-0")
        watched.master.wait_for(watched.replica)
        for words in (["ls"], ["groups", "s"], ["add", "t", "n=1"]):
            assert main([*words, "--url", watched.url]) == 0
        with tail("-f", "s", "--url", watched.url) as following:
            assert following.line().startswith("1-0")
            watched.master.kill()
            assert "connection lost" in following.error()
            wait_until(lambda: watched.replica.client.info("replication")["role"] == "master", "a failover")
            watched.replica.client.xadd("s", {"n": 2}, "2-0")
            assert following.line().startswith("2-0")
    finally:
        watched.close()
