"""Any number of followers share a connection and, in asyncio, a thread; each sees every entry in order."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import headrace
from headrace.api import stream_gaps
from headrace.api.follower_hub import hub_of
from support.waiting import wait_until

MANY = 500
STREAMS = 5
ENTRIES = 20


def connections(database: headrace.Database) -> int:
    return len(database.execute("CLIENT", "LIST").splitlines())


async def follow(stream: Any, seen: list[int]) -> None:
    async for entry in stream.follow_async(after="0"):
        seen.append(int(entry["n"]))
        if len(seen) == ENTRIES:
            return


def test_500_followers_in_asyncio(database: headrace.Database) -> None:
    streams = [database.stream(f"s{n}") for n in range(STREAMS)]
    seen: list[list[int]] = [[] for _ in range(MANY)]
    threads = threading.active_count()
    before = connections(database)

    async def main() -> None:
        tasks = [asyncio.create_task(follow(streams[n % STREAMS], into)) for n, into in enumerate(seen)]
        hub = hub_of(database.backend, b"")
        while len(hub._waiting) < MANY or not hub._covered:
            await asyncio.sleep(0.01)
        assert threading.active_count() - threads <= 2, "the thread of the hub, and one for to_thread"
        if database.backend.is_remote:
            assert connections(database) - before <= 2, "one that blocks, and one that unblocks it"
        for n in range(ENTRIES):
            for stream in streams:
                await asyncio.to_thread(stream.add, {"n": n})
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert seen == [list(range(ENTRIES))] * MANY


def test_idle_followers_send_no_requests(headrace_url: str) -> None:
    with headrace.connect(headrace_url) as database:
        database.execute("FLUSHALL")
        database.stream("s").read(block=0.01)
        stop = headrace.Stop()

        async def main() -> None:
            async def wait() -> None:
                async for _ in database.stream("s").follow_async(stop=stop):
                    raise AssertionError("there is no entry")

            tasks = [asyncio.create_task(wait()) for _ in range(100)]
            hub = hub_of(database.backend, b"")
            while len(hub._waiting) < 100 or hub._covered != {b"s": headrace.StreamID(0, 0)}:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            database.execute("CONFIG", "RESETSTAT")
            await asyncio.sleep(1)
            stats = database.execute("INFO", "commandstats")
            stop.set()
            await asyncio.gather(*tasks)
            assert b"cmdstat_xread" not in stats and b"cmdstat_xinfo" not in stats

        asyncio.run(main())


def test_100_followers_in_threads_share_a_connection(headrace_url: str) -> None:
    with headrace.connect(headrace_url) as database:
        database.execute("FLUSHALL")
        stream, stop = database.stream("s"), headrace.Stop()
        before = connections(database)
        seen: list[list[int]] = [[] for _ in range(100)]

        def read(into: list[int]) -> None:
            for entry in stream.follow(after="0", stop=stop):
                into.append(int(entry["n"]))

        threads = [threading.Thread(target=read, args=(into,)) for into in seen]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(hub_of(database.backend, b"")._waiting) == 100)
        assert connections(database) - before <= 2
        for n in range(ENTRIES):
            stream.add({"n": n})
        wait_until(lambda: all(len(into) == ENTRIES for into in seen))
        stop.set()
        for thread in threads:
            thread.join()
        assert seen == [list(range(ENTRIES))] * 100


def test_a_slow_follower_holds_up_no_other_one(database: headrace.Database) -> None:
    stream = database.stream("s")

    async def main() -> tuple[int, int]:
        slow = stream.follow_async(after="0")
        stream.add({"n": 0})
        assert (await anext(slow))["n"] == b"0"
        fast = stream.follow_async(after="0")
        for n in range(1, 600):
            stream.add({"n": n})
        quick = [int((await anext(fast))["n"]) for _ in range(600)]
        late = [int((await anext(slow))["n"]) for _ in range(599)]
        await fast.aclose()
        await slow.aclose()
        assert quick == list(range(600)) and late == list(range(1, 600))
        return len(quick), len(late)

    assert asyncio.run(main()) == (600, 599)


def test_an_error_of_one_stream_does_not_end_the_others(database: headrace.Database) -> None:
    database.execute("SET", "text", "x")

    async def main() -> None:
        seen: list[int] = []
        good = asyncio.create_task(follow(database.stream("s"), seen))
        await asyncio.sleep(0.05)
        with pytest.raises(headrace.errors.WrongType):
            await anext(database.stream("text").follow_async(after="0"))
        for n in range(ENTRIES):
            database.stream("s").add({"n": n})
        await good
        assert seen == list(range(ENTRIES))

    asyncio.run(main())


def test_a_stream_that_becomes_another_type_ends_only_its_followers(database: headrace.Database) -> None:
    async def main() -> None:
        seen: list[int] = []
        good = asyncio.create_task(follow(database.stream("s"), seen))
        bad = asyncio.create_task(follow(database.stream("t"), []))
        hub = hub_of(database.backend, b"")
        while len(hub._covered) < 2:
            await asyncio.sleep(0.01)
        database.execute("SET", "t", "x")
        for n in range(ENTRIES):
            database.stream("s").add({"n": n})
        await good
        another = asyncio.create_task(follow(database.stream("t"), []))
        for task in (another, bad):
            with pytest.raises(headrace.errors.WrongType):
                await task

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_gap_is_collected_or_raised(
    database: headrace.Database, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", 0.0)
    stream = database.stream("s")
    for n in range(1, 5):
        stream.add({"n": n}, id=f"{n}-0")

    async def main() -> None:
        for on_gap in ("warn", "raise"):
            follower = stream.follow_async(after="0", on_gap=on_gap)
            plain = stream.follow(after="0", on_gap=on_gap)

            async def step(follower: Any = follower, plain: Any = plain) -> str:
                return str((await anext(follower)).id if is_async else next(plain).id)

            last = int(str(stream.info().last_id).partition("-")[0])
            for _ in range(len(stream)):
                await step()
            for n in range(last + 1, last + 11):
                stream.add({"n": n}, id=f"{n}-0")
            stream.trim(maxlen=2)
            if on_gap == "raise":
                with pytest.raises(headrace.StreamGap) as raised:
                    await step()
                assert raised.value.missing == 8
            else:
                assert await step() == f"{last + 9}-0"
            (gap,) = follower.gaps if is_async else plain.gaps
            assert (gap.missing, str(gap.before)) == (8, f"{last + 9}-0")
            await follower.aclose()
            plain.close()

    asyncio.run(main())


def test_after_the_last_follower_no_request_is_left_blocked(database: headrace.Database) -> None:
    stream, stop = database.stream("s"), headrace.Stop()
    hub = hub_of(database.backend, b"s")

    async def main() -> None:
        async def wait() -> None:
            async for _ in stream.follow_async(stop=stop):
                raise AssertionError("there is no entry")

        waiting = asyncio.create_task(wait())
        while not hub._covered:
            await asyncio.sleep(0.01)
        stop.set()
        await waiting

    asyncio.run(main())
    wait_until(lambda: b"blocked_clients:0" in database.execute("INFO", "clients"))


def test_on_gap_has_two_values() -> None:
    with headrace.open() as db, pytest.raises(headrace.errors.UsageError, match="on_gap='ignore'"):
        db.stream("s").follow(after="0", on_gap="ignore")  # type: ignore[arg-type]
