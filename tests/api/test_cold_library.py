"""Streams larger than memory in a program: headrace.open(hot_memory=)."""

import copy
import logging
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

import headrace
from headrace import Retention
from headrace.client.server_errors import command_error
from headrace.errors import CommandError, DamagedColdRun, UsageError
from headrace.persistence.cold.cold_store import ColdStore
from support.headrace_server import headrace_server
from support.waiting import wait_until

PROGRAM = Path(__file__).with_name("cold_program.py")
ENTRIES = 4000
TEXT = "x" * 60


def fill(db: headrace.Database, entries: int = ENTRIES) -> None:
    for first in range(0, entries, 500):
        db.backend.add_many(b"s", [{"n": n, "text": TEXT} for n in range(first, first + 500)])


def hot_bytes(db: headrace.Database) -> int:
    """Return the bytes of memory of the data, at no moment in the middle of a change."""
    size = db.backend.run_locked(db.backend.engine.cold_storage.data_bytes)
    db.backend.commit_and_wake(-1)
    return size


def numbers(db: headrace.Database) -> list[int]:
    return [int(entry[1][1]) for entry in db.execute("XRANGE", "s", "-", "+")]


def cold_files(path: Path) -> list[Path]:
    return sorted((path / "appendonlydir" / "cold").glob("*.cold"))


def test_the_oldest_entries_leave_memory_and_are_read_as_before(tmp_path) -> None:
    with headrace.open(tmp_path, fsync="no", hot_memory="100kb") as db:
        fill(db)
        wait_until(lambda: hot_bytes(db) <= 100 << 10)
        info = db.info()
        assert info.cold_entries > ENTRIES / 2
        assert info.cold_bytes > 100 << 10
        assert info.cold_error == ""
        assert cold_files(tmp_path)
        assert numbers(db) == list(range(ENTRIES))
        db.execute("XGROUP", "CREATE", "s", "g", "0")
        [[_, entries]] = db.execute("XREADGROUP", "GROUP", "g", "c", "COUNT", 1500, "STREAMS", "s", ">")
        assert len(entries) == 1500
        assert db.execute("CONFIG", "GET", "stream-hot-memory") == [b"stream-hot-memory", b"102400"]
    for hot_memory in (100 << 10, 0):  # also without a limit
        with headrace.open(tmp_path, hot_memory=hot_memory) as db:
            assert numbers(db) == list(range(ENTRIES))
            assert (db.info().cold_entries > 0) == bool(hot_memory)


def test_single_adds_start_the_timer_thread(tmp_path) -> None:
    with headrace.open(tmp_path, fsync="no", hot_memory=10_000) as db:
        stream = db.stream("s")
        for n in range(1000):
            stream.add({"n": n})
        wait_until(lambda: hot_bytes(db) <= 10_000)
        assert db.info().cold_entries > 0


def test_a_rewrite_refers_to_the_files_and_a_backup_does_not(tmp_path) -> None:
    path = tmp_path / "data"
    with headrace.open(path, fsync="no", hot_memory="100kb") as db:
        fill(db)
        wait_until(lambda: hot_bytes(db) <= 100 << 10)
        db.compact()
        assert "type c" in (path / "appendonlydir/appendonly.aof.manifest").read_text()
        db.backup(tmp_path / "copy")
        cold = db.info().cold_entries
    with headrace.open(path) as db:
        assert db.info().cold_entries == cold
        assert numbers(db) == list(range(ENTRIES))
    with headrace.open(tmp_path / "copy") as db:
        assert db.info().cold_entries == 0
        assert numbers(db) == list(range(ENTRIES))


def test_files_are_removed_with_their_runs_also_without_a_limit(tmp_path) -> None:
    with headrace.open(tmp_path, fsync="no", hot_memory="100kb") as db:
        fill(db)
        wait_until(lambda: hot_bytes(db) <= 100 << 10)
        db.compact()
    before = cold_files(tmp_path)
    clock = headrace.testing.ManualClock()
    with headrace.open(tmp_path, clock=clock) as db:
        db.execute("DEL", "s")
        db.compact()
        assert cold_files(tmp_path) == before
        clock.advance(seconds=10)
        wait_until(lambda: not cold_files(tmp_path))


def test_threads_read_and_write_while_nodes_move(tmp_path) -> None:
    with headrace.open(tmp_path, fsync="no", hot_memory="50kb", cold_cache_memory="1mb") as db:
        errors: list[BaseException] = []

        def add() -> None:
            try:
                fill(db, 2000)
            except BaseException as error:
                errors.append(error)

        def read() -> None:
            try:
                last, found = b"0", 0
                while found < 6000:
                    for _, entries in db.execute("XREAD", "COUNT", 200, "STREAMS", "s", last) or []:
                        found += len(entries)
                        last = entries[-1][0]
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for work in (add, add, add, read, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert sorted(numbers(db)) == sorted([*range(2000)] * 3)


def test_a_full_disk_keeps_the_nodes_in_memory(tmp_path, monkeypatch, caplog) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with headrace.open(tmp_path, fsync="no", hot_memory="100kb") as db:
        with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
            broken.setattr(ColdStore, "write", fail)
            fill(db)
            wait_until(lambda: db.info().cold_error == "no space left on device")
            assert db.info().cold_entries == 0
            assert numbers(db) == list(range(ENTRIES))
        assert "they stay in memory" in caplog.text
        wait_until(lambda: db.info().cold_entries > 0)
        assert db.info().cold_error == ""


def damage(path: Path) -> None:
    """Change a byte in each run of the oldest cold file."""
    file = cold_files(path)[0]
    data = bytearray(file.read_bytes())
    for at in range(100, len(data), 100):
        data[at] ^= 1
    file.write_bytes(data)


def assert_reads_raise_damaged_cold_run(db: headrace.Database) -> None:
    stream = db.stream("s")
    reads = [
        stream.first,
        lambda: list(stream.range()),
        lambda: list(stream.reverse()),
        lambda: stream.read(after="0"),
        stream.to_arrow,
        lambda: db.sql("SELECT count(n) FROM s"),
        lambda: db.execute("XRANGE", "s", "-", "+"),
    ]
    for read in reads:
        with pytest.raises(DamagedColdRun, match=r"^COLDERR the entries .*\.cold") as caught:
            read()
        assert caught.value.file.endswith(".cold")
        assert (caught.value.offset > 0, caught.value.ids.count("-"), bool(caught.value.what)) == (
            True,
            2,
            True,
        )
    for atomic in (False, True):
        assert isinstance(
            db.backend.request_all([(b"XRANGE", b"s", b"-", b"+")], atomic=atomic)[0], DamagedColdRun
        )
    with pytest.raises(DamagedColdRun):
        next(stream.follow(after="0"))
    assert len(stream) == ENTRIES


def test_a_damaged_file_is_an_error_of_the_commands_that_read_it(tmp_path) -> None:
    with headrace.open(tmp_path, fsync="no", hot_memory="100kb") as db:
        fill(db)
        wait_until(lambda: hot_bytes(db) <= 100 << 10)
        damage(tmp_path)
        assert_reads_raise_damaged_cold_run(db)


def test_a_damaged_file_of_a_server_is_the_same_error(tmp_path) -> None:
    options = ("--appendonly", "yes", "--stream-hot-memory", "100kb")
    with (
        headrace_server(tmp_path, *options) as port,
        headrace.connect(f"redis://127.0.0.1:{port}") as db,
    ):
        fill(db)
        wait_until(lambda: b"cold_entries:0\r" not in db.execute("INFO", "memory"))
        damage(tmp_path)
        assert_reads_raise_damaged_cold_run(db)


@pytest.mark.parametrize(
    "error",
    [
        DamagedColdRun("log/cold/1.cold", 32, "the file is missing"),
        DamagedColdRun("log/cold/1.cold", 0, "get: 503, at byte 7: cold file", "1-0 to 5-3"),
        DamagedColdRun("", 0, "another server's text"),
    ],
)
def test_the_error_is_read_from_its_text(error: DamagedColdRun) -> None:
    read = command_error(str(error))
    assert (type(read), read.args, vars(read)) == (DamagedColdRun, error.args, vars(error))
    assert str(copy.copy(read)) == str(error)


def test_a_rule_bounds_a_stream_without_a_limit_for_all(tmp_path) -> None:
    with headrace.open(tmp_path, fsync="no") as db:
        db.stream("s").set_retention(Retention(hot_bytes=50_000))
        fill(db)
        wait_until(lambda: db.info().cold_entries > ENTRIES / 2)
        assert numbers(db) == list(range(ENTRIES))
        assert db.stream("s").rules() == {"HOT-BYTES": "50000"}
    with headrace.open(tmp_path) as db:
        wait_until(lambda: db.info().cold_entries > ENTRIES / 2)
        db.stream("s").set_retention(Retention(hot_age=timedelta(days=1)))
        assert db.stream("s").rules() == {"HOT-AGE": "86400000"}
        assert numbers(db) == list(range(ENTRIES))
    with headrace.open() as db:
        db.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        with pytest.raises(CommandError, match="need a data directory"):
            db.stream("s").set_retention(Retention(hot_age=60))


def test_close_waits_for_what_is_being_written(tmp_path) -> None:
    for _ in range(3):
        with headrace.open(tmp_path, fsync="no", hot_memory="10kb") as db:
            fill(db, 1000)
        before = cold_files(tmp_path)
        assert not [thread for thread in threading.enumerate() if thread.name == "headrace-cold"]
        assert cold_files(tmp_path) == before
    with headrace.open(tmp_path) as db:
        assert len(numbers(db)) == 3000


def test_nothing_acknowledged_is_lost_when_the_program_is_killed(tmp_path) -> None:
    acknowledged = cold = 0
    for run in range(3):
        with subprocess.Popen(
            [sys.executable, PROGRAM, tmp_path], stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None
            target = acknowledged + 3000 + 700 * run
            for line in program.stdout:
                acknowledged, cold = map(int, line.split())
                if acknowledged >= target and cold:
                    program.kill()
        with headrace.open(tmp_path, hot_memory="100kb") as db:
            found = numbers(db)
            assert found == list(range(len(found)))
            assert len(found) >= acknowledged
            assert db.info().cold_entries > 0
        acknowledged = len(found)


@pytest.mark.parametrize("size", ["lots", "-1", -1, 1.5, True, "12xb", 1 << 63])
def test_a_wrong_size_is_rejected(tmp_path, size) -> None:
    with pytest.raises(UsageError, match="hot_memory="):
        headrace.open(tmp_path, hot_memory=size)
    with pytest.raises(UsageError, match="cold_cache_memory="):
        headrace.open(tmp_path, cold_cache_memory=size)


def test_memory_alone_has_no_files(tmp_path) -> None:
    with pytest.raises(UsageError, match="has no files"):
        headrace.open(hot_memory="1mb")
