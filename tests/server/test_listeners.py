"""Who gets in, and by which door."""

from __future__ import annotations

import os
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.errors import CommandError, HeadraceError
from headrace.server.network.addresses import is_loopback
from support.waiting import wait_until


def test_one_client_too_many_is_told_so(start):
    server = start("--maxclients", "3")
    clients = [server.connect() for _ in range(3)]
    assert [client.request("PING") for client in clients] == ["PONG"] * 3
    refused = server.connect().reply()
    assert isinstance(refused, CommandError) and str(refused) == "ERR max number of clients reached"
    clients.pop().close()
    wait_until(lambda: len(server.server.parts.loop.connections) == 2)
    assert server.connect().request("PING") == "PONG"
    assert b"rejected_connections:1" in clients[0].request("INFO", "stats")


def test_a_unix_socket_beside_the_port(start, tmp_path: Path):
    path = tmp_path / "headrace.sock"
    server = start("--unixsocket", str(path), "--unixsocketperm", "700")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"
        client.sendall(b"CLIENT INFO\r\n")
        assert f"addr={path}:0".encode() in client.recv(1000)
    assert server.connect().request("PING") == "PONG"
    server.stop()
    assert not path.exists()


def test_a_unix_socket_alone(start, tmp_path: Path):
    path = tmp_path / "headrace.sock"
    server = start("--port", "0", "--unixsocket", str(path))
    assert server.server.parts.listeners.addresses == [str(path)]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"


def test_a_socket_file_left_by_the_dead_is_replaced_and_one_of_the_living_is_not(start, tmp_path: Path):
    path = tmp_path / "headrace.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    start("--unixsocket", str(path))
    with pytest.raises(HeadraceError, match="Address already in use"):
        start("--unixsocket", str(path))


def test_several_addresses_share_the_port(start):
    server = start("--bind", "127.0.0.1", "127.0.0.2", "-192.0.2.1")
    assert server.server.parts.listeners.addresses == [f"127.0.0.1:{server.port}", f"127.0.0.2:{server.port}"]
    with socket.create_connection(("127.0.0.2", server.port)) as client:
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"


def test_an_address_that_is_not_ours_is_an_error(start):
    with pytest.raises(HeadraceError, match=r"cannot listen on 192\.0\.2\.1"):
        start("--bind", "192.0.2.1")


def test_a_port_that_is_taken_is_an_error(start, server):
    with pytest.raises(HeadraceError, match="Address already in use"):
        start("--port", str(server.port))


def test_nothing_to_listen_on_is_an_error(start):
    with pytest.raises(HeadraceError, match="nothing to listen on"):
        start("--port", "0")


@pytest.mark.parametrize(
    ("address", "local"), [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("fe80::1%eth0", False)]
)
def test_what_is_local(address: str, local: bool):
    assert is_loopback(address) is local


def test_out_of_descriptors_clients_are_told_and_the_rest_go_on(start):
    server = start()
    first = server.connect()
    assert first.request("PING") == "PONG"
    waiting = [socket.socket() for _ in range(3)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    holes = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        try:
            while True:
                holes.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for sock in waiting:
            sock.settimeout(30)
            sock.connect(("127.0.0.1", server.port))
            assert sock.recv(100) == b"-ERR max number of clients reached\r\n"
        assert first.request("PING") == "PONG"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in holes:
            os.close(fd)
        for sock in waiting:
            sock.close()
    assert server.connect().request("PING") == "PONG"


def test_without_even_the_spare_descriptor_who_is_in_is_served_and_the_others_wait(start):
    """As when other processes take the last of the system's: here the limit falls below the spare one."""
    server = start()
    first = server.connect()
    assert first.request("PING") == "PONG"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = server.server.parts.listeners.spare_fd
    holes = []
    with socket.socket() as waiting:
        waiting.settimeout(30)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare, before[1]))
            with suppress(OSError):
                while True:
                    holes.append(os.open(os.devnull, os.O_RDONLY))
            waiting.connect(("127.0.0.1", server.port))
            wait_until(lambda: server.server.parts.listeners.spare_fd == -1)
            assert first.request("PING") == "PONG"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for fd in holes:
                os.close(fd)
        waiting.sendall(b"PING\r\n")
        assert waiting.recv(100) == b"+PONG\r\n"
    assert server.connect().request("PING") == "PONG"
    assert server.server.parts.listeners.spare_fd >= 0


def test_clients_of_other_machines_are_told_why_not(server, client, monkeypatch: pytest.MonkeyPatch):
    assert client.request("PING") == "PONG"
    monkeypatch.setattr("headrace.server.network.listeners.is_loopback", lambda address: False)
    refused = server.connect().reply()
    assert isinstance(refused, CommandError) and str(refused).startswith(
        "DENIED headrace accepts only clients on its own machine"
    )
    assert client.request("CONFIG", "SET", "protected-mode", "no") == "OK"
    assert server.connect().request("PING") == "PONG"


def test_a_keepalive_longer_than_the_system_takes_shuts_nobody_out(server, client):
    assert client.request("CONFIG", "SET", "tcp-keepalive", str((1 << 31) - 1)) == "OK"
    assert server.connect().request("PING") == "PONG"
