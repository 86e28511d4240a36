"""What is refused when memory is full, and what strangers may send: beside a real redis-server."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from conformance.peer import Connection, Peer
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.commands.table import COMMANDS
from headrace.engine.engine import Engine
from support.headrace_server import headrace_server

OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
# These end, stop or take over the connection or the server.
APART = b"""
    acl auth bgrewriteaof bgsave client config debug discard exec failover flushall flushdb hello monitor
    multi psubscribe psync punsubscribe quit replconf replicaof reset save shutdown slaveof ssubscribe
    subscribe sync unsubscribe
""".split()


def request(command: Command) -> list[bytes]:
    """The shortest request of the command."""
    words = command.name.split(b"|")
    return words + [b"1"] * (abs(command.arity) - len(words))


def all_requests() -> list[list[bytes]]:
    found = []
    for command in COMMANDS:
        if command.name not in APART:
            found += [request(sub) for sub in command.unique_subcommands()] or [request(command)]
    return found


class Full:
    """Both servers, without memory to give."""

    def __init__(self, peer: Peer) -> None:
        self.version = peer.version
        self.control = Connection(peer.port, 2)
        self.ask(self.control, b"FLUSHALL")
        self.engine = Engine()
        self.client = Connection(peer.port, 2)
        self.session = self.engine.create_session()
        self.both(b"SET", b"k", b"v" * 1000)
        self.ask(self.control, b"CONFIG", b"SET", b"maxmemory", b"1")
        self.engine.keyspace.memory.limit = 1

    def ask(self, connection: Connection, *words: bytes) -> bytes:
        connection.send(list(words))
        return connection.reply()

    def ours(self, session: Session, *words: bytes) -> bytes:
        self.engine.execute(session, list(words), 1000)
        return bytes(session.reply.take())

    def both(self, *words: bytes) -> tuple[bytes, bytes]:
        return self.ours(self.session, *words), self.ask(self.client, *words)

    def room(self, on: bool) -> None:
        """Whether there is memory, from now on."""
        self.ask(self.control, b"CONFIG", b"SET", b"maxmemory", b"0" if on else b"1")
        self.engine.keyspace.memory.limit = 1 << 40 if on else 1

    def close(self) -> None:
        self.ask(self.control, b"CONFIG", b"SET", b"maxmemory", b"0")
        self.control.close()
        self.client.close()


@pytest.fixture
def full(peer: Peer) -> Iterator[Full]:
    made = Full(peer)
    yield made
    made.close()


@pytest.mark.parametrize("words", all_requests(), ids=lambda words: b" ".join(words).decode())
def test_the_same_commands_are_refused_in_the_same_words(full: Full, words: list[bytes]) -> None:
    ours, theirs = full.both(*words)
    if theirs.startswith((b"-ERR unknown command", b"-ERR unknown subcommand")):
        pytest.skip("redis-server is too old to know it")
    assert (ours == OOM) == (theirs == OOM), (ours, theirs)


def test_most_of_the_table_is_asked() -> None:
    assert len(all_requests()) > 100
    assert sum(command.denyoom for command in COMMANDS) > 15


@pytest.mark.parametrize("queued", ["XADD s 1-1 f v", "GET k", "DEL k", "XREADGROUP GROUP g c STREAMS s >"])
def test_transactions_are_refused_alike(full: Full, queued: str) -> None:
    words = [word.encode() for word in queued.split()]
    if not queued.startswith("XADD") and full.version < (8,):
        pytest.skip("before Redis 8, nothing is queued when memory is full")
    for request in ([b"MULTI"], words, [b"EXEC"]):
        ours, theirs = full.both(*request)
        assert ours == theirs
    full.room(True)
    for request in ([b"MULTI"], words):
        ours, theirs = full.both(*request)
        assert ours == theirs
    full.room(False)
    for request in ([b"EXEC"], [b"MULTI"], [b"DISCARD"], [b"WATCH", b"k"], [b"UNWATCH"], [b"DEL", b"k"]):
        ours, theirs = full.both(*request)
        assert ours == theirs, request


# Strangers.


@pytest.mark.parametrize(
    "sent",
    [
        b"*10\r\n",
        b"*11\r\n",
        b"*1048576\r\n",
        b"*2147483648\r\n",
        b"*1\r\n$3072\r\n",
        b"*1\r\n$16385\r\n",
        b"*1\r\n$16385\r\n" + b"x" * 200,
        b"*1\r\n$99999999999\r\n",
        b"*2\r\n$4\r\nAUTH\r\n$3072\r\n" + b"x" * 3_072 + b"\r\n",
        b"PING\r\n",
        b"QUIT\r\nPING\r\n",
        b"RESET\r\n",
        b"AUTH wrong\r\nAUTH secret\r\n*11\r\n" + b"$1\r\nx\r\n" * 11,
        b"HELLO 3 AUTH default secret SETNAME me\r\n*2\r\n$4\r\nECHO\r\n$17000\r\n" + b"x" * 17_000 + b"\r\n",
        b"AUTH secret\r\nRESET\r\n*11\r\n",
    ],
    ids=lambda sent: sent[:40].decode().replace("\r\n", " "),
)
def test_an_unauthenticated_client_gets_the_same_replies(peer: Peer, sent: bytes) -> None:
    control = Connection(peer.port, 2)
    control.send([b"CONFIG", b"SET", b"requirepass", b"secret"])
    assert control.reply() == b"+OK\r\n"
    try:
        with headrace_server(None, "--requirepass", "secret") as port:
            ours, theirs = said_to(port, sent), said_to(peer.port, sent)
        assert without_hello(ours) == without_hello(theirs)
    finally:
        control.send([b"CONFIG", b"SET", b"requirepass", b""])
        control.reply()
        control.close()


def said_to(port: int, sent: bytes) -> bytes:
    """Return the server's reply to a client that sends only that."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        while data := sock.recv(1 << 16):
            heard += data
    return heard


def without_hello(heard: bytes) -> bytes:
    """The answer to HELLO names the server."""
    return re.sub(rb"%\d+\r\n.*\*0\r\n", b"hello", heard, flags=re.DOTALL)
