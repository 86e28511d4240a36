"""A log whose removals need a cold run that cannot be read: the rest of the log is replayed, and kept."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from headrace.engine.replaying import Replayer
from headrace.errors import DamagedColdRun
from headrace.persistence.data_directory import write_file
from headrace.streams import cold_run, node
from headrace.streams.cold_run import ColdRun
from headrace.structures.rax_walk import RaxCursor
from persistence.faults import FaultyFiles
from persistence.test_cold_log import NAMES, NOW_MS, ColdServer, checked


class LoadingServer(ColdServer):
    """A ColdServer that loads its log as a server does. Its runs have four entries."""

    run_bytes = 1

    def replay(self, session: Any) -> Any:
        return Replayer(self.engine, NOW_MS).replay

    @property
    def left_out(self) -> int:
        return int(self.storage.left_out_removal_count)

    @property
    def runs(self) -> list[ColdRun]:
        """The cold runs of the stream s."""
        stream = self.engine.keyspace.databases[0].stream(b"s")
        assert stream is not None
        cursor, found = RaxCursor(stream.nodes), []
        more = cursor.seek("^")
        while more:
            each = node.node_of_cursor(cursor)
            if each.run is not None:
                found.append(cold_run.run_of(each))
            more = cursor.next()
        return found

    def is_rewritable(self) -> bool:
        """Rewrite the log; return whether that is possible."""
        rewrite = self.log.begin_rewrite()
        try:
            write_file(self.files, rewrite.temporary_path, self.write_base)
        except DamagedColdRun:
            return self.log.finish_rewrite(rewrite, False)
        return self.log.finish_rewrite(rewrite, True)

    def ids(self, key: str = "s") -> list[int]:
        """Return the numbers of the entries of a stream that can be read."""
        found, after = [], 0
        while True:
            reply = self.run(f"XRANGE {key} ({after}-0 + COUNT 1")
            if reply.startswith(b"-COLDERR"):
                after = int(reply.split(b" to ")[1].split(b"-")[0])
            elif reply == b"*0\r\n":
                return found
            else:
                after = int(reply.split(b"-0\r\n")[0].rpartition(b"\n")[2])
                found.append(after)


class Damage:
    """The data directory of a server whose runs have the entries 1-0 to 36-0 of stream s."""

    def __init__(self, files: FaultyFiles, directory: pathlib.Path) -> None:
        self.files = files
        self.directory = directory
        self.server = LoadingServer(files)
        for number in range(1, 41):
            self.server.run(f"XADD s {number}-0 n {number}")
        self.server.run("XGROUP CREATE s g 0")
        self.server.run("XREADGROUP GROUP g c COUNT 30 STREAMS s >")
        self.server.storage.cool_all_to_limit()
        assert self.server.rewrite() and len(self.server.runs) == 9

    def damage(self, run: ColdRun) -> None:
        """Close the server, and change a byte of a run."""
        place = run.storage_location
        self.path = self.directory / NAMES.cold_path(place.file.name)
        self.server.close()
        self.intact = self.path.read_bytes()
        changed = bytearray(self.intact)
        changed[place.offset + place.size // 2] ^= 1
        self.path.write_bytes(changed)

    def start(self) -> LoadingServer:
        return LoadingServer(self.files)

    def restart_intact(self, server: LoadingServer) -> LoadingServer:
        """Close the server, and start again with the undamaged file."""
        server.close()
        self.path.write_bytes(self.intact)
        return LoadingServer(self.files)


@pytest.fixture
def damaged(files: FaultyFiles, tmp_path: pathlib.Path) -> Damage:
    return Damage(files, tmp_path)


@pytest.mark.parametrize("policy", ["", "KEEPREF", "DELREF", "ACKED"])
@pytest.mark.parametrize("number", [0, 1])
def test_an_add_that_trims_keeps_its_entry(damaged: Damage, policy: str, number: int) -> None:
    server = damaged.server
    server.run("XACK s g " + " ".join(f"{number}-0" for number in range(1, 31)))
    for added in range(41, 55):
        server.run(f"XADD s {policy} MAXLEN = 40 {added}-0 n {added}")
    expected = server.ids()
    assert expected[-1] == 54 and len(expected) == 40
    run = server.runs[number]
    damaged.damage(run)
    restarted = damaged.start()
    assert restarted.ids() == [each for each in expected if not run.first_ms <= each <= run.last_ms]
    assert (restarted.left_out > 0) == (number == 0), "the trim ends in the first run"
    assert restarted.is_rewritable() == (number != 0)
    intact = damaged.restart_intact(restarted)
    assert intact.ids() == expected and intact.left_out == 0 and intact.rewrite()


@pytest.mark.parametrize("command", ["XDEL s", "XDELEX s DELREF IDS 6", "XACKDEL s g IDS 6"])
def test_a_deletion_deletes_what_can_be_read(damaged: Damage, command: str) -> None:
    server = damaged.server
    first, last = server.runs[1].first_ms, server.runs[1].last_ms
    gone = [1, first, last, last + 1, 29, 30]
    server.run(f"{command} " + " ".join(f"{number}-0" for number in gone))
    expected = server.ids()
    assert not set(gone) & set(expected) and len(expected) == 34
    damaged.damage(server.runs[1])
    restarted = damaged.start()
    assert restarted.ids() == [number for number in expected if not first <= number <= last]
    assert restarted.left_out == 2 and "2 removals of the log could not be done" in restarted.found.notes[-1]
    assert not restarted.is_rewritable()
    restarted.run(f"XTRIM s MINID = {last + 1}-0")
    assert restarted.is_rewritable()
    intact = damaged.restart_intact(restarted)
    assert intact.ids() == [number for number in expected if number > last]


def test_a_start_and_a_check_note_left_out_removals_once(damaged: Damage) -> None:
    damaged.server.run("XDEL s 1-0")
    damaged.damage(damaged.server.runs[0])
    for notes in (checked(damaged.directory).notes, damaged.start().found.notes):
        assert sum("1 removal of the log could not be done" in note for note in notes) == 1


def pending(server: LoadingServer, key: str = "s") -> bytes:
    return server.run(f"XPENDING {key} g - + 100")


@pytest.mark.parametrize("command", ["XDELEX s DELREF IDS 2", "XACKDEL s h DELREF IDS 2"])
def test_a_deletion_removes_the_references_to_what_cannot_be_read(damaged: Damage, command: str) -> None:
    server = damaged.server
    run = server.runs[1]
    server.run("XGROUP CREATE s h 0")
    server.run("XREADGROUP GROUP h c COUNT 30 STREAMS s >")
    server.run(f"{command} {run.first_ms}-0 {run.last_ms}-0")
    expected = pending(server)
    damaged.damage(run)
    restarted = damaged.start()
    assert restarted.left_out == 2 and pending(restarted) == expected
    restarted.run(f"XTRIM s MINID = {run.last_ms + 1}-0")
    assert restarted.is_rewritable()
    assert pending(damaged.restart_intact(restarted)) == expected


@pytest.mark.parametrize("trim", ["MINID = 12-0", "MAXLEN = 29"])
def test_a_trim_that_leaves_references_stays_left_out(damaged: Damage, trim: str) -> None:
    server = damaged.server
    server.run("XACK s g 12-0")  # the last entry of its run
    server.run(f"XTRIM s {trim} DELREF")
    expected = pending(server)
    damaged.damage(server.runs[0])
    restarted = damaged.start()
    assert restarted.left_out == 1 and pending(restarted) != expected
    restarted.run("XTRIM s MINID = 20-0")
    assert not restarted.is_rewritable(), "references to removed entries are left"
    restarted.run("XACK s g " + " ".join(f"{number}-0" for number in range(1, 13)))
    assert restarted.is_rewritable()
    assert pending(damaged.restart_intact(restarted)) == expected


@pytest.mark.parametrize("deletion", ["XDEL t", "XDELEX t DELREF IDS 1"])
def test_a_copy_keeps_the_record_of_what_was_left_out(damaged: Damage, deletion: str) -> None:
    server = damaged.server
    run = server.runs[1]
    server.run("COPY s u")
    server.run("RENAME s t")
    server.run(f"{deletion} {run.first_ms}-0")
    server.run("COPY t s")
    expected = server.ids()
    server.run("DEL t")
    damaged.damage(run)
    restarted = damaged.start()
    assert restarted.left_out == 1 and not restarted.is_rewritable()
    intact = damaged.restart_intact(restarted)
    assert intact.ids() == expected and intact.rewrite()


def test_a_deletion_that_needs_the_last_run_is_left_out(damaged: Damage) -> None:
    server = damaged.server
    run = server.runs[-1]
    last = run.last_ms
    server.run("XDEL s " + " ".join(f"{number}-0" for number in range(last + 1, 41)))
    server.run("XADD s 99-0 n 99")
    damaged.damage(run)
    restarted = damaged.start()
    assert restarted.ids()[-1] == 99 and restarted.left_out == len(range(last + 1, 41))
    restarted.run(f"XTRIM s MINID = {last + 1}-0")
    assert restarted.ids() == [*range(last + 1, 41), 99] and not restarted.is_rewritable()
    assert damaged.restart_intact(restarted).ids() == [99]


def test_a_trim_that_removes_nothing_is_not_left_out(damaged: Damage) -> None:
    server = damaged.server
    for number in range(41, 50):
        server.run(f"XADD s ACKED MAXLEN = 1000 {number}-0 n {number}")
        server.run(f"XADD s ACKED MINID = 1-0 {number}-1 n {number}")
    damaged.damage(server.runs[0])
    restarted = damaged.start()
    assert restarted.left_out == 0 and restarted.is_rewritable()


def test_removals_stay_left_out_when_the_run_is_read_again(damaged: Damage) -> None:
    server = damaged.server
    run = server.runs[1]
    server.run(f"XDEL s {run.first_ms}-0")
    expected = server.ids()
    damaged.damage(run)
    restarted = damaged.start()
    damaged.path.write_bytes(damaged.intact)
    assert run.first_ms in restarted.ids()
    for number in range(run.first_ms + 1, run.last_ms):
        restarted.run(f"XDEL s {number}-0")
    restarted.run("XDEL s " + " ".join(f"{number}-0" for number in range(run.last_ms + 1, 41)))
    restarted.storage.step(NOW_MS + 100_000)
    assert not restarted.is_rewritable()
    again = damaged.restart_intact(restarted)
    assert again.ids() == [
        each for each in expected if each <= run.last_ms and not run.first_ms <= each < run.last_ms
    ]
