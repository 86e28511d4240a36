"""The files of a log that somebody takes away; clients that leave in a crowd."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.persistence.files import DirectoryGone, DiskFiles
from headrace.server.heap import CROWD, Crowd
from waiting import wait_until


def test_a_log_whose_directory_is_gone_is_written_anew(start_logging, tmp_path: Path):
    running, _ = start_logging("--appendfsync", "always")
    client = running.connect()
    assert client.request("XADD", "s", "1-1", "f", "v") == b"1-1"
    running.server.timers.whereabouts.looked_ms = 0
    shutil.rmtree(tmp_path / "appendonlydir")
    assert client.request("XADD", "s", "2-1", "f", "v") == b"2-1"
    wait_until(lambda: client.info()["aof_rewrites"] == "1")
    assert client.info()["aof_last_write_status"] == "ok"
    assert client.request("XADD", "s", "3-1", "f", "v") == b"3-1"
    running.stop()
    client = start_logging()[0].connect()
    assert [entry[0] for entry in client.request("XRANGE", "s", "-", "+")] == [b"1-1", b"2-1", b"3-1"]


def test_a_directory_is_the_one_that_was_locked_or_it_is_not(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    disk = DiskFiles(str(home))
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


def test_a_crowd_has_gone_when_most_of_many_have():
    crowd = Crowd()
    assert not crowd.has_gone(CROWD)
    assert not crowd.has_gone(2 * CROWD)
    assert not crowd.has_gone(CROWD + 1)
    assert crowd.has_gone(CROWD)
    assert not crowd.has_gone(1)
    assert crowd.has_gone(0)
    assert not crowd.has_gone(CROWD - 1) and not crowd.has_gone(0)


def test_memory_is_purged(client):
    assert client.request("MEMORY", "PURGE") == "OK"
