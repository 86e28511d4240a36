"""Many threads on one database, and the child of a fork."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import pytest

import headrace
from headrace.api.local.clock import ManualClock
from headrace.errors import HeadraceError
from support.waiting import wait_until


def together(n: int, work) -> None:
    """Run work(0) to work(n-1) in threads, and raise what one of them raises."""
    failures = []

    def run(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


@pytest.mark.parametrize("fsync", [None, "always", "everysec", "no"])
def test_writers_lose_nothing(tmp_path, fsync) -> None:
    db = headrace.open() if fsync is None else headrace.open(tmp_path, fsync=fsync)

    def work(i: int) -> None:
        for n in range(40):
            db.backend.add(b"s", b"*", {"i": i, "n": n})
            if n % 10 == 0:
                db.backend.add_many(b"s", [{"i": i, "n": -1}] * 3)
                db.compact()

    with db:
        together(6, work)
        assert db.execute("XLEN", "s") == 6 * (40 + 12)
    if fsync:
        with headrace.open(tmp_path) as db:
            entries = db.execute("XRANGE", "s", "-", "+")
            got = [(fields[1], fields[3]) for _, fields in entries if fields[3] != b"-1"]
            assert sorted(got) == sorted((b"%d" % i, b"%d" % n) for i in range(6) for n in range(40))


def test_threads_share_syncs(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        log = db.backend.storage.log
        file = log._file
        syncs = []
        slow = threading.Event()

        class Slow:
            def sync(self) -> None:
                syncs.append(1)
                slow.wait(0.02)
                file.sync()

            def __getattr__(self, name):
                return getattr(file, name)

        log._file = Slow()

        def work(i: int) -> None:
            for _ in range(5):
                db.backend.add(b"s", b"*", {"i": i})

        together(16, work)
        assert db.execute("XLEN", "s") == 80
        assert len(syncs) < 70  # each its own would be 80


def test_members_of_a_group_share_without_losing_or_doubling() -> None:
    with headrace.open() as db:
        db.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        got: list[bytes] = []
        total = 2000

        def work(i: int) -> None:
            if i < 2:
                for n in range(total // 2):
                    db.backend.add(b"s", b"*", {"n": n})
                return
            words = [b"XREADGROUP", b"GROUP", b"g", b"c%d" % i, b"COUNT", b"10", b"STREAMS", b"s", b">"]
            while len(got) < total:
                reply = db.backend.execute_blocking_read(words, 0.2)
                got.extend(entry[0] for entry in (reply[0][1] if reply else ()))

        together(6, work)
        assert len(got) == len(set(got)) == total


def test_a_member_that_is_woken_has_its_entries_in_the_log(tmp_path) -> None:
    with headrace.open(tmp_path) as db:
        db.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        log = db.backend.storage.log

        def work(i: int) -> None:
            if i == 0:
                wait_until(lambda: db.backend.engine.keyspace.blocking.count == 3)
                db.backend.add_many(b"s", [{"n": n} for n in range(3)])
                return
            words = [b"XREADGROUP", b"GROUP", b"g", b"c%d" % i, b"COUNT", b"1", b"STREAMS", b"s", b">"]
            reply = db.backend.execute_blocking_read(words, 20)
            assert len(reply[0][1]) == 1
            assert log.synced > 0

        together(4, work)
    with headrace.open(tmp_path) as db:
        assert db.execute("XPENDING", "s", "g")[0] == 3


def test_closing_while_all_are_busy(tmp_path) -> None:
    db = headrace.open(tmp_path)
    begun = threading.Barrier(9)
    added = []

    def work(i: int) -> None:
        begun.wait(20)
        if i == 0:
            wait_until(lambda: len(added) > 20)
            db.close()
            return
        try:
            while True:
                if i % 2:
                    added.append(db.backend.add(b"s", b"*", {"i": i}))
                else:
                    db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], None)
        except headrace.errors.DatabaseClosed:
            pass

    together(9, work)
    with headrace.open(tmp_path) as again:
        ids = {entry[0] for entry in again.execute("XRANGE", "s", "-", "+")}
    assert set(added) <= ids


def test_an_exception_in_a_waiting_thread_leaves_nothing_behind() -> None:
    with headrace.open() as db:
        before = db.execute("CLIENT", "LIST").count(b"\n")

        def interrupt(number, frame):
            raise KeyboardInterrupt

        old = signal.signal(signal.SIGUSR1, interrupt)
        try:
            poke = threading.Thread(
                target=lambda: (
                    wait_until(lambda: db.backend.engine.keyspace.blocking.count),
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1),
                )
            )
            poke.start()
            with pytest.raises(KeyboardInterrupt):
                db.backend.execute_blocking_read([b"XREAD", b"STREAMS", b"s", b"$"], None)
            poke.join()
        finally:
            signal.signal(signal.SIGUSR1, old)
        assert db.backend.engine.keyspace.blocking.count == 0
        assert db.execute("CLIENT", "LIST").count(b"\n") <= before


def test_the_child_of_a_fork_is_told_what_it_can_do(tmp_path) -> None:
    with headrace.open(tmp_path) as db, headrace.open() as memory:
        db.backend.add(b"s", b"*", {"a": "b"})
        size = db.info().log_bytes
        child = os.fork()
        if child == 0:
            code = 1
            try:
                told = 0
                for one in (db, memory):
                    try:
                        one.backend.add(b"s", b"*", {"a": "b"})
                    except HeadraceError as error:
                        told += "headrace.connect()" in str(error)
                db.close()
                code = 0 if told == 2 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        db.backend.add(b"s", b"*", {"a": "b"})
        assert db.info().log_bytes > size
    with headrace.open(tmp_path) as db:  # the child has not kept the lock
        assert db.execute("XLEN", "s") == 2


def test_a_child_does_not_keep_the_directory_when_its_parent_ends(tmp_path) -> None:
    db = headrace.open(tmp_path)
    heard, said = os.pipe()
    ends, waits = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(waits)
        os.write(said, b".")
        os.read(ends, 1)  # until the parent lets go
        os._exit(0)
    os.close(ends)
    assert os.read(heard, 1)  # the child runs
    db.close()
    headrace.open(tmp_path).close()
    for descriptor in (waits, heard, said):
        os.close(descriptor)
    os.waitpid(child, 0)


PROGRAM = """
import headrace, sys
db = headrace.open(sys.argv[1], fsync={fsync!r})
for n in range(100):
    db.backend.add(b"s", b"*", {{"n": n}})
{end}
"""


@pytest.mark.parametrize(
    ("fsync", "end"),
    [
        ("always", ""),
        ("everysec", ""),
        ("no", "raise SystemExit(3)"),
        ("everysec", "import os; os._exit(0)"),
        ("no", "1 / 0"),
    ],
)
def test_a_program_may_end_as_it_likes(tmp_path, fsync, end) -> None:
    program = PROGRAM.format(fsync=fsync, end=end)
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=False, timeout=60
    )
    with headrace.open(tmp_path) as db:
        assert db.execute("XLEN", "s") == 100


def test_an_unreferenced_database_in_memory_ends_with_its_timer_thread() -> None:
    db = headrace.open()
    db.execute("SET", "k", "v", "EX", 1000)
    keepers = [thread for thread in threading.enumerate() if thread.name == "headrace-timer"]
    assert keepers
    gone = weakref.ref(db.backend)
    del db
    wait_until(lambda: gc.collect() is not None and gone() is None)
    for keeper in keepers:
        keeper.join(20)
        assert not keeper.is_alive()


def test_keys_expire_by_the_clock_with_nobody_asking() -> None:
    clock = ManualClock()
    with headrace.open(clock=clock) as db:
        db.execute("SET", "k", "v", "EX", 60)
        clock.advance(seconds=61)
        wait_until(lambda: db.info().keys == 0)


def test_a_blocked_conversation_ends_by_the_clock() -> None:
    clock = ManualClock()
    with headrace.open(clock=clock) as db:
        talk = db.engine_session()
        talk.send(b"XREAD BLOCK 5000 STREAMS s $\r\n")
        assert talk.receive(0.05) == b""
        clock.advance(seconds=5)
        assert talk.receive(20) == b"*-1\r\n"
