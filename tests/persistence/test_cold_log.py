"""A log whose base refers to cold files: what it names is there, as long as a start may need it."""

import logging
import os
import pathlib
from functools import partial
from typing import Any

import pytest

from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.engine.foreign_commands import SkippingReplayer
from headrace.errors import HeadraceError
from headrace.persistence.aof import log_files
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log import Log
from headrace.persistence.aof.manifest import Manifest, ManifestLine, write_all
from headrace.persistence.check import CheckReport, check_file
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory, write_file
from headrace.persistence.rdb.versions import COMPATIBLE_VERSION
from headrace.persistence.rdb.writer import write_rdb
from headrace.persistence.recovery import recover
from persistence.faults import FaultyFiles
from support.redis_server import redis_server

NAMES = LogFileNames()
NOW_MS = 1_700_000_000_000


class ColdServer:
    """An engine with a log and cold files, on a disk that can fail."""

    run_bytes = 300

    def __init__(self, files: FaultyFiles) -> None:
        self.files = files
        self.cold = ColdFiles(files, NAMES.cold_directory, file_bytes_max=1000)
        self.engine = Engine()
        self.engine.keyspace.settings.stream_node_max_entries = 4
        self.storage: Any = self.engine.open_cold_storage(ColdStore(self.cold), 1)
        self.storage.run_bytes = self.run_bytes
        self.session = self.engine.create_session()
        self.found = recover(
            files,
            NAMES,
            self.engine.keyspace,
            self.replay(self.engine.create_session()),
            appendonly=True,
            dbfilename="dump.rdb",
            truncated_ok=True,
            now_ms=NOW_MS,
        )
        self.engine.set_effect_recording(True)
        self.log = Log(files, NAMES, policy="always")
        self.log.cold_files = self.cold
        self.log.start(self.found.manifest)
        if self.found.manifest is None:
            self.log.create(lambda file: self.write_base(file), rdb=True)

    def replay(self, session: Session) -> Any:
        def execute(words: list[bytes]) -> bytes | None:
            self.engine.execute(session, words, NOW_MS)
            reply = session.reply.take()
            return reply[1:] if reply.startswith(b"-") else None

        return execute

    def run(self, line: str) -> bytes:
        """Execute and log a request; return the reply."""
        self.engine.execute(self.session, line.encode().split(), NOW_MS)
        assert self.log.commit(self.engine.effects.take(), NOW_MS)
        return self.session.reply.take()

    def add(self, key: str, entries: int) -> None:
        """Add entries, all but the last of which become cold."""
        for _ in range(entries):
            self.run(f"XADD {key} * n 1 text {os.urandom(30).hex()}")
        self.storage.cool_all_to_limit()

    def write_base(self, file: Any) -> None:
        assert self.log.rewrite is not None
        write_rdb(
            self.engine.keyspace,
            partial(write_all, file),
            version=COMPATIBLE_VERSION,
            now_ms=NOW_MS,
            aof_base=True,
            references=self.log.rewrite.cold_references,
        )

    def rewrite(self, between: Any = lambda: None) -> bool:
        rewrite = self.log.begin_rewrite()
        write_file(self.files, rewrite.temporary_path, self.write_base)
        between()
        return self.log.finish_rewrite(rewrite, True)

    def named(self) -> set[str]:
        """Return the cold files of the manifest on the disk."""
        manifest = Manifest.load(self.files, NAMES)
        assert manifest is not None
        return set(manifest.cold_names())

    def stored(self) -> set[str]:
        """Return the cold files on the disk."""
        return {name for name in self.files.list(NAMES.cold_directory) if name.endswith(".cold")}

    def close(self) -> None:
        self.log.close(True)
        self.cold.close()


def test_a_restart_reads_what_the_base_refers_to(files: FaultyFiles) -> None:
    server = ColdServer(files)
    server.add("s", 40)
    server.add("t", 40)
    assert server.named() == set() and len(server.stored()) > 2
    assert server.rewrite()
    assert server.named() == server.stored()
    assert files.size(NAMES.path("appendonly.aof.2.base.rdb")) < server.cold.totals().bytes
    server.run("XTRIM s MAXLEN 20")
    server.run("XADD s 2000000000000-0 after the-base")
    requests = [f"{line} {key}" for key in "st" for line in ("DUMP", "XINFO STREAM", "XLEN")]
    expected = [server.run(request) for request in requests]
    server.close()
    again = ColdServer(files)
    assert [again.run(request) for request in requests] == expected
    assert again.named() == server.named()


def test_a_file_is_removed_only_after_a_durable_manifest_without_it(files: FaultyFiles) -> None:
    server = ColdServer(files)
    server.add("s", 40)
    assert server.rewrite()
    first = server.stored()
    server.run("DEL s")
    server.cold.close()
    server.add("t", 40)
    assert server.cold.remove_unreferenced() == 0, "the manifest still names them"
    second = server.stored() - first
    for _ in range(2):  # the last one of a rewrite, after the new manifest was put in place, and a retry
        files.fail("sync_directory", 3)
    assert server.rewrite() and server.log.failure
    assert server.named() == second
    assert server.cold.remove_unreferenced() == 0, "a power cut may bring back the old manifest"
    assert server.log.commit([], NOW_MS)
    assert server.cold.remove_unreferenced() == len(first)
    assert server.stored() == second
    server.run("DEL t")
    assert server.rewrite()
    server.cold.close()
    assert server.cold.remove_unreferenced() == len(second) and not server.stored()


def test_files_of_a_base_that_is_being_written_are_kept(files: FaultyFiles) -> None:
    server = ColdServer(files)
    server.add("s", 40)
    server.cold.close()

    def drop() -> None:
        server.run("DEL s")
        assert server.cold.remove_unreferenced() == 0

    assert server.rewrite(drop)
    assert server.named() == server.stored() != set()
    assert server.cold.remove_unreferenced() == 0
    again = ColdServer(files)
    assert again.run("EXISTS s") == b":0\r\n"


@pytest.mark.parametrize("how", ["removed", "truncated", "replaced"])
def test_no_manifest_names_a_file_that_is_lost(files: FaultyFiles, tmp_path: pathlib.Path, how: str) -> None:
    server = ColdServer(files)
    server.add("s", 40)
    path = tmp_path / NAMES.cold_path("1.cold")
    data = path.read_bytes()
    if how == "removed":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[:-1])
    else:
        (tmp_path / "other").write_bytes(data[:-1] + b"?")
        (tmp_path / "other").rename(path)
    before = Manifest.load(files, NAMES)
    rewrite = server.log.begin_rewrite()
    write_file(files, rewrite.temporary_path, server.write_base)
    assert not server.log.finish_rewrite(rewrite, True)
    assert "1.cold" in rewrite.failure
    after = Manifest.load(files, NAMES)
    assert before is not None and after is not None and after.base == before.base
    path.write_bytes(data)
    server.cold.accept_replaced_file(
        "1.cold", files.identity(NAMES.cold_path("1.cold"))
    )  # as the monitor does
    assert server.rewrite()


def test_a_missing_cold_file_stops_the_start_and_is_named(files: FaultyFiles, tmp_path: pathlib.Path) -> None:
    server = ColdServer(files)
    server.add("s", 40)
    assert server.rewrite()
    expected = server.run("DUMP s")
    server.close()
    path = tmp_path / NAMES.cold_path("2.cold")
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(Damaged, match=r"it names cold/2\.cold, which is missing; put the file back"):
        ColdServer(files)
    (tmp_path / "elsewhere").rename(path)
    assert ColdServer(files).run("DUMP s") == expected


def test_a_truncated_cold_file_stops_the_start(files: FaultyFiles, tmp_path: pathlib.Path) -> None:
    server = ColdServer(files)
    server.add("s", 40)
    assert server.rewrite()
    server.close()
    path = tmp_path / NAMES.cold_path("1.cold")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(HeadraceError, match=r"1\.cold, at byte 300: it has 300 bytes, which do not contain"):
        ColdServer(files)


def test_orphans_are_removed_and_logged_at_the_start(
    files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    server = ColdServer(files)
    server.add("s", 40)
    assert server.rewrite()
    named = server.named()
    server.add("t", 40)
    orphans = server.stored() - named
    assert orphans
    size = sum(files.size(NAMES.cold_path(name)) for name in orphans)
    with caplog.at_level(logging.WARNING, "headrace"):
        again = ColdServer(files)
    assert f"removed {len(orphans)} cold files ({size} bytes) that nothing refers to" in caplog.text
    assert again.stored() == named


@pytest.mark.parametrize("switched_on", [False, True])
def test_an_unused_log_keeps_its_cold_files(files: FaultyFiles, switched_on: bool) -> None:
    """appendonly no, and then yes at run time: until the first rewrite, the older log is read at a start."""
    server = ColdServer(files)
    server.add("s", 40)
    assert server.rewrite()
    expected, stored = server.run("DUMP s"), server.stored()
    server.close()
    cold = ColdFiles(files, NAMES.cold_directory)
    if switched_on:
        log = Log(files, NAMES)
        log.cold_files = cold
        log.start(None)
        log.abandon()
    else:
        log_files.remove_unlogged_orphans(files, NAMES, cold)
    assert cold.remove_unreferenced() == 0
    assert {*stored, "owner"} == set(files.list(NAMES.cold_directory))
    assert ColdServer(files).run("DUMP s") == expected


# ---- headrace check


def test_a_check_of_a_missing_cold_file_says_to_restore_it(closed: Any, tmp_path: pathlib.Path) -> None:
    name = min(closed.named())
    (tmp_path / NAMES.cold_path(name)).unlink()
    report = checked(tmp_path)
    assert f"it names cold/{name}, which is missing; put the file back where it was" in str(report.damage)
    assert report.obstacle == "a server does not start without the missing file: restore a copy of it"


def checked(tmp_path: pathlib.Path) -> CheckReport:
    def new_engine() -> Any:
        engine = Engine()
        replayer = SkippingReplayer(engine, NOW_MS)
        return engine.keyspace, replayer.replay, replayer.skipped_counts

    return check_file(str(tmp_path / NAMES.directory), new_engine, NOW_MS)


@pytest.fixture
def closed(files: FaultyFiles) -> ColdServer:
    """A server with cold runs in its base and some in an orphan, which has ended."""
    server = ColdServer(files)
    server.add("s", 60)
    server.cold.close()
    assert server.rewrite()
    server.add("t", 40)
    server.close()
    return server


def test_a_check_reads_all_cold_files_and_reports_orphans(closed: ColdServer, tmp_path: pathlib.Path) -> None:
    report = checked(tmp_path)
    assert report.damage is None and report.databases[0].entries == 100
    named = closed.named()
    size = sum(closed.files.size(NAMES.cold_path(name)) for name in named)
    orphans = closed.stored() - named
    assert report.notes[0].startswith(f"{len(named)} cold files with ")
    assert report.notes[0].endswith(f" readable runs, {size:,} bytes")
    assert report.notes[1].startswith(f"{len(orphans)} cold files, ")
    assert report.notes[1].endswith("to which nothing refers: the next start removes them")
    assert orphans and closed.stored() - named == orphans, "a check removes nothing"


def test_a_check_names_the_entries_of_a_damaged_run(closed: ColdServer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / NAMES.cold_path("1.cold")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    report = checked(tmp_path)
    assert str(report.damage) == f"{path}, at byte 32: the checksum of the run is wrong"
    assert not report.fixable and "cannot be repaired: restore a copy" in report.obstacle
    assert report.files[-1].path == str(path) and report.files[-1].state == "damaged"
    (note,) = [note for note in report.notes if "cannot be read" in note]
    assert note.startswith("the entries ") and "of the stream 's' cannot be read: they are in 1.cold" in note
    assert bytes(data) == path.read_bytes()


def test_a_check_finds_a_cold_file_with_other_runs(closed: ColdServer, tmp_path: pathlib.Path) -> None:
    """A file of an older backup, for example: all of it is sound, but the base refers to other runs."""
    (tmp_path / "other").mkdir()
    other = ColdServer(FaultyFiles(DiskDirectory(str(tmp_path / "other"))))
    other.add("s", 60)
    other.close()
    path = tmp_path / NAMES.cold_path("1.cold")
    path.write_bytes((tmp_path / "other" / NAMES.cold_path("1.cold")).read_bytes())
    report = checked(tmp_path)
    assert report.damage is not None and report.damage.file == str(path)
    assert (
        any("the entries " in note for note in report.notes) or "do not contain the run" in report.damage.what
    )


@pytest.mark.parametrize("how", ["missing", "short"])
def test_a_check_says_that_a_server_does_not_start(
    closed: ColdServer, tmp_path: pathlib.Path, how: str
) -> None:
    path = tmp_path / NAMES.cold_path("1.cold")
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:200])
    report = checked(tmp_path)
    assert report.damage is not None and not report.fixable
    assert "1.cold" in str(report.damage)


# ---- the manifest


def test_a_manifest_with_cold_files_is_stored_and_read_back() -> None:
    manifest = Manifest(
        base=ManifestLine("a.2.base.rdb", 2),
        incrs=[ManifestLine("a.2.incr.aof", 2)],
        cold=[ManifestLine("7.cold", 7), ManifestLine("12.cold", 12)],
    )
    assert manifest.text().endswith(b"file 7.cold seq 7 type c\nfile 12.cold seq 12 type c\n")
    assert Manifest.parse(manifest.text()) == manifest
    assert manifest.max_sequence() == 2 and len(manifest.lines()) == 2
    for line in (b"file 7.cold seq 8 type c\n", b"file x seq 8 type c\n", b"file ..7.cold seq 7 type c\n"):
        with pytest.raises(Damaged, match="name does not have its number"):
            Manifest.parse(manifest.text() + line)


def test_redis_server_rejects_a_log_that_needs_cold_files(files: FaultyFiles, tmp_path: pathlib.Path) -> None:
    server = ColdServer(files)
    server.add("s", 40)
    assert server.rewrite()
    server.close()
    start = partial(redis_server, tmp_path, "--appendonly", "yes")
    with pytest.raises(AssertionError, match="Unknown AOF file type"), start():
        pass
    manifest = Manifest.load(DiskDirectory(str(tmp_path)), NAMES)
    assert manifest is not None
    manifest.cold = []
    (tmp_path / NAMES.manifest).write_bytes(manifest.text())
    with pytest.raises(AssertionError, match="Unknown RDB encoding type 150"), start():
        pass
