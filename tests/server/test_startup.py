"""From the disk into memory: what is found, what clients hear meanwhile, and what ends the program."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.errors import HeadraceError, UsageError
from headrace.persistence.data_directory import DiskDirectory
from headrace.server.config.config import Config
from headrace.server.disk import startup
from headrace.server.main import Server
from support.speaking import encoded as record
from support.waiting import wait_until


def refusal(tmp_path: Path, *arguments: str) -> str:
    """Why a server does not start in the directory."""
    config = Config()
    config.read_arguments(["--port", "free", "--bind", "127.0.0.1", "--dir", str(tmp_path), *arguments])
    with pytest.raises(UsageError) as refused:
        Server(config).open()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def write_log(tmp_path: Path, data: bytes) -> Path:
    """A log as Redis leaves it, with these bytes in its only file of records."""
    directory = tmp_path / "appendonlydir"
    directory.mkdir()
    (directory / "appendonly.aof.manifest").write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
    path = directory / "appendonly.aof.1.incr.aof"
    path.write_bytes(data)
    return path


def test_a_snapshot_becomes_the_base_of_a_new_log(start):
    first = start()
    client = first.connect()
    client.request("SET", "k", "v")
    client.request("SAVE")
    first.stop()
    second = start("--appendonly", "yes")
    second.connect().request("INCR", "n")
    second.stop()
    os.unlink("dump.rdb")
    assert start("--appendonly", "yes").connect().request("MGET", "k", "n") == [b"v", b"1"]


def test_the_single_file_of_old_is_moved_in(start, tmp_path: Path):
    (tmp_path / "appendonly.aof").write_bytes(record("SELECT", "0") + record("SET", "k", "v"))
    client = start("--appendonly", "yes").connect()
    assert client.request("GET", "k") == b"v"
    assert sorted(os.listdir(tmp_path)) == ["appendonlydir", "headrace.lock"]


def test_a_tail_that_was_cut_is_cut_off_and_said(start, tmp_path: Path, capfd):
    path = write_log(tmp_path, record("SET", "a", "1") + record("SET", "b", "2")[:-3])
    server = start("--appendonly", "yes")
    client = server.connect()
    assert client.request("MGET", "a", "b") == [b"1", None]
    client.request("SET", "c", "3")
    assert "ended in the middle of a record" in capfd.readouterr().err
    server.stop()
    assert record("SET", "a", "1") in path.read_bytes()
    assert start("--appendonly", "yes").connect().request("MGET", "a", "b", "c") == [b"1", None, b"3"]


def test_a_tail_that_was_cut_is_refused_where_that_is_asked_for(tmp_path: Path):
    data = record("SET", "a", "1")[:-3]
    path = write_log(tmp_path, data)
    assert "aof-load-truncated" in refusal(tmp_path, "--aof-load-truncated", "no")
    assert path.read_bytes() == data


def test_damage_ends_the_start_with_its_place_and_nothing_is_overwritten(tmp_path: Path):
    data = record("SET", "a", "1") + b"\0\0\0" + record("SET", "b", "2")
    path = write_log(tmp_path, data)
    text = refusal(tmp_path)
    assert (
        str(path) in text and f"at byte {len(record('SET', 'a', '1'))}" in text and "headrace check" in text
    )
    assert path.read_bytes() == data


@pytest.mark.parametrize("rdb_base", ["yes", "no"])
def test_a_changed_value_in_the_log_is_not_loaded(start, tmp_path: Path, capsys, rdb_base: str):
    server = start("--appendonly", "yes", "--aof-use-rdb-preamble", rdb_base)
    client = server.connect()
    client.request("SET", "before", "balance-1")
    if rdb_base == "no":
        client.request("BGREWRITEAOF")
        wait_until(lambda: b"aof_rewrites:1" in client.request("INFO", "persistence"), "the rewrite")
    else:
        client.request("SET", "after", "balance-2")
    server.stop()
    path = next(path for path in (tmp_path / "appendonlydir").iterdir() if b"balance-1" in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"balance-1", b"balance-9"))
    text = refusal(tmp_path, "--appendonly", "yes")
    assert str(path) in text and "do not have the checksum" in text and "aof-checksum no" in text
    assert main(["check", str(tmp_path)]) == 1
    assert path.name in capsys.readouterr().err
    unchecked = start("--appendonly", "yes", "--aof-checksum", "no").connect()
    assert unchecked.request("GET", "before") == b"balance-9"


@pytest.mark.parametrize(
    ("words", "why"),
    [(("LPUSH", "l", "x"), "LPUSH"), (("FLUBBER",), "FLUBBER"), (("SHUTDOWN",), "SHUTDOWN")],
)
def test_what_no_log_of_ours_can_hold_is_named(tmp_path: Path, words: tuple[str, ...], why: str):
    write_log(tmp_path, record(*words))
    assert why in refusal(tmp_path)


def test_a_damaged_snapshot_is_refused(tmp_path: Path):
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0010\xfe\x00\x01\x01k")
    assert str(tmp_path / "dump.rdb") in refusal(tmp_path, "--appendonly", "no")


def test_the_second_server_in_a_directory_is_refused_and_told_who_has_it(start, tmp_path: Path):
    first = start("--appendonly", "yes")
    text = refusal(tmp_path)
    assert str(os.getpid()) in text and f"127.0.0.1:{first.port}" in text
    assert "in use" in refusal(tmp_path, "--appendonly", "no", "--save", "60", "1")
    first.stop()
    assert start("--appendonly", "yes").connect().request("PING") == "PONG"


def test_servers_that_keep_nothing_may_share_a_directory(start):
    assert [start().connect().request("PING") for _ in range(2)] == ["PONG", "PONG"]


def test_a_file_in_the_place_of_the_logs_directory(tmp_path: Path):
    (tmp_path / "appendonlydir").write_text("a file")
    assert str(tmp_path / "appendonlydir") in refusal(tmp_path)


def test_a_directory_that_cannot_be_written(tmp_path: Path):
    assert "/proc/self" in refusal(Path("/proc/self"))


# While it loads.


@pytest.fixture
def slow_load(tmp_path: Path, monkeypatch, request):
    """A server that is loading and stays so until it is let: the server, what lets it, its thread."""
    write_log(tmp_path, b"".join(record("XADD", "s", f"{n}-1", "f", "v" * 400) for n in range(1, 3000)))
    monkeypatch.setattr(startup, "TURN_INTERVAL_S", 0.0)
    config = Config()
    config.read_arguments(["--port", "free", "--bind", "127.0.0.1", "--dir", str(tmp_path)])
    config.read_arguments(getattr(request, "param", []))
    server = Server(config)
    go_on, loading = threading.Event(), threading.Event()
    once = server.parts.startup._progress

    def wait(file: str, done: int, total: int) -> None:
        loading.set()
        once(file, done, total)
        while not go_on.is_set() and not server.parts.control.is_ending():
            server.parts.loop.run_once(10)

    server.parts.startup._progress = wait

    def life() -> None:
        server.open()
        server.run()

    thread = threading.Thread(target=life)
    thread.start()
    assert loading.wait(30), "the load never reported its progress"
    yield server, go_on, thread
    go_on.set()
    server.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_while_it_loads_it_says_so(slow_load, dial):
    server, go_on, _ = slow_load
    client = dial(server.parts.listeners.port)
    for words in (["GET", "k"], ["SET", "k", "v"], ["PING"], ["XLEN", "s"], ["BGSAVE"], ["FLUSHALL"]):
        assert str(client.request(*words)) == "LOADING Redis is loading the dataset in memory", words
    client.request("MULTI")
    assert str(client.request("GET", "k")).startswith("LOADING")
    assert str(client.request("EXEC")).startswith("EXECABORT")
    found = client.info()
    assert found["loading"] == "1"
    assert 0 < int(found["loading_loaded_bytes"]) <= int(found["loading_total_bytes"])
    assert client.request("CONFIG", "GET", "port")[0] == b"port"
    go_on.set()
    wait_until(lambda: client.info()["loading"] == "0")
    assert client.request("XLEN", "s") == 2999
    assert "loading_total_bytes" not in client.info()


@pytest.mark.parametrize("slow_load", [["--enable-debug-command", "yes"]], indirect=True)
def test_debug_saves_and_drops_nothing_while_it_loads(slow_load, dial, tmp_path: Path):
    server, go_on, _ = slow_load
    client = dial(server.parts.listeners.port)
    for words in (["RELOAD"], ["RELOAD", "NOSAVE"], ["LOADAOF"]):
        assert str(client.request("DEBUG", *words)) == "LOADING Redis is loading the dataset in memory", words
    go_on.set()
    wait_until(lambda: client.info()["loading"] == "0")
    assert client.request("XLEN", "s") == 2999
    assert not (tmp_path / "dump.rdb").exists()


def test_the_log_is_turned_off_while_it_loads(slow_load, dial):
    server, go_on, _ = slow_load
    client = dial(server.parts.listeners.port)
    assert client.request("CONFIG", "SET", "appendonly", "no") == "OK"
    go_on.set()
    wait_until(lambda: client.info()["loading"] == "0")
    assert client.info()["aof_enabled"] == "0"
    assert client.request("XLEN", "s") == 2999


def test_the_server_moves_while_it_loads(slow_load, dial):
    server, go_on, _ = slow_load
    client = dial(server.parts.listeners.port)
    assert client.request("CONFIG", "SET", "port", "free") == "OK"
    other = dial(int(client.request("CONFIG", "GET", "port")[1]))
    assert str(other.request("GET", "k")).startswith("LOADING")
    go_on.set()
    wait_until(lambda: client.info()["loading"] == "0")
    assert other.request("XLEN", "s") == client.request("XLEN", "s") == 2999


@pytest.fixture
def with_snapshot(tmp_path: Path) -> None:
    """A snapshot beside the log: what a server loads that keeps no log."""
    config = Config()
    config.read_arguments(["--port", "free", "--bind", "127.0.0.1", "--dir", str(tmp_path)])
    config.read_arguments(["--appendonly", "no"])
    server = Server(config)
    server.open()
    server.parts.engine.execute(
        server.parts.engine.create_session(), [b"SET", b"k", b"of the snapshot"], 1000
    )
    for n in range(4):  # the progress of a load is reported once a MiB
        words = [b"SET", b"large%d" % n, random.Random(n).randbytes(1 << 20)]
        server.parts.engine.execute(server.parts.engine.create_session(), words, 1000)
    server.parts.saving.save(1000)
    server.close()


@pytest.mark.parametrize("slow_load", [["--appendonly", "no", "--save", ""]], indirect=True)
def test_the_log_is_turned_on_while_a_snapshot_loads(with_snapshot, slow_load, dial, tmp_path: Path):
    server, go_on, _ = slow_load
    client = dial(server.parts.listeners.port)
    assert client.request("CONFIG", "SET", "appendonly", "yes") == "OK"
    go_on.set()
    wait_until(lambda: client.info()["loading"] == "0")
    assert client.request("GET", "k") == b"of the snapshot"
    assert client.info()["aof_enabled"] == "1"
    with pytest.raises(HeadraceError, match="is in use by"):
        DiskDirectory(str(tmp_path)).lock()


def test_shutdown_while_it_loads_ends_it_and_leaves_the_files(slow_load, dial, tmp_path: Path):
    server, _, thread = slow_load
    before = (tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof").read_bytes()
    client = dial(server.parts.listeners.port)
    client.send(b"SHUTDOWN\r\n")
    assert client.is_closed()
    thread.join(30)
    DiskDirectory(str(tmp_path)).lock()  # it is free
    assert (tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof").read_bytes() == before


def test_what_was_replayed_counts_neither_as_commands_nor_as_changes(start, tmp_path: Path):
    write_log(tmp_path, record("SET", "a", "1") * 100)
    client = start("--appendonly", "yes", "--save", "3600", "1").connect()
    assert client.info()["rdb_changes_since_last_save"] == "0"
    assert b"total_commands_processed:2\r\n" in client.request("INFO", "stats")  # the two INFO
