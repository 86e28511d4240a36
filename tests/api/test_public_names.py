"""What `import headrace` shows: its names, and how its objects are printed."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace.errors import DatabaseClosed
from headrace.fork_safe_lock import LOCKS, ForkSafeLock
from headrace.testing import ManualClock

NAMES_AT_ONCE = "import headrace; print(*dir(headrace))"


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run(
        [sys.executable, "-c", NAMES_AT_ONCE], env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    assert shown == sorted(headrace.__all__), "before any name was used"
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
    assert dir(headrace) == sorted(headrace.__all__), "and afterwards"


def test_public_objects_are_printed_with_what_they_are(database: headrace.Database) -> None:
    stream = database.stream("orders")
    added = stream.add({"customer": "ann"})
    group = stream.group("billing")
    consumer = group.consumer("worker-1", block=0)
    stop = headrace.Stop()
    shown = [database, stream, added, stream[added], group, consumer, *consumer, stop, headrace.Backoff()]
    shown += [stream.info(), group.info(), *group.consumers(), group.dead_letters, consumer.counters]
    shown += [ManualClock(5)]
    for each in shown:
        assert re.fullmatch(r"\w+\(.*\)", repr(each)), "a name and what is in it"
        assert " object at 0x" not in repr(each)
    assert repr(stop) == "Stop(not set)"
    stop.set()
    assert repr(stop) == "Stop(set)"


def test_a_database_of_a_server_shows_its_url_without_the_password(headrace_url: str) -> None:
    place = headrace_url.removeprefix("redis://")
    database = headrace.connect(f"redis://:secret@{place}")
    assert repr(database) == f"Database('redis://{place}')"
    database.close()
    assert repr(database) == f"Database('redis://{place}', closed)"


def test_an_entry_converts_to_a_dict(database: headrace.Database) -> None:
    stream = database.stream("orders")
    stream.add({"customer": "ann", "cents": 5})
    entry = stream.first()
    assert entry is not None
    assert dict(entry) == {b"customer": b"ann", b"cents": b"5"} == entry.fields
    assert list(entry.keys()) == list(entry) and list(entry.items()) == list(entry.fields.items())
    assert {**dict(entry), b"more": b"1"}[b"more"] == b"1"
    for delivery in stream.group("billing").consumer("worker-1", block=0):
        assert dict(delivery) == dict(entry)


def test_of_fields_with_one_name_a_dict_has_the_last(database: headrace.Database) -> None:
    database.execute("XADD", "orders", "*", "a", "1", "a", "2")
    entry = database.stream("orders").first()
    assert entry is not None and dict(entry) == {b"a": b"2"}


def in_child(work: Callable[[], object]) -> str:
    """What work() returns or raises in the child of a fork, as text."""
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                text = str(work())
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
            os.write(said, text.encode())
        finally:
            os._exit(0)
    os.close(said)
    with os.fdopen(heard) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def test_after_a_fork_the_error_of_a_directory_says_what_is_possible(tmp_path: Path) -> None:
    with headrace.open(tmp_path) as db:
        orders = db.stream("orders")
        orders.add({"n": 1})
        said = in_child(lambda: orders.add({"n": 2}))
        assert said.startswith(f"DatabaseClosed: {tmp_path} is open in the process that this one was forked")
        assert "open it here when that process has closed it" in said
        assert f"`headrace serve --dir {tmp_path}`" in said
        assert "in use by process" in in_child(lambda: headrace.open(tmp_path)), "so it is not possible yet"
    assert in_child(lambda: len(headrace.open(tmp_path).stream("orders"))) == "1", "now it is"


def test_after_a_fork_the_error_of_memory_says_what_is_possible() -> None:
    with headrace.open() as db:
        said = in_child(lambda: db.stream("orders").add({"n": 1}))
        assert said.startswith("DatabaseClosed: this database in memory belongs to the process")
        assert in_child(lambda: repr(headrace.open())) == "Database(in memory)"


def test_a_database_closed_before_the_fork_still_says_closed() -> None:
    db = headrace.open()
    db.close()
    with pytest.raises(DatabaseClosed) as closed:
        db.stream("orders").add({"n": 1})
    assert in_child(lambda: db.stream("orders").add({"n": 1})) == f"DatabaseClosed: {closed.value}"


def test_a_thread_that_forks_within_a_lock_holds_it_in_the_child_too() -> None:
    lock = ForkSafeLock()

    def is_free() -> bool:
        taken = lock._lock.acquire(blocking=False)
        if taken:
            lock._lock.release()
        return taken

    def end_block() -> tuple[bool, bool]:
        was_free = is_free()
        lock.__exit__()
        return was_free, is_free()

    with lock:
        assert in_child(end_block) == "(False, True)"


def test_a_connection_to_a_server_is_usable_on_both_sides_of_a_fork(headrace_url: str) -> None:
    with headrace.connect(headrace_url) as db:
        db.execute("FLUSHALL")
        orders = db.stream("orders")
        orders.add({"n": 1})
        assert "-" in in_child(lambda: orders.add({"n": 2}))
        orders.add({"n": 3})
        assert [entry.text["n"] for entry in orders] == ["1", "2", "3"]


def test_the_child_of_a_fork_follows_whatever_other_threads_did(headrace_url: str) -> None:
    """Each lock that may be held at the fork is held by a thread, which the child does not have."""
    with headrace.connect(headrace_url) as db:
        db.execute("FLUSHALL")
        orders = db.stream("orders")
        orders.add({"n": 1})
        locks = [*LOCKS]
        held, ends = threading.Event(), threading.Event()

        def hold() -> None:
            for lock in locks:
                lock.__enter__()
            held.set()
            ends.wait()
            for lock in locks:
                lock.__exit__()

        def first() -> str:
            signal.alarm(60)  # ends the child if it waits for a lock
            return next(orders.follow(after="0")).text["n"]

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            assert held.wait(60) and len(locks) >= 2
            assert in_child(first) == "1"
        finally:
            ends.set()
            thread.join()
        assert next(orders.follow(after="0")).text["n"] == "1", "the parent is as before"


def count(url: str) -> int:
    """How many entries another process sees; it has to be a module's function for spawn."""
    return len(headrace.connect(url).stream("orders"))


def test_a_spawned_process_connects_to_the_server(headrace_url: str) -> None:
    with headrace.connect(headrace_url) as db:
        db.execute("FLUSHALL")
        db.stream("orders").add({"n": 1})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(count, (headrace_url,)).get(60) == 1
