"""A copy of an open database, and a rewrite of its log, while other threads use it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
import redis

import headrace
from headrace.api.local import image_writer
from headrace.errors import DatabaseClosed, HeadraceError, UsageError
from headrace.persistence.data_directory import DiskFile
from headrace.persistence.rdb.encoder_thread import EncoderThread
from support.redis_server import redis_server
from support.waiting import wait_until


def fill(db: headrace.Database, entries: int = 1000) -> None:
    db.stream("orders").add_many({"n": n} for n in range(entries))
    db.execute("XGROUP", "CREATE", "orders", "billing", "0")
    db.execute("XREADGROUP", "GROUP", "billing", "ann", "COUNT", "10", "STREAMS", "orders", ">")
    db.execute("SET", "k", "v", "PXAT", 4102444800000)


def numbers(db: headrace.Database) -> list[int]:
    return [int(entry["n"]) for entry in db.stream("orders")]


@pytest.mark.parametrize("path", [None, "data"])
def test_a_backup_is_a_database(tmp_path: Path, path: str | None) -> None:
    target = tmp_path / "copy"
    with headrace.open(tmp_path / path if path else None) as db:
        fill(db)
        db.backup(target)
        db.stream("orders").add({"n": 9999})
        pending = db.execute("XPENDING", "orders", "billing")
    assert os.listdir(target) == ["dump.rdb"]
    assert sorted(os.listdir(tmp_path)) == sorted(["copy", *([path] if path else [])])
    with headrace.open(target) as copy:
        assert numbers(copy) == list(range(1000))
        assert copy.execute("XPENDING", "orders", "billing") == pending
        assert copy.execute("PEXPIRETIME", "k") == 4102444800000


def test_redis_server_starts_on_a_backup(tmp_path: Path) -> None:
    with headrace.open() as db:
        fill(db)
        db.backup(tmp_path / "copy")
    with redis_server(tmp_path / "copy") as port, redis.Redis(port=port) as client:
        assert client.xlen("orders") == 1000
        assert client.xpending("orders", "billing")["pending"] == 10


class Writer(threading.Thread):
    """Adds numbers until stop() is called."""

    def __init__(self, db: headrace.Database) -> None:
        super().__init__()
        self.db = db
        self.added = 0
        self.stopped = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stopped.wait(0.001):
            self.db.stream("orders").add({"n": self.added})
            self.added += 1

    def stop(self) -> None:
        self.stopped.set()
        self.join()


@pytest.fixture
def in_many_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_writer, "SLICE_NS", 0)  # one step each


def test_a_backup_is_of_one_moment(tmp_path: Path, in_many_slices: None) -> None:
    with headrace.open(tmp_path / "data", fsync="no") as db:
        writer = Writer(db)
        for number in range(10):
            before = writer.added
            db.backup(tmp_path / str(number))
            after = writer.added
            with headrace.open(tmp_path / str(number)) as copy:
                found = numbers(copy)
            assert found == list(range(len(found))) and before <= len(found) <= after + 1
        writer.stop()


def test_the_log_is_rewritten_beside_writers(tmp_path: Path, in_many_slices: None) -> None:
    with headrace.open(tmp_path, fsync="no") as db:
        writer = Writer(db)
        for _ in range(10):
            db.compact()
        writer.stop()
    with headrace.open(tmp_path) as db:
        assert numbers(db) == list(range(writer.added))
        assert db.info().disk_error == ""


def test_backups_and_rewrites_take_turns(tmp_path: Path, in_many_slices: None) -> None:
    errors: list[BaseException] = []

    def repeat(work: object) -> None:
        try:
            for number in range(5):
                work(number)  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    with headrace.open(tmp_path / "data", fsync="no") as db:
        fill(db)
        works = [
            lambda number: db.backup(tmp_path / f"a{number}"),
            lambda number: db.backup(tmp_path / f"b{number}"),
            lambda number: db.compact(),
        ]
        threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert len(os.listdir(tmp_path)) == 11


def test_where_a_backup_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    with headrace.open() as db:
        fill(db)
        for path in (tmp_path / "full", tmp_path / "full" / "file"):
            with pytest.raises(UsageError, match="exists already: a backup needs a new or empty directory"):
                db.backup(path)
        with pytest.raises(UsageError, match="does not exist: create it"):
            db.backup(tmp_path / "no" / "such")
        with pytest.raises(HeadraceError, match="/proc/"):
            db.backup("/proc/backup")  # where nobody can create a directory
        db.backup(tmp_path / "empty")
        assert os.listdir(tmp_path / "empty") == ["dump.rdb"]
    with pytest.raises(DatabaseClosed):
        db.backup(tmp_path / "late")
    assert not (tmp_path / "late").exists()


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: DiskFile, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with headrace.open(tmp_path / "data") as db:
        fill(db)
        with monkeypatch.context() as patch:
            patch.setattr(DiskFile, "write", fail)
            with pytest.raises(HeadraceError, match="No space left"):
                db.backup(tmp_path / "copy")
        assert os.listdir(tmp_path) == ["data"]
        db.backup(tmp_path / "copy")  # the image of the failed one was released
        db.compact()


@pytest.mark.parametrize("work", ["backup", "compact"])
def test_close_cancels_what_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            if work == "backup":
                db.backup(tmp_path / "copy")
            else:
                db.compact()
        except BaseException as error:
            errors.append(error)

    db = headrace.open(tmp_path / "data")
    fill(db)
    monkeypatch.setattr(EncoderThread, "has_room", lambda self: False)
    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: db.backend.engine.keyspace.image is not None)  # type: ignore[union-attr]
    db.stream("orders").add({"n": 1000})
    db.close()
    thread.join(60)
    assert not thread.is_alive() and isinstance(errors[0], DatabaseClosed)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["data"]
    with headrace.open(tmp_path / "data") as again:
        assert numbers(again) == list(range(1001))
        left = os.listdir(tmp_path / "data" / "appendonlydir")
        assert not [name for name in left if name.startswith("temp-")]
