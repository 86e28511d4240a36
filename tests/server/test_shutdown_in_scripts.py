"""SIGTERM while a script does not end: the server ends, and no part of its changes stays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from server.server_process import SECONDS_MAX, Process
from support.headrace_server import headrace_server
from support.waiting import wait_until

pytest.importorskip("lupa.luajit21")
pytestmark = pytest.mark.whole

ENDLESS = "while true do end"
WRITES = "redis.call('set', KEYS[1], 'half') redis.call('xadd', KEYS[2], '*', 'f', 'half') " + ENDLESS
LOGGED = ("--appendonly", "yes", "--save", "", "--busy-reply-threshold", "20")
SNAPSHOTS = ("--appendonly", "no", "--save", "3600 1", "--busy-reply-threshold", "20")


@contextlib.contextmanager
def server(directory: Path, *options: str) -> Iterator[Process]:
    process = Process(directory, *options)
    try:
        yield process
    finally:
        process.kill()


def run_slow(process: Process, script: str, *keys: str) -> redis.Connection:
    """Start a script; return its client once the server is busy with it."""
    connection = redis.Connection(port=process.port, socket_timeout=SECONDS_MAX)
    connection.connect()
    connection.send_command("EVAL", script, len(keys), *keys)
    with process.client() as other:
        wait_until(lambda: is_busy(other), "the script is not slow")
    return connection


def is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.exceptions.ResponseError as error:
        return "Redis is busy" in str(error)
    return False


def contents(directory: Path, *options: str) -> dict[str, object]:
    """What a server has that is started on the directory."""
    with server(directory, *options) as process, process.client() as client:
        return {key: client.get(key) for key in sorted(client.keys())}


def test_a_script_that_only_reads_is_ended_and_the_server_shuts_down_as_always(tmp_path):
    with server(tmp_path, *SNAPSHOTS) as process:
        with process.client() as client:
            client.set("before", 1)
        slow = run_slow(process, "while true do pcall(function() while true do end end) end")
        process.child.terminate()
        with pytest.raises(redis.exceptions.ResponseError, match="Script killed: the server shuts down"):
            slow.read_response()
        assert process.child.wait(SECONDS_MAX) == 0
    assert contents(tmp_path, *SNAPSHOTS) == {"before": "1"}  # the shutdown has taken a snapshot


def test_a_script_is_slow_at_a_shutdown_even_without_busy_reply_threshold(tmp_path):
    with server(tmp_path, *LOGGED, "--busy-reply-threshold", "0") as process:
        connection = redis.Connection(port=process.port)
        connection.connect()
        connection.send_command("SET", "sent", "1")
        connection.read_response()
        connection.send_command("EVAL", ENDLESS, 0)
        process.child.terminate()
        assert process.child.wait(SECONDS_MAX) == 0


@pytest.mark.parametrize("signals", [1, 2])
def test_the_changes_of_an_endless_script_are_dropped_and_all_others_kept(tmp_path, signals):
    """After shutdown-timeout, or at the second signal."""
    timeout = "1" if signals == 1 else "3600"
    with server(tmp_path, *LOGGED, "--shutdown-timeout", timeout) as process:
        with process.client() as client:
            client.mset({"before": 1, "k": "whole"})
        slow = run_slow(process, WRITES, "k", "s")
        process.child.terminate()
        if signals == 2:
            wait_for_line(
                process, b"the shutdown waits for a script that has written, for 3600 s; the next signal"
            )
            assert process.child.poll() is None
            process.child.terminate()
        with pytest.raises(redis.exceptions.ConnectionError):
            slow.read_response()
        assert process.child.wait(SECONDS_MAX) == 0
    assert contents(tmp_path, *LOGGED) == {"before": "1", "k": "whole"}


def wait_for_line(process: Process, text: bytes) -> None:
    assert process.child.stderr is not None
    for line in process.child.stderr:
        if text in line:
            return
    raise AssertionError("the server has ended")


def test_a_transaction_whose_script_does_not_end_is_dropped_whole(tmp_path):
    with server(tmp_path, *LOGGED, "--shutdown-timeout", "0") as process:
        with process.client() as client:
            client.set("before", 1)
        connection = redis.Connection(port=process.port, socket_timeout=SECONDS_MAX)
        connection.connect()
        for words in (["MULTI"], ["SET", "k", "half"], ["EVAL", WRITES, 2, "l", "s"], ["EXEC"]):
            connection.send_command(*words)
        with process.client() as other:
            wait_until(lambda: is_busy(other), "the script is not slow")
        process.child.terminate()
        assert process.child.wait(SECONDS_MAX) == 0
    assert contents(tmp_path, *LOGGED) == {"before": "1"}


def test_nobody_is_served_what_a_dropped_script_has_added(tmp_path):
    """Neither a reader that waits for the stream nor a request behind the script in its pipeline."""
    with server(tmp_path, *LOGGED, "--shutdown-timeout", "0") as process:
        waiting = redis.Connection(port=process.port, socket_timeout=SECONDS_MAX)
        waiting.connect()
        with process.client() as client:
            client.xgroup_create("s", "g", mkstream=True)
            waiting.send_command("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
            wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "nobody waits")
        slow = redis.Connection(port=process.port, socket_timeout=SECONDS_MAX)
        slow.connect()
        packed = slow.pack_command("EVAL", WRITES, 2, "k", "s") + slow.pack_command("APPEND", "k", "er")
        slow.send_packed_command(packed)
        with process.client() as other:
            wait_until(lambda: is_busy(other), "the script is not slow")
        process.child.terminate()
        for connection in (waiting, slow):
            with pytest.raises(redis.exceptions.ConnectionError):
                connection.read_response()
        assert process.child.wait(SECONDS_MAX) == 0
    with server(tmp_path, *LOGGED) as process, process.client() as client:
        assert client.xlen("s") == 0 and client.xpending("s", "g")["pending"] == 0
        assert client.get("k") is None


def test_a_server_that_would_lose_data_waits_for_the_script_and_then_shuts_down(tmp_path):
    """It has snapshots only, and cannot take one in the middle of a script."""
    script = """
    redis.call('set', KEYS[1], 'half')
    local start = os.clock()
    while os.clock() < start + 2 do end
    redis.call('set', KEYS[1], 'whole')
    """
    with server(tmp_path, *SNAPSHOTS, "--shutdown-timeout", "0") as process:
        with process.client() as client:
            client.set("before", 1)
        slow = run_slow(process, script, "k")
        process.child.terminate()
        wait_for_line(process, b"the shutdown waits for a script that has written")
        assert slow.read_response() is None
        assert process.child.wait(SECONDS_MAX) == 0
    assert contents(tmp_path, *SNAPSHOTS) == {"before": "1", "k": "whole"}


def test_a_write_before_a_slow_script_is_not_acknowledged_before_it_is_logged(tmp_path):
    """Both come in one turn, so the log gets the write when the script ends, and the reply waits for that."""
    with headrace_server(tmp_path, *LOGGED, "--enable-debug-command", "yes") as port:
        writer, slow = redis.Connection(port=port), redis.Connection(port=port)
        for connection in (writer, slow):
            connection.connect()
        blocker = redis.Connection(port=port)  # the server is busy with it while the others send
        blocker.connect()
        blocker.send_command("DEBUG", "SLEEP", "0.2")
        writer.send_command("SET", "k", "v")
        slow.send_command("EVAL", ENDLESS, 0)
        blocker.read_response()
        with redis.Redis(port=port) as other:
            wait_until(lambda: is_busy(other), "the script is not slow")
            answered = writer.can_read(timeout=0)
            logged = b"SET" in b"".join(f.read_bytes() for f in tmp_path.glob("appendonlydir/*.incr.aof"))
            other.script_kill()
        assert logged or not answered
        assert writer.read_response() in (b"OK", "OK")
        for connection in (writer, slow, blocker):
            connection.disconnect()
