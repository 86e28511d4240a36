"""Clients that drip, that never read, that come in masses: who behaves is served, and memory has a bound."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from headrace.errors import CommandError
from headrace.limits import UNSENT_BYTES_MAX, UNSENT_BYTES_OF_ALL_MAX
from stress.real_server import LONG, RealServer
from support.speaking import Client, encoded
from support.waiting import wait_until

pytestmark = pytest.mark.whole

DRIPPING = 1000
DRIP_S = 1.0 if LONG else 0.05
DRIPS = 60 if LONG else 10
CLIENT_BYTES_MAX = 16 << 10  # of memory that one dripping client may cost
ENTRY = "v" * 1000


def connections(port: int, n: int, receive_bytes: int = 0) -> list[socket.socket]:
    """So many plain sockets."""
    return [Client.to(port, receive_bytes).sock for _ in range(n)]


def close(sockets: list[socket.socket]) -> None:
    """All of them."""
    for sock in sockets:
        sock.close()


def is_open(sock: socket.socket) -> bool:
    """Whether the server has not closed it. What it has sent is thrown away."""
    sock.setblocking(False)
    try:
        while sock.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def count(admin: Client, field: str) -> int:
    """A number of INFO."""
    return int(admin.info()[field])


def test_a_thousand_that_send_a_byte_at_a_time(launch):
    """Each costs its few bytes; who sends whole requests notices nothing."""
    server = launch()
    admin = server.client()
    assert admin.ask("PING") == "PONG"
    before, descriptors = server.rss(), server.descriptors()
    request = encoded("XADD", "drip", "*", "field", "value" * 30)
    drippers = connections(server.port, DRIPPING)
    for at in range(DRIPS):
        for sock in drippers:
            sock.send(request[at : at + 1])
        begun = time.monotonic()
        while time.monotonic() - begun < DRIP_S:
            assert isinstance(admin.ask("XADD good * n 1"), bytes)
            time.sleep(0.005)
    assert count(admin, "connected_clients") == DRIPPING + 1
    assert server.rss() - before < DRIPPING * CLIENT_BYTES_MAX
    assert admin.ask("EXISTS drip") == 0
    for sock in drippers:  # none of them was cut off, or mixed up with another
        sock.send(request[DRIPS:])
    wait_until(lambda: admin.ask("XLEN drip") == DRIPPING)
    close(drippers)
    wait_until(lambda: server.descriptors() == descriptors)


def test_timeout_ends_those_who_drip(launch):
    """A byte is no request: who sends but bytes is idle."""
    server = launch("--timeout", "1")
    admin = server.client()
    drippers = connections(server.port, 200)
    deadline = time.monotonic() + 30
    while any(is_open(sock) for sock in drippers):
        assert time.monotonic() < deadline
        for sock in drippers:
            with contextlib.suppress(OSError):
                sock.send(b"X")
        assert admin.ask("PING") == "PONG"
        time.sleep(0.1)
    assert count(admin, "connected_clients") == 1
    close(drippers)


def test_who_reads_a_byte_at_a_time_or_never_is_given_no_more(launch):
    """Answers stay with the server up to a mebibyte; then his requests wait, and nobody else's."""
    server = launch()
    admin = server.client()
    for _ in range(300):
        admin.request("XADD", "long", "*", "v", ENTRY)
    before = server.rss()
    readers = connections(server.port, 20, receive_bytes=4096)
    for sock in readers:
        sock.send(encoded("XRANGE", "long", "-", "+") * 100)  # 30 MB of answers each
    for _ in range(DRIPS):
        for sock in readers[::2]:
            assert len(sock.recv(1)) == 1
        assert admin.ask("XLEN long") == 300
        time.sleep(DRIP_S)
    most = (
        UNSENT_BYTES_OF_ALL_MAX + len(readers) * (UNSENT_BYTES_MAX + 400 * len(ENTRY))
    ) * 2  # a buffer is up to twice what is in it
    assert server.rss() - before < most
    assert count(admin, "connected_clients") == len(readers) + 1
    whole = admin.request("XRANGE", "long", "-", "+")
    assert isinstance(whole, list) and len(whole) == 300
    good = Client.to(server.port)  # who reads gets all, of the same requests
    good.send(encoded("XRANGE", "long", "-", "+") * 20)
    assert all(good.reply() == whole for _ in range(20))
    good.close()
    close(readers)
    wait_until(lambda: count(admin, "connected_clients") == 1)
    assert [line for line in server.log() if "ERROR" in line] == []


@pytest.mark.parametrize("how", ["SUBSCRIBE news", "PSUBSCRIBE n*", "MONITOR"])
def test_a_listener_that_never_reads_is_thrown_out(launch, how: str):
    """Nobody can make who sends the news wait: so there is a limit, 32 MB if nothing else is said."""
    server = launch("--client-output-buffer-limit", "pubsub", "1mb", "0", "0")
    admin = server.client()
    deaf, hearing = connections(server.port, 3, receive_bytes=4096), Client.to(server.port)
    for sock in [*deaf, hearing.sock]:
        sock.sendall(encoded(*how.split()))
    hearing.reply()
    wait_until(lambda: count(admin, "connected_clients") == 5)
    heard = 0
    for n in range(1000):
        admin.request("PUBLISH", "news", f"{n} {ENTRY * 10}")
        answer = hearing.reply()
        heard += isinstance(answer, list | str)
    assert heard == 1000
    wait_until(lambda: count(admin, "connected_clients") == 2)
    assert (
        len(
            [
                line
                for line in server.log()
                if "more reply bytes unread than client-output-buffer-limit" in line
            ]
        )
        == 3
    )
    close([*deaf, hearing.sock])


def test_a_reader_past_the_limit_for_him_is_thrown_out(launch):
    server = launch("--client-output-buffer-limit", "normal", "200kb", "0", "0")
    admin = server.client()
    for _ in range(1000):
        admin.request("XADD", "long", "*", "v", ENTRY)
    with Client.to(server.port, receive_bytes=4096) as deaf:
        deaf.send(encoded("XRANGE", "long", "-", "+") * 10)
        wait_until(lambda: count(admin, "connected_clients") == 1)
    assert admin.ask("XLEN long") == 1000


def flood(server: RealServer, n: int) -> tuple[list[socket.socket], int]:
    """So many more connections; those that were let in, and how many were told that there is no room."""
    admitted, refused = [], 0
    for sock in connections(server.port, n):
        sock.sendall(encoded("PING"))
        told = b""
        with contextlib.suppress(ConnectionError):
            told = sock.recv(100)
        if told == b"+PONG\r\n":
            admitted.append(sock)
            continue
        assert (
            told == b"-ERR max number of clients reached\r\n" or told == b""
        )  # a reset can overtake the text
        refused += 1
        sock.close()
    return admitted, refused


def test_a_flood_of_connections_leaves_those_inside_alone(launch):
    server = launch("--maxclients", "100")
    inside = [server.client() for _ in range(100)]
    assert [client.ask("PING") for client in inside] == ["PONG"] * 100
    descriptors = server.descriptors()
    told = server.client().reply()
    assert isinstance(told, CommandError) and str(told) == "ERR max number of clients reached"
    for _ in range(3):
        assert flood(server, 500) == ([], 500)
        assert all(isinstance(client.ask("XADD s * n 1"), bytes) for client in inside)
    assert count(inside[0], "rejected_connections") == 1501
    wait_until(lambda: server.descriptors() == descriptors)
    for client in inside[50:]:
        client.close()
    wait_until(lambda: count(inside[0], "connected_clients") == 50)
    admitted, refused = flood(server, 60)
    assert (len(admitted), refused) == (50, 10)
    close(admitted)
    assert inside[0].ask("XLEN s") == 300
