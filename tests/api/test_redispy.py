"""redis-py on the engine in this process: it behaves as on a server, and leaves nothing behind."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis import _parsers
from redis.retry import Retry

import headrace
from api.engine_clients import blocked, sessions
from support.waiting import wait_until

SECONDS = 20
PARSERS = {"hiredis": _parsers._HiredisParser, "python": _parsers._RESP3Parser}


@pytest.fixture
def database() -> Iterator[headrace.Database]:
    with headrace.open() as opened:
        yield opened


@pytest.fixture(params=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param[-1])


@pytest.fixture(params=PARSERS)
def how(request: pytest.FixtureRequest, protocol: int) -> dict[str, Any]:
    """The settings that decide which of redis-py's parsers reads the answers."""
    parser = PARSERS[request.param]
    if request.param == "python" and protocol == 2:
        parser = _parsers._RESP2Parser
    return {"protocol": protocol, "parser_class": parser}


@pytest.fixture
def client(database: headrace.Database, how: dict[str, Any]) -> Iterator[redis.Redis]:
    with database.client(decode_responses=True, **how) as made:
        yield made


def run(*deeds: Callable[[], Any]) -> list[Any]:
    """Each deed in a thread of its own; what they return, or raises what one raised."""
    found: list[Any] = [None] * len(deeds)
    wrong: list[BaseException] = []

    def do(index: int) -> None:
        try:
            found[index] = deeds[index]()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=do, args=(i,), daemon=True) for i in range(len(deeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    if wrong:
        raise wrong[0]
    assert not any(thread.is_alive() for thread in threads), "a thread still waits"
    return found


# The same calls on a server.


def deeds(client: redis.Redis, seed: int) -> Iterator[Any]:
    """What a seeded series of calls returns: streams, groups, strings, pipelines, refusals."""
    chance = random.Random(seed)
    names = ["s", "t", "text"]
    client.set("text", "none of a stream")
    calls: list[Callable[[str, int], Any]] = [
        lambda k, n: client.xadd(k, {"n": n, "blob": "x" * chance.choice([0, 5, 70_000])}, id=f"{n}-1"),
        lambda k, n: client.xadd(k, {"n": n}, id=f"{n}-2", maxlen=3, approximate=False),
        lambda k, n: client.xrange(k, count=2),
        lambda k, n: client.xread({k: "0"}, count=3),
        lambda k, n: client.xread({k: "$"}, block=1),
        lambda k, n: client.xgroup_create(k, "g", id="0"),
        lambda k, n: client.xreadgroup("g", "c", {k: ">"}, count=2),
        lambda k, n: client.xreadgroup("g", "c", {k: ">"}, count=2, block=1),
        lambda k, n: client.xpending(k, "g"),
        lambda k, n: client.xack(k, "g", f"{n - 3}-1", f"{n - 6}-1"),
        lambda k, n: client.xautoclaim(k, "g", "d", 0, count=2),
        lambda k, n: client.xdel(k, f"{n - 2}-1"),
        lambda k, n: client.get(k),
        lambda k, n: client.type(k),
        lambda k, n: client.expire(k, 1000),
        lambda k, n: client.pipeline().xlen(k).incr("n").execute(raise_on_error=False),
        lambda k, n: client.pipeline(transaction=False).get(k).exists(k).execute(raise_on_error=False),
        lambda k, n: client.delete("t"),
    ]
    for number in range(1, 300):
        call, key = chance.choice(calls), chance.choice(names)
        try:
            yield call(key, number)
        except redis.ResponseError as refusal:
            yield f"{type(refusal).__name__}: {refusal}"


def as_told(value: Any) -> Any:
    """Errors in lists, too, as what they say."""
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}"
    return [as_told(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("decode", [False, True])
def test_calls_return_what_they_return_on_a_server(
    database: headrace.Database, server_url: str, how: dict[str, Any], decode: bool
) -> None:
    with (
        database.client(decode_responses=decode, **how) as ours,
        redis.Redis.from_url(server_url, decode_responses=decode, **how) as theirs,
    ):
        theirs.flushall()
        calls = 0
        for mine, expected in zip(deeds(ours, 7), deeds(theirs, 7), strict=True):
            assert as_told(mine) == as_told(expected)
            calls += 1
        assert calls == 299
        theirs.flushall()


# Pipelines and transactions.


def test_a_pipeline_answers_every_request_in_order(client: redis.Redis) -> None:
    with client.pipeline(transaction=False) as pipe:
        for number in range(3000):
            pipe.xadd("s", {"n": number}, id=f"{number + 1}-0")
        pipe.incr("s")
        pipe.xlen("s")
        answers = pipe.execute(raise_on_error=False)
    assert answers[:3000] == [f"{number + 1}-0" for number in range(3000)]
    assert isinstance(answers[3000], redis.ResponseError) and answers[3001] == 3000
    assert [fields["n"] for _, fields in client.xrange("s")] == [str(number) for number in range(3000)]


def test_a_transaction_is_abandoned_when_what_it_watches_changes(client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        pipe.watch("n")
        client.set("n", "by another")
        pipe.multi()
        pipe.set("n", "mine")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert client.get("n") == "by another"


def test_counting_in_transactions_from_several_threads_loses_nothing(client: redis.Redis) -> None:
    def count() -> None:
        for _ in range(30):
            client.transaction(lambda pipe: add_one(pipe), "n")

    def add_one(pipe: Any) -> None:
        before = int(pipe.get("n") or 0)
        pipe.multi()
        pipe.set("n", before + 1)

    run(*[count] * 4)
    assert client.get("n") == "120"


def test_large_values_and_views_of_memory_come_through(database: headrace.Database, how: Any) -> None:
    blob = random.Random(3).randbytes(3_000_000)
    with database.client(**how) as client:
        with client.pipeline() as pipe:
            pipe.xadd("s", {"blob": blob}).set("k", memoryview(blob)).get("k").xrange("s")
            answers = pipe.execute()
        assert answers[2] == blob and answers[3][0][1] == {b"blob": blob}


# Waiting.


def test_a_blocked_read_ends_when_an_entry_comes_from_any_door(
    database: headrace.Database, client: redis.Redis
) -> None:
    def read() -> str:
        found = client.xread({"s": "$"}, block=0)
        entries = found["s"][0] if isinstance(found, dict) else found[0][1]
        return entries[0][1]["by"]

    for name in ("client", "stream"):
        heard: list[str] = []
        reader = threading.Thread(target=lambda into=heard: into.append(read()), daemon=True)
        reader.start()
        wait_until(lambda: blocked(database) == 1)
        if name == "client":
            client.xadd("s", {"by": "client"})
        else:
            database.stream("s").add({"by": "stream"})
        reader.join(SECONDS)
        assert heard == [name]


def test_groups_read_from_many_threads_hand_out_each_entry_once(client: redis.Redis) -> None:
    client.xgroup_create("s", "g", id="0", mkstream=True)
    number = itertools.count()

    def produce() -> None:
        for _ in range(100):
            client.xadd("s", {"n": next(number)})

    def consume(name: str) -> list[str]:
        mine: list[str] = []
        while found := client.xreadgroup("g", name, {"s": ">"}, count=7, block=300):
            entries = found["s"][0] if isinstance(found, dict) else found[0][1]
            mine += [fields["n"] for _, fields in entries]
            client.xack("s", "g", *[i for i, _ in entries])
        return mine

    readers = [lambda name=f"c{i}": consume(name) for i in range(4)]
    handled = [n for found in run(produce, produce, *readers) if found for n in found]
    assert sorted(map(int, handled)) == list(range(200))
    assert client.xpending("s", "g")["pending"] == 0


def test_a_read_that_outlasts_the_timeout_is_given_up_and_leaves_nothing(
    database: headrace.Database, how: Any
) -> None:
    with database.client(socket_timeout=0.05, retry=Retry(redis.backoff.NoBackoff(), 0), **how) as client:
        with pytest.raises(redis.TimeoutError):
            client.xread({"s": "$"}, block=0)
        assert blocked(database) == 0
        assert client.xadd("s", {"a": "b"}, id="1-1") == b"1-1"  # a new connection
        assert sessions(database) == 1
    assert sessions(database) == 0


def test_a_killed_connection_is_replaced_and_its_wait_is_over(database: headrace.Database, how: Any) -> None:
    heard: list[Any] = []
    with database.client(client_name="reader", retry=Retry(redis.backoff.NoBackoff(), 0), **how) as client:

        def read() -> None:
            try:
                client.xread({"s": "$"}, block=0)
            except redis.ConnectionError as gone:
                heard.append(gone)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        wait_until(lambda: blocked(database) == 1)
        with database.client(decode_responses=True) as other:
            killed = next(c["id"] for c in other.client_list() if c["name"] == "reader")
            assert other.client_kill_filter(_id=killed) == 1
        thread.join(SECONDS)
        assert len(heard) == 1 and blocked(database) == 0
        assert client.ping() is True


def test_a_connection_killed_between_two_calls_is_not_noticed(database: headrace.Database, how: Any) -> None:
    with database.client(**how) as client, database.client() as other:
        mine = client.client_id()
        assert other.client_kill_filter(_id=mine) == 1
        assert client.ping() is True
        assert client.client_id() != mine


# Channels.


def test_channels_and_patterns_are_heard(client: redis.Redis) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("news")
        listener.psubscribe("we*")
        assert listener.get_message(timeout=0.01) is None and listener.get_message(timeout=0.01) is None
        assert run(lambda: client.publish("news", "one"), lambda: client.publish("weather", "two")) == [1, 1]
        heard = [listener.get_message(timeout=SECONDS) for _ in range(2)]
        assert {(m["type"], m["channel"], m["data"]) for m in heard if m} == {
            ("message", "news", "one"),
            ("pmessage", "weather", "two"),
        }
        assert listener.get_message(timeout=0.01) is None
        listener.unsubscribe()
        listener.punsubscribe()
    assert client.publish("news", "three") == 0


def test_messages_that_come_together_are_all_heard(client: redis.Redis) -> None:
    with client.pubsub() as listener:
        listener.subscribe("news")
        assert listener.get_message(timeout=SECONDS)["type"] == "subscribe"
        with client.pipeline(transaction=False) as pipe:
            for number in range(500):
                pipe.publish("news", number)
            assert pipe.execute() == [1] * 500
        heard = [listener.get_message(timeout=0)["data"] for _ in range(500)]
        assert heard == [str(number) for number in range(500)] and listener.get_message(timeout=0) is None


def test_a_thread_of_redis_py_calls_the_handler(client: redis.Redis) -> None:
    heard: list[str] = []
    listener = client.pubsub()
    listener.subscribe(news=lambda message: heard.append(message["data"]))
    worker = listener.run_in_thread(sleep_time=0.01, daemon=True)
    for number in range(20):
        client.publish("news", number)
    wait_until(lambda: len(heard) == 20)
    worker.stop()
    worker.join(SECONDS)
    assert heard == [str(number) for number in range(20)] and not worker.is_alive()


# Pools.


def test_a_pool_that_is_full_makes_threads_wait_their_turn(database: headrace.Database, how: Any) -> None:
    with database.client(
        pool_class=redis.BlockingConnectionPool, max_connections=2, timeout=SECONDS, **how
    ) as client:
        reader = threading.Thread(target=client.xread, args=({"s": "$"},), kwargs={"block": 0}, daemon=True)
        reader.start()
        wait_until(lambda: blocked(database) == 1)
        run(*[lambda: [client.incr("n") for _ in range(50)]] * 6)  # by turns, with the one that is left
        assert sessions(database) == 2
        client.xadd("s", {"a": "b"})
        reader.join(SECONDS)
        assert client.get("n") == b"300" and not reader.is_alive()
    assert sessions(database) == 0


def test_a_connection_is_asked_for_its_health(database: headrace.Database, how: Any) -> None:
    with database.client(health_check_interval=1000, single_connection_client=True, **how) as client:

        def asked() -> int:
            return int(client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"])

        before = asked()
        client.connection.next_health_check = 0  # as if it had rested for long
        assert client.set("a", 1)
        assert client.get("a") == b"1"
        assert asked() == before + 1


def test_settings_reach_the_connections(database: headrace.Database, how: Any) -> None:
    with database.client(db=3, client_name="billing", decode_responses=True, **how) as client:
        client.set("here", "3")
        me = client.client_info()
        assert (me["name"], me["db"]) == ("billing", 3)
        assert me["lib-name"].startswith("redis-py")
    with database.client() as client:
        assert client.exists("here") == 0


def test_a_client_that_is_let_go_leaves_no_session(database: headrace.Database, how: Any) -> None:
    for _ in range(3):
        client = database.client(**how)
        client.ping()
        del client
    wait_until(lambda: sessions(database) == 0)


def test_a_pool_made_from_an_url_takes_the_connection_class(database: headrace.Database) -> None:
    bound = database.connection_class()
    with redis.Redis.from_url("redis://nowhere:1/2", connection_class=bound) as client:
        client.set("a", "b")
        assert client.client_info()["db"] == 2
    with database.client(db=2) as client:
        assert client.get("a") == b"b"


# The end.


def test_a_closed_database_is_a_lost_connection_at_once(how: Any) -> None:
    database = headrace.open()
    client = database.client(**how)
    assert client.ping()
    waiting = database.client(**how)
    wrong: list[Exception] = []

    def read() -> None:
        try:
            waiting.xread({"s": "$"}, block=0)
        except redis.ConnectionError as gone:
            wrong.append(gone)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    wait_until(lambda: blocked(database) == 1)
    database.close()
    thread.join(SECONDS)
    assert len(wrong) == 1
    for each in (client, waiting):
        with pytest.raises(redis.ConnectionError, match="closed"):
            each.ping()


def test_what_a_pipeline_wrote_is_there_after_opening_again(tmp_path: Any, how: Any) -> None:
    with (
        headrace.open(tmp_path / "data") as database,
        database.client(**how) as client,
        client.pipeline() as pipe,
    ):
        for number in range(200):
            pipe.xadd("s", {"n": number})
        ids = pipe.execute()
    with headrace.open(tmp_path / "data") as database, database.client(**how) as client:
        assert [i for i, _ in client.xrange("s")] == ids


# A library on it: redis-py's own lock.


def test_one_thread_at_a_time_holds_a_lock(client: redis.Redis) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(10):
            with client.lock("lock", timeout=50, sleep=0.001):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    run(*[work] * 4)
    assert most == [1] * 40
    held = client.lock("lock", timeout=50)
    assert held.acquire() and not client.lock("lock").acquire(blocking=False)
    assert held.extend(50) and client.ttl("lock") > 50
    held.release()
    with pytest.raises(redis.exceptions.LockError):
        held.release()


# A database that is a server elsewhere.


def test_the_client_of_a_server_is_redis_py_on_its_url(server_url: str, protocol: int) -> None:
    with headrace.connect(server_url + "/5") as database:
        with database.client(protocol=protocol, decode_responses=True) as client:
            client.flushdb()
            database.stream("s").add({"a": "b"}, id="1-1")
            assert client.xrange("s") == [("1-1", {"a": "b"})]
            assert client.client_info()["db"] == 5
            client.flushdb()
        with pytest.raises(headrace.HeadraceError, match="URL"):
            database.connection_class()


def test_a_database_on_a_client_gives_that_client_back(server_url: str) -> None:
    with redis.Redis.from_url(server_url) as theirs, headrace.connect(theirs) as database:
        assert database.client() is theirs
        with pytest.raises(headrace.HeadraceError):
            database.client(db=3)
        with pytest.raises(headrace.HeadraceError, match="URL"):
            database.async_client()


def test_a_connection_may_be_given_up_by_a_thread_that_has_the_engine(database: headrace.Database) -> None:
    """The garbage collector may do so in the middle of a request."""
    client = database.client()
    assert client.ping() and sessions(database) == 1
    local_engine: Any = database.backend

    def collect() -> None:
        local_engine.acquire()
        try:
            client.close()
        finally:
            local_engine.release()

    run(collect)
    assert sessions(database) == 0
