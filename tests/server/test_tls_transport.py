"""Whatever goes over a plain connection goes over an encrypted one: big, split, held back, cut off."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import limits
from headrace.errors import CommandError
from headrace.server.loop.tls_connection import TlsConnection
from server.tls_clients import Town, Wire, by_hand
from support.speaking import encoded
from support.waiting import wait_until


@pytest.fixture
def server(start_tls):
    return start_tls()


@pytest.fixture
def client(server, town: Town):
    return server.connect_tls(town.context())


@pytest.fixture
def wire(server, town: Town) -> Iterator[Wire]:
    """A client whose handshake is over."""
    made = Wire(server.tls_port, town.context())
    made.shake()
    yield made
    made.close()


def test_sixty_four_megabytes_there_and_back(client):
    value = bytes(range(256)) * (1 << 18)
    # Not from a second thread: OpenSSL does not allow two threads in one connection, and Python 3.11 does not
    # prevent it. The server replies only to whole requests, so sending cannot wait for reading.
    client.send(encoded("SET", "big", value) + encoded("GET", "big"))
    assert read_exactly(client, 5) == b"+OK\r\n"
    head = b"$%d\r\n" % len(value)
    assert read_exactly(client, len(head)) == head
    assert hashlib.sha256(read_exactly(client, len(value))).digest() == hashlib.sha256(value).digest()
    assert read_exactly(client, 2) == b"\r\n"


def read_exactly(client, n: int) -> bytes:
    data = bytearray(n)
    view = memoryview(data)
    at = 0
    while at < n:
        got = client.sock.recv_into(view[at:])
        assert got, "the server closed the connection"
        at += got
    return bytes(data)


def test_ten_thousand_requests_in_one_go(client):
    client.send(encoded("INCR", "n") * 10_000)
    assert [client.reply() for _ in range(10_000)] == list(range(1, 10_001))


def test_a_request_may_arrive_one_record_a_byte(client):
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in encoded("ECHO", "slowly"):
        client.send(bytes([byte]))
    assert client.reply() == b"slowly"


def test_many_records_in_one_segment_leave_nothing_behind(wire: Wire):
    """What OpenSSL has read and not handed out, no event would tell of."""
    wire.sock.sendall(b"".join(wire.record(encoded("INCR", "n")) for _ in range(500)))
    expected = b"".join(b":%d\r\n" % n for n in range(1, 501))
    assert wire.read(len(expected)) == expected


def test_a_record_may_be_cut_anywhere(wire: Wire):
    for cut in (1, 3, 5, 6, 20):
        record = wire.record(encoded("ECHO", "hello")) + wire.record(encoded("PING"))
        wire.sock.sendall(record[:cut])
        wire.sock.sendall(record[cut:-cut])
        wire.sock.sendall(record[-cut:])
        assert wire.read(18) == b"$5\r\nhello\r\n+PONG\r\n"


def test_full_records_just_before_a_cut_one_fit_into_one_turn(wire: Wire):
    """The most that can come out of one read: a part that waited, and a whole buffer behind it."""
    value = bytes(range(256)) * 1024
    request = encoded("ECHO", value)
    sealed = b"".join(wire.record(request[at : at + 16384]) for at in range(0, len(request), 16384))
    wire.sock.sendall(sealed[:16000])
    wire.sock.sendall(sealed[16000:])
    expected = b"$%d\r\n%s\r\n" % (len(value), value)
    assert wire.read(len(expected)) == expected


def test_a_slow_reader_stalls_nobody_and_gets_everything(server, client, town: Town):
    value = b"x" * 100_000
    assert client.request("SET", "big", value) == "OK"
    slow = server.connect_tls(town.context())
    slow.send(encoded("GET", "big") * 300)
    for _ in range(100):
        assert client.request("PING") == "PONG"
    assert all(slow.reply() == value for _ in range(300))


def test_a_socket_with_little_room_gets_all_of_it(town: Town, tmp_path: Path):
    """The server's part of the handshake waits for room, and so does the end of a connection."""
    chain = tmp_path / "chain.pem"
    chain.write_bytes(town.server.file.read_bytes() + town.authority.file.read_bytes() * 100)
    value = bytes(range(256)) * 2000
    heard = b""
    with by_hand(tmp_path, *town.server_words(), "--tls-cert-file", str(chain)) as server:
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.setblocking(False)
        theirs.settimeout(10)
        secured = server.parts.listeners.tls.new_connection()
        server.parts.loop.add_connection(ours.detach(), b"nowhere:1", b"nowhere:2", secured)
        wire = Wire(0, town.context(), sock=theirs)

        def converse() -> None:
            nonlocal heard
            wire.shake()
            wire.sock.sendall(wire.record(encoded("ECHO", value)) + wire.record(encoded("QUIT")))
            heard = wire.read(len(value) * 2)

        worker = threading.Thread(target=converse)
        worker.start()
        while worker.is_alive():
            server.parts.loop.run_once(10)
        worker.join()
        wire.close()
    assert heard == b"$%d\r\n%s\r\n+OK\r\n" % (len(value), value)


def test_requests_that_come_while_a_reply_is_sent_do_not_repeat_it(town: Town, tmp_path: Path):
    """A read flushes what was left of a reply: the next write must not encrypt the same bytes again."""
    value = bytes(range(256)) * 200
    with by_hand(tmp_path, *town.server_words()) as server:
        loop = server.parts.loop
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.setblocking(False)
        theirs.settimeout(10)
        loop.add_connection(
            ours.detach(), b"nowhere:1", b"nowhere:2", server.parts.listeners.tls.new_connection()
        )
        wire = Wire(0, town.context(), sock=theirs)
        shaking = threading.Thread(target=wire.shake)
        shaking.start()
        while shaking.is_alive():
            loop.run_once(10)
        shaking.join()
        theirs.setblocking(False)
        heard, requests = b"", [encoded("ECHO", value)] + [encoded("PING")] * 100
        for request in requests:
            theirs.sendall(wire.record(request))
            loop.run_once(0)
            heard += read_available(wire)
        while server.parts.loop.connections and (more := read_after_turn(server, wire)):
            heard += more
        wire.close()
    assert heard == b"$%d\r\n%s\r\n" % (len(value), value) + b"+PONG\r\n" * 100


def read_after_turn(server, wire: Wire) -> bytes:
    server.parts.loop.run_once(0)
    return read_available(wire)


def read_available(wire: Wire) -> bytes:
    """Return the text of the records that have arrived completely."""
    text = b""
    while True:
        try:
            text += wire.wire.read(1 << 16)
        except ssl.SSLWantReadError:
            try:
                wire.incoming.write(wire.sock.recv(1 << 16))
            except BlockingIOError:
                return text


def test_a_client_that_does_not_read_gets_no_more_executed(server, client, town: Town):
    assert client.request("SET", "big", b"x" * 500_000) == "OK"
    greedy = server.connect_tls(town.context())
    greedy.send((encoded("GET", "big") + encoded("INCR", "n")) * 100)
    wait_until(lambda: client.request("GET", "n") is not None)
    held = max(c.session.reply.pending_bytes() for c in server.server.parts.loop.connections.values())
    assert held <= limits.UNSENT_BYTES_MAX + limits.UNSENT_BYTES_OF_ALL_MAX // 3 + 600_000
    for n in range(1, 101):
        assert len(greedy.reply()) == 500_000
        assert greedy.reply() == n


def test_channels_and_monitors_and_blocked_readers(server, client, town: Town):
    listener, monitor, reader = (server.connect_tls(town.context()) for _ in range(3))
    assert listener.request("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]
    assert monitor.request("MONITOR") == "OK"
    reader.send(encoded("XREAD", "BLOCK", "0", "STREAMS", "orders", "$"))
    wait_until(lambda: any(c.session.waiter for c in server.server.parts.loop.connections.values()))
    assert client.request("PUBLISH", "news", b"n" * 10_000) == 1
    assert listener.reply() == [b"message", b"news", b"n" * 10_000]
    assert client.request("XADD", "orders", "1-0", "item", "pear") == b"1-0"
    assert reader.reply() == [[b"orders", [[b"1-0", [b"item", b"pear"]]]]]
    lines = [str(monitor.reply()) for _ in range(3)]
    assert "BLOCK" in lines[0] and "PUBLISH" in lines[1] and '"pear"' in lines[2]


def test_an_answer_waits_until_the_log_is_safe(start_logging, town: Town):
    running, disk = start_logging("--tls-port", "free", *town.server_words())
    client, other = (running.connect_tls(town.context()) for _ in range(2))
    value = b"v" * 200_000
    disk.full = True
    client.send(encoded("SET", "k", value) + encoded("GET", "k"))
    wait_until(lambda: running.server.parts.durability.failure)
    client.send(encoded("PING"))
    assert other.request("GET", "k") == value
    client.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.reply()
    client.sock.settimeout(30)
    disk.full = False
    assert (client.reply(), client.reply(), client.reply()) == ("OK", value, "PONG")


def test_the_last_word_may_come_with_the_last_request(server, wire: Wire):
    """The socket stays open and silent: no event would tell of the end that was said."""
    requests = wire.record(encoded("INCR", "n") * 3)
    wire.sock.sendall(requests + wire.close_notify())
    assert wire.read(100) == b":1\r\n:2\r\n:3\r\n"  # and then the server's own last word
    wait_until(lambda: not server.server.parts.loop.connections)


def test_one_who_waits_and_says_the_last_word_is_gone(server, wire: Wire):
    wire.sock.sendall(wire.record(encoded("BLPOP", "list", "0") + encoded("PING")) + wire.close_notify())
    wait_until(lambda: not server.server.parts.loop.connections)


def test_a_connection_cut_off_without_the_last_word_is_gone(server, wire: Wire):
    wire.sock.sendall(wire.record(encoded("SET", "k", "v"))[:-4])
    wire.sock.shutdown(socket.SHUT_WR)
    wait_until(lambda: not server.server.parts.loop.connections)
    assert not server.server.parts.engine.stats.command_count


@pytest.mark.parametrize(("said", "expected"), [(False, -2), (True, 0)])
def test_an_end_is_only_one_if_it_was_said(town: Town, said: bool, expected: int):
    """Who cuts a connection need not be the client: only its own last word is an end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(town.server.file, town.server.key)
    buffers = ssl.MemoryBIO(), ssl.MemoryBIO()
    secure = TlsConnection(*buffers, context.wrap_bio(*buffers, server_side=True), lambda connection: None)
    scratch = bytearray(1 << 16)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    wire = Wire(0, town.context(), sock=theirs)
    worker = threading.Thread(target=wire.shake)
    worker.start()
    wait_until(lambda: secure.read(ours.fileno(), scratch) == -1 and not secure.handshaking)
    worker.join()
    if said:
        theirs.sendall(wire.close_notify())
    theirs.shutdown(socket.SHUT_WR)
    assert secure.read(ours.fileno(), scratch) == expected
    assert secure.error == ""
    wire.close()
    ours.close()


def test_a_changed_record_ends_the_connection(server, wire: Wire):
    record = bytearray(wire.record(encoded("SET", "k", "v")))
    record[-1] ^= 1
    wire.sock.sendall(record)
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        wire.read(1)
    wait_until(lambda: not server.server.parts.loop.connections)


def test_garbage_is_answered_and_then_the_server_says_its_last_word(server, wire: Wire):
    wire.sock.sendall(wire.record(b"*x\r\n"))
    assert wire.read(1000) == b"-ERR Protocol error: invalid multibulk length\r\n"
    wait_until(lambda: not server.server.parts.loop.connections)


def test_a_client_that_is_killed_hears_the_last_word(server, client, wire: Wire):
    number = client.request("CLIENT", "ID")
    victim = max(server.server.parts.engine.clients)
    assert victim != number
    assert client.request("CLIENT", "KILL", "ID", str(victim)) == 1
    assert wire.read(10) == b""


def test_an_error_is_an_error(client):
    refused = client.request("XADD", "orders")
    assert isinstance(refused, CommandError)
