"""rediss:// addresses reach Headrace and redis-server with a private CA, by every entry point."""

from __future__ import annotations

import re
import ssl
import urllib.request
from pathlib import Path

import pytest
import redis

import headrace
from headrace.cli.main import main
from headrace.client.servers import servers_at
from headrace.errors import HeadraceError
from server.tls_clients import Town
from support.redis_server import redis_server


def url_of(town: Town, port: int) -> str:
    """An address that says whom to trust and what to show."""
    files = {"ca_certs": town.authority.file, "certfile": town.ann.file, "keyfile": town.ann.key}
    query = "&".join(f"ssl_{name}={path}" for name, path in files.items())
    return f"rediss://127.0.0.1:{port}?{query}"


@pytest.fixture(params=["headrace", "redis-server"])
def port(request: pytest.FixtureRequest, start_tls) -> int:
    if request.param == "headrace":
        return start_tls().tls_port
    found: int = request.getfixturevalue("redis_port")
    return found


def test_a_program_reaches_it(town: Town, port: int):
    with headrace.connect(url_of(town, port)) as db:
        orders = db.stream("orders")
        orders.add({"item": b"pear" * 50_000})
        assert len(orders) == 1
        with redis.Redis.from_url(url_of(town, port)) as client:
            assert client.xlen("orders") == 1
            client.flushall()


def test_the_commands_of_the_program_reach_it(
    town: Town, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = tmp_path / "orders.jsonl"
    rows.write_text("".join(f'{{"time": "2026-03-01T09:00:{n:02}", "item": "pear"}}\n' for n in range(50)))
    url = url_of(town, port)
    assert main(["load", str(rows), "--stream", "orders", "--url", url]) == 0
    assert main(["top", "--once", "--every", "0.1", "--url", url]) == 0
    assert "orders" in capsys.readouterr().out
    with redis.Redis.from_url(url) as client:
        assert client.xlen("orders") == 50
        client.flushall()


def test_inspect_reaches_ours(town: Town, start_tls, capsys: pytest.CaptureFixture[str]):
    server = start_tls()
    assert server.connect_tls(town.context()).request("XADD", "orders", "1-1", "item", "pear") == b"1-1"
    assert main(["inspect", "orders", "--url", url_of(town, server.tls_port)]) == 0
    assert "1 entry" in capsys.readouterr().out


def test_an_authority_that_is_not_trusted_is_said_in_one_line(
    town: Town, port: int, capsys: pytest.CaptureFixture[str]
):
    url = url_of(town, port).replace(str(town.authority.file), str(town.others.file))
    assert main(["top", "--once", "--every", "0.1", "--url", url]) == 1
    said = capsys.readouterr().err
    assert "certificate verify failed" in said and "Traceback" not in said
    assert str(town.ann.key) not in said
    with pytest.raises(HeadraceError, match="certificate verify failed"):
        headrace.connect(url).stream("orders").add({"item": "pear"})


def test_the_metrics_port_speaks_plain_http(town: Town, start_tls):
    server = start_tls("--metrics-port", "free")
    url = f"http://127.0.0.1:{server.server.parts.metrics.port}/healthz"
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.status == 200
    assert isinstance(server.connect_tls(town.context()).sock, ssl.SSLSocket)


WRONG_ADDRESSES = {
    "rediss://127.0.0.1:{tls}": "?ssl_ca_certs=FILE",
    "rediss://127.0.0.1:{tls}?ssl_ca_certs={ca}": "?ssl_certfile=FILE&ssl_keyfile=FILE",
    "rediss://127.0.0.1:{tls}?ssl_ca_certs=/nowhere/ca.pem": "there is no '/nowhere/ca.pem'",
    "rediss://127.0.0.1:{tls}?ssl_ca_cert={ca}": "did you mean 'ssl_ca_certs'?",
    "rediss://127.0.0.1:{plain}?ssl_ca_certs={ca}": "this port does not use TLS: write redis://",
    "redis://127.0.0.1:{tls}": "write rediss://",
}


@pytest.mark.parametrize("address", WRONG_ADDRESSES)
def test_a_wrong_address_says_what_to_do(
    town: Town, start_tls, capsys: pytest.CaptureFixture[str], address: str
):
    server = start_tls("--port", "free")
    url = address.format(tls=server.tls_port, plain=server.port, ca=town.authority.file)
    assert main(["ls", "--url", url]) != 0
    [line] = capsys.readouterr().err.splitlines()
    assert WRONG_ADDRESSES[address] in line
    with pytest.raises(HeadraceError, match=re.escape(WRONG_ADDRESSES[address])):
        headrace.connect(url).stream("orders").add({"item": "pear"})


def test_a_wrong_address_of_a_redis_server_says_what_to_do(town: Town, redis_port: int) -> None:
    with redis_server() as plain:
        for url, text in (
            (f"redis://127.0.0.1:{redis_port}", "if its port is for TLS, write rediss://"),
            (f"cluster://127.0.0.1:{redis_port}", "if its port is for TLS, write clusters://"),
            (
                f"{url_of(town, plain)}&socket_connect_timeout=1",
                "if this port does not use TLS, write redis://",
            ),
        ):
            with pytest.raises(HeadraceError, match=text):
                headrace.connect(url).stream("orders").add({"item": "pear"})
            with pytest.raises(HeadraceError, match=text), servers_at(url) as servers:
                servers.client().ping()
