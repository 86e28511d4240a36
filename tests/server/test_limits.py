"""What one client may have of the server: unread answers, requests ahead, time, a place, memory."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable

import pytest

from headrace import limits
from headrace.errors import CommandError
from headrace.server.config_applier import DESCRIPTORS_KEPT
from support.speaking import encoded
from support.waiting import wait_until


def test_a_client_above_the_soft_limit_is_closed_when_its_time_is_up(start) -> None:
    server = start("--client-output-buffer-limit", "normal 0 400kb 1", "--hz", "100")
    client = server.connect()
    assert client.request("SET", "big", b"x" * 9_000_000) == "OK"
    greedy = server.connect()
    began = time.monotonic()
    greedy.send(encoded("GET", "big"))
    wait_until(lambda: server.server.parts.loop.output_monitor.any_over_soft_limit)
    wait_until(lambda: len(server.server.parts.loop.connections) == 1)
    assert time.monotonic() - began >= 1
    assert not server.server.parts.loop.output_monitor.any_over_soft_limit
    assert client.request("PING") == "PONG"


def test_who_reads_in_time_is_not_closed(start) -> None:
    server = start("--client-output-buffer-limit", "normal 0 400kb 1", "--hz", "100")
    client = server.connect()
    value = b"x" * 9_000_000
    assert client.request("SET", "big", value) == "OK"
    client.send(encoded("GET", "big"))
    wait_until(lambda: server.server.parts.loop.output_monitor.any_over_soft_limit)
    assert client.reply() == value
    wait_until(lambda: not server.server.parts.loop.output_monitor.any_over_soft_limit)
    time.sleep(1.2)
    assert client.request("PING") == "PONG"


def test_a_soft_limit_of_listeners_is_theirs_alone(start) -> None:
    server = start("--client-output-buffer-limit", "pubsub 0 400kb 1", "--hz", "100")
    client, listener, greedy = server.connect(), server.connect(), server.connect()
    assert client.request("SET", "big", b"x" * 9_000_000) == "OK"
    greedy.send(encoded("GET", "big"))
    listener.request("SUBSCRIBE", "c")
    for _ in range(9):
        assert client.request("PUBLISH", "c", b"m" * 1_000_000) == 1
    wait_until(lambda: client.request("PUBLISH", "c", "m") == 0)
    assert len(greedy.reply()) == 9_000_000


def test_a_limit_that_is_taken_back_closes_nobody(start) -> None:
    server = start("--client-output-buffer-limit", "normal 0 400kb 1", "--hz", "100")
    client, slow = server.connect(), server.connect()
    assert client.request("SET", "big", b"x" * 9_000_000) == "OK"
    slow.send(encoded("GET", "big"))
    wait_until(lambda: server.server.parts.loop.output_monitor.any_over_soft_limit)
    assert client.request("CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0") == "OK"
    wait_until(lambda: not server.server.parts.loop.output_monitor.any_over_soft_limit)
    assert len(slow.reply()) == 9_000_000


def test_replies_of_a_transaction_beyond_the_limit_are_dropped_with_the_client(start, capfd) -> None:
    """What it has changed stays; the peak is the limit and one reply."""
    server = start("--client-output-buffer-limit", "normal 8mb 0 0", "pubsub 8mb 0 0")
    client, greedy = server.connect(), server.connect()
    assert client.request("SET", "big", b"x" * 1_000_000) == "OK"
    answer = server.server.parts.loop.connections[max(server.server.parts.loop.connections)].session.reply
    assert answer.limit == 8 << 20
    greedy.send(encoded("MULTI") + encoded("GET", "big") * 60 + encoded("SET", "done", "1") + encoded("EXEC"))
    assert ends(greedy.reply)
    assert client.request("GET", "done") == b"1"
    assert answer.overflowed
    assert answer.cap < 9 << 20
    assert f"more than {8 << 20} bytes of replies" in capfd.readouterr().err


def test_a_transaction_below_the_limit_is_answered_in_full(start) -> None:
    server = start("--client-output-buffer-limit", "normal 80mb 0 0")
    client = server.connect()
    assert client.request("SET", "big", b"x" * 1_000_000) == "OK"
    client.send(encoded("MULTI") + encoded("GET", "big") * 60 + encoded("EXEC"))
    replies = [client.reply() for _ in range(62)]
    assert replies[:61] == ["OK"] + ["QUEUED"] * 60
    assert replies[61] == [b"x" * 1_000_000] * 60


def test_one_request_that_names_a_key_often_is_bounded_as_well(start) -> None:
    server = start("--client-output-buffer-limit", "normal 8mb 0 0")
    client, greedy, other = server.connect(), server.connect(), server.connect()
    assert client.request("SET", "big", b"x" * 1_000_000) == "OK"
    assert client.request("CONFIG", "SET", "client-output-buffer-limit", "pubsub 4mb 0 0") == "OK"
    greedy.send(encoded("MGET", *["big"] * 60))
    with pytest.raises((EOFError, ConnectionError)):
        greedy.reply()
    assert other.request("MGET", "big", "big") == [b"x" * 1_000_000] * 2


def ends(step: Callable[[], object]) -> bool:
    """Whether the server closes the connection when that is done often."""
    try:
        for _ in range(2000):
            step()
    except (EOFError, ConnectionError):
        return True
    return False


# Strangers: those who have yet to say who they are.


@pytest.fixture
def guarded(start):
    return start("--requirepass", "secret")


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"*11\r\n", "unauthenticated multibulk length"),
        (b"*1000000\r\n", "unauthenticated multibulk length"),
        (b"*2000000\r\n", "invalid multibulk length"),
        (b"*2\r\n$4\r\nECHO\r\n$3073\r\n", "unauthenticated bulk length"),
        (b"*2\r\n$4\r\nECHO\r\n$536870913\r\n", "invalid bulk length"),
        (b"PING " + b"x" * 3_100, "too big inline request"),
    ],
)
def test_a_stranger_may_not_announce_much(guarded, sent: bytes, text: str) -> None:
    stranger = guarded.connect()
    stranger.send(sent)
    refused = stranger.reply()
    assert isinstance(refused, CommandError) and str(refused) == f"ERR Protocol error: {text}"
    assert stranger.is_closed()


def test_who_has_said_who_he_is_may_send_what_he_likes_in_the_same_breath(guarded) -> None:
    client = guarded.connect()
    words = ["MSET", *(word for n in range(100) for word in (f"k{n}", "v" * 20_000))]
    client.send(encoded("AUTH", "secret") + encoded(*words) + b"ECHO " + b"x" * 20_000 + b"\r\n")
    assert [client.reply(), client.reply(), client.reply()] == ["OK", "OK", b"x" * 20_000]
    client.request("RESET")
    assert "NOAUTH" in str(client.request("GET", "k1"))
    client.send(b"*11\r\n")
    assert "unauthenticated multibulk" in str(client.reply())


def test_a_stranger_may_say_who_he_is_or_leave(guarded) -> None:
    stranger = guarded.connect()
    for words in (["PING"], ["INFO"], ["MULTI"], ["SUBSCRIBE", "c"], ["COMMAND"], ["CLIENT", "LIST"]):
        assert str(stranger.request(*words)) == "NOAUTH Authentication required."
    assert stranger.request("RESET") == "RESET"
    assert str(stranger.request("AUTH", "wrong")).startswith("WRONGPASS")
    assert stranger.request("HELLO", "3", "AUTH", "default", "secret")
    assert stranger.request("PING") == "PONG"
    leaving = guarded.connect()
    assert leaving.request("QUIT") == "OK" and leaving.is_closed()


def test_a_request_that_never_ends_is_not_kept(guarded) -> None:
    stranger = guarded.connect()
    stranger.send(b"*9\r\n$4\r\nAUTH\r\n" + b"$3000\r\n" + b"x" * 3_000 + b"\r\n$3000\r\n" + b"y" * 2_000)
    assert stranger.is_closed()


def test_a_stranger_that_sends_much_at_once_is_heard_piece_by_piece(guarded) -> None:
    stranger = guarded.connect()
    stranger.send(b"PING\r\n" * 4000 + encoded("AUTH", "x" * 3000) + encoded("AUTH", "secret") + b"PING\r\n")
    for _ in range(4000):
        assert str(stranger.reply()).startswith("NOAUTH")
    assert str(stranger.reply()).startswith("WRONGPASS")
    assert [stranger.reply(), stranger.reply()] == ["OK", "PONG"]


def test_a_stranger_may_leave_little_unread(guarded) -> None:
    stranger, known = guarded.connect(), guarded.connect()
    assert known.request("AUTH", "secret") == "OK"
    assert str(stranger.request("PING")).startswith("NOAUTH")
    loop = guarded.server.parts.loop
    for connection in loop.connections.values():
        most = limits.UNAUTHENTICATED_UNSENT_BYTES_MAX
        assert not loop.output_monitor.exceeds_hard_limit(connection, connection.session, most, 1000)
        refused = loop.output_monitor.exceeds_hard_limit(connection, connection.session, most + 1, 1000)
        assert refused == connection.session.must_authenticate
    assert sum(connection.session.must_authenticate for connection in loop.connections.values()) == 1


def test_a_thousand_strangers_keep_little_each(guarded) -> None:
    loop = guarded.server.parts.loop
    for n in range(200):
        guarded.connect().send(b"*9\r\n$4\r\nAUTH\r\n$3000\r\n" + b"x" * (n * 14))
    wait_until(lambda: sum(c.parser.pending_bytes() > 0 for c in loop.connections.values()) == 200)
    for connection in loop.connections.values():
        assert connection.parser.cap <= limits.UNAUTHENTICATED_REQUEST_BYTES_MAX
        assert connection.session.reply.cap <= limits.UNAUTHENTICATED_REQUEST_BYTES_MAX


# What is kept of requests.


def test_what_is_queued_counts_as_sent_and_not_served(start) -> None:
    server = start("--client-query-buffer-limit", "1mb")
    client, other = server.connect(), server.connect()
    assert client.request("MULTI") == "OK"
    for _ in range(9):
        assert client.request("SET", "k", b"x" * 100_000) == "QUEUED"
    assert client.request("EXEC") == ["OK"] * 9, "what has run does not count any more"
    assert client.request("MULTI") == "OK"
    assert ends(lambda: client.request("SET", "k", b"y" * 100_000))
    assert other.request("GETRANGE", "k", "0", "0") == b"x"
    wait_until(lambda: len(server.server.parts.loop.connections) == 1)


def test_many_small_words_in_a_queue_count_for_what_they_take(start) -> None:
    server = start("--client-query-buffer-limit", "1mb")
    client = server.connect()
    assert client.request("MULTI") == "OK"
    assert ends(lambda: client.request("DEL", *["k"] * 1000))


def test_a_request_longer_than_the_query_buffer_ends_the_connection(start) -> None:
    server = start("--client-query-buffer-limit", "1mb")
    client = server.connect()
    assert client.request("SET", "k", b"x" * 900_000) == "OK"
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$90000000\r\n")
    assert ends(lambda: client.send(b"x" * 100_000))


def test_a_word_longer_than_proto_max_bulk_len_is_refused_by_its_length(start) -> None:
    server = start("--proto-max-bulk-len", "1mb")
    client, other = server.connect(), server.connect()
    assert client.request("SET", "k", b"x" * (1 << 20)) == "OK"
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n")
    assert str(client.reply()) == "ERR Protocol error: invalid bulk length"
    assert client.is_closed()
    assert other.request("CONFIG", "SET", "proto-max-bulk-len", "2mb") == "OK"
    assert other.request("SET", "k", b"x" * (2 << 20)) == "OK"


def test_memory_of_a_word_is_taken_as_it_arrives(start) -> None:
    server = start()
    client = server.connect()
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\n" + b"x" * 1000)
    loop = server.server.parts.loop
    wait_until(lambda: any(c.parser.pending_bytes() > 1000 for c in loop.connections.values()))
    assert all(c.parser.cap < 70_000 for c in loop.connections.values())


def test_many_words_announced_take_no_memory(start) -> None:
    server = start()
    client = server.connect()
    client.send(b"*1048576\r\n$1\r\nx\r\n")
    loop = server.server.parts.loop
    wait_until(lambda: any(c.parser.pending_bytes() > 0 for c in loop.connections.values()))
    client.send(b"$1\r\ny\r\n" * 1000)
    wait_until(lambda: any(c.parser.pending_bytes() > 2000 for c in loop.connections.values()))
    assert all(c.parser.cap < 70_000 for c in loop.connections.values())


# Time and place.


def test_more_clients_than_the_system_allows_are_refused(server, client) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - DESCRIPTORS_KEPT
    refused = client.request("CONFIG", "SET", "timeout", "7", "maxclients", str(most + 1))
    assert str(refused) == (
        "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able"
        f" to handle the specified number of clients, try with {most}"
    )
    assert client.request("CONFIG", "GET", "timeout") == [b"timeout", b"0"]
    assert client.request("CONFIG", "GET", "maxclients") == [b"maxclients", b"10000"]
    assert client.request("CONFIG", "SET", "maxclients", str(most)) == "OK"


def test_strangers_and_idle_clients_go_after_the_timeout(start) -> None:
    server = start("--requirepass", "secret", "--timeout", "1", "--hz", "100")
    client, waiting, stranger, partial = (server.connect() for _ in range(4))
    assert client.request("AUTH", "secret") == "OK"
    assert waiting.request("AUTH", "secret") == "OK"
    waiting.send(encoded("XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
    partial.send(b"*2\r\n$4\r\nAUTH\r\n$3\r\n")
    assert stranger.is_closed() and partial.is_closed() and client.is_closed()
    assert len(server.server.parts.loop.connections) == 1, "who waits for an answer is not idle"


def test_sockets_are_kept_alive_as_long_as_it_says(start) -> None:
    server = start("--tcp-keepalive", "60")
    assert server.connect().request("PING") == "PONG"
    fd = next(iter(server.server.parts.loop.connections))
    with socket.socket(fileno=fd) as sock:
        try:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        finally:
            sock.detach()


# Memory.


def test_memory_is_limited_live_and_told(start) -> None:
    server = start("--maxmemory", "100kb")
    client = server.connect()
    assert client.request("SET", "k", b"x" * 200_000) == "OK", "it was below"
    assert str(client.request("SET", "l", "v")).startswith("OOM command not allowed when used memory > ")
    assert client.request("CONFIG", "SET", "maxmemory", "1mb") == "OK"
    assert client.request("SET", "l", "v") == "OK"
    said = client.info()
    assert (said["maxmemory"], said["maxmemory_human"]) == ("1048576", "1.00M")
    assert said["maxmemory_policy"] == "noeviction"
    assert 200_000 < int(said["used_memory"]) < 201_000
    assert int(said["used_memory_peak"]) >= int(said["used_memory"]) > int(said["used_memory_dataset"])
    assert int(said["used_memory_rss"]) > 5_000_000
    assert (said["evicted_keys"], said["evicted_entries"]) == ("0", "0")
    assert client.request("CONFIG", "SET", "maxmemory", "0") == "OK"
    assert client.request("SET", "m", b"x" * 2_000_000) == "OK"
    stats = client.request("MEMORY", "STATS")
    named = dict(zip(stats[::2], stats[1::2], strict=True))
    used = int(client.info()["used_memory"])
    assert named[b"total.allocated"] == used > named[b"dataset.bytes"] > 2_200_000


def test_old_entries_go_and_the_log_says_so(start_logging) -> None:
    server, _ = start_logging("--maxmemory", "300kb", "--maxmemory-policy", "stream-oldest")
    client = server.connect()
    client.request("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for n in range(1000):
        client.send(encoded("XADD", "s", "*", "n", str(n), "f", b"x" * 1000))
    assert all(not isinstance(client.reply(), CommandError) for _ in range(1000))
    said = client.info()
    assert int(said["used_memory"]) < 300 * 1024 + 10_000
    length = client.request("XLEN", "s")
    assert int(said["evicted_entries"]) == 1000 - length > 500
    newest = client.request("XREVRANGE", "s", "+", "-", "COUNT", "1")
    assert newest[0][1][1] == b"999"
    before = client.request("XINFO", "STREAM", "s", "FULL")
    server.stop()
    again, _ = start_logging("--maxmemory", "300kb", "--maxmemory-policy", "stream-oldest")
    assert again.connect().request("XINFO", "STREAM", "s", "FULL") == before
