"""CONFIG SET port and tls-port: the old door closes, the new one opens, who is in stays."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import redis

from headrace.errors import CommandError, UsageError
from headrace.server.config.config import Config

CANNOT = "ERR CONFIG SET failed (possibly related to argument '{}') - {}"
NO_PORT = "Unable to listen on this port. Check server logs."


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(30)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def shown(client, name: str) -> int:
    return int(client.request("CONFIG", "GET", name)[1])


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_the_server_moves_to_another_port_and_its_clients_stay(start, dial, tmp_path: Path):
    server = start("--port-file", str(tmp_path / "port"))
    old, client = server.port, server.connect()
    assert client.request("CONFIG", "SET", "port", "free") == "OK"
    new = shown(client, "port")
    assert new not in (0, old)
    assert not is_open(old)
    assert dial(new).request("PING") == client.request("PING") == "PONG"
    info = client.request("INFO", "server")
    assert b"tcp_port:%d\r\n" % new in info and b"name=tcp,bind=127.0.0.1,port=%d\r\n" % new in info
    assert (tmp_path / "port").read_text() == f"{new}\n"
    assert server.server.parts.listeners.addresses == [f"127.0.0.1:{new}"]
    server.stop()
    assert list(tmp_path.iterdir()) == []


def test_who_finds_the_directory_taken_is_told_of_the_new_port(start):
    server = start("--appendonly", "yes")
    old, client = server.port, server.connect()
    assert client.request("CONFIG", "SET", "port", "free") == "OK"
    with pytest.raises(UsageError) as refused:
        start("--appendonly", "yes")
    assert f"127.0.0.1:{shown(client, 'port')}" in str(refused.value) and f":{old}" not in str(refused.value)


def test_a_port_that_cannot_be_had_leaves_all_as_it_was(server, client, taken: int, server_url: str):
    words = ["CONFIG", "SET", "timeout", "7", "port", str(taken)]
    refused = client.request(*words)
    with redis.Redis.from_url(server_url) as theirs, pytest.raises(redis.ResponseError) as told:
        theirs.execute_command(*words)
    assert str(refused) == f"ERR {told.value}" == CANNOT.format("port", NO_PORT)
    assert client.request("CONFIG", "GET", "timeout") == [b"timeout", b"0"]
    assert shown(client, "port") == server.port
    assert server.connect().request("PING") == "PONG"


def test_the_same_port_is_no_other(server, client):
    before = server.server.parts.listeners.sockets["port"]
    assert client.request("CONFIG", "SET", "port", str(server.port), "hz", "20") == "OK"
    assert server.server.parts.listeners.sockets["port"] is before


def test_the_port_can_be_closed_and_opened_again(server, client):
    old = server.port
    assert client.request("CONFIG", "SET", "port", "0") == "OK"
    assert not is_open(old)
    assert b"tcp_port:0\r\n" in client.request("INFO", "server")
    assert client.request("CONFIG", "SET", "port", str(old)) == "OK"
    assert server.connect().request("PING") == "PONG"


def test_both_move_or_none(start_tls, town, taken: int):
    server = start_tls()
    client = server.connect_tls(town.context())
    refused = client.request("CONFIG", "SET", "port", "free", "tls-port", str(taken))
    assert isinstance(refused, CommandError) and str(refused) == CANNOT.format("tls-port", NO_PORT)
    assert (shown(client, "port"), shown(client, "tls-port")) == (0, server.tls_port)
    assert server.server.parts.listeners.addresses == [f"127.0.0.1:{server.tls_port} (TLS)"]
    assert server.connect_tls(town.context()).request("PING") == "PONG"


def test_tls_begins_under_a_running_server(server, client, town, dial_tls):
    refused = client.request("CONFIG", "SET", "tls-port", "free")
    assert "tls-port needs a tls-cert-file" in str(refused)
    words = [word.removeprefix("--") for word in town.server_words()]
    assert client.request("CONFIG", "SET", "tls-port", "free", *words) == "OK"
    encrypted = dial_tls(shown(client, "tls-port"), town.context())
    assert encrypted.request("PING") == "PONG"
    assert client.request("CONFIG", "SET", "tls-port", "0") == "OK"
    assert encrypted.request("PING") == "PONG"
    assert server.server.parts.listeners.addresses == [f"127.0.0.1:{server.port}"]
    # Without a port for it a certificate is nobody's: it is read when there is one.
    assert client.request("CONFIG", "SET", "tls-cert-file", "/nowhere") == "OK"
    refused = client.request("CONFIG", "SET", "tls-port", "free")
    assert "/nowhere: No such file or directory" in str(refused)
    assert shown(client, "tls-port") == 0


def test_a_certificate_that_is_gone_keeps_no_port_open(start_tls, town, tmp_path: Path):
    certificate = tmp_path / "server.pem"
    certificate.write_bytes(town.server.file.read_bytes())
    server = start_tls("--tls-cert-file", str(certificate))
    client = server.connect_tls(town.context())
    certificate.unlink()
    assert client.request("CONFIG", "SET", "tls-port", "0", "port", "free") == "OK"
    assert not is_open(server.tls_port)
    assert client.request("PING") == "PONG"
    refused = client.request("CONFIG", "SET", "tls-port", "free")
    assert f"{certificate}: No such file or directory" in str(refused)


def test_a_log_that_cannot_begin_takes_the_port_back(start, tmp_path: Path):
    server = start()
    client = server.connect()
    (tmp_path / "appendonlydir").touch()
    refused = client.request("CONFIG", "SET", "port", "free", "appendonly", "yes")
    assert isinstance(refused, CommandError)
    assert shown(client, "port") == server.port
    assert server.connect().request("PING") == "PONG"


def test_the_new_port_is_written_to_the_file(start, tmp_path: Path):
    file = tmp_path / "headrace.conf"
    file.write_text("port free\n")
    server = start()
    server.server.parts.config.file = str(file)
    client = server.connect()
    assert client.request("CONFIG", "SET", "port", "free") == "OK"
    assert client.request("CONFIG", "REWRITE") == "OK"
    config = Config()
    config.read_file(str(file))
    assert config.values["port"] == "free"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert client.request("CONFIG", "SET", "port", str(port)) == "OK"
    assert client.request("CONFIG", "REWRITE") == "OK"
    config = Config()
    config.read_file(str(file))
    assert config.values["port"] == port
