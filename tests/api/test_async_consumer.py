"""Consumers in asyncio: handlers at the same time, in order where asked for, nothing lost by cancelling."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import aclosing, suppress
from itertools import pairwise
from typing import Any

import pytest

import headrace
from headrace.api.consuming.async_consumer import run
from headrace.api.local.clock import ManualClock
from headrace.api.retry_policy import Backoff
from headrace.errors import NoSuchGroup, UsageError

SOON = Backoff(initial=0.01, multiplier=1, maximum=0.01)
SECONDS_MAX = 20.0  # for what happens at once unless something is broken


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "headrace.consumer")


def finish(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, SECONDS_MAX))


def numbers(database: headrace.Database, count: int) -> headrace.Stream[Any]:
    stream = database.stream("numbers")
    stream.add_many({"n": n, "key": n % 5} for n in range(count))
    return stream


def number(entry: headrace.Entry[Any]) -> int:
    return int(entry["n"])


# One after the other.


def test_the_loop_sees_every_entry_and_acknowledges_it(database: headrace.Database) -> None:
    group = numbers(database, 300).group("readers")

    async def read() -> list[int]:
        return [number(entry) async for entry in group.consumer("one", block=0)]

    assert finish(read()) == list(range(300))
    assert group.info().pending == 0


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_work_that_is_returned_and_not_done_is_not_acknowledged(database: headrace.Database) -> None:
    group = numbers(database, 3).group("readers")

    async def inner(entry: Any) -> None:
        raise AssertionError("nobody awaits it")

    async def forgets(entry: Any) -> Any:
        return inner(entry)

    async def generator(entry: Any) -> Any:
        yield entry

    for handle in (forgets, generator):
        with pytest.raises(UsageError, match=f"{handle.__name__} only returned a .*the entry is not handled"):
            finish(run(group.consumer(handle.__name__, block=0, fetch_count=1), handle))
    assert [one.consumer for one in group.pending()] == ["forgets", "generator"]


def test_stop_iteration_is_a_failure_as_any_other(database: headrace.Database) -> None:
    group = numbers(database, 1).group("readers", max_deliveries=2, backoff=SOON)

    @group.handler(consumer="one", block=0.2)
    def handle(entry: Any) -> None:
        next(iter([]))

    finish(group.run_async())
    assert [letter.error for letter in group.dead_letters] == [
        "RuntimeError: the handler raised StopIteration"
    ]


def test_the_loop_waits_for_what_is_added(database: headrace.Database) -> None:
    stream = database.stream("numbers")
    group = stream.group("readers")

    async def read() -> list[int]:
        found = []
        asyncio.get_running_loop().call_later(0.05, stream.add, {"n": 0})
        async for entry in group.consumer("one"):
            found.append(number(entry))
            if len(found) == 3:
                break
            stream.add({"n": len(found)})
        return found

    assert finish(read()) == [0, 1, 2]


def test_who_breaks_off_keeps_one_entry_and_gives_back_the_rest(database: headrace.Database) -> None:
    group = numbers(database, 100).group("readers", lease=3600)

    async def read(name: str, most: int) -> list[int]:
        found = []
        async with aclosing(aiter(group.consumer(name, fetch_count=40, block=0))) as entries:
            async for entry in entries:
                found.append(number(entry))
                if len(found) == most:
                    break
        return found

    assert finish(read("one", 10)) == list(range(10))
    (kept,) = group.pending(consumer="one", idle=0, count=1)
    assert kept.id == list(group.stream)[9].id
    assert sorted(finish(read("two", 1000))) == list(range(10, 100))
    assert [entry.id for entry in group.pending()] == [kept.id]


# At the same time.


def test_as_many_run_at_the_same_time_as_were_asked_for(database: headrace.Database) -> None:
    group = numbers(database, 40).group("readers")
    running = most = 0
    full = asyncio.Event()

    @group.handler(consumer="one", concurrency=8, block=0)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 8:
            full.set()
        await full.wait()  # nobody ends before eight have begun
        running -= 1

    finish(group.run_async(signals=False))
    assert most == 8
    assert group.info().pending == 0


def test_an_entry_that_comes_alone_need_not_wait_for_the_one_before(database: headrace.Database) -> None:
    stream = database.stream("numbers")
    group = stream.group("readers")
    begun: list[int] = []
    all_there = asyncio.Event()

    @group.handler(consumer="one", concurrency=4)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        begun.append(number(entry))
        if len(begun) < 4:
            stream.add({"n": len(begun)})
            await all_there.wait()
        else:
            all_there.set()
            group.stop()

    stream.add({"n": 0})
    finish(group.run_async(signals=False))
    assert begun == [0, 1, 2, 3]
    assert group.info().pending == 0


def test_few_threads_serve_many_tasks(database: headrace.Database) -> None:
    group = numbers(database, 200).group("readers")
    threads: set[str] = set()
    begun = 0
    all_begun = asyncio.Event()

    @group.handler(consumer="one", concurrency=200, block=0)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        nonlocal begun
        begun += 1
        if begun == 200:
            all_begun.set()
        await all_begun.wait()
        threads.update(thread.name for thread in threading.enumerate() if "readers" in thread.name)

    finish(group.run_async(signals=False))
    assert 1 <= len(threads) <= 5


def test_as_many_entries_run_at_once_as_concurrency_says(database: headrace.Database) -> None:
    """Also more than the 1,024 entries that a consumer holds otherwise."""
    group = numbers(database, 1300).group("readers")
    begun = 0
    all_begun = asyncio.Event()

    @group.handler(consumer="one", concurrency=1200, block=0)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        nonlocal begun
        begun += 1
        if begun == 1200:
            all_begun.set()
        await all_begun.wait()

    finish(group.run_async(signals=False))
    assert begun == 1300
    assert group.info().pending == 0


def test_a_plain_function_runs_in_threads_beside_the_loop(database: headrace.Database) -> None:
    group = numbers(database, 20).group("readers")
    where: list[int] = []
    together = threading.Barrier(2)

    @group.handler(consumer="one", concurrency=2, block=0)
    def handle(entry: headrace.Delivery[Any]) -> None:
        together.wait(SECONDS_MAX)
        where.append(threading.get_ident())

    finish(group.run_async(signals=False))
    assert len(where) == 20
    assert threading.get_ident() not in where


def test_entries_of_one_key_are_handled_in_order_even_when_they_fail(database: headrace.Database) -> None:
    group = numbers(database, 60).group("readers", backoff=SOON)
    chance = random.Random(3)
    done: dict[bytes, list[int]] = {}
    at_work: set[bytes] = set()

    @group.handler(consumer="one", concurrency=10, ordered_by=lambda entry: entry["key"], block=0.2)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        key = entry["key"]
        assert key not in at_work
        at_work.add(key)
        try:
            await asyncio.sleep(chance.random() / 1000)
            if entry.times_delivered < 3 and chance.random() < 0.3:
                raise ValueError("not yet")
            done.setdefault(key, []).append(number(entry))
        finally:
            at_work.remove(key)

    finish(group.run_async(signals=False))
    assert done == {b"%d" % key: list(range(key, 60, 5)) for key in range(5)}


def test_what_always_fails_goes_to_the_dead_letters(database: headrace.Database) -> None:
    group = numbers(database, 30).group("readers", max_deliveries=3, backoff=SOON)
    tries: Counter[int] = Counter()

    @group.handler(consumer="one", concurrency=4, block=0.2)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        tries[number(entry)] += 1
        if number(entry) % 10 == 7:
            raise KeyError("no such customer")

    finish(group.run_async(signals=False))
    assert tries == {n: 3 if n % 10 == 7 else 1 for n in range(30)}
    letters = sorted(group.dead_letters, key=lambda letter: letter.origin)
    assert [number(letter) for letter in letters] == [7, 17, 27]
    assert {letter.error for letter in letters} == {"KeyError: 'no such customer'"}
    assert group.info().pending == 0


def test_a_handler_that_cancels_what_it_waits_for_has_failed(database: headrace.Database) -> None:
    group = numbers(database, 1).group("readers", backoff=SOON)
    tries = 0

    @group.handler(consumer="one", block=0.2)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise asyncio.CancelledError("of something else")

    finish(group.run_async(signals=False))
    assert tries == 2
    assert group.info().pending == 0


def test_a_handler_whose_task_is_cancelled_has_failed(database: headrace.Database) -> None:
    stream = numbers(database, 3)
    group = stream.group("readers", backoff=SOON, max_deliveries=2)
    calls: list[int] = []

    @group.handler(consumer="one", block=0.3)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        calls.append(number(entry))
        if calls[-1] == 1 or calls == [0]:  # 1 always, 0 once
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(SECONDS_MAX)
        async with asyncio.timeout(SECONDS_MAX):  # counts the cancellations of its task, too
            await asyncio.sleep(0)

    finish(group.run_async(signals=False))
    assert Counter(calls) == {0: 2, 1: 2, 2: 1}
    (letter,) = group.dead_letters
    assert (number(letter), letter.error.startswith("CancelledError")) == (1, True)
    assert group.info().pending == 0


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_consumer_goes_on_when_a_task_that_waits_is_cancelled(
    database: headrace.Database, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headrace.consumer")
    stream = numbers(database, 1)
    group = stream.group("readers")
    done: list[int] = []

    @group.handler(consumer="one", concurrency=concurrency)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        done.append(number(entry))

    async def cancel_and_add() -> None:
        running = asyncio.ensure_future(group.run_async(signals=False))
        while not done:
            await asyncio.sleep(0.001)
        for n in range(1, 4):
            await asyncio.sleep(0.02)
            for task in [one for one in asyncio.all_tasks() if "_run_one" in repr(one.get_coro())]:
                task.cancel()
            await asyncio.to_thread(stream.add, {"n": n})
            while len(done) == n:
                await asyncio.sleep(0.001)
        group.stop()
        await running

    finish(cancel_and_add())
    assert done == [0, 1, 2, 3]
    assert "a task was cancelled, but not the consumer" in caplog.text
    assert group.info().pending == 0


@pytest.mark.parametrize("is_async", [True, False])
def test_a_plain_handler_that_raises_cancelled_error_has_failed(
    database: headrace.Database, is_async: bool
) -> None:
    group = numbers(database, 2).group("readers", backoff=SOON)
    calls: list[int] = []

    @group.handler(consumer="one", block=0.3)
    def handle(entry: headrace.Delivery[Any]) -> None:
        calls.append(number(entry))
        if calls.count(0) == 1 and calls[-1] == 0:
            raise asyncio.CancelledError

    if is_async:
        finish(group.run_async(signals=False))
    else:
        group.run(signals=False)
    assert Counter(calls) == {0: 2, 1: 1}
    assert group.info().pending == 0


# The end.


def test_stop_lets_what_runs_end_and_gives_back_the_rest(database: headrace.Database) -> None:
    group = numbers(database, 50).group("readers")
    begun, ended = [], []

    @group.handler(consumer="one", concurrency=3, fetch_count=20)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        begun.append(number(entry))
        if len(begun) == 3:
            threading.Thread(target=group.stop).start()
        while len(begun) < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        ended.append(number(entry))

    finish(group.run_async(signals=False))
    assert sorted(ended) == sorted(begun) == [0, 1, 2]
    rest = group.consumer("two", block=0)
    assert sorted(number(entry) for entry in rest) == list(range(3, 50))
    assert group.info().pending == 0


def test_stop_ends_a_wait_for_entries(database: headrace.Database) -> None:
    group = database.stream("numbers").group("readers")
    consumer = group.consumer("one")

    async def read() -> list[int]:
        asyncio.get_running_loop().call_later(0.05, consumer.stop)
        return [number(entry) async for entry in consumer]

    assert finish(read()) == []


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's"
)
def test_sigterm_ends_it_with_nothing_half_done(database: headrace.Database) -> None:
    group = numbers(database, 50).group("readers")
    before = signal.getsignal(signal.SIGTERM)
    begun, ended = [], []

    @group.handler(consumer="one", concurrency=2)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        begun.append(number(entry))
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        while signal.getsignal(signal.SIGTERM) is not before:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        ended.append(number(entry))

    finish(group.run_async())
    assert sorted(ended) == sorted(begun)
    assert signal.getsignal(signal.SIGTERM) is before
    assert sorted([*ended, *(number(entry) for entry in group.consumer("two", block=0))]) == list(range(50))


def wait_for_sigterm(*groups: headrace.Group[Any]) -> None:
    """Run groups without entries in one event loop until the SIGTERM that this sends."""

    async def handle(entry: headrace.Delivery[Any]) -> None:
        raise AssertionError("there is nothing to handle")

    for group in groups:
        group.handler(consumer="one")(handle)

    async def run() -> None:
        running = asyncio.gather(*(group.run_async() for group in groups))
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
        await running

    finish(run())


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's"
)
def test_one_sigterm_ends_all_groups_of_the_process(database: headrace.Database) -> None:
    before = signal.getsignal(signal.SIGTERM)
    stream = database.stream("numbers")
    wait_for_sigterm(stream.group("first"), stream.group("second"))
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's"
)
def test_the_handler_of_the_program_is_called_when_groups_stop(database: headrace.Database) -> None:
    received: list[int] = []

    def shut_down(number: int, frame: object) -> None:  # as that of an HTTP server
        received.append(number)

    before = signal.signal(signal.SIGTERM, shut_down)
    try:
        wait_for_sigterm(database.stream("numbers").group("readers"))
        assert received == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is shut_down
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's"
)
def test_sigterm_ends_a_wait_for_entries(database: headrace.Database) -> None:
    group = database.stream("numbers").group("readers")

    @group.handler(consumer="one")
    async def handle(entry: headrace.Delivery[Any]) -> None:
        raise AssertionError("there is nothing to handle")

    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    finish(group.run_async())
    timer.join()


def test_when_it_is_cancelled_what_had_begun_is_delivered_again(database: headrace.Database) -> None:
    group = numbers(database, 50).group("readers", lease=0.3)
    begun: list[int] = []
    cancelled: list[int] = []

    @group.handler(consumer="one", concurrency=5)
    async def handle(entry: headrace.Delivery[Any]) -> None:
        begun.append(number(entry))
        try:
            await asyncio.sleep(SECONDS_MAX)
        except asyncio.CancelledError:
            cancelled.append(number(entry))
            raise

    async def cut_off() -> None:
        running = asyncio.ensure_future(group.run_async(signals=False))
        while len(begun) < 5:
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    finish(cut_off())
    assert sorted(cancelled) == sorted(begun) == [0, 1, 2, 3, 4]
    found: dict[int, int] = {}
    for entry in group.consumer("two", block=1.0):
        found[number(entry)] = entry.times_delivered
    assert found == {n: 2 if n in begun else 1 for n in range(50)}


async def cancel_its_task(running: Coroutine[Any, Any, Any], begun: asyncio.Event) -> None:
    task = asyncio.ensure_future(running)
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_all_tasks(running: Coroutine[Any, Any, Any], begun: asyncio.Event) -> None:
    others = asyncio.all_tasks()
    task = asyncio.ensure_future(running)
    await begun.wait()
    for each in asyncio.all_tasks() - others:
        each.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def let_a_sibling_fail(running: Coroutine[Any, Any, Any], begun: asyncio.Event) -> None:
    async def fail() -> None:
        await begun.wait()
        raise KeyError

    with pytest.raises(ExceptionGroup):  # noqa: PT012
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(running)
            tasks.create_task(fail())


async def limit_the_time(running: Coroutine[Any, Any, Any], begun: asyncio.Event) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with suppress(asyncio.CancelledError):  # and it counts on
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):  # noqa: PT012
        async with asyncio.timeout(None) as limit:
            setting = asyncio.ensure_future(begun.wait())
            setting.add_done_callback(lambda _: limit.reschedule(0))
            await running


@pytest.mark.parametrize("end", [cancel_its_task, cancel_all_tasks, let_a_sibling_fail, limit_the_time])
def test_a_cancellation_of_the_consumer_is_no_failure_of_its_entry(
    database: headrace.Database, end: Any
) -> None:
    group = numbers(database, 3).group("readers", lease=0.3, max_deliveries=1)

    async def run() -> None:
        begun = asyncio.Event()

        @group.handler(consumer="one")
        async def handle(entry: headrace.Delivery[Any]) -> None:
            begun.set()
            await asyncio.sleep(SECONDS_MAX)

        await end(group.run_async(signals=False), begun)

    finish(run())
    assert len(group.dead_letters) == 0
    found = [number(entry) for entry in group.stream.group("readers", lease=0.3).consumer("two", block=1.0)]
    assert sorted(found) == [0, 1, 2]


def test_a_wait_that_is_cancelled_loses_no_entry(database: headrace.Database) -> None:
    stream = database.stream("numbers")
    group = stream.group("readers", max_deliveries=None)

    async def read() -> list[int]:
        found = []
        for n in range(8):
            entries = aiter(group.consumer("one"))
            # The entry comes just when the wait is given up: in its hand or in the next one's, never in none.
            asyncio.get_running_loop().call_later(0.02, stream.add, {"n": n})
            with suppress(TimeoutError):
                await asyncio.wait_for(anext(entries), 0.02)
            await entries.aclose()  # nothing was acknowledged
        async for entry in group.consumer("one"):
            found.append(number(entry))
            if len(found) == 8:
                break
        return found

    assert sorted(finish(read())) == list(range(8))


def test_a_group_that_is_destroyed_ends_all_of_it(database: headrace.Database) -> None:
    group = numbers(database, 1).group("readers")

    @group.handler(consumer="one")
    async def one(entry: headrace.Delivery[Any]) -> None:
        group.destroy()

    @group.handler(consumer="two")
    async def two(entry: headrace.Delivery[Any]) -> None:
        group.destroy()

    problems: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        with pytest.raises(NoSuchGroup):
            await group.run_async(signals=False)
        gc.collect()  # asyncio reports the errors that nobody asked for

    finish(run())
    assert problems == []


def test_nothing_to_run_is_a_mistake(database: headrace.Database) -> None:
    group = database.stream("numbers").group("readers")
    with pytest.raises(UsageError, match="handler"):
        finish(group.run_async())


# Time, as a test sets it.


def test_a_failure_is_tried_again_when_the_clock_says_so() -> None:
    clock = ManualClock()
    with headrace.open(clock=clock) as database:
        stream = numbers(database, 1)
        group = stream.group("readers", backoff=Backoff(initial=60, multiplier=2, maximum=3600))
        times: list[int] = []

        @group.handler(consumer="one", concurrency=3)
        async def handle(entry: headrace.Delivery[Any]) -> None:
            times.append(clock.now_ms())
            if len(times) < 3:
                raise ValueError("not yet")
            group.stop()

        async def turn_the_clock() -> None:
            running = asyncio.ensure_future(group.run_async(signals=False))
            while not running.done():
                clock.advance(seconds=5)
                for _ in range(20):
                    await asyncio.sleep(0.001)
            await running

        finish(turn_the_clock())
        waits = [after - before for before, after in pairwise(times)]
        assert waits[0] >= 60_000
        assert waits[1] >= 120_000


def test_many_entries_failures_and_cancellations_end_with_each_handled(database: headrace.Database) -> None:
    count = 400
    stream = numbers(database, count)
    chance = random.Random(11)
    handled: set[int] = set()

    def readers() -> headrace.Group[Any]:
        return stream.group("readers", max_deliveries=4, backoff=SOON, lease=0.3)

    async def handle(entry: headrace.Delivery[Any]) -> None:
        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.003]))
        if number(entry) % 50 == 13:
            raise ValueError("always")
        if entry.times_delivered == 1 and chance.random() < 0.1:
            raise ValueError("this time")
        handled.add(number(entry))

    async def work() -> None:
        for _ in range(6):
            group = readers()
            group.handler(consumer="one", concurrency=16)(handle)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(group.run_async(signals=False), 0.05)
        group = readers()
        group.handler(consumer="two", concurrency=16, block=1.0)(handle)
        await group.run_async(signals=False)

    finish(work())
    always = {n for n in range(count) if n % 50 == 13}
    dead = Counter(number(letter) for letter in readers().dead_letters)
    assert set(dead) == always
    assert set(dead.values()) == {1}
    assert handled == set(range(count)) - always
    assert readers().info().pending == 0
