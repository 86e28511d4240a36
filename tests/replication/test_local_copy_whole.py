"""A database of a program that follows a server."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import redis

import headrace
from headrace.api.database import Database
from headrace.api.local.log_rewriter import LogRewriter
from headrace.errors import CommandError, HeadraceError, NotOnDisk, UsageError
from replication.nodes import PAIRS, Node, nodes
from replication.writing import fill, write
from support.portrait import differences, portrait
from support.waiting import wait_until

pytestmark = pytest.mark.whole


def url_of(node: Node) -> str:
    return f"redis://127.0.0.1:{node.port}"


def wait_for(copy: Database, node: Node) -> None:
    """Wait until the copy has everything that the server has."""
    assert copy.replica is not None and copy.replica.wait(60)
    wait_until(lambda: copy.replica.status().offset == node.replication()["master_repl_offset"])


def check_equal(copy: Database, node: Node, other: Node) -> None:
    """Compare a copy with a server of Headrace that has followed the same primary as long."""
    other.wait_for(node)
    wait_for(copy, node)
    other.promote()
    other.client.save()
    other.stop()
    with headrace.open(other.directory) as same:
        ours, theirs = (each._local_engine("test").engine.keyspace for each in (copy, same))
        assert differences(portrait(ours, times=False), portrait(theirs, times=False)) == []


@pytest.mark.parametrize("kind", ["headrace", "redis"])
def test_a_copy_follows_a_server(tmp_path: Path, kind: str) -> None:
    with nodes(tmp_path, kind, "headrace") as (primary, other):
        fill(primary)
        other.follow(primary.port)
        other.wait_for(primary)  # now both get the same commands: Redis does not send all of its state
        with headrace.open(tmp_path / "copy", replica_of=url_of(primary), fsync="no") as copy:
            assert copy.replica is not None and copy.replica.wait(60)
            big = copy.stream("big")
            assert len(big) == primary.client.xlen("big")
            assert copy.replica.status().state == "connected" and not copy.replica.status().error
            found: list[bytes] = []
            reader = threading.Thread(target=lambda: found.extend(e.id for e in big.read(block=60)))
            reader.start()
            wait_until(lambda: copy._local_engine("test").engine.keyspace.blocking.count == 1)
            added = primary.client.xadd("big", {"n": "new"})
            reader.join()
            assert [str(id) for id in found] == [added.decode()]
            with pytest.raises(CommandError, match="READONLY"):
                big.add({"n": 1})
            write(primary.port, 7, 400)
            check_equal(copy, primary, other)
            primary.client.xadd("last", {"n": 1})  # random commands have made any type of all other keys
            wait_for(copy, primary)
            primary.kill()
            wait_until(lambda: copy.replica is not None and copy.replica.status().state == "connect")
            assert len(copy.stream("last")) == 1  # the data stay
        with headrace.open(tmp_path / "copy") as again:  # and are a database of their own
            assert len(again.stream("last")) == 1
            again.stream("last").add({"own": 1})


def test_a_copy_survives_restarts_and_is_promoted(tmp_path: Path) -> None:
    with nodes(tmp_path, *PAIRS[0]) as (primary, _):
        primary.client.xadd("s", {"n": 0})
        with headrace.open(replica_of=url_of(primary)) as copy:
            wait_for(copy, primary)
            for n in range(1, 4):
                primary.stop()
                primary.start()
                primary.client.xadd("s", {"n": n})
                wait_until(lambda n=n: len(copy.stream("s")) >= n)  # type: ignore[misc]
            assert copy.replica is not None
            wait_for(copy, primary)
            copy.replica.promote()
            copy.stream("s").add({"n": "own"})
            primary.client.xadd("s", {"n": "theirs"})
            assert copy.stream("s").last()["n"] == b"own"  # type: ignore[index]


def test_a_copy_that_was_closed_continues_where_it_was(tmp_path: Path) -> None:
    with nodes(tmp_path, *PAIRS[0]) as (primary, other):
        other.follow(primary.port)
        other.wait_for(primary)
        with headrace.open(tmp_path / "copy", replica_of=url_of(primary)) as copy:
            wait_for(copy, primary)
        write(primary.port, 8, 300)
        for round_ in range(4):
            with headrace.open(tmp_path / "copy", replica_of=url_of(primary)) as copy:
                wait_for(copy, primary)
                primary.client.xadd("s", {"round": round_})
                wait_for(copy, primary)
            with redis.Redis(port=primary.port, db=round_ % 2) as client:
                client.xadd("later", {"round": round_})
        assert primary.syncs() == (2, 4)
        with headrace.open(tmp_path / "copy", replica_of=url_of(primary)) as copy:
            wait_for(copy, primary)
            check_equal(copy, primary, other)


def test_a_copy_with_changes_of_its_own_is_copied_again(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace") as (primary,):
        primary.client.xadd("s", {"n": 0})
        for own in (False, True):
            with headrace.open(tmp_path / "copy", replica_of=url_of(primary)) as copy:
                wait_for(copy, primary)
                if own:
                    assert copy.replica is not None
                    copy.replica.promote()
                    copy.stream("s").add({"own": 1})
        with headrace.open(tmp_path / "copy") as plain:
            plain.stream("mine").add({"own": 1})
        with headrace.open(tmp_path / "copy", replica_of=url_of(primary)) as copy:
            wait_for(copy, primary)
            assert len(copy.stream("s")) == 1 and len(copy.stream("mine")) == 0
        [saved] = (tmp_path / "copy").glob("divergent-entries-*.resp")  # both entries of its own
        assert saved.read_bytes().count(b"XADD") == 2
        assert primary.syncs() == (2, 1)


def test_a_copy_adds_nothing_to_the_log_of_older_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(rewriter: LogRewriter) -> None:
        raise HeadraceError("no space left")

    with nodes(tmp_path, "headrace") as (primary,):
        primary.client.xadd("old", {"n": 0})
        with headrace.open(tmp_path / "copy", replica_of=url_of(primary)) as copy:
            wait_for(copy, primary)
        primary.client.delete("old")
        primary.client.xadd("s", {"n": 0})
        primary.kill()  # so the copy cannot continue
        primary.start()
        monkeypatch.setattr(LogRewriter, "rewrite", fail)
        with headrace.open(tmp_path / "copy", replica_of=url_of(primary)) as copy:
            wait_for(copy, primary)
            assert copy.replica is not None
            copy.replica.promote()
            with pytest.raises((NotOnDisk, CommandError)):
                copy.stream("s").add({"n": 1})
            monkeypatch.undo()
            wait_until(lambda: not copy._local_engine("test").engine.write_gate.write_error)
            copy.stream("s").add({"n": 2})
            keys = sorted(copy.client().keys())
            length = len(copy.stream("s"))
        with headrace.open(tmp_path / "copy") as again:
            assert sorted(again.client().keys()) == keys == [b"s"]
            assert len(again.stream("s")) == length


def test_what_cannot_be_copied_is_told(tmp_path: Path) -> None:
    with nodes(tmp_path, "redis") as (primary,):
        primary.client.hset("a hash", "a", 1)
        primary.client.xadd("s", {"n": 0})
        with headrace.open(replica_of=url_of(primary)) as copy:
            assert copy.replica is not None
            wait_until(lambda: copy.replica.status().error)  # type: ignore[union-attr]
            assert "skip_foreign_types=True" in copy.replica.status().error
        with headrace.open(replica_of=url_of(primary), skip_foreign_types=True) as copy:
            wait_for(copy, primary)
            assert len(copy.stream("s")) == 1 and copy.replica is not None
            assert copy.replica.status().skipped_keys == {"hash": 1}
        primary.client.config_set("requirepass", "right")
        with headrace.open(replica_of=f"redis://:wrong@127.0.0.1:{primary.port}") as copy:
            assert copy.replica is not None
            wait_until(lambda: copy.replica.status().error)  # type: ignore[union-attr]
            assert "password" in copy.replica.status().error and not copy.replica.wait(0.1)
        url = f"redis://:right@127.0.0.1:{primary.port}"
        with headrace.open(replica_of=url, skip_foreign_types=True) as copy:
            wait_for(copy, primary)
    for url in ("cluster://127.0.0.1:1", "nonsense"):
        with pytest.raises(UsageError):
            headrace.open(replica_of=url)
