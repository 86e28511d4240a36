"""Replies to writes wait for replicas: write-quorum."""

from __future__ import annotations

from typing import Any

from headrace.resp.reply_parser import ReplyParser
from headrace.resp.writer import ReplyWriter
from headrace.server.replication.write_quorum import not_confirmed_error, replace_replies
from simulation.cluster import Client, Cluster, Node

OPTIONS = ("--write-quorum", "1", "--write-quorum-timeout", "300")
ADD = ("XADD", "s", "*", "n", 1)


def replicated(cluster: Cluster, *options: str) -> tuple[Node, Node]:
    """Return a primary and its replica, which agree."""
    primary, replica = cluster.add(*options), cluster.add(*options)
    replica.follow(primary)
    cluster.settle()
    return primary, replica


def hold(cluster: Cluster) -> None:
    """Let nothing arrive between servers."""
    cluster.network.pump = lambda: None  # type: ignore[method-assign]


def release(cluster: Cluster) -> None:
    """End hold()."""
    del cluster.network.pump


def rounds(cluster: Cluster, client: Client, count: int) -> list[Any]:
    """Return the replies that arrive within so many rounds of 20 ms."""
    replies: list[Any] = []
    for _ in range(count):
        cluster.round(20)
        replies += client.receive()
    return replies


def test_a_reply_to_a_write_waits_until_a_replica_has_it() -> None:
    with Cluster() as cluster:
        first, second = replicated(cluster, *OPTIONS)
        client, reader = Client(first), Client(first)
        hold(cluster)
        client.send(ADD)
        reader.send(("XLEN", "s"))
        assert rounds(cluster, reader, 5) == [1], "reads are not held"
        assert client.receive() == []
        release(cluster)
        replies = rounds(cluster, client, 5)
        assert len(replies) == 1 and isinstance(replies[0], bytes)
        assert second.ask("XLEN", "s") == 1


def test_each_write_is_confirmed_without_waiting_for_the_regular_acknowledgement() -> None:
    with Cluster() as cluster:
        first = replicated(cluster, *OPTIONS)[0]
        client = Client(first)
        for _ in range(10):
            client.send(ADD)
            assert len(rounds(cluster, client, 6)) == 1


def test_every_confirmed_write_survives_a_failover() -> None:
    with Cluster() as cluster:
        first, second = replicated(cluster, *OPTIONS)
        clients = [Client(first) for _ in range(5)]
        confirmed = 0
        for number in range(60):
            clients[number % 5].send(("XADD", "s", "*", "n", number), ("XADD", "s", "*", "n", number))
            cluster.round(3)
            if number == 30:
                cluster.network.cut_all(second.port)
                break
        for client in clients:
            confirmed += sum(isinstance(reply, bytes) for reply in client.receive())
        second.promote()
        left = second.ask("XLEN", "s")
        assert isinstance(left, int) and left >= confirmed > 0


def test_after_the_timeout_each_reply_is_an_error_that_says_what_happened() -> None:
    with Cluster() as cluster:
        first = replicated(cluster, *OPTIONS)[0]
        client = Client(first)
        hold(cluster)
        client.send(ADD, ("XLEN", "s"))
        replies = rounds(cluster, client, 40)
        assert [str(reply)[:8] for reply in replies] == ["NOQUORUM", "NOQUORUM"]
        assert "stored here" in str(replies[0]) and first.ask("XLEN", "s") == 1
        info = dict(first.replication.info())
        assert info["write_quorum_timeouts"] == 1 and info["write_quorum_waiting"] == 0


def test_without_enough_replicas_a_write_is_rejected_before_it_runs() -> None:
    with Cluster() as cluster:
        node = cluster.add(*OPTIONS)
        cluster.round(200)
        client = Client(node)
        client.send(ADD)
        assert str(rounds(cluster, client, 2)[0]).startswith("NOREPLICAS")
        assert node.ask("EXISTS", "s") == 0


def test_no_quorum_sends_what_is_held() -> None:
    with Cluster() as cluster:
        first = replicated(cluster, *OPTIONS)[0]
        client = Client(first)
        hold(cluster)
        client.send(ADD)
        assert rounds(cluster, client, 3) == []
        first.ask("CONFIG", "SET", "write-quorum", "0")
        assert isinstance(rounds(cluster, client, 12)[0], bytes)


def test_a_former_primary_does_not_confirm_what_it_holds() -> None:
    with Cluster() as cluster:
        first, second = replicated(cluster, *OPTIONS)
        client = Client(first)
        hold(cluster)
        client.send(ADD)
        assert rounds(cluster, client, 3) == []
        second.promote()
        first.follow(second)
        assert str(rounds(cluster, client, 12)[0]).startswith("NOQUORUM")


def test_only_replies_are_replaced_and_messages_stay() -> None:
    reply = ReplyWriter(3)
    reply.push(2)
    reply.bulk(b"message")
    reply.array(1)
    reply.bulk(b"x")
    reply.array(2)
    reply.integer(1)
    reply.map(1)
    reply.bulk(b"-text\r\n:1\r\n")
    reply.bulk(b"")
    reply.integer(7)
    assert replace_replies(reply, not_confirmed_error("within 100 ms"))
    parser = ReplyParser()
    parser.feed(reply.take())
    found = [parser.next() for _ in range(3)]
    assert found[0] == [b"message", [b"x"]]
    assert [str(one).split(" ")[0] for one in found[1:]] == ["NOQUORUM", "NOQUORUM"]


def test_bytes_that_begin_inside_a_reply_stay_as_they_are() -> None:
    reply = ReplyWriter()
    reply.raw(b"+OK\r\n$10\r\nabc")
    assert not replace_replies(reply, not_confirmed_error("within 100 ms"))
    assert reply.take() == b"+OK\r\n$10\r\nabc"
