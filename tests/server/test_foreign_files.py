"""Files of a real Redis with other types: never called damaged, and loaded without those on request."""

from __future__ import annotations

import hashlib
import logging
import pathlib
from collections.abc import Callable

import pytest
import redis

import headrace
from headrace.cli.main import main
from headrace.errors import HeadraceError, UsageError
from support.headrace_server import headrace_server
from support.redis_server import redis_server

SKIP = ("--load-skip-foreign-types", "yes")
LOG = ("--appendonly", "yes", "--appendfsync", "always")


def fill(client: redis.Redis) -> None:
    """Streams, strings, and a key of each other type; some strings come from commands of other types."""
    client.set("before", 1)
    client.rpush("list", "a", "b")
    client.sadd("set", "a", "b")
    client.zadd("ranks", {"a": 1.5})
    client.hset("hash", mapping={"a": "b"})
    client.hset("hash2", mapping={"c": "d"})
    client.set("expiring", "x", ex=1000)
    client.pexpire("hash", 10**9)
    client.xadd("s", {"f": "v"}, id="1-1")
    client.set("bits", "x")
    client.set("other", "old")
    client.set("taken", "old")
    client.set("copied", "old")
    with client.pipeline() as pipe:
        pipe.multi()
        pipe.xadd("s", {"f": "v"}, id="2-1")
        pipe.lpush("list", "c")
        pipe.execute()
    client.setbit("bits", 5, 1)  # changes a string
    client.sort("list", alpha=True, store="taken")  # a list takes the place of a string
    client.copy("list", "copied", replace=True)
    client.rename("list", "other")
    payload = client.dump("set")
    assert payload is not None
    client.restore("set2", 0, payload)
    client.set("after", 2)


KEPT = [b"after", b"before", b"expiring", b"s"]


@pytest.fixture
def snapshot(tmp_path: pathlib.Path) -> pathlib.Path:
    directory = tmp_path / "snapshot"
    directory.mkdir()
    with redis_server(directory) as port, redis.Redis(port=port) as client:
        fill(client)
        client.delete("bits")  # in a snapshot it is a string like any other
        client.save()
    return directory


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    directory = tmp_path / "log"
    directory.mkdir()
    with redis_server(directory, *LOG) as port, redis.Redis(port=port) as client:
        fill(client)
    return directory


def digests(directory: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).digest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def read_everything(port: int) -> tuple[list[bytes], int]:
    with redis.Redis(port=port) as client:
        return sorted(client.keys()), client.xlen("s")


Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    def run(*arguments: str | pathlib.Path) -> tuple[int, str, str]:
        status = main(["check", *map(str, arguments)])
        out, err = capsys.readouterr()
        return status, " ".join(out.split()), err

    return run


def test_check_counts_what_it_skips_and_never_cuts_for_it(
    snapshot: pathlib.Path, log: pathlib.Path, check: Check
) -> None:
    before = digests(snapshot) | digests(log)
    for arguments in ([log], [log, "--fix"], [next(log.glob("*/*.incr.aof")), "--fix"]):
        status, out, err = check(*arguments)
        assert status == 1 and err.count("\n") == 1 and " is not damaged, " in err
        assert "2 HSET commands" in err and "1 SETBIT command" in err and "1 COPY command" in err
        assert "`load-skip-foreign-types yes`" in err and "damaged" not in out and "SADD 1" in out
    for arguments in ([snapshot], [snapshot / "dump.rdb", "--fix"]):
        status, out, err = check(*arguments)
        assert status == 1 and "3 list keys" in err and "2 hash keys" in err and "2 set keys" in err
        assert "1 sorted set key" in err and "damaged" not in out
    assert digests(snapshot) | digests(log) == before


def test_a_damaged_tail_after_foreign_records_is_still_damage(log: pathlib.Path, check: Check) -> None:
    file = next(log.glob("*/*.incr.aof"))
    whole = file.read_bytes()
    file.write_bytes(whole + b"*3\r\n$3\r\nSE")
    status, _, err = check(log)
    assert status == 1 and f"--fix would keep its first {len(whole):,} bytes" in err
    status, out, err = check(log, "--fix")
    assert status == 1 and "Cut off the last 10 bytes" in out and " is not damaged, " in err
    assert file.read_bytes() == whole


@pytest.mark.parametrize("name", ["dump.rdb", "appendonlydir"])
def test_a_server_starts_without_foreign_keys_only_if_it_is_told_to(
    name: str, snapshot: pathlib.Path, log: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    directory, options = (snapshot, ()) if name == "dump.rdb" else (log, ("--appendonly", "yes"))
    before = digests(directory)
    refused = pytest.raises(UsageError, match=r"set `load-skip-foreign-types yes` to start without")
    with refused, headrace_server(directory, *options):
        pass
    assert digests(directory).items() >= before.items()
    messages = tmp_path / "messages"
    with headrace_server(directory, *options, *SKIP, "--logfile", str(messages)) as port:
        assert read_everything(port) == (KEPT, 2)
    counted = "3 list keys" if name == "dump.rdb" else "2 HSET commands"
    assert [line for line in messages.read_text().splitlines() if "left out" in line and counted in line]


def test_a_program_opens_such_a_directory_if_it_is_told_to(snapshot: pathlib.Path) -> None:
    with pytest.raises(HeadraceError, match="open it with skip_foreign_types=True"):
        headrace.open(snapshot)
    with headrace.open(snapshot, skip_foreign_types=True) as db:
        assert len(db.stream("s")) == 2
    with headrace.open(snapshot) as db:  # the log that was begun contains the rest only
        assert len(db.stream("s")) == 2


def test_a_snapshot_beside_a_log_is_named(
    tmp_path: pathlib.Path,
    check: Check,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, messages = tmp_path / "data", tmp_path / "messages"
    data.mkdir()
    with headrace_server(data, *LOG) as port, redis.Redis(port=port) as client:
        client.xadd("s", {"f": "v"})
        client.save()
    with headrace_server(data, *LOG, "--logfile", str(messages)):
        pass
    text = "dump.rdb is not read, because there is a log: appendonlydir"
    assert messages.read_text().count(text) == 1
    status, out, _ = check(data)
    assert status == 0 and "dump.rdb beside it is not read" in out
    monkeypatch.setattr(logging.getLogger("headrace"), "propagate", True)
    with caplog.at_level(logging.INFO, "headrace"):
        headrace.open(data).close()
    assert text in caplog.messages
