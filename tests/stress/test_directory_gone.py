"""Somebody removes, or moves, the directory of a running server's log: it is noticed, and nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.errors import CommandError
from stress.real_server import LONG, RealServer
from support.speaking import Client
from support.waiting import wait_until

pytestmark = pytest.mark.whole


def all_there(server: RealServer, ids: list[object]) -> bool:
    """Whether it has these entries and no other."""
    with Client.to(server.port) as client:
        entries = client.ask("XRANGE s - +")
        assert isinstance(entries, list)
        return [entry[0] for entry in entries] == ids


def add(client: Client, n: int) -> list[object]:
    """The IDs of so many new entries; all have to be acknowledged."""
    made = [client.request("XADD", "s", "*", "n", i) for i in range(n)]
    assert all(isinstance(one, bytes) for one in made), made
    return made


CASES = [("directory", "everysec"), ("file", "always"), ("manifest", "everysec"), ("directory", "always")]


@pytest.mark.parametrize(("what", "policy"), CASES if LONG else CASES[:2])
def test_a_log_that_was_removed_is_written_anew_from_memory(launch, tmp_path: Path, what: str, policy: str):
    server = launch("--appendfsync", policy)
    client = server.client()
    ids = add(client, 100)
    log = tmp_path / "appendonlydir"
    if what == "directory":
        shutil.rmtree(log)
    else:
        found = sorted(log.glob("*.incr.aof" if what == "file" else "*.manifest"))
        found[-1].unlink()

    def is_noticed() -> bool:
        made = client.request("XADD", "s", "*", "n", 0)
        if isinstance(made, bytes):  # acknowledged before it was noticed, so it has to be there
            ids.append(made)
        return any("must be rewritten" in line for line in server.log())

    wait_until(is_noticed)

    def is_whole() -> bool:
        made = client.request("XADD", "s", "*", "n", 0)
        if isinstance(made, CommandError):
            assert str(made) == "MISCONF Errors writing to the AOF file: No such file or directory"
            assert client.ask("XLEN s") == len(ids)
            return False
        ids.append(made)
        return True

    wait_until(is_whole)
    assert client.info("persistence")["aof_last_write_status"] == "ok"
    ids += add(client, 100)
    server.kill()
    assert all_there(launch("--appendfsync", policy), ids)


def test_a_directory_that_was_moved_away_is_not_begun_anew(launch, tmp_path: Path):
    """In its place could be another one's: until it is back, writes are refused."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    server = launch(directory=home)
    client = server.client()
    ids = add(client, 100)
    home.rename(away)
    home.mkdir()  # what somebody puts there is not ours

    def is_refused() -> bool:
        made = client.request("XADD", "s", "*", "n", 0)
        if isinstance(made, bytes):
            ids.append(made)
            return False
        assert str(made).startswith("MISCONF Errors writing to the AOF file: "), made
        assert "is not the directory that this process has locked" in str(made)
        return True

    wait_until(is_refused)
    assert client.ask("XLEN s") == len(ids)
    wait_until(
        lambda: any("rewrite of the log failed" in line for line in (away / "log").read_text().splitlines())
    )
    assert list(home.iterdir()) == []
    home.rmdir()
    away.rename(home)
    wait_until(lambda: client.info("persistence")["aof_last_write_status"] == "ok")
    ids += add(client, 100)
    server.kill()
    assert all_there(launch(directory=home), ids)
