"""The far backend: which requests are tried again when a server is lost, and what is said of the others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
import redis

import headrace
from headrace.api import arrow_batches
from headrace.api.backend import Stop
from headrace.api.remote_backend import RemoteBackend, first_key_of_request
from headrace.client.retrying import is_repeatable
from headrace.errors import (
    AccessDenied,
    CommandError,
    ConnectionLost,
    DatabaseClosed,
    HeadraceError,
    NoSuchGroup,
    UsageError,
    WrongType,
)
from support.waiting import wait_until


class CutWire:
    """Passes bytes on to a server, and can lose a connection with or without the request that is on its way.

    lose = "request": the next request is dropped, and its connection. "answer": the server gets it, its
    answer is dropped, and the connection.
    """

    def __init__(self, port: int) -> None:
        self.server = port
        self.lose = ""
        self.lost = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.server)) as server:
            try:
                while request := client.recv(1 << 16):
                    # What a connection begins with is let through.
                    how = self.lose if b"CLIENT" not in request else ""
                    if how == "request":
                        break
                    server.sendall(request)
                    answer = server.recv(1 << 16)
                    if how == "answer":
                        break
                    client.sendall(answer)
                else:
                    return
                self.lose = ""
                self.lost += 1
            except OSError:
                pass

    def close(self) -> None:
        """From now on connections are refused, and whoever waits for one in accept() ends."""
        with suppress(OSError):  # it is closed already
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def wire(server_url: str, client: redis.Redis) -> Iterator[CutWire]:
    port = urlsplit(server_url).port
    assert port is not None
    wire = CutWire(port)
    yield wire
    wire.close()


@pytest.fixture
def backend(wire: CutWire) -> Iterator[RemoteBackend]:
    backend = RemoteBackend(f"redis://127.0.0.1:{wire.port}")
    assert backend.request(b"PING") == b"PONG"
    yield backend
    backend.close()


def test_reads_and_removals_are_tried_again(wire: CutWire, backend: RemoteBackend) -> None:
    id = backend.add(b"s", b"*", {"n": 1})
    for how in ("request", "answer"):
        wire.lose = how
        assert backend.request(b"XLEN", b"s") == 1
        wire.lose = how
        assert backend.request_all([(b"XLEN", b"s"), (b"XRANGE", b"s", b"-", b"+")])[1][0][0] == id
    wire.lose = "answer"
    assert backend.request(b"XDEL", b"s", id) == 0  # it was there when this was asked for first
    assert backend.request(b"XLEN", b"s") == 0
    assert wire.lost == 5


@pytest.mark.parametrize(("how", "there"), [("request", 0), ("answer", 1)])
def test_an_add_whose_answer_is_lost_is_left_to_the_caller(
    wire: CutWire, backend: RemoteBackend, how: str, there: int
) -> None:
    stream = headrace.Stream(backend, "s")
    wire.lose = how
    with pytest.raises(ConnectionLost, match=r"XADD may have been executed") as lost:
        stream.add({"n": 1})
    assert lost.value.maybe_executed and isinstance(lost.value, HeadraceError)
    assert isinstance(lost.value, ConnectionError)
    assert len(stream) == there
    stream.add_many([{"n": 2}, {"n": 3}])  # before the first transaction an empty one is sent
    wire.lose = how
    with pytest.raises(ConnectionLost, match="XADD may"):
        stream.add_many([{"n": 4}, {"n": 5}])
    assert len(stream) == 2 + 3 * there


def test_an_add_with_an_idempotent_id_is_tried_again(headrace_url: str) -> None:
    port = urlsplit(headrace_url).port
    assert port is not None
    wire = CutWire(port)
    with headrace.connect(f"redis://127.0.0.1:{wire.port}") as db:
        db.execute("FLUSHALL")
        stream = db.stream("s")
        for n, how in enumerate(("request", "answer")):
            wire.lose = how
            stream.add({"n": n}, idempotency=("me", f"request {n}"))
        assert [int(entry["n"]) for entry in stream] == [0, 1] and wire.lost == 2
    wire.close()


def test_a_table_whose_batches_are_lost_is_complete(
    headrace_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_batches, "BATCH_ROWS", 100)  # the wire passes on replies of a few bytes
    port = urlsplit(headrace_url).port
    assert port is not None
    with headrace.connect(headrace_url) as db:
        db.execute("FLUSHALL")
        db.stream("s").add_many({"n": n} for n in range(1000))
    wire = CutWire(port)
    found: list[int] = []
    with headrace.connect(f"redis://127.0.0.1:{wire.port}") as db:
        for batch in db.stream("s").arrow_batches(pa.schema([("n", pa.int64())])):
            wire.lose = ("request", "answer")[len(found) // 100 % 2]
            found += batch.column("n").to_pylist()
    assert found == list(range(1000)) and wire.lost >= 2
    wire.close()


def test_a_connection_that_ended_while_it_was_idle_harms_nobody(server_url: str, client: redis.Redis) -> None:
    backend = RemoteBackend(server_url)
    stream = headrace.Stream(backend, "s")
    stream.add({"n": 1})
    number = backend.request(b"CLIENT", b"ID")
    assert client.client_kill_filter(_id=number) == 1
    wait_until(lambda: all(one["id"] != str(number) for one in client.client_list()))
    stream.add({"n": 2})
    assert len(stream) == 2 and backend.request(b"CLIENT", b"ID") != number
    backend.close()


def test_a_server_that_never_was_there_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    backend = RemoteBackend(f"redis://user:secret@127.0.0.1:{port}")
    with pytest.raises(ConnectionLost, match="XADD was not executed") as lost:
        headrace.Stream(backend, "s").add({"n": 1})
    assert not lost.value.maybe_executed and str(port) in str(lost.value) and "secret" not in str(lost.value)
    assert "secret" not in repr(backend)


def test_a_server_that_is_away_is_waited_for(wire: CutWire, server_url: str) -> None:
    port = wire.port
    backend = RemoteBackend(f"redis://127.0.0.1:{port}", reconnect_timeout=20)
    stream = headrace.Stream(backend, "s")
    stream.add({"n": 1})
    wire.close()
    backend.topology.close()
    back = threading.Timer(0.3, lambda: revive(wire, port))
    back.start()
    stream.add({"n": 2})
    assert len(stream) == 2
    wire.close()
    backend.topology.close()
    back.join()
    backend.reconnect_timeout = 0.1
    with pytest.raises(ConnectionLost, match="not executed"):
        stream.add({"n": 3})


def revive(wire: CutWire, port: int) -> None:
    wire.listener = socket.create_server(("127.0.0.1", port))
    wire._accept()


def test_replies_have_the_shapes_of_resp2_whatever_the_client(server_url: str, client: redis.Redis) -> None:
    client.xadd("s", {"a": "1"}, id="1-1")
    pool = redis.BlockingConnectionPool.from_url(server_url, decode_responses=True)
    for given in (
        server_url,
        client,
        redis.Redis.from_url(server_url, protocol=3),
        redis.Redis(connection_pool=pool),
    ):
        backend = RemoteBackend(given)
        assert backend.request(b"XRANGE", b"s", b"-", b"+") == [[b"1-1", [b"a", b"1"]]]
        assert backend.request(b"XINFO", b"STREAM", b"s")[:2] == [b"length", 1]
        assert backend.request(b"XREAD", b"STREAMS", b"s", b"1-1") is None
        assert backend.request(b"SET", b"k", b"v") == b"OK" and backend.request(b"GET", b"k") == b"v"
        backend.close()


def test_several_requests_in_one_go(backend: RemoteBackend) -> None:
    replies = backend.request_all(
        [
            (b"SET", b"k", b"text"),
            (b"XLEN", b"k"),
            (b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b">"),
        ]
    )
    assert replies[0] == b"OK" and isinstance(replies[1], WrongType) and isinstance(replies[2], NoSuchGroup)
    assert backend.request_all([]) == []
    replies = backend.request_all([(b"XADD", b"s", b"1-1", b"a", b"b"), (b"XLEN", b"k")], atomic=True)
    assert replies[0] == b"1-1" and isinstance(replies[1], WrongType)
    with pytest.raises(CommandError, match="wrong number of arguments"):
        backend.request_all([(b"XADD", b"s", b"2-1", b"a", b"b"), (b"XADD", b"s")], atomic=True)
    assert backend.request(b"XLEN", b"s") == 1


def test_waiting_goes_on_over_a_lost_connection(
    wire: CutWire, backend: RemoteBackend, client: redis.Redis, aside: Callable[..., Any], stop: Stop
) -> None:
    stream = headrace.Stream(backend, "s")
    stream.add({"n": 0}, id="1-0")
    reading = aside(lambda: stream.read(after="1-0", block=20, stop=stop))
    wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
    wire.lose = "answer"
    wait_until(lambda: not wire.lose)
    client.xadd("s", {"n": "1"}, id="2-0")
    assert [int(entry["n"]) for entry in reading.result()] == [1]
    assert wire.lost == 1


def test_a_group_read_whose_answer_is_lost_says_so(
    wire: CutWire, backend: RemoteBackend, client: redis.Redis
) -> None:
    client.xgroup_create("s", "g", mkstream=True)
    client.xadd("s", {"n": "1"})
    wire.lose = "answer"
    with pytest.raises(ConnectionLost) as lost:
        backend.execute_blocking_read([b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b">"], 1.0)
    assert lost.value.maybe_executed
    assert client.xpending("s", "g")["pending"] == 1


def test_after_close_nothing_is_asked_any_more(backend: RemoteBackend) -> None:
    backend.close()
    start = time.monotonic()
    with pytest.raises(DatabaseClosed):
        backend.request(b"XLEN", b"s")
    assert time.monotonic() - start < 10


def test_a_wrong_password_is_no_lost_connection(server_url: str, client: redis.Redis) -> None:
    port = urlsplit(server_url).port
    client.execute_command("ACL", "SETUSER", "reader", "on", ">right", "~*", "+xlen")
    try:
        wrong = RemoteBackend(f"redis://reader:wrong@127.0.0.1:{port}")
        with pytest.raises(AccessDenied, match="WRONGPASS"):
            wrong.request(b"XLEN", b"s")
        right = RemoteBackend(f"redis://reader:right@127.0.0.1:{port}")
        assert right.request(b"XLEN", b"s") == 0
        with pytest.raises(AccessDenied, match="NOPERM"):
            headrace.Stream(right, "s").add({"n": 1})
    finally:
        client.execute_command("ACL", "DELUSER", "reader")


def test_a_write_to_a_replica_names_its_primary(server_url: str, client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", "1")
    try:
        with headrace.connect(server_url, reconnect_timeout=0.1) as db:
            with pytest.raises(ConnectionLost, match=r"the server is a replica of 127\.0\.0\.1:1 ") as raised:
                db.stream("s").add({"n": 1})
            assert str(raised.value).endswith("XADD was not executed.")
            assert not raised.value.maybe_executed and "cannot be reached" not in str(raised.value)
    finally:
        client.replicaof("NO", "ONE")


def test_pausing(backend: RemoteBackend, stop: Stop) -> None:
    assert not backend.sleep(0.01) and not backend.sleep(0.01, stop)
    threading.Timer(0.05, stop.set).start()
    assert backend.sleep(20, stop)
    assert abs(backend.now_ms() / 1000 - time.time()) < 5


@pytest.mark.parametrize(
    ("request_line", "key", "repeatable"),
    [
        ("XADD s * STREAMS IDMP", b"s", False),
        ("XREAD COUNT 1 STREAMS s 0", b"s", True),
        ("XREADGROUP GROUP g c STREAMS s >", b"s", False),
        ("XINFO STREAM s", b"s", True),
        ("XGROUP CREATE s g 0", b"s", True),
        ("XCLAIM s g c 0 1-1 JUSTID", b"s", True),
        ("XCLAIM s g c 0 1-1", b"s", False),
        ("XCLAIM s g c 5 1-1 JUSTID", b"s", False),
        ("XAUTOCLAIM s g c 0 0-0", b"s", False),
        ("PING", None, True),
        ("INCR n", b"n", False),
        ("xlen s", b"s", True),
    ],
)
def test_what_is_known_of_a_request(request_line: str, key: bytes | None, repeatable: bool) -> None:
    words = request_line.encode().split()
    assert first_key_of_request(words) == key and is_repeatable(words) is repeatable


def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(UsageError, match="http"):
        RemoteBackend("http://127.0.0.1")
    with pytest.raises(UsageError, match="redis-py"):
        RemoteBackend(5)


def test_a_wrong_timeout_for_replicas_is_named_as_it_was_given() -> None:
    with pytest.raises(UsageError, match=r"^replicas_timeout=0: must be more than 0 seconds"):
        headrace.connect("redis://127.0.0.1:1", wait_replicas=1, replicas_timeout=0)
    with headrace.connect("redis://127.0.0.1:1") as db:
        for add in (db.stream("s").add, lambda value, **waits: db.stream("s").add_many([value], **waits)):
            with pytest.raises(UsageError, match=r"^timeout=-1: must be more than 0 seconds"):
                add({"n": 1}, wait_replicas=1, timeout=-1)


def test_many_waiting_readers_leave_connections_for_others(server_url: str, client: redis.Redis) -> None:
    with headrace.connect(server_url) as db:
        stream, stop = db.stream("s"), Stop()
        seen: list[object] = []
        followers = [
            threading.Thread(target=lambda: seen.extend(stream.follow(after="0", stop=stop)))
            for _ in range(110)
        ]
        for follower in followers:
            follower.start()
        try:
            stream.add({"n": 1})
            wait_until(lambda: len(seen) == len(followers))
        finally:
            stop.set()
        for follower in followers:
            follower.join()


def test_a_client_without_free_connections_is_named_at_once(server_url: str) -> None:
    port = urlsplit(server_url).port
    assert port is not None
    with redis.Redis(port=port, max_connections=1) as given, headrace.connect(given) as db:
        stream, stop = db.stream("s"), Stop()

        def follow() -> None:
            while not stop.is_set():
                with suppress(UsageError):  # in the moment in which the other thread adds an entry
                    list(stream.follow(after="$", stop=stop))

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            with pytest.raises(UsageError, match="all 1 connections of the client are in use"):
                wait_until(lambda: db.stream("other").add({"n": 1}) is None)  # until the follower has it
        finally:
            stop.set()
            follower.join()
