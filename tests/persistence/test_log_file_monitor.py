"""Files of a log in use that another program removes, replaces or changes: each change is detected."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.persistence.aof.log import Log
from headrace.persistence.aof.log_file_monitor import CHECK_INTERVAL_MS
from headrace.persistence.aof.log_files import restore_directory
from headrace.persistence.aof.manifest import Manifest, write_all
from headrace.persistence.data_directory import DiskDirectory
from persistence.log_bench import NAMES, add
from support.log_file_changes import CHANGES, manifest, newest, replace_by_copy
from support.unprivileged import in_unprivileged_child, open_to_all


@pytest.fixture
def files(tmp_path: Path) -> DiskDirectory:
    files = DiskDirectory(str(tmp_path))
    files.lock()
    return files


def rewrite(log: Log, complete: bool = True) -> bool:
    """Write a new base, or fail to."""
    task = log.begin_rewrite()
    file = log.files.create(task.temporary_path)
    write_all(file, b"base of the log")
    file.close()
    return log.finish_rewrite(task, complete)


def begun(files: DiskDirectory) -> Log:
    """Return a log with a base, an older incr file and the newest one, all with records."""
    log = Log(files, NAMES, policy="always")
    log.start(None)
    assert rewrite(log)
    assert log.commit(add(1, 2, 3), 0)
    assert not rewrite(log, complete=False)
    assert log.commit(add(4, 5, 6), 0)
    assert len(log.manifest.incrs) == 2 and log.manifest.base
    return log


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
def test_a_change_is_detected_and_the_log_rewritten(files, tmp_path, change, restarted):
    log = begun(files)
    if restarted:
        assert log.close(True)
        log = Log(files, NAMES, policy="always")
        log.start(Manifest.load(files, NAMES))
    assert not log.give_up_if_files_changed(0, force=True)
    change(tmp_path / "appendonlydir")
    assert log.give_up_if_files_changed(0, force=True)
    assert log.needs_rewrite and "must be rewritten" in log.failure
    assert not log.commit(add(7), 0)
    restore_directory(files, NAMES)
    assert rewrite(log), log.failure
    assert log.commit(add(8), 0) and not log.failure
    assert not log.give_up_if_files_changed(0, force=True)
    assert log.close(True)
    found = Manifest.load(files, NAMES)
    assert found is not None and found == log.manifest and found.history == []


def test_unchanged_files_are_never_reported(files):
    log = begun(files)
    for number in range(3):
        assert log.commit(add(number), 0) and not log.give_up_if_files_changed(0, force=True)
        assert rewrite(log) and not log.give_up_if_files_changed(0, force=True)
        assert not rewrite(log, complete=False) and not log.give_up_if_files_changed(0, force=True)


def test_a_copy_of_the_manifest_with_the_same_bytes_is_no_change(files, tmp_path):
    log = begun(files)
    replace_by_copy(manifest(tmp_path / "appendonlydir"))
    assert not log.give_up_if_files_changed(0, force=True)


def test_files_are_compared_once_in_an_interval(files, tmp_path):
    log = begun(files)
    assert not log.give_up_if_files_changed(10_000)
    newest(tmp_path / "appendonlydir").unlink()
    assert not log.give_up_if_files_changed(10_000 + CHECK_INTERVAL_MS - 1)
    assert log.give_up_if_files_changed(10_000 + CHECK_INTERVAL_MS)


def test_files_are_compared_again_when_the_clock_was_set_back(files, tmp_path):
    log = begun(files)
    assert not log.give_up_if_files_changed(10_000)
    newest(tmp_path / "appendonlydir").unlink()
    assert log.give_up_if_files_changed(9_999)


def test_a_file_of_another_program_is_kept(files, tmp_path):
    log = begun(files)
    path = newest(tmp_path / "appendonlydir")
    path.unlink()
    path.write_text("of another program")
    assert log.give_up_if_files_changed(0, force=True) and rewrite(log)
    assert path.with_name(f"{path.name}.replaced").read_text() == "of another program"


def test_names_of_existing_files_are_not_used(files, tmp_path):
    """A directory copied over ours may hold higher numbers."""
    log = begun(files)
    foreign = tmp_path / "appendonlydir" / NAMES.base_name(4, True)
    foreign.write_text("of another program")
    assert rewrite(log)
    assert foreign.read_text() == "of another program"


def test_another_data_directory_is_reported(files, tmp_path):
    log = begun(files)
    moved = tmp_path.with_name("moved")
    shutil.rmtree(moved, ignore_errors=True)
    tmp_path.rename(moved)
    try:
        tmp_path.mkdir()
        assert log.give_up_if_files_changed(0, force=True)
        assert "is not the directory that this process has locked" in log.failure
    finally:
        tmp_path.rmdir()
        moved.rename(tmp_path)


def test_a_directory_without_permission_is_reported_as_such(files, tmp_path):
    log = begun(files)
    directory = tmp_path / "appendonlydir"
    open_to_all(tmp_path)
    directory.chmod(0)

    def checked() -> str:
        return log.failure if log.give_up_if_files_changed(0, force=True) else "unchanged"

    assert in_unprivileged_child(checked).endswith(": Permission denied")
    directory.chmod(0o755)
