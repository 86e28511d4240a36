"""Clients that cache keys, through sockets: as redis-py does it, on a redis-server and on this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

from headrace.resp.reply_parser import Push
from support.redis_server import redis_server
from support.speaking import Client, encoded
from support.waiting import wait_until


@pytest.fixture(scope="module")
def redis_server_port() -> Iterator[int]:
    with redis_server() as port:
        yield port


@pytest.fixture(params=["headrace", "redis-server"])
def port(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of each server in turn. redis-py wants a newer redis-server, although an older one has all it needs."""
    if request.param == "headrace":
        return int(request.getfixturevalue("server").port)
    monkeypatch.setattr(CacheProxyConnection, "MIN_ALLOWED_VERSION", "6.0.0")
    return int(request.getfixturevalue("redis_server_port"))


@pytest.fixture
def connect(port: int) -> Iterator[Callable[..., redis.Redis]]:
    made: list[redis.Redis] = []

    def client(**options: object) -> redis.Redis:
        made.append(redis.Redis(port=port, protocol=3, decode_responses=True, **options))  # type: ignore[call-overload]
        return made[-1]

    yield client
    for one in made:
        one.close()


def test_redis_py_caches_what_it_reads_until_it_changes(connect: Callable[..., redis.Redis]) -> None:
    writer = connect()
    writer.flushall()
    reader = connect(cache_config=CacheConfig())
    cache = reader.get_cache()
    assert cache is not None
    assert reader.get("k") is None
    writer.set("k", "1")
    # A reply that crosses the invalidation is not cached: then the next one is.
    wait_until(lambda: reader.get("k") == "1" and cache.size == 1, "the new value")
    calls = calls_of_get(writer)
    assert [reader.get("k") for _ in range(50)] == ["1"] * 50
    assert calls_of_get(writer) == calls
    writer.mset({"k": "2", "other": "3"})
    wait_until(lambda: reader.get("k") == "2", "the changed value")
    assert reader.mget("k", "other") == ["2", "3"]
    writer.delete("k")
    wait_until(lambda: reader.get("k") is None, "the end of the key")
    writer.set("k", "4")
    wait_until(lambda: reader.get("k") == "4", "the new key")
    writer.flushall()
    wait_until(lambda: reader.get("k") is None, "the flush")


def calls_of_get(client: redis.Redis) -> int:
    return int(client.info("commandstats")["cmdstat_get"]["calls"])


def test_redis_py_caches_streams(connect: Callable[..., redis.Redis]) -> None:
    writer = connect()
    writer.flushall()
    reader = connect(cache_config=CacheConfig())
    for number in range(1, 20):
        writer.xadd("s", {"n": number}, id=f"{number}-1")
        wait_until(lambda: reader.xlen("s") == number, "the new length")  # noqa: B023
        wait_until(lambda: len(reader.xrange("s")) == number, "the new entry")  # noqa: B023


@pytest.fixture
def dial(port: int) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def client(protocol: int = 3) -> Client:
        made.append(Client.to(port))
        made[-1].request("HELLO", protocol)
        return made[-1]

    yield client
    for one in made:
        one.close()


def test_pushes_come_after_the_replies_of_a_pipeline_that_caused_them(dial: Callable[..., Client]) -> None:
    client = dial()
    assert client.ask("FLUSHALL") == "OK"
    assert client.ask("CLIENT TRACKING ON") == "OK"
    words = ["GET a", "SET a 1", "GET a", "MULTI", "SET a 2", "GET a", "EXEC", "PING"]
    client.send(b"".join(encoded(*line.split()) for line in words))
    found = [client.reply() for _ in range(10)]
    lost = Push([b"invalidate", [b"a"]])
    assert found == [None, "OK", lost, b"1", "OK", "QUEUED", "QUEUED", ["OK", b"2"], lost, "PONG"]
    assert [isinstance(reply, Push) for reply in found].count(True) == 2


def test_broadcasts_of_a_pipeline_come_together(dial: Callable[..., Client]) -> None:
    listener, writer = dial(), dial()
    assert listener.ask("CLIENT TRACKING ON BCAST PREFIX user: PREFIX order:") == "OK"
    lines = [f"SET user:{number % 20:02} x" for number in range(60)] + ["SET other x", "SET order:1 x"]
    writer.send(b"".join(encoded(*line.split()) for line in lines))
    assert [writer.reply() for _ in lines] == ["OK"] * len(lines)
    keys: list[bytes] = []
    while b"user:19" not in keys:  # the server may read the pipeline in several parts
        pushed = listener.reply()
        assert isinstance(pushed, Push) and pushed[0] == b"invalidate"
        keys += pushed[1]
    if b"order:1" not in keys:
        keys += listener.reply()[1]  # type: ignore[index]
    assert set(keys) == {b"user:%02d" % number for number in range(20)} | {b"order:1"}
    assert listener.ask("PING") == "PONG"


def test_a_resp2_client_has_another_connection_informed(dial: Callable[..., Client]) -> None:
    listener, reader, writer = dial(2), dial(2), dial()
    writer.ask("FLUSHALL")
    number = listener.ask("CLIENT ID")
    listener.ask("SUBSCRIBE __redis__:invalidate")
    assert reader.request("CLIENT", "TRACKING", "ON", "REDIRECT", str(number)) == "OK"
    assert reader.ask("GET k") is None
    writer.ask("SET k v")
    assert listener.reply() == [b"message", b"__redis__:invalidate", [b"k"]]
    writer.ask("FLUSHALL")
    assert listener.reply() == [b"message", b"__redis__:invalidate", None]
    assert reader.ask("PING") == "PONG"


def test_a_key_that_expires_is_invalidated_without_a_request(dial: Callable[..., Client]) -> None:
    client, writer = dial(), dial()
    client.ask("CLIENT TRACKING ON")
    writer.ask("SET short 1 PX 300")
    assert client.ask("GET short") == b"1"
    assert client.reply() == Push([b"invalidate", [b"short"]])


def test_the_limit_of_the_table_can_be_changed(dial: Callable[..., Client]) -> None:
    client, admin = dial(), dial()
    assert admin.ask("CONFIG GET tracking-table-max-keys") == {b"tracking-table-max-keys": b"1000000"}
    admin.ask("CONFIG SET tracking-table-max-keys 2")
    client.ask("CLIENT TRACKING ON")
    assert client.ask("MGET a b c d") == [None] * 4
    admin.ask("PING")  # a redis-server looks at its table before a request
    forgotten = [client.reply() for _ in range(2)]
    assert all(isinstance(push, Push) and push[1][0] in (b"a", b"b", b"c", b"d") for push in forgotten)
    assert admin.info("stats")["tracking_total_keys"] == "2"
    admin.ask("CONFIG SET tracking-table-max-keys 1000000")


def test_a_broadcast_client_that_does_not_read_is_closed_as_a_subscriber(start) -> None:
    running = start("--client-output-buffer-limit", "pubsub", "2mb", "0", "0")
    writer, silent = running.connect(), running.connect()
    silent.send(encoded("HELLO", "3") + encoded("CLIENT", "TRACKING", "ON", "BCAST"))
    wait_until(lambda: any("t" in flags(line) for line in listed(writer)))
    shown = 0
    while any("B" in flags(line) for line in listed(writer)):
        shown = max(shown, *(int(line.partition("omem=")[2].split()[0]) for line in listed(writer)))
        writer.request("MSET", *(word for n in range(100) for word in ("k" * 4000 + str(n), "v")))
    assert shown > 100_000
    assert writer.request("PING") == "PONG"


def listed(client: Client) -> list[str]:
    text = client.request("CLIENT", "LIST")
    return text.decode().splitlines() if isinstance(text, bytes) else str(text).splitlines()


def flags(line: str) -> str:
    return line.partition("flags=")[2].split()[0]
