"""URLs of servers are understood, with TLS and passwords, and what a server says of other servers is, too."""

from __future__ import annotations

import pathlib
import pickle
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from pyspark.sql.types import LongType, StructField, StructType
from redis_cluster import SLOTS, Certificates, Node
from stream_server import StreamServer

from headrace.client import retry
from headrace.client.connection import RawConnection
from headrace.client.connection_errors import CONNECTION_ERRORS, ServerUnavailable
from headrace.client.retry import ReconnectDelay
from headrace.client.servers import Servers
from headrace.client.url import parse_server_url, without_password
from headrace.errors import UsageError
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.range_reader import RangeReader
from headrace.spark.source.stream_state import StreamState, count_trimmed_after, last_ids, stream_states
from redis_server import free_port
from waiting import wait_until


def test_a_url_names_one_server_a_service_or_a_cluster() -> None:
    one = parse_server_url("rediss://me:p%40ss@h:1/3?ssl_cert_reqs=none")
    assert one.kind == "standalone" and one.settings["password"] == "p@ss" and one.settings["db"] == 3
    service = parse_server_url(
        "sentinel://me:p%40ss@a,b:2,[::1]:3/orders/4?sentinel_password=other&client_name=x"
    )
    assert (service.kind, service.service) == ("sentinel", "orders")
    assert service.hosts == (("a", 26379), ("b", 2), ("::1", 3))
    assert service.settings == {"username": "me", "password": "p@ss", "db": 4, "client_name": "x"}
    assert service.sentinel_settings == {"password": "other"}
    cluster = parse_server_url("clusters://a:1,b?ssl_ca_certs=/x/ca.pem&socket_timeout=2.5")
    assert (cluster.kind, cluster.hosts) == ("cluster", (("a", 1), ("b", 6379)))
    assert cluster.settings == {"ssl": True, "ssl_ca_certs": "/x/ca.pem", "socket_timeout": 2.5}
    assert parse_server_url("unix:///tmp/s?db=2").settings["path"] == "/tmp/s"
    assert parse_server_url("sentinels://a/s").sentinel_settings == {"ssl": True}


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://h",
        "sentinel://a:1",
        "sentinel:///s",
        "cluster://a:1/3",
        "cluster://a:port",
        "cluster://",
        "",
    ],
)
def test_what_is_no_url_of_a_server_is_refused_without_a_connection(url: str) -> None:
    with pytest.raises(UsageError, match="not a server's address"):
        Servers(url)


def test_no_message_shows_a_password() -> None:
    assert without_password("sentinel://me:secret@a:1,b:2/s?sentinel_password=x") == "sentinel://a:1,b:2/s"
    assert "secret" not in repr(Servers("redis://:secret@h:1/2"))
    assert "secret" not in repr(parse_server_url("cluster://:secret@h:1"))
    with pytest.raises(UsageError) as refused:
        Servers("cluster://me:secret@h:port")
    assert "secret" not in str(refused.value)


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
    answers = Servers(stream_server.url).request([*names, "text"], lambda pipe, s: pipe.xlen(s))
    assert isinstance(answers.pop("text"), redis.ResponseError)
    assert answers == {f"s{n}": n + 1 for n in range(20)}
    each = Servers(stream_server.url).request_many(
        names[:3], lambda pipe, s: [pipe.xlen(s) for _ in range(int(s[1]))]
    )
    assert each == {"s0": [], "s1": [2], "s2": [3, 3]}
    assert Servers(stream_server.url).request([], lambda pipe, s: pipe.xlen(s)) == {}


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
    assert servers.scan(".*") == ["s"]
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
    sentinel = subprocess.Popen(["redis-server", str(file), "--sentinel"], stdout=subprocess.DEVNULL)
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


def test_a_server_that_is_restarted_in_mid_read_is_waited_for(start: Callable[..., Node]) -> None:
    node, count = start(), 25_000
    pipe = node.client.pipeline(transaction=False)
    for n in range(count):
        pipe.xadd("s", {"n": n}, id=f"{n + 1}-0")
    pipe.execute()
    node.client.save()
    url = f"redis://127.0.0.1:{node.port}"
    options = parse_options({"url": url, "entriesPerFetch": "500"}, "batch")
    layout = ColumnLayout(StructType([StructField("n", LongType())]), "epoch_ms")
    reading = RangeReader(OffsetRange("s", "0-0", f"{count}-0", False), layout, options).batches()
    seen = next(reading).column("n").to_pylist()
    servers = Servers(url)
    assert last_ids(servers, ["s"]) == {"s": f"{count}-0"}
    node.kill()
    restart = threading.Timer(0.5, node.start)
    restart.start()
    for batch in reading:
        seen += batch.column("n").to_pylist()
    assert seen == list(range(count))
    assert last_ids(servers, ["s"]) == {"s": f"{count}-0"}
    restart.join()


def test_a_wrong_password_is_not_tried_again_and_again(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.client.config_set("requirepass", "right")
    naps: list[float] = []
    monkeypatch.setattr(retry.time, "sleep", naps.append)
    with pytest.raises(redis.AuthenticationError):
        Servers(f"redis://:wrong@127.0.0.1:{node.port}").open_raw("s")
    assert naps == []


def test_patience_doubles_its_pauses_and_starts_anew_after_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(retry.time, "sleep", sleep)
    monkeypatch.setattr(retry.time, "monotonic", lambda: now[0])
    lost = redis.ConnectionError("gone")

    def failing() -> None:
        raise lost

    with pytest.raises(redis.ConnectionError, match="gone"):
        retry.retry_while_lost(10, failing)
    assert sum(naps) == pytest.approx(10) and naps == sorted(naps[:-1]) + naps[-1:]
    waiting = ReconnectDelay(10)
    for _ in range(3):
        waiting.wait(lost)
    waiting.reset()
    waiting.wait(lost)
    assert naps[-1] == naps[0] < naps[-2]


def test_tails_number_the_first_entry_unless_there_are_holes(stream_server: StreamServer) -> None:
    servers = Servers(stream_server.url)

    def first() -> int | None:
        return stream_states(servers, ["s"])["s"].first_number

    stream_server.fill("s", 100)
    assert first() == 1
    stream_server.client.xdel("s", "1000000-0")
    assert first() == 2
    stream_server.client.xtrim("s", maxlen=40, approximate=False)
    assert first() == 61
    stream_server.client.xdel("s", "1000090-0")
    assert first() is None
    stream_server.client.xtrim("s", maxlen=0, approximate=False)
    assert first() == 101
    seen = stream_states(servers, ["s"])["s"]
    assert (seen.last_id, seen.first_id, seen.length, seen.entries_added) == ("1000099-0", None, 0, 100)


def test_losses_are_counted_from_numbers() -> None:
    now = StreamState("9-0", "5-0", 5, 9, "0-0")
    found = [count_trimmed_after("4-0", n, now) for n in (None, 0, 3, 4, 5, 9)]
    assert found == [None, 4, 1, 0, None, None]
    assert count_trimmed_after("4-0", 3, StreamState("9-0", "5-0", 5, None, None)) is None, (
        "an old server does not count"
    )


def test_entries_deleted_one_by_one_are_not_lost() -> None:
    assert count_trimmed_after("4-0", 4, StreamState("9-0", "5-0", 4, 9, "7-0")) == 0, (
        "the one that is missing was deleted"
    )
    assert count_trimmed_after("4-0", 4, StreamState("9-0", "6-0", 3, 9, "7-0")) is None, (
        "of two one may have been trimmed"
    )
    assert count_trimmed_after("4-0", 4, StreamState("9-0", "6-0", 4, 9, "4-0")) == 1, (
        "none was deleted after that ID"
    )
    assert count_trimmed_after("4-0", 4, StreamState("9-0", None, 0, 4, "4-0")) == 0


def test_streams_are_found_by_pattern_and_type(stream_server: StreamServer) -> None:
    pipe = stream_server.client.pipeline(transaction=False)
    for n in range(3000):
        pipe.xadd(f"orders-{n}", {"a": "1"})
    for other in ("orders-", "bids-1", b"orders-\xff"):
        pipe.xadd(other, {"a": "1"})
    pipe.set("orders-3000", "text")
    pipe.execute()
    found = Servers(stream_server.url).scan(r"orders-\d+")
    assert found == sorted(f"orders-{n}" for n in range(3000))
    assert Servers(stream_server.url).scan("orders") == []
