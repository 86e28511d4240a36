"""What keeps requests from running: a load, a disk in trouble; a pause is tested with the engine."""

from __future__ import annotations

import pytest
from redis.lock import Lock

from headrace.engine.engine import Engine
from headrace.engine.write_gate import FAILOVER_PAUSE, SHUTDOWN_PAUSE, WriteGate
from headrace.keyspace.effects import Effects
from headrace.keyspace.eviction import Eviction
from headrace.keyspace.keyspace import Keyspace

TROUBLE = b"MISCONF the disk is full"


def ask(engine: Engine, session, line: str, now: int = 1000) -> bytes:
    engine.execute(session, [word.encode() for word in line.split()], now)
    return bytes(session.reply.take())


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.mark.parametrize(
    "line", ["SET k v", "XADD s * f v", "XREADGROUP GROUP g a STREAMS s >", "PING", "FLUSHALL", "DEL k"]
)
def test_what_may_write_is_refused(engine: Engine, line: str):
    engine.write_gate.reject_writes(TROUBLE)
    session = engine.create_session()
    assert ask(engine, session, line) == b"-MISCONF the disk is full\r\n"
    engine.write_gate.reject_writes(None)
    assert b"MISCONF" not in ask(engine, session, line)


@pytest.mark.parametrize("line", ["GET k", "XRANGE s - +", "XLEN s", "INFO", "CONFIG GET port", "MULTI"])
def test_what_reads_is_not(engine: Engine, line: str):
    engine.write_gate.reject_writes(TROUBLE)
    assert b"MISCONF" not in ask(engine, engine.create_session(), line)


def test_a_rejected_write_fails_its_transaction(engine: Engine):
    session = engine.create_session()
    engine.write_gate.reject_writes(TROUBLE)
    ask(engine, session, "MULTI")
    assert ask(engine, session, "SET k v").startswith(b"-MISCONF")
    assert ask(engine, session, "EXEC").startswith(b"-EXECABORT")


def test_a_transaction_queued_before_is_refused_whole(engine: Engine):
    session = engine.create_session()
    ask(engine, session, "MULTI")
    ask(engine, session, "SET k v")
    engine.write_gate.reject_writes(TROUBLE)
    assert (
        ask(engine, session, "EXEC")
        == b"-EXECABORT Transaction discarded because of: MISCONF the disk is full\r\n"
    )
    engine.write_gate.reject_writes(None)
    assert ask(engine, session, "GET k") == b"$-1\r\n"


def release_lock(engine: Engine, session) -> bytes:
    """A script that takes the key k away, although EVAL's row does not say that it writes."""
    words = [b"EVAL", Lock.LUA_RELEASE_SCRIPT.encode(), b"1", b"k", b"token"]
    engine.execute(session, words, 1000)
    return bytes(session.reply.take())


def test_a_script_queued_before_is_rejected_where_it_writes(engine: Engine):
    session = engine.create_session()
    ask(engine, session, "SET k token")
    ask(engine, session, "MULTI")
    assert release_lock(engine, session) == b"+QUEUED\r\n"
    engine.write_gate.reject_writes(TROUBLE)
    assert ask(engine, session, "EXEC").startswith(b"*1\r\n-MISCONF the disk is full script: ")
    assert ask(engine, session, "EXISTS k") == b":1\r\n"


def test_a_script_waits_while_writes_are_paused(engine: Engine):
    ask(engine, engine.create_session(), "SET k token")
    ask(engine, engine.create_session(), "CLIENT PAUSE 100 WRITE")
    session = engine.create_session()
    assert release_lock(engine, session) == b""
    engine.tick(1200)
    assert bytes(session.reply.take()) == b":1\r\n"


def test_while_loading_only_what_needs_no_data_is_answered(engine: Engine):
    session = engine.create_session()
    engine.write_gate.set_loading(True)
    for line in ("GET k", "PING", "SET k v", "XLEN s", "KEYS *"):
        assert ask(engine, session, line) == b"-LOADING Redis is loading the dataset in memory\r\n"
    assert ask(engine, session, "INFO clients").startswith(b"$")
    engine.write_gate.set_loading(False)
    assert ask(engine, session, "PING") == b"+PONG\r\n"


def test_what_a_log_repeats_passes(engine: Engine):
    session = engine.create_session()
    session.replayed = True
    engine.write_gate.set_loading(True)
    engine.write_gate.reject_writes(TROUBLE)
    assert ask(engine, session, "SET k v") == b"+OK\r\n"


def test_the_gate_is_shut_while_one_reason_is_left():
    gate = WriteGate(Eviction(Keyspace(), Effects()))
    gate.set_loading(True)
    gate.pause(5000, False)
    gate.reject_writes(TROUBLE)
    gate.reject_writes(None)
    gate.set_loading(False)
    assert gate.may_reject
    assert gate.pop_paused_sessions(5000) == {}
    assert not gate.may_reject


def test_a_failover_or_shutdown_that_ends_leaves_the_pause_of_a_client(engine: Engine):
    admin, writer = engine.create_session(), engine.create_session()
    gate = engine.write_gate
    ask(engine, admin, "CLIENT PAUSE 4000 WRITE")
    for owner in (FAILOVER_PAUSE, SHUTDOWN_PAUSE):
        gate.pause(1 << 52, True, owner)
        gate.end_pause(owner)
        engine.tick(1001)
    assert ask(engine, writer, "SET k v") == b""
    engine.tick(4999)
    assert writer.reply.take() == b""
    engine.tick(5000)
    assert writer.reply.take() == b"+OK\r\n" and not gate.may_reject


def test_a_failover_goes_on_when_the_pause_of_a_client_ends(engine: Engine):
    admin, reader, writer = engine.create_session(), engine.create_session(), engine.create_session()
    gate = engine.write_gate
    ask(engine, admin, "CLIENT PAUSE 500 ALL")
    gate.pause(1 << 52, True, FAILOVER_PAUSE)
    assert ask(engine, reader, "GET k") == ask(engine, writer, "SET k v") == b""
    engine.tick(1500)
    assert reader.reply.take() == b"$-1\r\n" and writer.reply.take() == b""
    assert ask(engine, admin, "CLIENT UNPAUSE") == b"+OK\r\n"
    engine.tick(1501)
    assert writer.reply.take() == b""
    gate.end_pause(FAILOVER_PAUSE)
    engine.tick(1502)
    assert writer.reply.take() == b"+OK\r\n"


def test_a_pause_of_all_requests_does_not_hold_those_of_replicas(engine: Engine):
    admin, replica, other = engine.create_session(), engine.create_session(), engine.create_session()
    replica.is_replica = True
    ask(engine, admin, "CLIENT PAUSE 1000 ALL")
    assert ask(engine, replica, "REPLCONF ACK 100") == b"" and replica.waiter is None
    assert ask(engine, other, "PING") == b"" and other.waiter is not None
