"""Servers are reached with TLS, passwords and sockets; their streams are found and asked."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from headrace.client import retrying
from headrace.client.connection import RawConnection
from headrace.client.connection_errors import CONNECTION_ERRORS, ServerUnavailable
from headrace.client.servers import Servers
from headrace.positions.stream_state import last_ids
from support.redis_cluster import SLOTS, Certificates, Node
from support.redis_programs import installed_redis
from support.redis_server import free_port, redis_server
from support.stream_server import StreamServer
from support.waiting import wait_until


def test_clients_of_servers_need_no_spark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None; import headrace.client.servers"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})


def test_servers_travel_as_their_url(stream_server: StreamServer) -> None:
    servers = Servers(stream_server.url, reconnect_timeout=3)
    stream_server.fill("s", 2)
    assert last_ids(servers, ["s"]) == {"s": "1000001-0"}
    again = pickle.loads(pickle.dumps(servers))
    assert (again.url, again.reconnect_timeout) == (servers.url, 3)
    assert last_ids(again, ["s"]) == {"s": "1000001-0"}
    servers.close()
    assert last_ids(servers, ["s"]) == {"s": "1000001-0"}, "it connects again when it is used again"


def test_streams_are_asked_in_one_round_trip_and_errors_stay_with_their_stream(
    stream_server: StreamServer,
) -> None:
    for n in range(20):
        stream_server.fill(f"s{n}", n + 1)
    stream_server.client.set("text", "hello")
    names = [f"s{n}" for n in range(20)]
    answers = Servers(stream_server.url).request_each([*names, "text"], lambda pipe, s: pipe.xlen(s))
    assert isinstance(answers.pop("text"), redis.ResponseError)
    assert answers == {f"s{n}": n + 1 for n in range(20)}
    each = Servers(stream_server.url).request_many(
        names[:3], lambda pipe, s: [pipe.xlen(s) for _ in range(int(s[1]))]
    )
    assert each == {"s0": [], "s1": [2], "s2": [3, 3]}
    assert Servers(stream_server.url).request_each([], lambda pipe, s: pipe.xlen(s)) == {}


class Interrupted(int):
    """A number, during whose conversion to text Ctrl-C is pressed."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


def test_a_signal_while_numbers_become_text_does_no_harm(stream_server: StreamServer) -> None:
    stream_server.fill("s", 1)
    servers = Servers(stream_server.url)
    connection = RawConnection(servers, "s")  # hiredis 3.5 crashes
    [found] = connection.exchange([("XREAD", "COUNT", Interrupted(1), "STREAMS", "s", 0)])
    assert len(found) == 1
    connection.send(b"XLEN", b"s", Interrupted(1))
    reply = bytearray(100)
    connection.receive(reply)
    assert b"wrong number of arguments" in reply
    connection.close()
    servers.close()


def test_a_replica_that_rejects_requests_does_not_end_the_search_for_another() -> None:
    with redis_server(None, "--repl-diskless-sync-delay", "0") as primary, contextlib.ExitStack() as stack:
        follow = ("--replicaof", "127.0.0.1", str(primary))
        ports = [stack.enter_context(redis_server(None, *follow)) for _ in range(2)]
        replicas = [stack.enter_context(redis.Redis(port=port)) for port in ports]
        with redis.Redis(port=primary) as client:
            wait_until(lambda: len(client.role()[2]) == 2)
            wait_until(lambda: all(each.role()[3] == b"connected" for each in replicas))
        url = f"redis://127.0.0.1:{primary}"
        replicas[0].execute_command("ACL", "SETUSER", "default", "-ping")
        with Servers(url, reconnect_timeout=0, read_from="replica") as servers:
            assert servers.client().connection_pool.connection_kwargs["port"] == ports[1]
        replicas[1].execute_command("ACL", "SETUSER", "default", "-ping")
        rejected = pytest.raises(redis.exceptions.NoPermissionError)
        with rejected, Servers(url, reconnect_timeout=0, read_from="replica") as servers:
            servers.client()
        for each in replicas:
            wait_until(lambda each=each: len(each.client_list(_type="normal")) == 1)  # all others are closed


def test_a_rejection_is_not_reported_while_another_replica_is_away() -> None:
    follow = ("--repl-diskless-sync-delay", "0")
    with redis_server(None, *follow) as primary, contextlib.ExitStack() as stack:
        options = ("--replicaof", "127.0.0.1", str(primary), "--repl-timeout", "600")
        ports = [stack.enter_context(redis_server(None, *options)) for _ in range(2)]
        replicas = [stack.enter_context(redis.Redis(port=port)) for port in ports]
        with redis.Redis(port=primary) as client:
            wait_until(lambda: len(client.role()[2]) == 2)
        wait_until(lambda: all(each.role()[3] == b"connected" for each in replicas))
        replicas[0].execute_command("ACL", "SETUSER", "default", "-ping")
        replicas[1].config_set("maxclients", 1)  # no other client is accepted
        url = f"redis://127.0.0.1:{primary}"
        with Servers(url, reconnect_timeout=0, read_from="replica") as servers:
            with pytest.raises(ServerUnavailable):
                servers.client()
            replicas[1].config_set("maxclients", 100)
            assert servers.client().connection_pool.connection_kwargs["port"] == ports[1]


def test_waiting_ends_when_an_entry_comes(stream_server: StreamServer) -> None:
    servers = Servers(stream_server.url)
    assert not servers.wait_for_entries({"s": "0-0"}, 20)
    stream_server.fill("s", 1)
    assert servers.wait_for_entries({"s": "0-0", "t": "0-0"}, 60_000)


@pytest.mark.parametrize(
    "refused",
    [
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down",
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down",
    ],
)
def test_a_wire_to_a_server_that_cannot_serve_is_lost(stream_server: StreamServer, refused: str) -> None:
    wire = Servers(stream_server.url).open_raw("s")
    with pytest.raises(ServerUnavailable):
        wire.raise_if_unavailable(refused)
    wire.raise_if_unavailable("WRONGTYPE Operation against a key holding the wrong kind of value")
    wire.raise_if_unavailable("NOASKING Nothing of the kind")
    assert issubclass(ServerUnavailable, CONNECTION_ERRORS)
    wire.close()


def answer(wire: RawConnection, *words: bytes | int) -> bytes:
    wire.send(*words)
    buffer = bytearray(1 << 10)
    return bytes(buffer[: wire.receive(buffer)])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., Node]]:
    """Starts a server for one test."""
    nodes: list[Node] = []

    def run(*words: str, **settings: Any) -> Node:
        nodes.append(Node(tmp_path, *words, **settings))
        return nodes[-1]

    yield run
    for node in nodes:
        node.kill()


def test_one_server_is_reached_with_tls(start: Callable[..., Node], certificates: Certificates) -> None:
    node = start(certificates=certificates)
    node.client.xadd("s", {"a": bytes(100_000)}, id="1-0")
    servers = Servers(f"rediss://127.0.0.1:{node.port}/0{certificates.query()}")
    assert last_ids(servers, ["s"]) == {"s": "1-0"}
    assert answer(servers.open_raw("s"), b"XLEN", b"s") == b":1\r\n"
    stranger = Servers(
        f"rediss://127.0.0.1:{node.port}?ssl_ca_certs={certificates.authority}", reconnect_timeout=0
    )
    with pytest.raises(CONNECTION_ERRORS):
        answer(stranger.open_raw("s"), b"XLEN", b"s")  # a server that asks for certificates gets none


def test_a_cluster_is_reached_with_tls_and_a_password(
    start: Callable[..., Node], certificates: Certificates
) -> None:
    words = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", str(free_port())]
    node = start(*words, certificates=certificates)
    node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
    wait_until(
        lambda: b"cluster_state:ok" in node.client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True), "it"
    )
    node.client.xadd("s", {"a": "1"}, id="1-0")
    node.client.config_set("requirepass", "secret")
    place = f"127.0.0.1:1,127.0.0.1:{node.port}{certificates.query()}"
    servers = Servers(f"clusters://:secret@{place}")
    assert last_ids(servers, ["s", "t"]) == {"s": "1-0"}
    assert servers.matching_streams(".*") == ["s"]
    assert answer(servers.open_raw("s"), b"XLEN", b"s") == b":1\r\n"
    with pytest.raises(CONNECTION_ERRORS):
        last_ids(Servers(f"clusters://{place}", reconnect_timeout=0), ["s"])


def test_a_service_is_reached_with_tls_and_a_user_of_ones_own(
    start: Callable[..., Node], certificates: Certificates, tmp_path: pathlib.Path
) -> None:
    node = start("--tls-replication", "yes", certificates=certificates)
    node.client.xadd("s", {"a": "1"}, id="1-0")
    node.client.acl_setuser("reader", enabled=True, passwords=["+p@ss"], keys=["*"], commands=["+@all"])
    port = free_port()
    file = tmp_path / "sentinel.conf"
    tls = [
        " ".join(pair)
        for pair in zip(*[iter(w.removeprefix("--") for w in certificates.server_words())] * 2, strict=True)
    ]
    lines = ["port 0", f"tls-port {port}", "tls-replication yes", *tls]
    lines += [f"sentinel monitor orders 127.0.0.1 {node.port} 1", "requirepass theirs"]
    file.write_text("\n".join(lines) + "\n")
    sentinel = subprocess.Popen([installed_redis(), str(file), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        servers = Servers(
            f"sentinels://reader:p%40ss@127.0.0.1:{port}/orders{certificates.query()}&sentinel_password=theirs"
        )
        assert last_ids(servers, ["s"]) == {"s": "1-0"}
        assert answer(servers.open_raw("s"), b"ACL", b"WHOAMI") == b"$6\r\nreader\r\n"
    finally:
        sentinel.kill()
        sentinel.wait()


def test_a_server_is_reached_by_a_socket_in_the_file_system(
    start: Callable[..., Node], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "socket"
    node = start("--unixsocket", str(path))
    node.client.execute_command("SELECT", 2)
    redis.Redis(port=node.port, db=2).xadd("s", {"a": "1"}, id="1-0")
    assert last_ids(Servers(f"unix://{path}?db=2"), ["s"]) == {"s": "1-0"}
    assert answer(Servers(f"unix://{path}?db=2").open_raw("s"), b"XLEN", b"s") == b":1\r\n"
    assert last_ids(Servers(f"unix://{path}"), ["s"]) == {}


def test_a_wrong_password_is_not_tried_again_and_again(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.client.config_set("requirepass", "right")
    naps: list[float] = []
    monkeypatch.setattr(retrying.time, "sleep", naps.append)
    with pytest.raises(redis.AuthenticationError):
        Servers(f"redis://:wrong@127.0.0.1:{node.port}").open_raw("s")
    assert naps == []


def test_streams_are_found_by_pattern_and_type(stream_server: StreamServer) -> None:
    pipe = stream_server.client.pipeline(transaction=False)
    for n in range(3000):
        pipe.xadd(f"orders-{n}", {"a": "1"})
    for other in ("orders-", "bids-1", b"orders-\xff"):
        pipe.xadd(other, {"a": "1"})
    pipe.set("orders-3000", "text")
    pipe.execute()
    found = Servers(stream_server.url).matching_streams(r"orders-\d+")
    assert found == sorted(f"orders-{n}" for n in range(3000))
    assert Servers(stream_server.url).matching_streams("orders") == []
