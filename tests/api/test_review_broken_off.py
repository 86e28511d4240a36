"""What is broken off half-way: by a fork, by a signal handler that raises, by a retry that cannot be."""

import logging
import math
import os
import shutil
import signal
import sys
from random import Random

import pytest

import headrace
from headrace import Backoff
from headrace.api.database import build_database
from headrace.api.local.clock import ManualClock
from headrace.api.local.directory import open_directory
from headrace.api.local.storage import Storage
from headrace.errors import CommandError, DatabaseClosed, HeadraceError, NotOnDisk, UsageError
from headrace.keyspace.settings import Settings
from headrace.persistence.aof.log import error_reply_for
from support.waiting import wait_until


class Interrupt(BaseException):
    """As KeyboardInterrupt."""


def test_the_child_of_a_fork_waits_for_no_lock(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        held = db.backend.storage.lock.acquire()  # as by a thread that syncs at this moment
        assert held
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(20)
                db.compact()
            except DatabaseClosed as closed:
                code = 0 if "forked" in str(closed) else 2
            finally:
                os._exit(code)
        db.backend.storage.lock.release()
        assert os.waitpid(child, 0)[1] == 0


def test_a_closed_database_is_not_compacted(tmp_path) -> None:
    for path in (None, tmp_path):
        db = headrace.open(path)
        db.close()
        with pytest.raises(DatabaseClosed):
            db.compact()


def break_off(monkeypatch: pytest.MonkeyPatch, db: headrace.Database, step: str) -> None:
    """The next `step` of the log's file ends in a signal handler's exception; its work is done."""
    kind = type(db.backend.storage.log._file)
    real = getattr(kind, step)

    def interrupted(self, *arguments):
        monkeypatch.setattr(kind, step, real)
        real(self, *arguments)
        raise Interrupt

    monkeypatch.setattr(kind, step, interrupted)


@pytest.mark.parametrize("step", ["write", "sync"])
def test_a_commit_that_is_broken_off_loses_and_doubles_nothing(tmp_path, monkeypatch, step) -> None:
    db = headrace.open(tmp_path)
    stream = db.stream("s")
    stream.add({"n": 0})
    break_off(monkeypatch, db, step)
    with pytest.raises(Interrupt):
        stream.add({"n": 1})
    stream.add({"n": 2})
    assert db.info().disk_error == ""
    ids = [entry.id for entry in stream]
    db.close()
    with headrace.open(tmp_path) as db:
        assert [entry.id for entry in db.stream("s")] == ids


@pytest.mark.parametrize("step", ["write", "sync"])
def test_a_close_right_after_that_does_not_either(tmp_path, monkeypatch, caplog, step) -> None:
    db = headrace.open(tmp_path)
    stream = db.stream("s")
    break_off(monkeypatch, db, step)
    with pytest.raises(Interrupt):
        stream.add({"n": 1})
    ids = [entry.id for entry in stream]
    db.close()
    caplog.clear()
    with headrace.open(tmp_path) as db:
        assert [entry.id for entry in db.stream("s")] == ids
    assert not caplog.records  # nothing of the log had to be mended


def test_an_interrupted_commit_is_not_taken_for_durable_when_the_disk_works_again(
    tmp_path, monkeypatch
) -> None:
    """ "b" is written while the disk rejects "a"; its commit is interrupted before the log has it."""
    storage = Storage(open_directory(tmp_path), "always")
    db = build_database(storage, ManualClock(), Settings())
    backend, log = db.backend, storage.log
    write, give_up_if_files_changed = log._file.write, log.give_up_if_files_changed

    def add(value: str) -> int:
        session = backend.engine.create_session()
        now = backend.now_ms()
        backend.run_locked(
            lambda: backend.engine.execute(session, [b"XADD", b"s", b"*", b"v", value.encode()], now)
        )
        return session.last_write_offset

    batches = []

    def reject(data: bytes) -> int:
        if not batches:
            batches.append(add("b"))
        raise OSError(28, "No space left on device")

    def interrupt(*arguments: object) -> bool:
        monkeypatch.setattr(log, "give_up_if_files_changed", give_up_if_files_changed)
        raise Interrupt

    monkeypatch.setattr(log._file, "write", reject)
    with pytest.raises(NotOnDisk):
        storage.commit(add("a"))
    monkeypatch.setattr(log, "give_up_if_files_changed", interrupt)
    with pytest.raises(Interrupt):
        storage.commit(batches[0])
    monkeypatch.setattr(log._file, "write", write)
    storage.tick(backend.now_ms())
    assert db.info().disk_error == ""
    storage.commit(batches[0])  # returns: "b" must survive even if the process is killed now
    copy = shutil.copytree(tmp_path, tmp_path / "copy")
    with headrace.open(copy) as again:
        assert [entry["v"] for entry in again.stream("s")] == [b"a", b"b"]
    db.close()


def test_a_rewrite_that_is_broken_off_is_done_again(tmp_path, monkeypatch) -> None:
    with headrace.open(tmp_path) as db:
        stream = db.stream("s")
        stream.add_many({"n": n} for n in range(10))
        break_off(monkeypatch, db, "sync")
        with pytest.raises(Interrupt):
            db.compact()
        wait_until(
            lambda: not db.info().disk_error, "the timer thread to rewrite the log; writes are rejected"
        )
        stream.add({"n": 10})
        db.compact()
    with headrace.open(tmp_path) as db:
        assert len(db.stream("s")) == 11


def test_a_snapshot_is_refused_with_what_to_do_instead(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        for words in (("SAVE",), ("BGSAVE",), ("BGSAVE", "SCHEDULE")):
            with pytest.raises(CommandError, match=r"compact\(\)"):
                db.execute(*words)
    with headrace.open() as db, pytest.raises(CommandError, match="memory only"):
        db.execute("SAVE")


def test_a_full_disk_is_told_with_what_to_do(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        db.backend.engine.write_gate.reject_writes(error_reply_for("No space left on device"))
        stream = db.stream("s")
        for call in (lambda: stream.add({"a": 1}), lambda: stream.add_many([{"a": 1}] * 2)):
            with pytest.raises(CommandError, match="MISCONF") as refused:
                call()
            assert "free some space" in "".join(refused.value.__notes__)
        db.backend.engine.write_gate.reject_writes(None)


# Settling by hand, with what is no time.


@pytest.mark.parametrize("after", [math.nan, "1", b"1"], ids=repr)
def test_a_retry_after_no_time_is_refused_and_the_entry_is_still_in_hand(database, after) -> None:
    stream = database.stream("s")
    stream.add({"a": 1})
    group = stream.group("g")
    for entry in group.consumer("c", block=0):
        with pytest.raises(UsageError, match="seconds"):
            entry.retry(after)
    assert group.info().pending == 0


@pytest.mark.parametrize("after", [math.inf, 1e300])
def test_a_retry_that_never_comes_does_not_keep_the_loop(database, after) -> None:
    stream = database.stream("s")
    stream.add({"a": 1})
    group = stream.group("g", backoff=Backoff(initial=after, maximum=math.inf))
    consumer = group.consumer("c", block=0)
    for entry in consumer:
        entry.retry(after)
    assert consumer.counters.retried == 1
    assert group.info().pending == 1
    stream.add({"a": 2})
    for entry in group.consumer("d", block=0):
        assert entry["a"] == b"2"
        entry.retry()
    assert group.info().pending == 2


def test_an_exception_without_a_text_is_a_failure_as_any(database, monkeypatch: pytest.MonkeyPatch) -> None:
    # A handler's formatter that PySpark has set in an earlier test would call str() on the exception.
    monkeypatch.setattr(logging.getLogger("headrace"), "propagate", False)
    is_mute = True

    class Mute(Exception):
        def __str__(self) -> str:
            if is_mute:
                raise RuntimeError
            return "what pytest may print"

    stream = database.stream("s")
    stream.add({"a": 1})
    group = stream.group("g", max_deliveries=1)

    @group.handler(consumer="c", block=0.05)
    def fail(entry: object) -> None:
        raise Mute

    try:
        group.run()
    finally:
        is_mute = False
    assert [letter.error for letter in group.dead_letters] == ["Mute"]


def test_dead_letters_that_have_no_place_say_where_to_put_them(database) -> None:
    database.execute("SET", "{s}:dead", "x")
    stream = database.stream("s")
    stream.add({"a": 1})
    group = stream.group("g", max_deliveries=1)
    entries = iter(group.consumer("c", block=0))
    next(entries).fail()
    with pytest.raises(HeadraceError, match=r"'\{s\}:dead' is not a stream.*dead_letters="):
        next(entries)
    assert group.info().pending == 1


@pytest.mark.skipif(
    "HEADRACE_COMPILED" not in os.environ, reason="the interpreter lets signals in everywhere"
)
def test_a_signal_handler_that_raises_anywhere_leaves_no_lock_taken(monkeypatch) -> None:
    """The bridge's engine_session is not compiled: an exception may come between any two of its lines."""
    armed = False

    def handler(number: int, frame: object) -> None:
        if armed:
            raise Interrupt

    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)  # it may be a finalizer, too
    before = signal.signal(signal.SIGALRM, handler)
    random = Random(1)
    raised = 0
    with headrace.open() as db:
        try:
            for _ in range(3000):
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.choice((20e-6, 50e-6, 100e-6)))
                    armed = True
                    engine_session = db.engine_session()
                    for _ in range(5):
                        engine_session.send(b"*1\r\n$4\r\nPING\r\n")
                        engine_session.receive(0)
                    armed = False
                    engine_session.close()
                except Interrupt:
                    armed = False
                    raised += 1
                assert not db.backend.lock.locked()
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert raised
