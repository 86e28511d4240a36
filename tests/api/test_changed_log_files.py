"""A database whose log files are removed or replaced: writes raise NotOnDisk, the log is rewritten."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import headrace
from headrace.errors import CommandError, HeadraceError, NotOnDisk
from support.log_file_changes import CHANGES, SOME, add_entries, prepare_log
from support.waiting import wait_until


def entries_after_crash(db: headrace.Database, path: Path) -> list[bytes]:
    """Let go of the directory without writing anything, open it again and return the entry IDs."""
    db.backend.close_after_fork("forked")
    if db.backend.timer is not None:
        db.backend.timer.wakeup.wake()  # its thread ends
    with headrace.open(path) as again:
        return [entry[0] for entry in again.execute("XRANGE", "s", "-", "+")]


def add_until_noticed(db: headrace.Database) -> list[bytes]:
    """Add until NotOnDisk is raised. Return the IDs of all entries, the one in memory only included."""
    with pytest.raises(NotOnDisk, match="must be rewritten"):
        add_forever(db)
    return [entry[0] for entry in db.execute("XRANGE", "s", "-", "+")]


def add_forever(db: headrace.Database) -> None:
    while True:
        db.backend.add(b"s", b"*", {"f": "v"})


@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_a_removed_log_is_noticed_within_a_second_of_writing(tmp_path, fsync):
    db = headrace.open(tmp_path, fsync=fsync)
    add_entries(db)
    shutil.rmtree(tmp_path / "appendonlydir")
    ids = add_until_noticed(db)
    wait_until(lambda: not db.info().disk_error)
    ids += add_entries(db)
    assert entries_after_crash(db, tmp_path) == ids


@pytest.mark.parametrize("change", SOME)
def test_a_changed_file_is_noticed_by_the_next_add_of_an_idle_program(tmp_path, change):
    ids = prepare_log(tmp_path)
    db = headrace.open(tmp_path)
    CHANGES[change](tmp_path / "appendonlydir")
    with pytest.raises(NotOnDisk, match="must be rewritten"):
        db.backend.add(b"s", b"*", {"f": "v"})
    wait_until(lambda: not db.info().disk_error)
    add_entries(db)
    ids = [entry[0] for entry in db.execute("XRANGE", "s", "-", "+")]
    assert len(ids) == 16
    assert entries_after_crash(db, tmp_path) == ids


def test_writes_are_refused_until_the_log_is_rewritten(tmp_path):
    db = headrace.open(tmp_path)
    log = tmp_path / "appendonlydir"
    add_entries(db)
    log.rename(tmp_path / "moved")
    log.touch()  # a file, where no directory can be made
    add_until_noticed(db)
    with pytest.raises(CommandError, match="MISCONF"):
        db.backend.add(b"s", b"*", {"f": "v"})
    assert "Not a directory" in db.info().disk_error
    log.unlink()
    wait_until(lambda: not db.info().disk_error)
    ids = [entry[0] for entry in db.execute("XRANGE", "s", "-", "+")]
    assert entries_after_crash(db, tmp_path) == ids


def test_close_writes_a_log_that_was_removed(tmp_path):
    db = headrace.open(tmp_path)
    ids = add_entries(db)
    shutil.rmtree(tmp_path / "appendonlydir")
    db.close()
    with headrace.open(tmp_path) as db:
        assert [entry[0] for entry in db.execute("XRANGE", "s", "-", "+")] == ids


def test_compact_writes_a_log_that_was_removed(tmp_path):
    db = headrace.open(tmp_path)
    ids = add_entries(db)
    shutil.rmtree(tmp_path / "appendonlydir")
    db.compact()
    assert not db.info().disk_error
    ids += add_entries(db)
    assert entries_after_crash(db, tmp_path) == ids


def test_another_data_directory_is_left_alone(tmp_path):
    home, moved = tmp_path / "home", tmp_path / "moved"
    db = headrace.open(home)
    add_entries(db)
    home.rename(moved)
    home.mkdir()
    ids = add_until_noticed(db)
    with pytest.raises(HeadraceError, match="not the directory that this process has locked"):
        db.compact()
    assert list(home.iterdir()) == []
    home.rmdir()
    moved.rename(home)
    wait_until(lambda: not db.info().disk_error)
    assert entries_after_crash(db, home) == ids


def test_closing_another_data_directory_says_what_is_lost(tmp_path):
    home = tmp_path / "home"
    db = headrace.open(home)
    add_entries(db)
    home.rename(tmp_path / "moved")
    with pytest.raises(NotOnDisk, match="not the directory that this process has locked"):
        db.close()


def test_an_idle_database_has_no_thread(tmp_path):
    with headrace.open(tmp_path) as db:
        add_entries(db)
        assert db.backend.timer is None
