"""A start of another log, or of another data directory, removes no cold files that it did not make."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import headrace
from headrace.errors import HeadraceError, UsageError
from support.waiting import wait_until

ENTRIES = 3000
OPTIONS = ("--appendonly", "yes", "--stream-hot-memory", "50kb", "--cold-local-bytes", "0")
MANIFEST = "appendonlydir/appendonly.aof.manifest"


@pytest.fixture
def connect() -> Iterator[Callable[..., redis.Redis]]:
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
        pipe.xadd("s", {"number": number, "text": "x" * 50}, id=f"{number}-0")
    pipe.execute()
    wait_until(lambda: client.info("memory").get("cold_entries", 0) > ENTRIES / 2)


def rewrite(client: redis.Redis) -> None:
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"


def cold_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "appendonlydir/cold").glob("*.cold")}


@pytest.fixture
def stored(start, connect, tmp_path: Path) -> dict[str, bytes]:
    """A server with cold files that its log names, which has ended; return the files."""
    server = start(*OPTIONS)
    client = connect(server)
    fill(client)
    rewrite(client)
    server.stop()
    found = cold_files(tmp_path)
    assert found
    return found


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("options", [(), ("--appendonly", "no")])
def test_a_start_with_another_appendfilename_is_refused(
    start, connect, tmp_path: Path, stored: dict[str, bytes], recorded: bool, options: tuple[str, ...]
):
    owner = tmp_path / "appendonlydir/cold/owner"
    if not recorded:  # by an older version
        owner.unlink()
    with pytest.raises(UsageError, match=r"cold file.* of another log, and .*: nothing was removed"):
        start(*OPTIONS, "--appendfilename", "other.aof", *options)
    assert cold_files(tmp_path) == stored
    assert len(connect(start(*OPTIONS)).xrange("s")) == ENTRIES
    assert owner.exists()


def test_objects_of_a_store_stay_at_such_a_start(start, connect, tmp_path: Path):
    pytest.importorskip("obstore")
    store = tmp_path / "store"
    store.mkdir()
    options = (*OPTIONS, "--cold-store", f"file://{store}")
    server = start(*options)
    fill(client := connect(server))
    rewrite(client)
    server.stop()
    server = start(*options)  # which uploads the sealed files
    wait_until(lambda: not list((tmp_path / "appendonlydir/cold").glob("*.cold")))
    server.stop()
    objects = sorted(store.iterdir())
    with pytest.raises(UsageError, match="of another log"):
        start(*options, "--appendfilename", "other.aof")
    assert sorted(store.iterdir()) == objects
    assert len(connect(start(*options)).xrange("s")) == ENTRIES


@pytest.mark.parametrize("appendonly", ["yes", "no"])
def test_a_start_without_the_files_of_the_log_is_refused(
    start, connect, tmp_path: Path, stored: dict[str, bytes], appendonly: str
):
    away = tmp_path / "away"
    away.mkdir()
    for path in (tmp_path / "appendonlydir").glob("appendonly.aof.*"):
        path.rename(away / path.name)
    with pytest.raises(UsageError, match=f"of another log, and there is no log {MANIFEST}"):
        start(*OPTIONS, "--appendonly", appendonly)
    with pytest.raises(HeadraceError, match="of another log"):
        headrace.open(tmp_path)
    assert cold_files(tmp_path) == stored
    for path in away.iterdir():
        path.rename(tmp_path / "appendonlydir" / path.name)
    assert len(connect(start(*OPTIONS)).xrange("s")) == ENTRIES


def test_a_log_that_is_turned_on_removes_no_files_of_another_one(
    start, connect, tmp_path: Path, stored: dict[str, bytes]
):
    client = connect(start("--appendonly", "no", "--save", "", "--appendfilename", "other.aof"))
    with pytest.raises(redis.ResponseError, match=r"no log can be kept: .* of another log"):
        client.config_set("appendonly", "yes")
    client.xadd("s", {"a": 1})
    with pytest.raises(redis.ResponseError, match="of another log"):
        client.execute_command("XCFGSET", "s", "HOT-BYTES", "1000")
    with pytest.raises(redis.ResponseError, match="of another log"):
        client.config_set("stream-hot-memory", "1mb")
    assert cold_files(tmp_path) == stored


def test_a_data_directory_that_shares_cold_files_by_a_symbolic_link_is_refused(
    start, connect, tmp_path: Path, stored: dict[str, bytes]
):
    other = tmp_path / "other"
    (other / "appendonlydir").mkdir(parents=True)
    (other / "appendonlydir/cold").symlink_to(tmp_path / "appendonlydir/cold")
    with pytest.raises(UsageError, match="of another log"):
        start(*OPTIONS, "--dir", str(other))
    assert cold_files(tmp_path) == stored


def test_two_servers_with_one_directory_of_cold_files_are_refused(start, connect, tmp_path: Path):
    client = connect(start(*OPTIONS, "--dir", str(tmp_path)))
    fill(client)  # no manifest names the files yet
    other = tmp_path / "other"
    (other / "appendonlydir").mkdir(parents=True)
    (other / "appendonlydir/cold").symlink_to(tmp_path / "appendonlydir/cold")
    with pytest.raises(UsageError, match=r"appendonlydir/cold is in use by process"):
        start(*OPTIONS, "--dir", str(other))
    assert len(client.xrange("s")) == ENTRIES


def test_a_copy_and_an_older_directory_start(start, connect, tmp_path: Path, stored: dict[str, bytes]):
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(tmp_path / "appendonlydir", copy / "appendonlydir")
    server = start(*OPTIONS, "--dir", str(copy))
    assert len(connect(server).xrange("s")) == ENTRIES
    server.stop()
    (copy / "appendonlydir/cold/owner").unlink()
    manifest = copy / MANIFEST
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(line for line in lines if not line.startswith("#")))
    client = connect(start(*OPTIONS, "--dir", str(copy)))
    assert len(client.xrange("s")) == ENTRIES
    rewrite(client)
    assert f"# cold-owner {(copy / 'appendonlydir/cold/owner').read_text()}" in manifest.read_text()


def test_a_new_log_uses_a_directory_without_cold_files(
    start, connect, tmp_path: Path, stored: dict[str, bytes]
):
    for path in (tmp_path / "appendonlydir").rglob("*.*"):
        path.unlink()
    server = start(*OPTIONS)
    fill(connect(server))
    server.stop()  # its cold files are not in its manifest
    assert cold_files(tmp_path)
    assert len(connect(start(*OPTIONS)).xrange("s")) == ENTRIES


def test_a_removed_directory_gets_its_owner_again(start, connect, tmp_path: Path):
    server = start(*OPTIONS)
    client = connect(server)
    fill(client)
    rewrite(client)
    owner = (tmp_path / "appendonlydir/cold/owner").read_text()
    shutil.rmtree(tmp_path / "appendonlydir/cold")
    wait_until(
        lambda: (
            (tmp_path / "appendonlydir/cold/1.cold").exists()
            and not client.info("memory")["cold_files_damaged"]
        )
    )
    rewrite(client)
    assert (tmp_path / "appendonlydir/cold/owner").read_text() == owner
