"""Clients good and bad, over real sockets."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress

import pytest

from headrace import limits
from headrace.errors import CommandError
from support.speaking import encoded
from support.waiting import wait_until


def test_a_request_and_its_answer(client):
    assert client.request("PING") == "PONG"
    assert client.request("ECHO", bytes(range(256))) == bytes(range(256))


def test_a_request_may_arrive_one_byte_at_a_time(client):
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in encoded("ECHO", "slowly"):
        client.send(bytes([byte]))
    assert client.reply() == b"slowly"


def test_a_person_may_type_at_it(client):
    client.send(b"\r\nset key 'two words'\r\nGET key\n")
    assert client.reply() == "OK"
    assert client.reply() == b"two words"


def test_ten_thousand_requests_in_one_go(client):
    client.send(encoded("INCR", "n") * 10_000)
    assert [client.reply() for _ in range(10_000)] == list(range(1, 10_001))


def test_the_rest_of_a_long_pipeline_does_not_hold_up_others(server, client):
    other = server.connect()
    assert other.request("PING") == "PONG"
    client.send(encoded("INCR", "n") * 20_000)
    client.reply()
    # By now the first of many turns is over; had the pipeline been served in one go, n would be 20,000.
    assert int(other.request("GET", "n")) <= 20_000
    assert [client.reply() for _ in range(19_999)][-1] == 20_000


def test_a_large_value_there_and_back(client):
    value = bytes(range(256)) * 20_000
    assert client.request("SET", "big", value) == "OK"
    assert client.request("GET", "big") == value


def test_a_slow_reader_stalls_nobody_and_gets_everything(server, client):
    value = b"x" * 100_000
    assert client.request("SET", "big", value) == "OK"
    slow = server.connect()
    slow.send(encoded("GET", "big") * 300)
    for _ in range(100):
        assert client.request("PING") == "PONG"
    assert all(slow.reply() == value for _ in range(300))


def test_a_client_that_does_not_read_gets_no_more_executed(server, client):
    assert client.request("SET", "big", b"x" * 500_000) == "OK"
    greedy = server.connect()
    greedy.send((encoded("GET", "big") + encoded("INCR", "n")) * 200)
    wait_until(lambda: client.request("GET", "n") is not None)
    time.sleep(0.1)
    stopped_at = int(client.request("GET", "n"))
    held = max(c.session.reply.pending_bytes() for c in server.server.parts.loop.connections.values())
    assert stopped_at < 200
    assert held <= limits.UNSENT_BYTES_MAX + limits.UNSENT_BYTES_OF_ALL_MAX // 3 + 600_000
    for n in range(1, 201):
        assert len(greedy.reply()) == 500_000
        assert greedy.reply() == n


def test_a_pipeline_that_is_sent_before_a_reply_is_read_is_executed(server, client):
    writer = server.connect()
    writer.sock.settimeout(60)
    requests = b"".join(encoded("ECHO", b"%06d" % n + b"x" * 1494) for n in range(20_000))
    writer.sock.sendall(requests)  # 32 MB: far more than sockets hold
    for n in range(20_000):
        assert writer.reply().startswith(b"%06d" % n)
    assert client.request("PING") == "PONG"
    assert server.server.parts.loop.excess_buffer_bytes == 0


def test_clients_that_never_read_share_a_bounded_memory(server, client):
    assert client.request("SET", "big", b"x" * 500_000) == "OK"
    greedy = [server.connect() for _ in range(8)]
    for one in greedy:
        one.send(encoded("GET", "big") * 400)
    loop = server.server.parts.loop
    wait_until(lambda: sum(c.throttled for c in loop.connections.values()) == len(greedy))
    assert loop.excess_buffer_bytes <= limits.UNSENT_BYTES_OF_ALL_MAX + len(greedy) * 600_000
    for one in greedy:
        one.close()
    wait_until(lambda: len(loop.connections) == 1)
    assert loop.excess_buffer_bytes == 0


def test_unread_answers_past_the_hard_limit_close_the_connection(start):
    server = start("--client-output-buffer-limit", "normal", "1mb", "0", "0")
    client = server.connect()
    assert client.request("SET", "big", b"x" * 8_000_000) == "OK"
    greedy = server.connect()
    greedy.send(encoded("GET", "big") * 3)
    wait_until(lambda: len(server.server.parts.loop.connections) == 1)
    assert client.request("PING") == "PONG"


def test_a_client_may_vanish_in_mid_request(server, client):
    for reset in (False, True):
        lost = server.connect()
        assert lost.request("PING") == "PONG"
        lost.send(encoded("SET", "key", "value")[:-5])
        if reset:
            lost.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        lost.close()
    wait_until(lambda: len(server.server.parts.loop.connections) == 1)
    assert client.request("EXISTS", "key") == 0
    assert list(server.server.parts.engine.clients) == [1]


def test_what_was_sent_before_half_closing_is_answered(client):
    client.send(encoded("INCR", "n") * 1000)
    client.sock.shutdown(socket.SHUT_WR)
    assert [client.reply() for _ in range(1000)][-1] == 1000
    assert client.is_closed()


@pytest.mark.parametrize(
    ("garbage", "text"),
    [
        (b"*x\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*1\r\nPING\r\n", "ERR Protocol error: expected '$', got 'P'"),
        (b"*1\r\n$-3\r\n", "ERR Protocol error: invalid bulk length"),
        (b"GET 'x\r\n", "ERR Protocol error: unbalanced quotes in request"),
        (b"x" * 70_000, "ERR Protocol error: too big inline request"),
    ],
)
def test_garbage_is_answered_once_and_ends_the_connection(server, client, garbage: bytes, text: str):
    client.send(encoded("PING") + garbage)
    assert client.reply() == "PONG"
    refused = client.reply()
    assert isinstance(refused, CommandError) and str(refused) == text
    assert client.is_closed()
    assert server.connect().request("PING") == "PONG"


def test_random_bytes_harm_nobody(server, client):
    for seed in range(20):
        rude = server.connect()
        rude.sock.setblocking(True)
        with suppress(ConnectionError):
            rude.send(bytes((seed * i * i + i) % 256 for i in range(3000)) + b"\r\n")
        rude.close()
    assert client.request("PING") == "PONG"
    wait_until(lambda: len(server.server.parts.loop.connections) == 1)


def test_requests_past_the_query_limit_close_the_connection(start):
    server = start("--client-query-buffer-limit", "1mb")
    client = server.connect()
    client.send(b"*2\r\n$3\r\nSET\r\n$5000000\r\n")
    with suppress(ConnectionError):
        for _ in range(5):
            client.send(b"x" * 500_000)
    assert client.is_closed()
    assert server.connect().request("PING") == "PONG"


def test_a_thousand_clients(server):
    clients = [server.connect() for _ in range(1000)]
    for client in clients:
        client.send(encoded("INCR", "n"))
    assert sorted(client.reply() for client in clients) == list(range(1, 1001))
    assert len(server.server.parts.loop.connections) == 1000


def test_an_idle_client_holds_little_memory(server, client):
    assert client.request("SET", "big", b"x" * 1_000_000) == "OK"
    assert len(client.request("GET", "big")) == 1_000_000
    assert client.request("PING") == "PONG"
    (connection,) = server.server.parts.loop.connections.values()
    assert connection.parser.cap <= 4096
    assert connection.session.reply.cap <= 4096


def test_a_blocked_reader_is_served_by_the_writer(server, client):
    reader = server.connect()
    reader.send(encoded("XREAD", "BLOCK", "0", "STREAMS", "orders", "$") + encoded("ECHO", "afterwards"))
    wait_until(lambda: b"blocked_clients:1" in client.request("INFO", "clients"))
    client.request("XADD", "orders", "7-0", "item", "pear")
    assert reader.reply() == [[b"orders", [[b"7-0", [b"item", b"pear"]]]]]
    assert reader.reply() == b"afterwards"


def test_a_wait_ends_at_its_deadline(client):
    began = time.monotonic()
    assert client.request("XREAD", "BLOCK", "50", "STREAMS", "orders", "$") is None
    assert time.monotonic() - began >= 0.045


@pytest.mark.parametrize(
    "request_words",
    [
        ("SET", "key", "value", "EX", "2592000"),
        ("SET", "key", "value", "PX", str(1 << 62)),
        ("XREAD", "BLOCK", str(1 << 62), "STREAMS", "orders", "$"),
        ("CLIENT", "PAUSE", str(1 << 62), "WRITE"),
    ],
)
def test_a_server_with_nothing_to_do_for_years_can_still_be_woken(start, request_words):
    server = start("--hz", "500")
    client = server.connect()
    client.send(encoded(*request_words))
    time.sleep(0.1)  # many of its intervals: it waits for the far time alone
    assert server.connect().request("PING") == "PONG"


def test_a_blocked_client_may_vanish(server, client):
    reader = server.connect()
    reader.send(encoded("XREAD", "BLOCK", "0", "STREAMS", "orders", "$"))
    wait_until(lambda: b"blocked_clients:1" in client.request("INFO", "clients"))
    reader.close()
    wait_until(lambda: b"blocked_clients:0" in client.request("INFO", "clients"))
    assert client.request("XADD", "orders", "1-0", "a", "b") == b"1-0"


def test_a_blocked_client_may_send_ahead_only_so_much_and_then_goes_on(server, client):
    reader = server.connect()
    reader.send(encoded("XREAD", "BLOCK", "0", "STREAMS", "orders", "$"))
    wait_until(lambda: b"blocked_clients:1" in client.request("INFO", "clients"))
    reader.send(encoded("INCR", "n") * 10_000)
    time.sleep(0.1)
    (waiting,) = [c for c in server.server.parts.loop.connections.values() if c.session.waiter is not None]
    assert waiting.parser.pending_bytes() <= limits.BLOCKED_CLIENT_BUFFER_BYTES_MAX + 64 * 1024
    assert client.request("EXISTS", "n") == 0
    client.request("XADD", "orders", "7-0", "item", "pear")
    assert isinstance(reader.reply(), list)
    assert [reader.reply() for _ in range(10_000)][-1] == 10_000


def test_a_killed_client_is_closed(server, client):
    victim = server.connect()
    number = victim.request("CLIENT", "ID")
    assert client.request("CLIENT", "KILL", "ID", str(number)) == 1
    assert victim.is_closed()


def test_quit_answers_and_closes(client):
    client.send(encoded("QUIT") + encoded("PING"))
    assert client.reply() == "OK"
    assert client.is_closed()


def test_the_log_is_written_before_answers_leave(server, client):
    """`commit` sees all that a turn executed, while no answer of that turn is out."""
    seen = []
    loop = server.server.parts.loop

    def commit() -> bool:
        seen.append([c.session.reply.pending_bytes() for c in loop.connections.values()])
        loop.commit_required = True  # as long as it says that, it is called although nothing was changed
        return True

    loop.commit = commit
    loop.commit_required = True
    client.send(encoded("PING") * 3)
    assert [client.reply() for _ in range(3)] == ["PONG"] * 3
    assert any(sum(pending) > 0 for pending in seen)
