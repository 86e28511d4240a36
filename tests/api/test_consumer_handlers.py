"""Functions as handlers: run until told to stop, by a call or by a signal, with nothing half-done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import headrace
from headrace.api import retry_policy
from headrace.api.retry_policy import Backoff
from headrace.errors import NoSuchGroup, UsageError
from support.waiting import wait_until

SECONDS_MAX = 30.0


def filled(database: Any, count: int, **policy: Any) -> Any:
    orders = database.stream("orders")
    orders.add_many({"n": n} for n in range(count))
    return orders.group("billing", **policy)


def test_handlers_share_the_entries_and_run_ends_them_all(database: Any) -> None:
    group = filled(database, 300)
    seen: dict[str, list[int]] = {"one": [], "two": []}

    @group.handler(consumer="one", concurrency=2)
    def one(entry: Any) -> None:
        note("one", entry)

    @group.handler
    def two(entry: Any) -> None:
        note("two", entry)

    def note(who: str, entry: Any) -> None:
        seen[who].append(int(entry["n"]))
        if len(seen["one"]) + len(seen["two"]) == 300:
            group.stop()

    group.run()
    assert sorted(seen["one"] + seen["two"]) == list(range(300))
    assert group.info().pending == 0
    assert {one.name for one in group.consumers()} <= {"one"}


def test_a_handler_may_settle_an_entry_itself(database: Any) -> None:
    group = filled(database, 4, backoff=Backoff(initial=60))
    times: list[int] = []

    @group.handler(consumer="w", block=0.3)
    def handle(entry: Any) -> None:
        if entry["n"] == b"1" and entry.times_delivered == 1:
            entry.retry(after=0.01)
        elif entry["n"] == b"2":
            entry.fail("no such customer")
        elif entry["n"] == b"3":
            entry.ack()
            raise ValueError("after the fact")
        times.append(entry.times_delivered)

    group.run()
    assert times == [1, 1, 1, 2]
    assert [(letter["n"], letter.error) for letter in group.dead_letters] == [(b"2", "no such customer")]
    assert group.info().pending == 0


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_work_that_is_returned_and_not_done_is_not_acknowledged(database: Any) -> None:
    group = filled(database, 3)

    async def asynchronous(entry: Any) -> None:
        raise AssertionError("nobody awaits it")

    def generator(entry: Any) -> Any:
        yield entry

    async def both(entry: Any) -> Any:
        yield entry

    for handle in (asynchronous, generator, both):
        with pytest.raises(UsageError, match=f"{handle.__name__} only returned a .*the entry is not handled"):
            group.consumer(handle.__name__, block=0, fetch_count=1).run(handle)
    assert group.info().pending == 3
    assert [one.consumer for one in group.pending()] == ["asynchronous", "generator", "both"]


def test_what_ends_one_handler_ends_all_and_is_raised(
    database: Any, aside: Callable[[Callable[[], object]], Any]
) -> None:
    group = filled(database, 2)
    begun = threading.Semaphore(0)
    for name in ("one", "two"):
        group.handler(consumer=name, fetch_count=1)(lambda entry: begun.release())
    running = aside(group.run)
    assert begun.acquire(timeout=SECONDS_MAX) and begun.acquire(timeout=SECONDS_MAX)
    group.destroy()
    with pytest.raises(NoSuchGroup):
        running.result()


def test_there_must_be_something_to_run() -> None:
    with headrace.open() as db:
        group = db.stream("orders").group("billing")
        with pytest.raises(UsageError, match="decorate a function"):
            group.run()

        @group.handler
        async def handle(entry: Any) -> None: ...

        with pytest.raises(UsageError, match="run_async"):
            group.run()


def test_a_signal_lets_what_runs_finish_and_gives_back_the_rest() -> None:
    with headrace.open() as db:
        group = filled(db, 20)
        before = signal.getsignal(signal.SIGTERM)

        @group.handler(consumer="w", fetch_count=20)
        def handle(entry: Any) -> None:
            if entry["n"] == b"3":
                os.kill(os.getpid(), signal.SIGTERM)
                deadline = time.monotonic() + SECONDS_MAX
                while signal.getsignal(signal.SIGTERM) is not before and time.monotonic() < deadline:
                    time.sleep(0.001)  # until the signal was seen
                group.stream.add({"n": "finished"})

        group.run()
        assert signal.getsignal(signal.SIGTERM) is before
        assert group.stream.last()["n"] == b"finished"
        left = group.pending()
        assert len(left) == 16 and {one.times_delivered for one in left} == {0}
        assert [int(group.stream[one.id]["n"]) for one in left] == list(range(4, 20))


def test_signals_are_left_alone_when_told_so() -> None:
    with headrace.open() as db:
        group = filled(db, 1)
        before = signal.getsignal(signal.SIGTERM)
        during: list[Any] = []
        group.handler(block=0)(lambda entry: during.append(signal.getsignal(signal.SIGTERM)))
        group.run(signals=False)
        assert during == [before]


PROGRAM = """
    import signal, sys, threading, time
    import headrace
    from headrace.api.retry_policy import Backoff

    db = headrace.connect(sys.argv[1])
    orders, done = db.stream("orders"), db.stream("done")
    group = orders.group("billing", lease=1.0, backoff=Backoff(initial=0.01))

    @group.handler(consumer=sys.argv[2], concurrency=3)
    def handle(entry):
        time.sleep(0.002)
        done.add({"n": entry["n"], "times": entry.times_delivered})

    def tell():
        while not callable(signal.getsignal(signal.SIGTERM)):
            time.sleep(0.001)
        print("ready", flush=True)

    threading.Thread(target=tell).start()
    group.run()
"""


def begin(url: str, name: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), url, name]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.whole
@pytest.mark.parametrize("server", ["headrace_url", "server_url"])
def test_processes_that_are_killed_lose_nothing(server: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(server)
    with headrace.connect(url) as database:
        database.execute("FLUSHALL")
        group = filled(database, 3000)
        done = database.stream("done")
        processes = [begin(url, "a"), begin(url, "b")]
        for n in range(4):
            wait_until(lambda: len(done) > 300 * (n + 1))  # noqa: B023
            processes[n % 2].kill()
            processes[n % 2].wait()
            processes[n % 2] = begin(url, "ab"[n % 2] if n < 2 else f"new-{n}")
        wait_until(lambda: group.info().lag == 0 and group.info().pending == 0)
        for process in processes:
            process.terminate()
        assert [process.wait(SECONDS_MAX) for process in processes] == [0, 0]
        assert {int(entry["n"]) for entry in done} == set(range(3000))
        assert len(done) < 3300 and len(group.dead_letters) == 0


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's"
)
def test_running_handlers_finish_when_the_handler_of_the_program_exits(database: Any) -> None:
    group = filled(database, 1)
    finished: list[int] = []

    @group.handler(consumer="w")
    def handle(entry: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: signal.getsignal(signal.SIGTERM) is leave)
        finished.append(int(entry["n"]))

    def leave(number: int, frame: object) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit):
            group.run()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert finished == [0] and group.info().pending == 0


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's"
)
def test_groups_in_other_threads_stop_on_the_signal_too(database: Any) -> None:
    first, second = (database.stream("orders").group(name) for name in ("first", "second"))
    for group in (first, second):
        group.handler(consumer="w")(print)
    other = threading.Thread(target=second.run, daemon=True)
    other.start()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    first.run()
    other.join(SECONDS_MAX)
    assert not other.is_alive()


@pytest.mark.whole
def test_a_process_that_is_told_to_end_handles_nothing_twice(server_url: str) -> None:
    with headrace.connect(server_url) as database:
        database.execute("FLUSHALL")
        group = filled(database, 2000)
        done = database.stream("done")
        for n in range(3):
            process = begin(server_url, f"worker-{n}")
            wait_until(lambda: len(done) > 300 * (n + 1))  # noqa: B023
            process.terminate()
            assert process.wait(SECONDS_MAX) == 0
        for one in group.pending(count=5000):
            assert one.times_delivered == 0
        process = begin(server_url, "last")
        wait_until(lambda: len(done) >= 2000)
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
        assert sorted(int(entry["n"]) for entry in done) == list(range(2000))
        assert {entry["times"] for entry in done} == {b"1"}


def test_a_child_forked_by_a_handler_ends_at_sigterm() -> None:
    program = """
import multiprocessing, time, headrace
stream = headrace.open().stream("s")
stream.add({"n": 1})
group = stream.group("g")

@group.handler(consumer="a", block=0.1)
def work(entry):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join(30)
    print("exit code", child.exitcode, flush=True)

group.run()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert done.stdout == "exit code -15\n", done.stderr


@pytest.mark.parametrize("batch", [None, 4])
def test_run_ends_with_the_last_entry_also_while_another_thread_waits(
    monkeypatch: pytest.MonkeyPatch, batch: int | None
) -> None:
    monkeypatch.setattr(retry_policy, "CLAIM_INTERVAL_MAX_S", 3600.0)  # else the wait would end by itself
    with headrace.open() as db:
        jobs = db.stream("jobs")
        jobs.add({"n": 1})
        group = jobs.group("workers", lease=7200.0)
        waits = threading.Event()

        @group.handler(concurrency=2, block=0, batch=batch)
        def handle(_: Any) -> None:
            assert waits.wait(60)

        run = threading.Thread(target=group.run)
        run.start()
        wait_until(lambda: bool(db.backend.engine.keyspace.blocking.count))
        waits.set()
        run.join(60)
        assert not run.is_alive()
        assert group.info().pending == 0
