"""Waits on a server: the thread sleeps there, and a Stop wakes it; no entry is lost on the way."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import headrace
from headrace.api.backend import Stop
from headrace.client.interruptible import WakeupSocketPool, exchange_until_woken
from support.waiting import wait_until

READ = [b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b">"]


@pytest.fixture(params=["headrace", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("headrace_url" if request.param == "headrace" else "server_url"))


@pytest.fixture
def admin(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        admin.flushall()
        yield admin


def blocked(admin: redis.Redis) -> int:
    return int(admin.info("clients")["blocked_clients"])


def calls(admin: redis.Redis, command: str) -> int:
    stats: Any = admin.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
    return int(stats["calls"])


@pytest.mark.parametrize("in_asyncio", [False, True])
def test_idle_consumers_send_nothing(url: str, admin: redis.Redis, in_asyncio: bool) -> None:
    with headrace.connect(url) as db:
        group = db.stream("s").group("g")
        for n in range(5):
            group.handler(consumer=f"w{n}", concurrency=3)(lambda entry: None)

        def run() -> None:
            if in_asyncio:
                asyncio.run(group.run_async(signals=False))
            else:
                group.run(signals=False)

        running = threading.Thread(target=run)
        running.start()
        wait_until(lambda: blocked(admin) == 5)
        time.sleep(0.3)  # the first wait is a short one, before the server is known
        admin.config_resetstat()
        time.sleep(1)
        sent = calls(admin, "xreadgroup")
        group.stop()
        running.join()
    assert sent <= 5, "they asked 47 times a second"


def test_a_stop_ends_a_wait_in_the_server(
    url: str, admin: redis.Redis, aside: Callable[..., Any], stop: Stop
) -> None:
    with headrace.connect(url) as db:
        db.stream("s").read(block=0.01, stop=Stop())  # now it is known what the user may do
        wait_until(lambda: blocked(admin) == 0)
        admin.config_resetstat()
        reading = aside(lambda: db.stream("s").read(block=3600, stop=stop))
        wait_until(lambda: blocked(admin) == 1)
        stop.set()
        assert reading.result() == []
        wait_until(lambda: blocked(admin) == 0)
    assert calls(admin, "client|unblock") >= 1 and calls(admin, "xread") <= 2, "a look, and the wait"


def test_a_stop_that_comes_with_an_entry_loses_none(url: str, admin: redis.Redis) -> None:
    admin.xgroup_create("s", "g", mkstream=True)
    with headrace.connect(url) as db:
        for n in range(150):
            stop = Stop()
            adding = threading.Thread(target=admin.xadd, args=("s", {"n": n}))
            stopping = threading.Timer(0.0002 * (n % 10), stop.set)
            for thread in (adding, stopping) if n % 2 else (stopping, adding):
                thread.start()
            reply = db.backend.execute_blocking_read(READ, 5.0, stop)
            adding.join()
            stopping.join()
            pending = db.execute("XPENDING", "s", "g")[0]
            received = [] if reply is None else reply[0][1]
            assert pending == len(received)
            for id, _ in received:
                db.execute("XACK", "s", "g", id)
            admin.xgroup_setid("s", "g", "$")


def test_without_the_permission_a_wait_ends_too(
    headrace_url: str, aside: Callable[..., Any], stop: Stop
) -> None:
    with redis.Redis.from_url(headrace_url, decode_responses=True) as admin:
        admin.flushall()
        admin.execute_command("ACL", "SETUSER", "p", "reset", "on", ">x", "~*", "+xread", "+xinfo")
        port = admin.connection_pool.connection_kwargs["port"]
        with headrace.connect(f"redis://p:x@127.0.0.1:{port}") as db:
            reading = aside(lambda: db.stream("s").read(block=3600, stop=stop))
            wait_until(lambda: blocked(admin) == 1)
            stop.set()
            assert reading.result() == []
        admin.execute_command("ACL", "DELUSER", "p")


def test_a_full_pool_does_not_delay_the_stop(
    url: str, admin: redis.Redis, aside: Callable[..., Any], stop: Stop
) -> None:
    port = admin.connection_pool.connection_kwargs["port"]
    with redis.Redis(port=port, max_connections=1) as given, headrace.connect(given) as db:
        db.stream("s").read(block=0.01, stop=Stop())
        reading = aside(lambda: db.stream("s").read(after="0", block=3600, stop=stop))
        wait_until(lambda: blocked(admin) == 1)
        stop.set()
        assert reading.result() == []


def test_wakeups_of_an_earlier_wait_do_no_harm() -> None:
    sockets = WakeupSocketPool()
    first = sockets.take()
    for _ in range(100_000):
        first.wake()  # more than the buffer holds
    sockets.give_back(first)
    second = sockets.take()
    assert second is first
    first.wake()
    assert second.clear()
    sockets.give_back(second)
    sockets.close()
    second.wake()  # nothing happens


def test_a_wait_ends_if_its_socket_was_closed_and_the_number_belongs_to_another(
    url: str, admin: redis.Redis, aside: Callable[..., Any]
) -> None:
    """A database is closed in one thread while another waits, and a third one opens something."""
    pool = redis.ConnectionPool.from_url(url)
    connection = pool.get_connection()
    connection.connect()
    wakeup = WakeupSocketPool().take()
    words = [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"]
    waiting = aside(lambda: exchange_until_woken(pool, connection, words, wakeup, 3600))
    wait_until(lambda: blocked(admin) == 1)
    sock, connection._sock = connection._sock, None
    sock.close()
    with socket.create_connection(("127.0.0.1", int(admin.get_connection_kwargs()["port"]))):
        wakeup.wake()  # the new socket has the free number, unless another thread was faster
        with pytest.raises(redis.ConnectionError, match="was closed"):
            waiting.result()
    wakeup.close()
    pool.disconnect()
