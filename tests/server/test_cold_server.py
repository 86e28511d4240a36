"""Cold storage of a running server: threads, restarts, and what goes wrong in a thread."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headrace.errors import DamagedColdRun
from headrace.keyspace import cold_storage
from headrace.persistence.cold import cold_file_monitor
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.data_directory import DiskDirectory
from headrace.server.disk import cold_tasks
from support.speaking import encoded
from support.waiting import wait_until

ENTRIES = 20_000
OPTIONS = ("--appendonly", "yes", "--stream-hot-memory", "100kb", "--enable-debug-command", "yes")


@pytest.fixture
def connect() -> Iterator[object]:
    clients: list[redis.Redis] = []

    def to(server) -> redis.Redis:
        clients.append(redis.Redis(port=server.port))
        return clients[-1]

    yield to
    for client in clients:
        client.close()


def fill(client: redis.Redis) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(1, ENTRIES + 1):
        pipe.xadd("s", {"number": number}, id=f"{number}-0")
    pipe.execute()


def cold(client: redis.Redis) -> dict[str, int | str]:
    return {name: value for name, value in client.info("memory").items() if name.startswith("cold_")}


def digest(client: redis.Redis) -> bytes:
    return client.execute_command("DEBUG", "DIGEST-VALUE", "s")[0]


def test_a_stream_larger_than_the_limit_is_read_and_survives_restarts(start, connect, tmp_path: Path):
    server = start(*OPTIONS)
    client = connect(server)
    fill(client)
    wait_until(lambda: client.info("memory")["used_memory_dataset"] < 200_000)
    assert cold(client)["cold_entries"] > ENTRIES / 2
    client.xgroup_create("s", "g", "0")
    read = 0
    while entries := client.xreadgroup("g", "ann", {"s": ">"}, count=1000, noack=True):
        read += len(entries[0][1])
    assert read == ENTRIES and cold(client)["cold_parked_requests"] > 0
    client.xdel("s", *range(5, 500, 7))
    before = digest(client)
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    manifest = (tmp_path / "appendonlydir/appendonly.aof.manifest").read_text()
    assert "type c" in manifest
    client.xdel("s", 700)
    after = digest(client)
    assert after != before
    server.stop()
    for more in (OPTIONS, (*OPTIONS[:2], *OPTIONS[4:])):  # also without a limit
        server = start(*more)
        client = connect(server)
        assert cold(client)["cold_entries"] > ENTRIES / 2
        assert digest(client) == after
        server.stop()


@pytest.mark.parametrize("size", [2, 300])  # of a request: with 300 their sum is more than a client may queue
@pytest.mark.parametrize("first", [("XRANGE", "s", "1", "1"), ("XDEL", "s", "1")])
def test_requests_behind_a_parked_one_are_executed_after_a_half_close(
    start, connect, monkeypatch, first: tuple[str, ...], size: int
):
    server = start(*OPTIONS)
    client = connect(server)
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"])
    may_read = threading.Event()
    read = ColdStore.load

    def wait_and_read(store: ColdStore, place: object) -> object:
        may_read.wait(60)
        return read(store, place)

    monkeypatch.setattr(ColdStore, "load", wait_and_read)
    sender = server.connect()
    number = sender.request("CLIENT", "ID")
    connections = server.server.parts.loop.connections
    connection = next(found for found in connections.values() if found.session.id == number)
    sender.send(encoded(*first) + encoded("XADD", "t", "*", "a", "b" * size) * 400)
    sender.sock.shutdown(socket.SHUT_WR)
    if size == 2:
        wait_until(lambda: connection.eof)
    assert client.ping() and client.exists("t") == 0 and not connection.closed
    may_read.set()
    replies = [sender.reply() for _ in range(401)]
    assert len(replies[-1]) > 10 and client.xlen("t") == 400
    assert sender.is_closed()


def rewrite(client: redis.Redis) -> str:
    """Rewrite the log; return how that ended."""
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    return client.info("persistence")["aof_last_bgrewrite_status"]


@pytest.mark.parametrize("referred", [False, True])
def test_a_rewrite_keeps_entries_that_only_the_log_has(start, connect, tmp_path: Path, referred: bool):
    server = start(*OPTIONS)
    client = connect(server)
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"])
    if referred:
        assert rewrite(client) == "ok"
    path = tmp_path / "appendonlydir/cold/1.cold"
    content = bytearray(path.read_bytes())
    content[200] ^= 1  # in the first run
    path.write_bytes(content)
    with pytest.raises(redis.ResponseError, match="COLDERR"):
        client.xrange("s", "1", "1")
    assert rewrite(client) == ("ok" if referred else "err")
    server.stop()
    client = connect(start(*OPTIONS))
    if referred:  # the rewrite before has left no other copy: a second one loses nothing
        with pytest.raises(redis.ResponseError, match="COLDERR"):
            client.xrange("s", "1", "1")
    else:
        assert len(client.xrange("s")) == ENTRIES


def test_a_rule_bounds_a_stream_without_a_limit_for_all(start, connect):
    server = start("--appendonly", "yes")
    client = connect(server)
    fill(client)
    assert cold(client) == {}
    client.execute_command("XCFGSET", "s", "HOT-BYTES", 100_000)
    wait_until(lambda: cold(client)["cold_entries"] > ENTRIES / 2)
    assert client.info("memory")["stream_hot_memory"] == 0
    client.xgroup_create("s", "g", "0")
    assert len(client.xreadgroup("g", "ann", {"s": ">"}, count=9000)[0][1]) == 9000
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    server.stop()
    client = connect(start("--appendonly", "yes"))
    assert cold(client)["cold_entries"] > ENTRIES / 2
    before = cold(client)["cold_entries"]
    pipe = client.pipeline(transaction=False)
    for number in range(ENTRIES + 1, 2 * ENTRIES):
        pipe.xadd("s", {"number": number}, id=f"{number}-0")
    pipe.execute()
    wait_until(lambda: cold(client)["cold_entries"] > before + ENTRIES / 2)
    assert client.xlen("s") == 2 * ENTRIES - 1


def test_files_without_runs_are_removed(start, connect, tmp_path: Path):
    client = connect(start(*OPTIONS))
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"] > 0)
    client.delete("s")
    wait_until(lambda: cold(client)["cold_files"] <= 1 and cold(client)["cold_runs"] == 0)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("a bug")])
def test_an_error_in_the_writing_thread_is_reported_and_tried_again(start, connect, monkeypatch, error):
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(ColdStore, "write", fail)
        client = connect(start(*OPTIONS))
        fill(client)
        wait_until(lambda: cold(client)["cold_write_failures"] >= 2)
        assert cold(client)["cold_last_error"] in ("no space left on device", "a bug")
        assert client.xlen("s") == ENTRIES and cold(client)["cold_runs"] == 0
    wait_until(lambda: cold(client)["cold_runs"] > 0)
    assert cold(client)["cold_last_error"] == ""


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("a bug")])
def test_an_error_in_a_reading_thread_reaches_the_client(start, connect, monkeypatch, error):
    client = connect(start(*OPTIONS))
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"] > 0)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(ColdStore, "load", fail)
        with pytest.raises(redis.ResponseError):
            client.xrange("s", 1, 1)
    assert client.xrange("s", 1, 1) == [(b"1-0", {b"number": b"1"})]


def test_clients_that_read_a_damaged_run_again_and_again_do_not_fill_the_log(
    start, connect, monkeypatch, caplog
):
    client = connect(start(*OPTIONS))
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"] > 0)
    logging.getLogger("headrace").propagate = True
    monkeypatch.setattr(ColdStore, "load", fail_to_load)
    monkeypatch.setattr(cold_tasks, "LOG_EVERY_S", 3600.0)
    for _ in range(20):
        with pytest.raises(redis.ResponseError, match="COLDERR"):
            client.xrange("s", 1, 1)
    assert len(failed_reads(caplog)) == 1
    monkeypatch.setattr(cold_tasks, "LOG_EVERY_S", 0.0)
    with pytest.raises(redis.ResponseError, match="COLDERR"):
        client.xrange("s", 1, 1)
    assert failed_reads(caplog)[1:] == [f"{failed_reads(caplog)[0]} (and 19 more in the last seconds)"]


def fail_to_load(self: ColdStore, place: object) -> None:
    raise DamagedColdRun("1.cold", 0, "the checksum of the run is wrong")


def failed_reads(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("COLDERR")]


def test_the_event_loop_does_not_wait_while_files_are_removed(start, connect, monkeypatch):
    server = start(*OPTIONS)
    server.server.parts.cold.cold_files.file_bytes_max = 1000  # so that each run has a file
    server.server.parts.engine.cold_storage.run_bytes = 20_000  # so that there are several
    client = connect(server)
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"] > 1)
    threads: list[threading.Thread] = []
    remove = DiskDirectory.remove

    def note_thread_and_remove(self: DiskDirectory, name: str) -> None:
        if name.endswith(".cold"):
            threads.append(threading.current_thread())
        remove(self, name)

    monkeypatch.setattr(DiskDirectory, "remove", note_thread_and_remove)
    client.delete("s")
    wait_until(lambda: cold(client)["cold_files"] <= 1)
    assert threads and server.thread not in threads


def test_files_that_others_change_are_counted_and_named_until_they_are_back(
    start, connect, monkeypatch, caplog, tmp_path: Path
):
    monkeypatch.setattr(cold_storage, "UPKEEP_MS", 20)
    server = start(*OPTIONS)
    server.server.parts.cold.cold_files.file_bytes_max = 1000  # so that each run has a file
    server.server.parts.engine.cold_storage.run_bytes = 20_000  # so that there are several
    client = connect(server)
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"] >= 3)
    logging.getLogger("headrace").propagate = True
    open_files = server.server.parts.cold.cold_files._open_files
    for number in (2, 3):
        open_files.close_file(f"appendonlydir/cold/{number}.cold")
    folder = tmp_path / "appendonlydir/cold"
    stored = {number: (folder / f"{number}.cold").read_bytes() for number in (1, 2, 3)}
    # In one step each: the monitor would also report a file that is missing for a moment.
    (tmp_path / "1.cold").hardlink_to(folder / "1.cold")
    (folder / "another").write_bytes(bytes(len(stored[1])))
    (folder / "another").rename(folder / "1.cold")
    (folder / "other").write_bytes(bytes(len(stored[2])))
    (folder / "other").rename(folder / "2.cold")
    os.truncate(folder / "3.cold", 50)
    wait_until(lambda: len(warnings(caplog)) == 3)
    assert cold(client)["cold_files_damaged"] == 3
    one, two, three = sorted(warnings(caplog))
    assert f"cold file {folder}/1.cold: another file has this name; entries in it will be lost" in one
    assert "'s' 1-0 to " in one and "(1 run)" in one
    assert f"{folder}/2.cold: another file has this name; entries in it cannot be read: 's' " in two
    assert f"{folder}/3.cold: it has 50 bytes instead of {len(stored[3])}; entries in it cannot" in three
    assert client.xrange("s", count=1)[0][0] == b"1-0", "it is still open"
    with pytest.raises(redis.ResponseError, match=r"COLDERR.*2\.cold"):
        client.xrange("s", count=ENTRIES)
    copied = re.search(r"cp (/proc/\S+) (\S+)$", one)
    assert copied is not None
    shutil.copyfile(copied[1], copied[2])
    (folder / "2.cold").write_bytes(stored[2])
    (folder / "3.cold").write_bytes(stored[3])
    wait_until(lambda: cold(client)["cold_files_damaged"] == 0)
    assert len([text for text in warnings(caplog) if "is back" in text]) == 3
    assert len(client.xrange("s")) == ENTRIES
    assert (folder / "1.cold").read_bytes() == stored[1]


def test_a_removed_file_that_is_still_open_is_written_again(
    start, connect, monkeypatch, caplog, tmp_path: Path
):
    monkeypatch.setattr(cold_storage, "UPKEEP_MS", 20)
    monkeypatch.setattr(cold_file_monitor, "COPY_PAUSE_S", 0.1)
    server = start(*OPTIONS)
    client = connect(server)
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"] > 0)
    logging.getLogger("headrace").propagate = True
    folder = tmp_path / "appendonlydir/cold"
    stored = (folder / "1.cold").read_bytes()
    shutil.rmtree(folder)
    folder.write_bytes(b"in the way")
    wait_until(lambda: len(warnings(caplog)) == 2)
    missing, failed = warnings(caplog)
    assert f"cold file {folder}/1.cold: " in missing and "entries in it will be lost" in missing
    assert "it is still open here, and is written again" in missing
    assert "1.cold cannot be written again, which is tried until it works: file exists; or: cp /" in failed
    assert cold(client)["cold_files_damaged"] == 1
    folder.unlink()
    wait_until(lambda: cold(client)["cold_files_damaged"] == 0)
    assert warnings(caplog)[2:] == [
        "cold file appendonlydir/cold/1.cold is back, with all runs that are needed"
    ]
    assert (folder / "1.cold").read_bytes()[: len(stored)] == stored
    assert len(client.xrange("s")) == ENTRIES
    assert len(list(folder.glob("*.cold"))) == cold(client)["cold_files"]


def test_a_removed_file_that_only_the_log_names_is_written_again(
    start, connect, monkeypatch, caplog, tmp_path: Path
):
    monkeypatch.setattr(cold_storage, "UPKEEP_MS", 20)
    server = start(*OPTIONS)
    client = connect(server)
    fill(client)
    wait_until(lambda: cold(client)["cold_runs"] > 0)
    client.bgrewriteaof()
    wait_until(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
    logging.getLogger("headrace").propagate = True
    client.xtrim("s", maxlen=10, approximate=False)
    path = tmp_path / "appendonlydir/cold/1.cold"
    stored = path.read_bytes()
    path.unlink()
    wait_until(lambda: len(warnings(caplog)) == 2)
    assert (
        "no entry in it is needed (0 runs); it is still open here, and is written again"
        in warnings(caplog)[0]
    )
    assert path.read_bytes()[: len(stored)] == stored
    server.stop()
    again = connect(start(*OPTIONS))
    assert again.xlen("s") == 10


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith("cold file ")]
