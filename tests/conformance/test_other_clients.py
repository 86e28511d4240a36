"""Clients written by others: redis-py's helpers beside a real Redis; two task queues run a job to its end."""

import asyncio

import pytest
import redis
from faststream.redis import RedisBroker, StreamSub
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from support.headrace_server import headrace_server
from support.waiting import SECONDS_MAX, async_wait_until, at_work

TIMES = ("idle", "inactive", "seen-time", "active-time", "time_since_delivered")


@pytest.fixture(scope="module")
def port():
    """A headrace server's port."""
    with headrace_server() as port:
        yield port


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def both(port, peer, request):
    """A client of ours and one of the real server, both emptied."""
    peer.clean()
    clients = [redis.Redis(port=p, protocol=request.param, decode_responses=True) for p in (port, peer.port)]
    for client in clients:
        client.flushall()
    yield clients
    for client in clients:
        client.close()


def same(both, ask):
    """What both answer, which must be equal; what is newer than the peer, and how long ago, aside."""
    answers = []
    for client in both:
        try:
            answers.append(ask(client))
        except redis.ResponseError as refusal:
            answers.append(f"{type(refusal).__name__}: {refusal}")
    assert settled(common(*answers)) == settled(answers[1]), answers
    return answers[0]


def common(ours, theirs):
    """Ours without the fields that the peer does not have."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {name: common(value, theirs[name]) for name, value in ours.items() if name in theirs}
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        return type(ours)(map(common, ours, theirs))
    return ours


def settled(value):
    """The value with moments and durations as their types."""
    if isinstance(value, dict):
        return {n: type(v).__name__ if n in TIMES else settled(v) for n, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(settled(item) for item in value)
    return value


def fill(client):
    for number in range(1, 8):
        client.xadd("s", {"n": number, "text": f"entry {number}"}, id=f"{number}-{number}")


def group_up(client):
    """Group g: alice holds 1 to 3, bob 4; 2 is deleted, 3 delivered twice; 5 to 7 are yet to be read."""
    fill(client)
    client.xgroup_create("s", "g", id="0")
    client.xreadgroup("g", "alice", {"s": ">"}, count=3)
    client.xreadgroup("g", "bob", {"s": ">"}, count=1)
    client.xdel("s", "2-2")
    client.xclaim("s", "g", "alice", 0, ["3-3"])


ASKED_OF_A_STREAM = {
    "xlen": lambda c: c.xlen("s"),
    "xrange": lambda c: c.xrange("s", "2", "(5-5", count=3),
    "xrevrange": lambda c: c.xrevrange("s", "+", "-", count=2),
    "xrange of none": lambda c: c.xrange("none"),
    "xread": lambda c: c.xread({"s": "5-0", "none": "0"}, count=2),
    "xread of nothing new": lambda c: c.xread({"s": "$"}),
    "xread that waits": lambda c: c.xread({"s": "$"}, block=10),
    "xinfo_stream": lambda c: c.xinfo_stream("s"),
    "xinfo_stream full": lambda c: c.xinfo_stream("s", full=True),
    "xinfo_stream of none": lambda c: c.xinfo_stream("none"),
    "xadd nomkstream": lambda c: c.xadd("none", {"f": "v"}, nomkstream=True),
    "xadd maxlen": lambda c: [c.xadd("s", {"f": "v"}, id="9-1", maxlen=3, approximate=False), c.xlen("s")],
    "xadd minid": lambda c: [c.xadd("s", {"f": "v"}, id="9-1", minid="6", approximate=False), c.xrange("s")],
    "xadd too small": lambda c: c.xadd("s", {"f": "v"}, id="1-1"),
    "xtrim": lambda c: [c.xtrim("s", maxlen=2, approximate=False), c.xrange("s")],
    "xtrim minid": lambda c: [c.xtrim("s", minid="4-0", approximate=False), c.xrange("s")],
    "xdel": lambda c: [c.xdel("s", "1-1", "5-5", "99-1"), c.xrange("s")],
    "wrong type": lambda c: [c.set("k", "v"), c.xadd("k", {"f": "v"})],
    "pipeline": lambda c: c.pipeline().xadd("p", {"f": "v"}, id="1-1").xlen("p").xrange("p").execute(),
}

ASKED_OF_A_GROUP = {
    "xreadgroup": lambda c: c.xreadgroup("g", "bob", {"s": ">"}, count=2),
    "xreadgroup noack": lambda c: [c.xreadgroup("g", "bob", {"s": ">"}, noack=True), c.xpending("s", "g")],
    "xreadgroup history": lambda c: c.xreadgroup("g", "alice", {"s": "0"}),
    "xreadgroup history of nobody": lambda c: c.xreadgroup("g", "carol", {"s": "0"}),
    "xreadgroup that waits": lambda c: [
        c.xreadgroup("g", "bob", {"s": ">"}),
        c.xreadgroup("g", "bob", {"s": ">"}, block=10),
    ],
    "xreadgroup without group": lambda c: c.xreadgroup("none", "bob", {"s": ">"}),
    "xack": lambda c: [c.xack("s", "g", "1-1", "2-2", "7-7"), c.xpending("s", "g")],
    "xack of none": lambda c: c.xack("none", "g", "1-1"),
    "xpending": lambda c: c.xpending("s", "g"),
    "xpending of none": lambda c: c.xpending("none", "g"),
    "xpending_range": lambda c: c.xpending_range("s", "g", "-", "+", 10),
    "xpending_range of one": lambda c: c.xpending_range("s", "g", "-", "+", 10, consumername="bob"),
    "xpending_range idle": lambda c: c.xpending_range("s", "g", "-", "+", 10, idle=100_000),
    "xclaim": lambda c: [c.xclaim("s", "g", "bob", 0, ["1-1", "3-3"]), c.xpending("s", "g")],
    "xclaim justid": lambda c: c.xclaim("s", "g", "bob", 0, ["1-1", "2-2"], justid=True),
    "xclaim forced": lambda c: c.xclaim("s", "g", "bob", 0, ["6-6"], force=True, retrycount=7, idle=5),
    "xclaim of what is young": lambda c: c.xclaim("s", "g", "bob", 100_000, ["1-1"]),
    "xautoclaim": lambda c: [c.xautoclaim("s", "g", "bob", 0), c.xpending("s", "g")],
    "xautoclaim count": lambda c: c.xautoclaim("s", "g", "bob", 0, start_id="0-0", count=1),
    "xautoclaim justid": lambda c: c.xautoclaim("s", "g", "bob", 0, justid=True),
    "xinfo_groups": lambda c: c.xinfo_groups("s"),
    "xinfo_consumers": lambda c: c.xinfo_consumers("s", "g"),
    "xinfo_stream full": lambda c: without_moments(c.xinfo_stream("s", full=True)),
    "xgroup again": lambda c: c.xgroup_create("s", "g"),
    "xgroup of none": lambda c: c.xgroup_create("none", "g"),
    "xgroup mkstream": lambda c: [c.xgroup_create("new", "g", mkstream=True), c.xinfo_groups("new")],
    "xgroup entries_read": lambda c: [c.xgroup_create("s", "h", "3-3", entries_read=3), c.xinfo_groups("s")],
    "xgroup_setid": lambda c: [c.xgroup_setid("s", "g", "0"), c.xreadgroup("g", "bob", {"s": ">"})],
    "xgroup_createconsumer": lambda c: [c.xgroup_createconsumer("s", "g", n) for n in ("carol", "bob")],
    "xgroup_delconsumer": lambda c: [c.xgroup_delconsumer("s", "g", n) for n in ("alice", "none")],
    "xgroup_destroy": lambda c: [c.xgroup_destroy("s", n) for n in ("g", "none")],
}


def without_moments(info):
    """XINFO STREAM FULL with delivery times as their types: they are deep in lists."""
    for group in info["groups"]:
        group["pending"] = [[*entry[:2], type(entry[2]).__name__, *entry[3:]] for entry in group["pending"]]
        for consumer in group["consumers"]:
            consumer["pending"] = [[e[0], type(e[1]).__name__, *e[2:]] for e in consumer["pending"]]
    return info


@pytest.mark.parametrize("helper", ASKED_OF_A_STREAM)
def test_redis_py_asks_of_a_stream(both, helper):
    for client in both:
        fill(client)
    same(both, ASKED_OF_A_STREAM[helper])


@pytest.mark.parametrize("helper", ASKED_OF_A_GROUP)
def test_redis_py_asks_of_a_group(both, helper):
    for client in both:
        group_up(client)
    same(both, ASKED_OF_A_GROUP[helper])


def hold(client, deed):
    """What a lock of redis-py's says and leaves when it is taken, then done to, then given back."""
    lock = client.lock("lock", timeout=50)
    found = [lock.acquire(), lock.owned(), deed(client, lock), client.ttl("lock") > 0]
    try:
        lock.release()
    except redis.exceptions.LockError as wrong:
        found.append(str(wrong))
    return [*found, client.exists("lock")]


LOCK_DEEDS = {
    "nothing": lambda client, lock: None,
    "extend": lambda client, lock: [lock.extend(50), client.ttl("lock") > 60],
    "extend anew": lambda client, lock: [lock.extend(20, replace_ttl=True), client.ttl("lock") <= 20],
    "reacquire": lambda client, lock: [lock.extend(500), lock.reacquire(), client.ttl("lock") <= 50],
    "taken by another": lambda client, lock: client.set("lock", "another's", ex=10),
    "flushed": lambda client, lock: [client.script_flush(), lock.extend(1)],
    "gone": lambda client, lock: client.delete("lock"),
}


@pytest.mark.parametrize("deed", LOCK_DEEDS)
def test_redis_py_holds_a_lock(both, deed):
    same(both, lambda client: hold(client, LOCK_DEEDS[deed]))


@pytest.fixture(params=["headrace", "redis-server"])
def url(port, peer, request):
    """Where the queue is kept; the same job must run on both."""
    at = port if request.param == "headrace" else peer.port
    with redis.Redis(port=at) as client:
        client.flushall()
    return f"redis://127.0.0.1:{at}"


def left_pending(url, stream, group):
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.xpending(stream, group)["pending"]


def test_faststream_works_off_a_stream(url):
    """Two consumers of one group share the entries; each is handled once and acknowledged."""
    handled = []

    async def job():
        broker = RedisBroker(url, logger=None)

        @broker.subscriber(stream=StreamSub("jobs", group="workers", consumer="one", polling_interval=50))
        async def one(number: int) -> None:
            handled.append(number)

        @broker.subscriber(stream=StreamSub("jobs", group="workers", consumer="two", polling_interval=50))
        async def two(number: int) -> None:
            handled.append(number)

        async with broker:
            await broker.start()
            for number in range(100):
                await broker.publish(number, stream="jobs")
            await async_wait_until(lambda: len(handled) >= 100)
            await async_wait_until(lambda: left_pending(url, "jobs", "workers") == 0)

    asyncio.run(asyncio.wait_for(job(), 2 * SECONDS_MAX))
    assert sorted(handled) == list(range(100))


@pytest.mark.parametrize("way", ["XAUTOCLAIM", "XREADGROUP CLAIM"])
def test_faststream_takes_over_what_another_consumer_left(url, way):
    if way == "XREADGROUP CLAIM":
        with redis.Redis.from_url(url) as client:
            version = client.info("server")["redis_version"].split(".")
            if (int(version[0]), int(version[1])) < (8, 4):
                pytest.skip("newer than the redis-server at hand")
    handled = []
    how = {"min_idle_time": 1} if way == "XAUTOCLAIM" else {"claim_min_idle_time": 1}

    async def job():
        broker = RedisBroker(url, logger=None)
        left = StreamSub("jobs", group="workers", consumer="heir", polling_interval=50, **how)

        @broker.subscriber(stream=left)
        async def take_over(number: int) -> None:
            handled.append(number)

        async with broker:
            with redis.Redis.from_url(url) as client:
                client.xgroup_create("jobs", "workers", mkstream=True)
                for number in range(5):
                    await broker.publish(number, stream="jobs")
                assert client.xreadgroup("workers", "dead", {"jobs": ">"})
            await broker.start()
            await async_wait_until(lambda: len(handled) >= 5 and left_pending(url, "jobs", "workers") == 0)

    asyncio.run(asyncio.wait_for(job(), 2 * SECONDS_MAX))
    assert sorted(set(handled)) == list(range(5))


def test_taskiq_works_off_a_stream(url):
    """Its worker reads, claims what others left, and holds a lock meanwhile."""
    done = []

    async def job():
        broker = RedisStreamBroker(url, queue_name="tasks", consumer_group_name="workers", xread_block=50)

        @broker.task
        async def square(number: int) -> None:
            done.append(number * number)

        await broker.startup()
        async with at_work(run_receiver_task(broker)) as worker:
            for number in range(50):
                await square.kiq(number)
            await async_wait_until(lambda: len(done) >= 50 or worker.done())
            await async_wait_until(lambda: left_pending(url, "tasks", "workers") == 0 or worker.done())
        await broker.shutdown()

    asyncio.run(asyncio.wait_for(job(), 2 * SECONDS_MAX))
    assert sorted(done) == [number * number for number in range(50)]


def test_taskiq_takes_over_what_another_worker_left(url):
    done = []

    async def job():
        broker = RedisStreamBroker(
            url, queue_name="tasks", consumer_group_name="workers", xread_block=50, idle_timeout=1
        )

        @broker.task
        async def note(number: int) -> None:
            done.append(number)

        await broker.startup()
        await note.kiq(1)
        with redis.Redis.from_url(url) as client:
            assert client.xreadgroup("workers", "dead", {"tasks": ">"})
        async with at_work(run_receiver_task(broker)) as worker:
            await note.kiq(2)
            await async_wait_until(lambda: len(done) >= 2 or worker.done())
            await async_wait_until(lambda: left_pending(url, "tasks", "workers") == 0 or worker.done())
        await broker.shutdown()

    asyncio.run(asyncio.wait_for(job(), 2 * SECONDS_MAX))
    assert sorted(set(done)) == [1, 2]
