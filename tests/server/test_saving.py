"""Snapshots and rewrites: asked for, by rule, by growth; when they fail, and when they are ended."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from headrace.console.exposition import exposition
from headrace.console.server_stats import ServerStats
from headrace.persistence.rdb.encoder_thread import EncoderThread
from server.held_jobs import held_job
from support.waiting import wait_until


def fill(client, entries: int = 50) -> None:
    for n in range(1, entries + 1):
        client.send(b"XADD s %d-0 field value-%d\r\n" % (n, n))
    for _ in range(entries):
        client.reply()


def break_snapshots(path: Path) -> None:
    """What is renamed to the snapshot's name cannot take its place."""
    path.mkdir()
    (path / "in the way").touch()


def mend_snapshots(path: Path) -> None:
    (path / "in the way").unlink()
    path.rmdir()


def test_save_and_start_again_from_the_snapshot(start, tmp_path: Path):
    server = start("--dbfilename", "mine.rdb")
    client = server.connect()
    fill(client)
    before = client.request("LASTSAVE")
    assert client.request("SAVE") == "OK"
    assert client.request("LASTSAVE") >= before
    assert client.info()["rdb_changes_since_last_save"] == "0"
    client.request("XADD", "s", "99-0", "f", "v")
    server.stop()
    assert sorted(os.listdir(tmp_path)) == ["mine.rdb"]
    client = start("--dbfilename", "mine.rdb").connect()
    assert client.request("XLEN", "s") == 50
    assert client.info()["rdb_last_load_keys_loaded"] == "1"


def test_a_snapshot_in_the_background_is_of_one_moment(start):
    server = start()
    client = server.connect()
    fill(client)
    client.send(b"BGSAVE\r\nINFO persistence\r\nXADD s 99-0 f v\r\nBGSAVE\r\n")
    assert client.reply() == "Background saving started"
    assert b"rdb_bgsave_in_progress:1\r\n" in client.reply()
    client.reply()
    assert str(client.reply()) == "ERR Background save already in progress"
    wait_until(lambda: client.info()["rdb_saves"] == "1")
    assert client.info()["rdb_last_bgsave_status"] == "ok"
    assert client.info()["rdb_bgsave_in_progress"] == "0"
    server.stop()
    # It was begun between two turns: the XADD of the same turn is in it, later ones are not.
    assert start().connect().request("XLEN", "s") == 51


def test_a_snapshot_begins_after_the_transaction_that_requests_it(start):
    server = start()
    client = server.connect()
    client.send(b"MULTI\r\nXADD s 1-0 f v\r\nBGSAVE\r\nXADD s 2-0 f v\r\nEXEC\r\n")
    replies = [client.reply() for _ in range(5)]
    assert replies[-1] == [b"1-0", "Background saving started", b"2-0"]
    wait_until(lambda: client.info()["rdb_saves"] == "1")
    server.stop()
    assert start().connect().request("XLEN", "s") == 2


def test_the_progress_of_a_snapshot_is_shown(start):
    server = start()
    client = server.connect()
    fill(client)
    client.request("SET", "k", "v")
    with held_job(server, client, "BGSAVE"):
        info = client.info()
        assert info["current_save_keys_total"] == "2" and info["current_save_keys_processed"] == "0"
        assert info["current_fork_perc"] == "0.00"
        stats = ServerStats(0.0, info)
        assert 'headrace_snapshot_progress_ratio{what="snapshot"} 0.0' in exposition(stats)
    wait_until(lambda: client.info()["rdb_saves"] == "1")
    assert client.info()["current_save_keys_total"] == "0"
    assert "headrace_snapshot" not in exposition(ServerStats(0.0, client.info()))


def test_one_job_at_a_time(start):
    server = start("--appendonly", "yes")
    client = server.connect()
    client.send(b"BGREWRITEAOF\r\nBGREWRITEAOF\r\nBGSAVE\r\nBGSAVE SCHEDULE\r\n")
    assert client.reply() == "Background append only file rewriting started"
    assert str(client.reply()) == "ERR Background append only file rewriting already in progress"
    assert str(client.reply()).startswith(
        "ERR Another child process is active (AOF?): can't BGSAVE right now."
    )
    assert client.reply() == "Background saving scheduled"
    wait_until(lambda: client.info()["rdb_saves"] == "1")
    assert client.info()["aof_rewrites"] == "1"


@pytest.mark.parametrize(
    ("command", "reply", "jobs_done"),
    [
        ("BGSAVE", "Background saving scheduled", "rdb_saves"),
        ("BGREWRITEAOF", "Background append only file rewriting scheduled", "aof_rewrites"),
    ],
)
def test_a_job_is_scheduled_while_a_replica_gets_a_snapshot(start, command: str, reply: str, jobs_done: str):
    server = start("--appendonly", "yes", "--repl-diskless-sync-delay", "0")
    client = server.connect()
    replica = server.connect()
    with patch.object(EncoderThread, "has_room", lambda self: False):
        assert "FULLRESYNC" in str(replica.request("PSYNC", "?", "-1"))
        wait_until(lambda: server.server.parts.engine.keyspace.image is not None)
        assert client.request(command) == reply
        assert client.info()[jobs_done] == "0"
        assert server.server.parts.saving.running_job is None
    wait_until(lambda: client.info()[jobs_done] == "1")


def test_a_rewrite_needs_a_log(start):
    client = start().connect()
    assert str(client.request("BGREWRITEAOF")).startswith("ERR the log is off")


@pytest.mark.parametrize(
    ("types", "magic"),
    [("compatible", b"REDIS0010"), ("redis-8.0", b"REDIS0012"), ("redis-8.8", b"REDIS0014")],
)
def test_the_form_of_snapshots_is_configured(start, tmp_path: Path, types: str, magic: bytes):
    server = start("--rdb-stream-types", types, "--rdbchecksum", "no", "--rdbcompression", "no")
    client = server.connect()
    fill(client)
    client.request("SET", "text", "v" * 1000)
    client.request("SAVE")
    data = (tmp_path / "dump.rdb").read_bytes()
    assert data.startswith(magic) and data.endswith(bytes(8)) and b"v" * 1000 in data
    server.stop()
    assert start().connect().request("XLEN", "s") == 50


def test_files_of_the_past_are_kept_on_demand(start, tmp_path: Path):
    server = start("--appendonly", "yes")
    client = server.connect()
    client.request("CONFIG", "SET", "aof-disable-auto-gc", "yes")
    client.request("BGREWRITEAOF")
    wait_until(lambda: client.info()["aof_rewrites"] == "1")
    assert len(os.listdir(tmp_path / "appendonlydir")) == 5
    assert " type h\n" in (tmp_path / "appendonlydir" / "appendonly.aof.manifest").read_text()


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_rewritten_log_holds_the_same(start, tmp_path: Path, preamble: str):
    words = ("--appendonly", "yes", "--aof-use-rdb-preamble", preamble)
    server = start(*words)
    client = server.connect()
    fill(client)
    client.request("XGROUP", "CREATE", "s", "g", "0")
    client.request("XREADGROUP", "GROUP", "g", "ann", "COUNT", "7", "STREAMS", "s", ">")
    client.request("XDEL", "s", "3-0", "4-0")
    client.request("XTRIM", "s", "MAXLEN", "40")
    client.request("BGREWRITEAOF")
    client.request("XACK", "s", "g", "1-0")  # goes to the new file
    wait_until(lambda: client.info()["aof_rewrites"] == "1")
    client.request("XACK", "s", "g", "2-0")
    seen = [client.request("XPENDING", "s", "g"), client.request("XRANGE", "s", "-", "+")]
    server.stop()
    files = sorted(os.listdir(tmp_path / "appendonlydir"))
    assert len(files) == 3 and files[0].endswith(".rdb" if preamble == "yes" else ".base.aof")
    client = start(*words).connect()
    assert [client.request("XPENDING", "s", "g"), client.request("XRANGE", "s", "-", "+")] == seen


def test_rules_of_save(start, tmp_path: Path):
    server = start("--save", "1", "3")
    client = server.connect()
    client.request("SET", "a", "1")
    client.request("SET", "a", "2")
    time.sleep(1.3)
    assert not (tmp_path / "dump.rdb").exists()
    client.request("SET", "a", "3")
    wait_until((tmp_path / "dump.rdb").exists)
    wait_until(lambda: client.info()["rdb_changes_since_last_save"] == "0")


def test_a_log_that_has_grown_is_rewritten(start, tmp_path: Path):
    server = start(
        "--appendonly", "yes", "--auto-aof-rewrite-min-size", "2kb", "--auto-aof-rewrite-percentage", "100"
    )
    client = server.connect()
    for _ in range(40):
        client.request("SET", "k", "v" * 50)
    wait_until(lambda: client.info()["aof_rewrites"] == "1")
    assert int(client.info()["aof_current_size"]) < 2000
    assert client.request("GET", "k") == b"v" * 50


def test_a_failed_snapshot_keeps_writes_out_until_one_succeeds(start, tmp_path: Path):
    server = start("--save", "3600", "1")
    client = server.connect()
    client.request("SET", "a", "1")
    break_snapshots(tmp_path / "dump.rdb")
    assert client.request("BGSAVE") == "Background saving started"
    wait_until(lambda: client.info()["rdb_last_bgsave_status"] == "err")
    text = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
    assert str(client.request("SET", "a", "2")).startswith(text)
    assert str(client.request("PING")).startswith(text)
    assert client.request("GET", "a") == b"1"
    assert str(client.request("SAVE")) == "ERR"
    assert str(client.request("SHUTDOWN")) == "ERR Errors trying to SHUTDOWN. Check logs."
    assert client.request("CONFIG", "SET", "stop-writes-on-bgsave-error", "no") == "OK"
    assert client.request("SET", "a", "3") == "OK"
    assert client.request("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes") == "OK"
    assert str(client.request("SET", "a", "4")).startswith(text)
    mend_snapshots(tmp_path / "dump.rdb")
    assert client.request("SAVE") == "OK"
    assert client.request("SET", "a", "5") == "OK"
    assert not [name for name in os.listdir(tmp_path) if name.startswith("temp-")]


def test_without_rules_a_failed_snapshot_is_only_told(start, tmp_path: Path):
    client = start().connect()
    break_snapshots(tmp_path / "dump.rdb")
    client.request("BGSAVE")
    wait_until(lambda: client.info()["rdb_last_bgsave_status"] == "err")
    assert client.request("SET", "a", "2") == "OK"


def test_a_rewrite_that_is_called_off_is_no_failure(start, capfd):
    server = start("--appendonly", "yes")
    client = server.connect()
    with held_job(server, client, "BGREWRITEAOF"):
        assert client.request("CONFIG", "SET", "appendonly", "no") == "OK"
    assert client.info()["aof_last_bgrewrite_status"] == "ok"
    assert "failed" not in capfd.readouterr().err


@pytest.mark.parametrize("command", ["BGSAVE", "BGREWRITEAOF"])
def test_a_job_that_fails_leaves_all_as_it_was(start, tmp_path: Path, command: str):
    def fail(data) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    server = start("--appendonly", "yes", "--save", "")
    client = server.connect()
    fill(client)
    with held_job(server, client, command) as job:
        client.request("XADD", "s", "99-0", "f", "v")
        job.thread._write = fail
    field = "rdb_last_bgsave_status" if command == "BGSAVE" else "aof_last_bgrewrite_status"
    wait_until(lambda: client.info()[field] == "err")
    client.request("XADD", "s", "100-0", "f", "v")
    server.stop()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("temp-")]
    assert start("--appendonly", "yes").connect().request("XLEN", "s") == 52


def test_flushall_ends_a_snapshot_and_takes_another(start, tmp_path: Path):
    server = start("--save", "3600", "1")
    client = server.connect()
    fill(client)
    with held_job(server, client, "BGSAVE"):
        assert client.request("FLUSHALL") == "OK"
        assert client.info()["rdb_bgsave_in_progress"] == "0"
    assert (tmp_path / "dump.rdb").exists()
    client.send(b"SHUTDOWN NOSAVE\r\n")
    assert client.is_closed()
    server.stop()
    assert start().connect().request("DBSIZE") == 0


@pytest.mark.parametrize(
    ("request_", "rules", "kept"),
    [
        ("SHUTDOWN", "3600 1", 1),
        ("SHUTDOWN NOSAVE", "3600 1", 0),
        ("SHUTDOWN", "", 0),
        ("SHUTDOWN SAVE", "", 1),
        ("SHUTDOWN NOW FORCE", "3600 1", 1),
    ],
)
def test_shutdown_saves_by_rule_or_when_told(start, request_: str, rules: str, kept: int):
    server = start("--save", rules)
    client = server.connect()
    client.request("SET", "k", "v")
    client.send(request_.encode() + b"\r\n")
    assert client.is_closed()
    server.stop()
    assert start().connect().request("EXISTS", "k") == kept


def test_shutdown_saves_although_a_snapshot_was_about_to_begin(start):
    server = start()
    client = server.connect()
    client.send(b"SET k v\r\nBGSAVE\r\nSHUTDOWN SAVE\r\n")
    assert client.reply() == "OK"
    assert client.reply() == "Background saving started"
    assert client.is_closed()
    server.stop()
    assert start().connect().request("EXISTS", "k") == 1


def test_a_signal_ends_the_server_when_all_is_saved_a_second_one_regardless(start, tmp_path: Path):
    server = start("--save", "3600", "1")
    client = server.connect()
    client.request("SET", "k", "v")
    break_snapshots(tmp_path / "dump.rdb")
    server.server.parts.control.request_shutdown()  # what the handler of SIGTERM does
    wait_until(lambda: server.server.parts.shutdown.failed)
    assert client.request("GET", "k") == b"v"
    server.server.parts.control.request_shutdown()
    assert client.is_closed()


def test_shutdown_ends_a_job(start, tmp_path: Path):
    server = start("--appendonly", "yes")
    client = server.connect()
    with held_job(server, client, "BGREWRITEAOF") as job:
        client.send(b"SHUTDOWN\r\n")
        assert client.is_closed()
        server.thread.join(30)
        assert job.thread.wait(30)
    assert not [name for name in os.listdir(tmp_path / "appendonlydir") if name.startswith("temp-")]


def test_what_killed_servers_left_is_removed(start, tmp_path: Path):
    (tmp_path / "temp-999999999.rdb").write_bytes(b"half")
    (tmp_path / f"temp-{os.getpid()}.rdb").write_bytes(b"half, of one who had the number that is ours now")
    (tmp_path / f"temp-{os.getppid()}.rdb").write_bytes(b"somebody is alive and writes it")
    start("--appendonly", "yes")
    left = [name for name in os.listdir(tmp_path) if name.startswith("temp-")]
    assert left == [f"temp-{os.getppid()}.rdb"]


def test_debug_reload_and_loadaof(start):
    server = start("--appendonly", "yes", "--enable-debug-command", "local")
    client = server.connect()
    fill(client)
    client.request("XGROUP", "CREATE", "s", "g", "0")
    client.request("XREADGROUP", "GROUP", "g", "ann", "COUNT", "7", "STREAMS", "s", ">")
    before = client.request("DEBUG", "DIGEST")
    assert client.request("DEBUG", "RELOAD") == "OK"
    assert client.request("DEBUG", "DIGEST") == before
    assert client.request("DEBUG", "LOADAOF") == "OK"
    assert client.request("DEBUG", "DIGEST") == before
    client.request("SET", "k", "v")
    assert client.request("DEBUG", "RELOAD", "NOSAVE") == "OK"
    assert client.request("EXISTS", "k") == 0
    wait_until(lambda: client.info()["aof_rewrites"] == "1")
    assert client.request("DEBUG", "LOADAOF") == "OK"
    assert client.request("EXISTS", "k") == 0
    assert client.request("DEBUG", "DIGEST") == before


def test_debug_is_refused_unless_allowed(start):
    assert str(start().connect().request("DEBUG", "DIGEST")).startswith("ERR DEBUG command not allowed")


def test_debug_is_for_clients_on_this_machine(start):
    """Whichever of its addresses they come by, and by a Unix socket whose path is not absolute."""
    running = start("--enable-debug-command", "local", "--bind", "127.0.0.2", "-::1", "--unixsocket", "s")
    ways = [("127.0.0.2", running.port), ("::1", running.port)]
    for way in ways[: len(running.server.parts.listeners.addresses) - 1]:
        with socket.create_connection(way, 30) as client:
            client.sendall(b"DEBUG DIGEST\r\n")
            assert client.recv(100) == b"+" + b"0" * 40 + b"\r\n"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("s")
        client.sendall(b"DEBUG DIGEST\r\n")
        assert client.recv(100) == b"+" + b"0" * 40 + b"\r\n"
