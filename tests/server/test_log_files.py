"""The files of a log that another program removes or replaces; clients that leave in a crowd."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.persistence.data_directory import DirectoryGone, DiskDirectory
from headrace.server.observe.heap import MASS_DISCONNECT_MIN, MassDisconnectDetector
from support.log_file_changes import CHANGES, SOME, prepare_log
from support.waiting import wait_until


@pytest.mark.parametrize("change", SOME)
def test_changed_files_are_noticed_by_an_idle_server_and_rewritten(start, tmp_path: Path, capfd, change):
    ids = prepare_log(tmp_path)
    running = start("--appendonly", "yes", "--appendfsync", "everysec")
    ids.append(running.connect().request("XADD", "s", "*", "f", "v"))
    CHANGES[change](tmp_path / "appendonlydir")
    wait_until(lambda: running.server.parts.saving.rewrites == 1)
    assert "must be rewritten" in capfd.readouterr().err
    client = running.connect()
    assert client.info()["aof_last_write_status"] == "ok"
    ids.append(client.request("XADD", "s", "*", "f", "v"))
    running.stop()
    client = start("--appendonly", "yes").connect()
    assert [entry[0] for entry in client.request("XRANGE", "s", "-", "+")] == ids


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_writes_are_refused_while_no_log_can_be_written(start, tmp_path: Path, policy: str):
    running = start("--appendonly", "yes", "--appendfsync", policy)
    client = running.connect()
    ids = [client.request("XADD", "s", "*", "f", "v")]
    log = tmp_path / "appendonlydir"
    log.rename(tmp_path / "moved")
    log.touch()  # a file, where no directory can be made
    wait_until(lambda: running.server.parts.durability.failure)
    refusal = "MISCONF Errors writing to the AOF file: Not a directory"
    assert str(client.request("XADD", "s", "*", "f", "v")) == refusal
    assert client.request("XLEN", "s") == 1
    log.unlink()
    wait_until(lambda: not running.server.parts.durability.failure)
    ids.append(client.request("XADD", "s", "*", "f", "v"))
    running.stop()
    client = start("--appendonly", "yes").connect()
    assert [entry[0] for entry in client.request("XRANGE", "s", "-", "+")] == ids


def test_shutdown_is_refused_when_the_log_was_removed(start, tmp_path: Path):
    """The entries are in memory only until the rewrite has ended."""
    running = start("--appendonly", "yes")
    client = running.connect()
    assert client.request("XADD", "s", "1-1", "f", "v") == b"1-1"
    running.server.parts.durability.log.checked_ms = running.server.parts.clock.now_ms()
    shutil.rmtree(tmp_path / "appendonlydir")
    assert str(client.request("SHUTDOWN")) == "ERR Errors trying to SHUTDOWN. Check logs."
    wait_until(lambda: running.server.parts.saving.rewrites == 1)
    client.send(b"SHUTDOWN\r\n")
    assert client.is_closed()
    running.thread.join()
    assert start("--appendonly", "yes").connect().request("XLEN", "s") == 1


def test_turning_the_log_off_in_trouble_does_not_call_it_whole(start_logging, capfd):
    running, disk = start_logging()
    writer, client = running.connect(), running.connect()
    disk.full = True
    writer.send(b"SET k v\r\n")
    wait_until(lambda: running.server.parts.durability.failure)
    assert client.request("CONFIG", "SET", "appendonly", "no") == "OK"
    assert writer.reply() == "OK"
    written = capfd.readouterr().err
    assert "the log is whole again" not in written
    assert "the log was turned off: writes are accepted, and kept in memory only" in written


def test_a_directory_is_the_one_that_was_locked_or_it_is_not(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    disk = DiskDirectory(str(home))
    disk.check_lock()  # nothing is locked yet
    disk.lock()
    disk.check_lock()
    home.rename(tmp_path / "away")
    with pytest.raises(DirectoryGone):
        disk.check_lock()
    home.mkdir()
    (home / "headrace.lock").touch()
    with pytest.raises(DirectoryGone):
        disk.check_lock()
    shutil.rmtree(home)
    (tmp_path / "away").rename(home)
    disk.check_lock()
    disk.unlock()


def test_a_removed_lock_file_is_named(tmp_path: Path):
    disk = DiskDirectory(str(tmp_path))
    disk.lock()
    (tmp_path / "headrace.lock").unlink()
    with pytest.raises(DirectoryGone, match=r"or its headrace\.lock was removed or replaced"):
        disk.check_lock()
    disk.unlock()


def test_a_crowd_has_gone_when_most_of_many_have():
    detector = MassDisconnectDetector()
    assert not detector.detect(MASS_DISCONNECT_MIN)
    assert not detector.detect(2 * MASS_DISCONNECT_MIN)
    assert not detector.detect(MASS_DISCONNECT_MIN + 1)
    assert detector.detect(MASS_DISCONNECT_MIN)
    assert not detector.detect(1)
    assert detector.detect(0)
    assert not detector.detect(MASS_DISCONNECT_MIN - 1) and not detector.detect(0)


def test_memory_is_purged(client):
    assert client.request("MEMORY", "PURGE") == "OK"
