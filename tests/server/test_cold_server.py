"""Cold storage of a running server: threads, restarts, and what goes wrong in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.data_directory import DiskDirectory
from waiting import wait_until

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


def test_the_event_loop_does_not_wait_while_files_are_removed(start, connect, monkeypatch):
    server = start(*OPTIONS)
    server.server.parts.cold.files.file_bytes_max = 1000  # so that each run has a file
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
