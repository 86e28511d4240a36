"""What a former primary saves before its new primary's data replaces its own."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.replication import divergent_tail
from headrace.replication.divergent_tail import MARKER_FILE_NAME
from simulation.cluster import Cluster, Node
from simulation.disk import SimulatedFiles


def saved(node: Node) -> list[bytes]:
    """Return the contents of the files that the node has saved."""
    names = [name for name in node.files.list("") if name.startswith("divergent-entries-")]
    return [node.files.open_source(name).read(1 << 20) for name in sorted(names)]


def ids(data: bytes) -> list[str]:
    """Return the streams, IDs and options of the entries in a file."""
    words = [word for word in data.split(b"\r\n") if word and word[:1] not in b"*$"]
    found, at = [], 0
    while at < len(words):
        if words[at] == b"XADD":
            more = words[at + 2] == b"NOMKSTREAM"
            found.append(f"{words[at + 1].decode()} {words[at + 2 + more].decode()}{'?' * more}")
        at += 1
    return found


def separated(cluster: Cluster, *options: str) -> tuple[Node, Node]:
    """Return two primaries of one history: both have 1-0 to 3-0 of the stream s."""
    first, second = cluster.add(*options), cluster.add()
    for n in (1, 2, 3):
        first.ask("XADD", "s", f"{n}-0", "f", n)
    second.follow(first)
    cluster.settle()
    cluster.network.cut_all(second.port)
    second.promote()
    return first, second


def test_entries_that_no_replica_received_are_saved_and_counted(caplog: Any) -> None:
    with Cluster() as cluster:
        first, second = separated(cluster)
        first.ask("SELECT", 2)
        first.ask("XADD", "other", "1-0", "only", "here")
        first.ask("SELECT", 0)
        for n in (4, 5):
            first.ask("XADD", "s", f"{n}-0", "lost", n)
        second.ask("XADD", "s", "9-0", "kept", 9)
        first.follow(second)
        cluster.settle()
        [data] = saved(first)
        assert ids(data) == ["s 4-0", "s 5-0", "other 1-0"]
        assert b"SELECT\r\n$1\r\n2\r\n" in data and b"lost" in data
        assert "3 entries of 2 streams that the new primary lacks: saved in divergent-" in caplog.text
        assert not first.files.exists(MARKER_FILE_NAME) and second.files.exists(MARKER_FILE_NAME)


def test_nothing_is_saved_if_nothing_is_missing() -> None:
    """Entries that the new primary has trimmed, deleted or acknowledged away were replicated before."""
    with Cluster() as cluster:
        first, second = separated(cluster)
        second.ask("XADD", "s", "9-0", "kept", 9)
        second.ask("XDEL", "s", "2-0")
        second.ask("XTRIM", "s", "MINID", "=", "3-0")
        first.ask("SET", "k", "v")  # its history ends later: only a full synchronisation helps
        first.follow(second)
        cluster.settle()
        assert first.replication.replica_side.full_syncs == 1
        assert saved(first) == [] and not first.files.exists(MARKER_FILE_NAME)


def test_a_server_that_was_never_a_primary_saves_nothing() -> None:
    with Cluster() as cluster:
        _, second = separated(cluster)
        lonely = cluster.add()
        lonely.ask("XADD", "s", "7-7", "own", "data")
        lonely.follow(second)
        for _ in range(50):
            cluster.round(20)
        assert lonely.data() == second.data()
        assert saved(lonely) == [] and not lonely.files.exists(MARKER_FILE_NAME)


def test_entries_that_may_have_been_removed_are_marked() -> None:
    with Cluster() as cluster:
        first, second = separated(cluster)
        first.ask("XADD", "s", "4-0", "f", "lost")
        first.ask("XADD", "gone", "1-0", "f", "lost")
        second.ask("XADD", "s", "5-0", "f", "v")
        second.ask("XADD", "s", "6-0", "f", "v")
        second.ask("XDEL", "s", "5-0")
        second.ask("XADD", "gone", "2-0", "f", "v")
        second.ask("XTRIM", "gone", "MAXLEN", "0")
        first.follow(second)
        cluster.settle()
        assert [ids(data) for data in saved(first)] == [["s 4-0?", "gone 1-0?"]]


def test_an_entry_with_other_content_under_the_same_id_is_saved() -> None:
    with Cluster() as cluster:
        first, second = separated(cluster)
        for node, value in ((first, "ours"), (second, "theirs")):
            for n in (4, 5):
                node.ask("XADD", "s", f"{n}-0", "f", value if n == 4 else "the same")
        first.ask("SET", "k", "v")
        first.follow(second)
        cluster.settle()
        [data] = saved(first)
        assert ids(data) == ["s 4-0"] and b"ours" in data


def test_a_killed_primary_that_starts_as_a_replica_saves_its_tail() -> None:
    with Cluster() as cluster:
        first, second = separated(cluster, "--appendfsync", "always")
        first.ask("XADD", "s", "4-0", "f", "lost")
        second.ask("XADD", "s", "9-0", "kept", 9)
        image = first.crash("nothing")
        first.options = ("--replicaof", f"127.0.0.1 {second.port}")
        first.start(image)
        cluster.settle()
        assert [ids(data) for data in saved(first)] == [["s 4-0"]]


def test_a_second_tail_does_not_overwrite_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergent_tail.time, "strftime", lambda *arguments: "now")
    with Cluster() as cluster:
        first, second = separated(cluster)
        for n in (4, 5):
            first.ask("XADD", "s", f"{n}-0", "f", "lost")
            first.follow(second)
            cluster.settle()
            cluster.network.cut_all(first.port)
            first.promote()
        assert [ids(data) for data in saved(first)] == [["s 5-0"], ["s 4-0"]]


def test_without_the_file_the_old_data_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster() as cluster:
        first, second = separated(cluster)
        first.ask("XADD", "s", "4-0", "f", "lost")
        second.ask("XADD", "s", "9-0", "f", "v")
        create = SimulatedFiles.create

        def full(files: SimulatedFiles, name: str) -> Any:
            if name.startswith("divergent"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return create(files, name)

        monkeypatch.setattr(SimulatedFiles, "create", full)
        first.follow(second)
        for _ in range(100):
            cluster.round(20)
        assert first.ask("XLEN", "s") == 4
        assert "cannot be saved: no space left" in first.replication.replica_side.failure
        monkeypatch.setattr(SimulatedFiles, "create", create)
        for _ in range(100):
            cluster.round(1000)
        cluster.settle()
        assert [ids(data) for data in saved(first)] == [["s 4-0"]]
