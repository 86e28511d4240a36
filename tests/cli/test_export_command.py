"""`headrace export`: a real redis-server loads the file, and has the same data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from headrace.cli.main import main
from support.headrace_server import headrace_server
from support.redis_server import redis_server
from support.waiting import wait_until

ENTRIES = 8000
GROUP_FIELDS = ("name", "consumers", "pending", "last-delivered-id", "entries-read", "lag")
COLD = ("--appendonly", "yes", "--stream-hot-memory", "60kb")


@contextmanager
def connected(port: int) -> Iterator[Any]:
    with redis.Redis(port=port) as client:
        yield client


def fill(client: Any) -> None:
    """Make a stream of which most is cold, with deleted entries and a group, and other keys."""
    pipe = client.pipeline(transaction=False)
    for number in range(1, ENTRIES + 1):
        pipe.xadd("s", {"number": number, "text": f"entry {number}"}, id=f"{number}-0")
    pipe.execute()
    client.set("string", "text")
    client.execute_command("XADD", "small", "5-5", "f", "v")
    client.expire("small", 5000)
    wait_until(lambda: client.info("memory")["cold_entries"] > ENTRIES / 2)
    client.xgroup_create("s", "g", "0")
    client.xreadgroup("g", "ann", {"s": ">"}, count=700)
    client.xreadgroup("g", "bob", {"s": ">"}, count=20)
    client.xack("s", "g", *range(1, 300))
    client.xdel("s", *range(5, 2000, 7), 7999)


def rewrite_log(client: Any) -> None:
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])


def contents(client: Any) -> list[Any]:
    pending = client.xpending_range("s", "g", "-", "+", 10_000)
    about = client.xinfo_stream("s", full=True)
    counters = "length last-generated-id max-deleted-entry-id entries-added recorded-first-entry-id"
    return [
        client.xrange("s"),
        client.xrange("small"),
        client.get("string"),
        client.ttl("small") > 4000,
        [(entry["message_id"], entry["consumer"], entry["times_delivered"]) for entry in pending],
        [about[name] for name in counters.split()],
        [[group[name] for name in GROUP_FIELDS] for group in client.xinfo_groups("s")],
        sorted(consumer["name"] for consumer in client.xinfo_consumers("s", "g")),
    ]


def loaded_by_redis(directory: Path, name: str) -> list[Any]:
    with (
        redis_server(directory, "--dbfilename", name) as port,
        connected(port) as client,
    ):
        assert client.dbsize() == 3
        return contents(client)


def test_redis_loads_what_was_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    out.mkdir()
    with headrace_server(data, *COLD) as port, connected(port) as client:
        fill(client)
        rewrite_log(client)
        client.xdel("s", *range(3, 2000, 7))  # in the log after the base
        expected = contents(client)
        assert main(["export", f"redis://127.0.0.1:{port}", str(out / "online.rdb")]) == 0
        assert main(["export", str(data), str(out / "busy.rdb")]) == 1
        error = capsys.readouterr().err
        assert "is in use by process" in error and "give the URL of that server, such as redis://" in error
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert any(path.name.endswith(".cold") for path in before)
    assert main(["export", str(data), str(out / "offline.rdb")]) == 0
    assert "3 keys" in capsys.readouterr().out
    before.pop(data / "headrace.lock")
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in out.iterdir()) == ["offline.rdb", "online.rdb"]
    for name in ("offline.rdb", "online.rdb"):
        assert loaded_by_redis(out, name) == expected


def test_a_log_that_is_larger_than_the_memory_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.persistence.export import ExportStore

    spilled: list[int] = []
    store_runs = ExportStore.write
    monkeypatch.setattr(
        ExportStore, "write", lambda self, runs: spilled.append(len(runs)) or store_runs(self, runs)
    )
    data = tmp_path / "data"
    data.mkdir()
    with headrace_server(data, *COLD) as port, connected(port) as client:
        fill(client)
        expected = contents(client)
    assert main(["export", str(data), str(tmp_path / "all.rdb"), "--hot-memory", "60kb"]) == 0
    assert sum(spilled) > 1
    assert loaded_by_redis(tmp_path, "all.rdb") == expected


def test_an_existing_file_is_replaced_only_if_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, file = tmp_path / "data", tmp_path / "all.rdb"
    data.mkdir()
    with headrace_server(data, "--appendonly", "yes") as port, connected(port) as client:
        client.set("key", "value")
    file.write_bytes(b"precious")
    capsys.readouterr()
    assert main(["export", str(data), str(file)]) == 2
    error = capsys.readouterr().err
    assert "--overwrite" in error and error.count("\n") == 1
    assert file.read_bytes() == b"precious"
    assert main(["export", str(data), str(file), "--overwrite"]) == 0
    assert file.read_bytes().startswith(b"REDIS0010")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nowhere", "all.rdb"), "no such directory"),
        ((".", "all.rdb"), "no manifest of a log"),
        ((".", "nowhere/all.rdb"), "no such directory"),
        ((".", "."), "is a directory"),
        ((".", "all.rdb", "--hot-memory", "much"), "not a size"),
        (("redis://127.0.0.1:1", "all.rdb"), "127.0.0.1:1"),
        (("http://127.0.0.1:1", "all.rdb"), "redis://"),
    ],
)
def test_wrong_arguments_are_one_line(
    words: tuple[str, ...],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == (1 if "127.0.0.1" in words[0] and "redis" in words[0] else 2)
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_a_damaged_run_is_an_error_that_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with headrace_server(data, *COLD) as port, connected(port) as client:
        fill(client)
        rewrite_log(client)
    (file, *_) = data.rglob("*.cold")
    stored = bytearray(file.read_bytes())
    stored[1000] ^= 1
    file.write_bytes(stored)
    capsys.readouterr()
    assert main(["export", str(data), str(tmp_path / "all.rdb")]) == 1
    error = capsys.readouterr().err
    assert file.name in error and "the entries 1-0 to" in error and error.count("\n") == 1
    assert os.listdir(tmp_path) == ["data"]


def test_a_snapshot_that_was_damaged_on_its_way_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server_url: str
) -> None:
    from headrace.client.connection import RawConnection

    receive = RawConnection.receive

    def damage(self: RawConnection, buffer: bytearray) -> int:
        n = receive(self, buffer)
        at = buffer.find(b"redis-ver", 0, n)
        if at >= 0:
            buffer[at] ^= 1
        return n

    with monkeypatch.context() as broken:
        broken.setattr(RawConnection, "receive", damage)
        assert main(["export", server_url, str(tmp_path / "all.rdb")]) == 1
        assert "checksum is wrong" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
    assert main(["export", server_url, str(tmp_path / "all.rdb")]) == 0
