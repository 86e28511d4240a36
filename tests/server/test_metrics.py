"""/metrics and /healthz of a running server, read back by Prometheus's own parser."""

from __future__ import annotations

import socket
import struct
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import HeadraceError
from headrace.server.config.config import Config
from headrace.server.main import Server
from headrace.server.observe.metrics_http_server import CONNECTIONS_MAX
from support.waiting import wait_until

Samples = dict[tuple[str, frozenset], float]


@pytest.fixture
def server(start):
    return start("--metrics-port", "free")


def fetch(running, path: str) -> tuple[int, str]:
    port = running.server.parts.metrics.port
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def scrape(running) -> Samples:
    status, text = fetch(running, "/metrics")
    assert status == 200
    families = list(text_string_to_metric_families(text))
    assert len({f.name for f in families}) == len(families)
    samples = [(s.name, frozenset(s.labels.items()), s.value) for f in families for s in f.samples]
    assert len({sample[:2] for sample in samples}) == len(samples)
    return {sample[:2]: sample[2] for sample in samples}


def at(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def test_there_is_none_unless_asked_for(start):
    assert start().server.parts.metrics.servers == []


def test_streams_groups_and_consumers_have_their_figures(server, client):
    for n in range(1, 251):
        client.request("XADD", "orders", f"{n}000-0", "item", "pear")
    client.request("XGROUP", "CREATE", "orders", "billing", "0")
    client.request("XREADGROUP", "GROUP", "billing", "ann", "COUNT", "7", "STREAMS", "orders", ">")
    client.request("SELECT", "3")
    client.request("XADD", "orders", "5-0", "a", "b")
    samples = scrape(server)
    here = {"db": "db0", "stream": "orders"}
    assert at(samples, "redis_up") == 1
    assert at(samples, "redis_stream_length", **here) == 250
    assert at(samples, "redis_stream_length", db="db3", stream="orders") == 1
    info = client.request("SELECT", "0") and client.request("XINFO", "STREAM", "orders")
    about = dict(zip(info[::2], info[1::2], strict=True))
    assert at(samples, "redis_stream_radix_tree_keys", **here) == about[b"radix-tree-keys"]
    assert at(samples, "redis_stream_radix_tree_nodes", **here) == about[b"radix-tree-nodes"]
    assert at(samples, "redis_stream_groups", **here) == 1
    assert at(samples, "redis_stream_last_generated_id", **here) == 250_000
    assert at(samples, "redis_stream_first_entry_id", **here) == 1000
    billing = here | {"group": "billing"}
    assert at(samples, "redis_stream_group_messages_pending", **billing) == 7
    assert at(samples, "redis_stream_group_lag", **billing) == 243
    assert at(samples, "redis_stream_group_consumers", **billing) == 1
    assert at(samples, "redis_stream_group_consumer_messages_pending", **billing, consumer="ann") == 7
    assert at(samples, "headrace_stream_group_oldest_pending_seconds", **billing) is not None
    assert at(samples, "redis_commands_total", cmd="xadd") == 251
    assert at(samples, "redis_db_keys", db="db0") == 1


def test_lost_entries_are_counted(server, client):
    for n in range(1, 9):
        client.request("XADD", "orders", f"{n}-0", "item", "pear")
    client.request("XGROUP", "CREATE", "orders", "g", "0")
    client.request("XREADGROUP", "GROUP", "g", "ann", "COUNT", "2", "STREAMS", "orders", ">")
    client.request("XTRIM", "orders", "MINID", "8")
    client.request("XAUTOCLAIM", "orders", "g", "ann", "0", "0")
    here = {"db": "db0", "stream": "orders", "group": "g"}
    samples = scrape(server)
    assert at(samples, "headrace_stream_group_lost_unread_total", **here) == 5
    assert at(samples, "headrace_stream_group_lost_pending_total", **here) == 2


def test_a_lag_that_cannot_be_told_is_absent(server, client):
    for n in range(1, 6):
        client.request("XADD", "orders", f"{n}-0", "item", "pear")
    client.request("XGROUP", "CREATE", "orders", "known", "0")
    client.request("XGROUP", "CREATE", "orders", "unknown", "2-0")
    samples = scrape(server)
    here = {"db": "db0", "stream": "orders"}
    assert at(samples, "redis_stream_group_lag", **here, group="known") == 5
    assert at(samples, "redis_stream_group_messages_pending", **here, group="unknown") == 0
    assert at(samples, "redis_stream_group_lag", **here, group="unknown") is None
    assert at(samples, "headrace_stream_group_oldest_pending_seconds", **here, group="known") is None


def test_any_name_is_a_label(server, client):
    names = [b'quo"te', b"back\\slash", b"new\nline", b"sp ace{}", b"\xff\xfe", "Straße".encode(), b""]
    for name in names:
        client.request("XADD", name, "1-0", "a", "b")
    samples = scrape(server)
    shown = {dict(labels)["stream"] for name, labels in samples if name == "redis_stream_length"}
    assert shown == {'quo"te', "back\\slash", "new\nline", "sp ace{}", "\\xff\\xfe", "Straße", ""}


def test_health_says_whether_clients_are_served(server, client):
    assert fetch(server, "/healthz") == (200, "ok\n")
    assert fetch(server, "/elsewhere")[0] == 404


def test_while_the_server_does_not_answer_health_is_503(server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.server.observe.metrics.EVENT_LOOP_TIMEOUT_S", 0.05)
    server.server.parts.metrics.accept_pending = lambda: None  # as if the turn were busy
    assert fetch(server, "/healthz")[0] == 503
    assert fetch(server, "/metrics")[0] == 503


def test_a_scrape_leaves_no_client_behind(server, client):
    client.request("PING")
    before = len(server.server.parts.loop.connections)
    for _ in range(5):
        scrape(server)
    wait_until(lambda: len(server.server.parts.loop.connections) == before)


def test_protected_mode_keeps_other_machines_out(server):
    metrics = server.server.parts.metrics
    assert metrics.allows("127.0.0.1") and metrics.allows("::1") and not metrics.allows("192.0.2.1")
    server.server.parts.config.values["protected-mode"] = False
    assert metrics.allows("192.0.2.1")


def test_who_says_nothing_is_thrown_out(server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.server.observe.metrics_http_server.REQUEST_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", server.server.parts.metrics.port), 30) as silent:
        silent.sendall(b"GET /metr")
        assert silent.recv(1) == b""
    assert fetch(server, "/healthz")[0] == 200


def test_silent_connections_keep_no_scraper_out(server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.server.observe.metrics_http_server.REQUEST_SECONDS", 600.0)
    port = server.server.parts.metrics.port
    silent = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(2 * CONNECTIONS_MAX)]
    for one in silent:
        one.sendall(b"GET /metr")
    assert fetch(server, "/healthz") == (200, "ok\n")
    assert fetch(server, "/metrics")[0] == 200
    assert silent[0].recv(1) == b""  # the oldest had to go
    for one in silent:
        one.close()


def test_a_port_that_is_taken_is_an_error(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = Config()
        port = str(taken.getsockname()[1])
        config.read_arguments(["--port", "free", "--bind", "127.0.0.1", "--metrics-port", port])
        config.values["dir"] = str(tmp_path)
        with pytest.raises(HeadraceError, match="for metrics"):
            Server(config).open()


def test_a_password_keeps_nobody_from_the_figures(start):
    running = start("--metrics-port", "free", "--requirepass", "secret")
    client = running.connect()
    assert str(client.request("PING")).startswith("NOAUTH")
    assert fetch(running, "/healthz") == (200, "ok\n")
    assert at(scrape(running), "redis_connected_clients") == 2
    assert client.request("AUTH", "secret") == "OK"
    for n in range(60):  # figures of so many take requests that no stranger may send
        client.request("XADD", f"{n}-{'long' * 100}", "1-0", "a", "b")
    lengths = [labels for name, labels in scrape(running) if name == "redis_stream_length"]
    assert len(lengths) == 60
    assert client.request("ACL", "SETUSER", "default", "-@all") == "OK"
    assert str(client.request("PING")).startswith("NOPERM")
    assert at(scrape(running), "redis_up") == 1


def test_a_scraper_that_goes_away_is_no_news(server, client, capfd: pytest.CaptureFixture[str]):
    for n in range(300):
        client.request("XADD", f"stream-{n}-{'x' * 1000}", "1-0", "a", "b")
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.server.parts.metrics.port), 30) as scraper:
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert fetch(server, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_every_address_has_its_own_door_and_nobody_is_asked_for_names(start, monkeypatch: pytest.MonkeyPatch):
    """Redis's usual `bind * -::*`: the second must leave the first its port."""
    asked = []
    monkeypatch.setattr(socket, "getfqdn", asked.append)
    running = start("--bind", "*", "-::*", "--metrics-port", "free")
    addresses = {server.server_address[:2] for server in running.server.parts.metrics.servers}
    port = running.server.parts.metrics.port
    assert addresses == {("0.0.0.0", port), ("::", port)}
    assert fetch(running, "/healthz") == (200, "ok\n")
    assert asked == []
