"""What clients may do on a replica, on stale data, and with too few replicas: as with redis-server."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.lock import Lock

from headrace.engine.engine import Engine
from headrace.errors import CommandError
from support.raw_redis import RawRedis
from support.redis_server import redis_server
from support.waiting import wait_until

READ_ONLY = b"-READONLY You can't write against a read only replica.\r\n"
ROLE_CHANGED = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"

BEFORE = ["SET k token", "SET lasting token PX 100000", "XADD s 1-1 f v", "XGROUP CREATE s g 0"]
LINES = (
    """
SET k v|GET k|DEL k|XADD s * f v|XLEN s|XREADGROUP GROUP g c STREAMS s >|XGROUP CREATE s g $ MKSTREAM|PING
XREAD STREAMS s 0|XACK s g 1-1|XAUTOCLAIM s g c 0 0|FLUSHALL|GETEX k|EXPIRE k 10|SELECT 0|PUBLISH c m
MULTI|GET k|EXEC|MULTI|SET k v|GET k|EXEC|MULTI|GET k|DISCARD|EVALSHA 0000 0|SCRIPT EXISTS 0000|TYPE k|TTL k
SETRANGE k 0 x|INCR k|COPY k l|RESTORE k 0 x|CONFIG GET nosuch|ECHO x|CLIENT GETNAME|WATCH k|UNWATCH|EXISTS k
""".strip()
    .replace("\n", "|")
    .split("|")
)
SCRIPTS = [
    (Lock.LUA_RELEASE_SCRIPT, "k", "token"),
    (Lock.LUA_RELEASE_SCRIPT, "k", "of another"),
    (Lock.LUA_EXTEND_SCRIPT, "lasting", "token", "1000", "0"),
    (Lock.LUA_EXTEND_SCRIPT, "none", "token", "1000", "0"),
    (Lock.LUA_REACQUIRE_SCRIPT, "k", "token", "1000"),
]


def ask(engine: Engine, session, *words: str, now: int = 1000) -> bytes:
    engine.execute(session, [word.encode() for word in words], now)
    return bytes(session.reply.take())


def compare(engine: Engine, theirs: RawRedis) -> list[bytes]:
    """Compare all replies; return them."""
    session = engine.create_session()
    replies = []
    for line in LINES:
        expected = theirs.ask(*line.split())
        assert ask(engine, session, *line.split()) == expected, line
        replies.append(expected)
    for script, key, *words in SCRIPTS:
        expected = theirs.ask("EVAL", script, "1", key, *words)
        assert ask(engine, session, "EVAL", script, "1", key, *words) == expected, (key, *words)
        replies.append(expected)
    return replies


@pytest.fixture
def engine() -> Engine:
    found = Engine()
    session = found.create_session()
    for line in BEFORE:
        ask(found, session, *line.split())
    return found


def test_a_replica_replies_as_redis_does(engine: Engine):
    with (
        redis_server(None, "--repl-diskless-sync-delay", "0") as port,
        redis_server(None, "--replicaof", f"127.0.0.1 {port}") as replica,
        RawRedis(port) as primary,
        RawRedis(replica) as theirs,
    ):
        for line in BEFORE:
            primary.ask(*line.split())
        wait_until(lambda: theirs.ask("XINFO", "GROUPS", "s").startswith(b"*1"))
        engine.write_gate.set_read_only(True)
        replies = compare(engine, theirs)
        assert replies.count(READ_ONLY) > 10
        assert sum(b"READONLY" in reply and b"script: " in reply for reply in replies) == 3


def test_stale_data_is_served_to_whom_redis_serves_it(engine: Engine):
    with redis_server() as port, RawRedis(port) as theirs:
        theirs.ask("REPLICAOF", "127.0.0.1", "1")
        theirs.ask("CONFIG", "SET", "replica-serve-stale-data", "no")
        engine.write_gate.set_read_only(True)
        engine.write_gate.set_stale(True)
        assert sum(reply.startswith(b"-MASTERDOWN") for reply in compare(engine, theirs)) > 10


def test_a_primary_with_too_few_replicas_replies_as_redis_does(engine: Engine):
    with redis_server() as port, RawRedis(port) as theirs:
        for line in BEFORE:
            theirs.ask(*line.split())
        theirs.ask("CONFIG", "SET", "min-replicas-to-write", "1")
        engine.write_gate.set_too_few_replicas(True)
        assert sum(reply.startswith(b"-NOREPLICAS") for reply in compare(engine, theirs)) > 10


def test_a_transaction_queued_before_the_role_changed_is_rejected_whole(engine: Engine):
    """As in redis-server: EXEC checks what was queued."""
    with redis_server() as port, RawRedis(port) as theirs, RawRedis(port) as other:
        session = engine.create_session()
        for words in (["MULTI"], ["SET", "q", "1"]):
            assert ask(engine, session, *words) == theirs.ask(*words)
        other.ask("REPLICAOF", "127.0.0.1", "1")
        engine.write_gate.set_read_only(True)
        assert ask(engine, session, "EXEC") == theirs.ask("EXEC")
        other.ask("CONFIG", "SET", "replica-serve-stale-data", "no", "replica-read-only", "no")
        engine.write_gate.set_stale(True)
        engine.write_gate.set_read_only(False)
        assert ask(engine, session, "EXEC") == theirs.ask("EXEC")  # it is over


@pytest.mark.parametrize(
    "shut",
    [
        lambda gate: gate.set_read_only(True),
        lambda gate: gate.set_stale(True),
        lambda gate: gate.set_too_few_replicas(True),
    ],
)
def test_the_gate_opens_again_and_never_stops_the_primarys_commands(engine: Engine, shut: Callable):
    session, primary = engine.create_session(), engine.create_session()
    primary.replayed = True
    gate = engine.write_gate
    shut(gate)
    assert gate.may_reject
    assert ask(engine, session, "SET", "k", "v").startswith(b"-")
    assert ask(engine, primary, "SET", "k", "new") == b"+OK\r\n"
    for setter in (gate.set_read_only, gate.set_stale, gate.set_too_few_replicas):
        setter(False)
    assert not gate.may_reject
    assert ask(engine, session, "GET", "k") == b"$3\r\nnew\r\n"


def test_full_memory_is_told_first_unless_a_replica_ignores_it(engine: Engine):
    """As in redis-server: a replica keeps what its primary keeps."""
    session = engine.create_session()
    engine.keyspace.memory.limit = 1
    engine.write_gate.set_read_only(True)
    assert ask(engine, session, "SET", "k", "v").startswith(b"-OOM")
    engine.write_gate.set_ignores_memory(True)
    assert ask(engine, session, "SET", "k", "v") == READ_ONLY
    engine.write_gate.set_read_only(False)
    assert ask(engine, session, "SET", "k", "v") == b"+OK\r\n"


def test_a_blocked_writer_is_not_served_with_too_few_replicas(engine: Engine):
    waiting, writer = engine.create_session(), engine.create_session()
    writer.replayed = True
    ask(engine, waiting, *["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"])
    assert ask(engine, waiting, *["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"]) == b""
    engine.write_gate.set_too_few_replicas(True)
    ask(engine, writer, *["XADD", "s", "*", "f", "v"])
    assert waiting.reply.take() == b"-NOREPLICAS Not enough good replicas to write.\r\n"


def test_all_who_wait_are_told_and_closed_when_the_role_changes(engine: Engine):
    """Readers, too, as in redis-server; paused requests and subscribers stay."""
    blocked = [engine.create_session() for _ in range(3)]
    lines = ["XREAD BLOCK 0 STREAMS s $", "XREADGROUP GROUP g c BLOCK 0 STREAMS none >", "WAIT 1 0"]
    ask(engine, blocked[0], *["XGROUP", "CREATE", "none", "g", "0", "MKSTREAM"])
    for session, line in zip(blocked, lines, strict=True):
        assert ask(engine, session, *line.split()) == b""
    subscriber, paused, idle = (engine.create_session() for _ in range(3))
    ask(engine, subscriber, "SUBSCRIBE", "c")
    ask(engine, idle, "CLIENT", "PAUSE", "1000", "WRITE")
    assert ask(engine, paused, "SET", "k", "v") == b""
    engine.unblock_all(CommandError(ROLE_CHANGED))
    assert engine.woken_sessions == blocked
    for session in blocked:
        assert session.reply.take() == b"-" + ROLE_CHANGED.encode() + b"\r\n"
        assert session.closing and session.waiter is None
    assert not (subscriber.closing or paused.closing or idle.closing)
    assert paused.waiter is not None and not subscriber.reply.take()
