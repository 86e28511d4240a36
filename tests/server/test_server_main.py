"""The server as a process, and what comes round by itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest
import redis

import headrace
from headrace.server.main import usage
from support.waiting import wait_until

PROGRAM = "import sys; from headrace.server.main import serve; sys.exit(serve(sys.argv[1:]))"


@pytest.fixture
def process(tmp_path: Path):
    command = [sys.executable, "-c", PROGRAM, "--port", "free", "--bind", "127.0.0.1", "--appendonly", "no"]
    command += ["--port-file", str(tmp_path / "port"), "--pidfile", str(tmp_path / "pid")]
    here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=here) as child:
        yield child
        child.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_stops_cleanly(process, tmp_path: Path, number: int):
    line = process.stdout.readline().decode()
    port = int((tmp_path / "port").read_text())
    assert line == f"headrace {headrace.__version__} ready on 127.0.0.1:{port} (pid {process.pid})\n"
    assert int((tmp_path / "pid").read_text()) == process.pid
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"
        process.send_signal(number)
        assert process.wait(30) == 0
        assert client.recv(100) == b""
    said = [line.partition(b" NOTICE ")[2] for line in process.stderr]
    assert said == [b"shutting down: %s\n" % signal.Signals(number).name.encode(), b"stopped\n"]
    assert sorted(os.listdir(tmp_path)) == []


def test_shutdown_ends_the_process_without_an_answer(process, tmp_path: Path):
    process.stdout.readline()
    with socket.create_connection(("127.0.0.1", int((tmp_path / "port").read_text()))) as client:
        client.sendall(b"SHUTDOWN NOSAVE\r\n")
        assert client.recv(100) == b""
    assert process.wait(30) == 0


def test_the_help_names_every_directive():
    assert "--stream-node-max-entries" in usage()
    assert all(len(line) <= 120 for line in usage().splitlines())


def test_an_idle_client_is_closed_after_the_timeout(start):
    server = start("--timeout", "1", "--hz", "50")
    idle, waiting = server.connect(), server.connect()
    waiting.send(b"XREAD BLOCK 0 STREAMS orders $\r\n")
    assert idle.request("PING") == "PONG"
    assert idle.is_closed()
    assert len(server.server.parts.loop.connections) == 1


def test_who_listens_is_not_idle(start, server_url: str):
    """As redis-server has it: an idle client's last request is long ago, and so is theirs."""
    server = start("--timeout", "1", "--hz", "50")
    theirs = redis.Redis.from_url(server_url)
    idle, *listeners = (server.connect() for _ in range(4))
    assert listeners[0].request("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]
    listeners[1].request("HELLO", "3")
    assert listeners[1].request("PSUBSCRIBE", "n*") == [b"psubscribe", b"n*", 1]
    assert listeners[2].request("MONITOR") == "OK"
    with theirs.pubsub() as heard:
        heard.subscribe("news")
        assert heard.get_message(timeout=30) is not None
        theirs.config_set("timeout", 1)
        assert idle.is_closed()
        time.sleep(1.2)
        theirs.config_set("timeout", 0)
        assert heard.ping() is None and heard.get_message(timeout=30)["type"] == "pong"
    assert server.connect().request("PUBLISH", "news", "pear") == 2
    assert listeners[0].reply() == [b"message", b"news", b"pear"]
    assert listeners[1].reply() == [b"pmessage", b"n*", b"news", b"pear"]
    assert b'"PUBLISH" "news" "pear"' in listeners[2].reply().encode()


def test_children_are_waited_for_though_whoever_started_us_ignores_them(tmp_path: Path):
    ignoring = f"import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); {PROGRAM}"
    command = [sys.executable, "-c", ignoring, "--port", "free", "--port-file", "port", "--appendonly", "no"]
    here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=here) as child:
        try:
            wait_until((tmp_path / "port").exists, "a server")
            with redis.Redis(port=int((tmp_path / "port").read_text())) as client:
                client.set("pears", 7)
                assert client.bgsave()
                wait_until(lambda: client.info("persistence")["rdb_saves"] == 1, "a snapshot")
            child.terminate()
            assert child.wait(30) == 0
        finally:
            child.kill()


@pytest.mark.parametrize("lost", [">/dev/full", ">&-", "2>&-", ">&- 2>&-"])
def test_it_runs_whoever_reads_what_it_says(tmp_path: Path, lost: str):
    words = [sys.executable, "-c", PROGRAM, "--port", "free", "--port-file", "port", "--appendonly", "no"]
    here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent), "PYTHONUNBUFFERED": ""}
    shell = ["sh", "-c", f'exec "$0" "$@" {lost}', *words]
    with subprocess.Popen(shell, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=here) as child:
        try:
            wait_until((tmp_path / "port").exists, "a server")
            with socket.create_connection(("127.0.0.1", int((tmp_path / "port").read_text()))) as client:
                client.sendall(b"PING\r\n")
                assert client.recv(100) == b"+PONG\r\n"
            child.terminate()
            assert child.wait(30) == 0
            assert [line for line in child.stderr if b" NOTICE " not in line] == []
        finally:
            child.kill()


def started(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a server whose log file is `events`, and wait until it is ready."""
    words = [sys.executable, "-c", PROGRAM, "--port", "free", "--port-file", "port", "--logfile", "events"]
    here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    child = subprocess.Popen([*words, *arguments], stdout=PIPE, cwd=folder, env=here)
    assert child.stdout is not None and b"ready on" in child.stdout.readline()
    return child


def test_the_log_says_when_the_server_is_ready_what_it_loaded_and_when_it_ends(tmp_path: Path):
    for _ in range(2):
        with started(tmp_path) as child:
            try:
                with redis.Redis(port=int((tmp_path / "port").read_text())) as client:
                    client.mset({f"k{n}": n for n in range(7)})
                child.terminate()
                assert child.wait(30) == 0
            finally:
                child.kill()
    said = [line.partition(" NOTICE ")[2] for line in (tmp_path / "events").read_text().splitlines()]
    ready, *end = said[:4]
    assert ready.startswith(f"headrace {headrace.__version__} ready on ")
    assert end == ["shutting down: SIGTERM", "the log is synced", "stopped"]
    assert said[4].startswith("loaded 7 keys from ") and said[4].endswith(" s")
    assert said[5].startswith(f"headrace {headrace.__version__} ready on ")


def test_the_ready_line_is_json_if_the_log_is(tmp_path: Path):
    words = [sys.executable, "-c", PROGRAM, "--port", "free", "--log-format", "json"]
    here = os.environ | {"PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    with subprocess.Popen(words, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=here) as child:
        first = json.loads(child.stdout.readline())
        child.terminate()
        assert all(json.loads(line)["level"] == "notice" for line in child.stderr)
    assert "ready on" in first["message"] and first["level"] == "notice"


def test_config_set_takes_effect(server, client):
    assert (
        client.request("CONFIG", "SET", "stream-node-max-entries", "3", "proto-max-bulk-len", "1mb") == "OK"
    )
    for n in range(1, 7):
        client.request("XADD", "orders", f"{n}-0", "item", "pear")
    info = client.request("XINFO", "STREAM", "orders")
    assert dict(zip(info[::2], info[1::2], strict=True))[b"radix-tree-keys"] == 2
    client.send(b"*2\r\n$4\r\nECHO\r\n$1048577\r\n")
    assert str(client.reply()) == "ERR Protocol error: invalid bulk length"


def test_config_set_changes_nothing_if_one_change_cannot_be_made(server, client, monkeypatch):
    def fail() -> None:
        raise OSError("no room")

    monkeypatch.setattr(server.server.parts.durability, "enable", fail)
    refused = client.request(
        "CONFIG", "SET", "timeout", "9", "stream-node-max-entries", "3", "appendonly", "yes"
    )
    assert str(refused) == "ERR CONFIG SET failed: no log can be kept: no room"
    assert client.request("CONFIG", "GET", "timeout", "appendonly") == [
        b"appendonly",
        b"no",
        b"timeout",
        b"0",
    ]
    assert server.server.parts.engine.keyspace.settings.stream_node_max_entries == 100


def test_config_get_shows_the_port_in_use(server, client):
    assert client.request("CONFIG", "GET", "port") == [b"port", str(server.port).encode()]


def test_info_knows_the_process(server, client):
    text = client.request("INFO", "everything").decode()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    assert int(fields["process_id"]) == os.getpid()
    assert int(fields["tcp_port"]) == server.port
    assert int(fields["used_memory_rss"]) > 1_000_000
    assert int(fields["total_net_input_bytes"]) > 0
    assert fields["maxclients"] == "10000"
    assert fields["connected_clients"] == "1"


def test_the_rate_of_requests_is_known_while_there_is_traffic(start):
    server = start("--hz", "100")
    client = server.connect()

    def rate() -> int:
        for _ in range(100):
            client.request("PING")
        text = client.request("INFO", "stats").decode()
        return int(text.split("instantaneous_ops_per_sec:")[1].split("\r")[0])

    wait_until(lambda: rate() > 0)


def test_an_idle_server_sleeps(server, client):
    """With nobody asking and nothing due, there are no turns."""
    client.request("PING")
    time.sleep(0.3)
    turns = []
    loop = server.server.parts.loop

    def count() -> bool:
        turns.append(None)
        loop.commit_required = True  # call it in the next turn, too
        return True

    loop.commit = count
    loop.commit_required = True
    time.sleep(0.4)
    assert len(turns) <= 1
