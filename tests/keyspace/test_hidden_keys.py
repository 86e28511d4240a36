"""On a replica, an expired key is missing until its primary deletes it: as on a replica of redis-server."""

from __future__ import annotations

from headrace.engine.engine import Engine
from support.raw_redis import RawRedis
from support.redis_server import redis_server
from support.waiting import wait_until

LATE = 10_000


def ask(engine: Engine, session, line: str, now: int = LATE) -> bytes:
    engine.execute(session, line.encode().split(), now)
    return bytes(session.reply.take())


def replica(*lines: str) -> Engine:
    """Return an engine with expired keys, which it hides."""
    engine = Engine()
    engine.set_effect_recording(True)
    engine.keyspace.hide_expired = True
    session = engine.create_session()
    for line in lines:
        ask(engine, session, line, 1000)
    engine.effects.take()
    return engine


READS = (
    """
DBSIZE|KEYS *|SCAN 0|GET k|EXISTS k|TTL k|PTTL k|TYPE k|RANDOMKEY|DUMP k|OBJECT ENCODING k|TOUCH k
EXPIRETIME k|STRLEN k|XLEN s|XRANGE s - +|XREAD STREAMS s 0|XINFO STREAM s|DBSIZE|KEYS *
""".strip()
    .replace("\n", "|")
    .split("|")
)


def test_replies_on_a_replica_are_those_of_redis():
    with (
        redis_server(None, "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0") as port,
        redis_server(None, "--replicaof", f"127.0.0.1 {port}") as other,
        RawRedis(port) as primary,
        RawRedis(other) as theirs,
    ):
        assert primary.ask("DEBUG", "SET-ACTIVE-EXPIRE", "0") == b"+OK\r\n"
        lines = ["SET k v PX 1", "XADD s 1-1 f v", "PEXPIRE s 1", "SET lasting v"]
        engine = replica(*lines)
        for line in lines:
            primary.ask(*line.split())
        wait_until(lambda: theirs.ask("EXISTS", "lasting") == b":1\r\n")
        wait_until(lambda: theirs.ask("EXISTS", "k", "s") == b":0\r\n")
        session = engine.create_session()
        for line in READS:
            assert ask(engine, session, line) == theirs.ask(*line.split()), line
        assert engine.effects.take() == [] and engine.keyspace.expired_count == 0


def test_nothing_is_deleted_by_time():
    engine = replica("SET k v PX 1", "SET l v PX 5")
    engine.tick(LATE)
    assert engine.keyspace.next_expiry() == -1 and engine.next_deadline() == -1
    assert len(engine.keyspace.databases[0].values) == 2


def test_a_random_key_is_a_hidden_one_only_if_there_is_no_other():
    engine = replica(*(f"SET k{i} v PX 1" for i in range(300)))
    session = engine.create_session()
    assert ask(engine, session, "RANDOMKEY").startswith(b"$")
    ask(engine, session, "SET lasting v")
    for _ in range(20):
        assert ask(engine, session, "RANDOMKEY") == b"$7\r\nlasting\r\n"


def test_commands_of_the_primary_see_the_key():
    engine = replica("SET k v PX 1")
    primary = engine.create_session()
    primary.replayed = True
    engine.keyspace.ignore_expiry = True
    assert ask(engine, primary, "APPEND k w") == b":2\r\n"
    assert ask(engine, primary, "GET k") == b"$2\r\nvw\r\n"
    engine.keyspace.ignore_expiry = False
    assert ask(engine, primary, "GET k") == b"$-1\r\n"
    engine.keyspace.ignore_expiry = True
    assert ask(engine, primary, "DEL k") == b":1\r\n"
    assert not engine.keyspace.databases[0].values


def test_a_write_on_a_writable_replica_begins_a_new_value():
    """As in redis-server."""
    engine = replica("SET k v PX 1")
    session = engine.create_session()
    assert ask(engine, session, "XADD k 5-5 f v") == b"$3\r\n5-5\r\n"
    assert ask(engine, session, "TTL k") == b":-1\r\n"
    assert ask(engine, session, "DBSIZE") == b":1\r\n"


def test_a_watched_key_that_expires_meanwhile_fails_the_transaction():
    engine = replica("SET k v PX 100", "SET gone v PX 1")
    session = engine.create_session()
    for key, now, reply in (("k", 1050, b"*-1\r\n"), ("gone", LATE, b"*1\r\n+PONG\r\n")):
        ask(engine, session, f"WATCH {key}", now)
        ask(engine, session, "MULTI")
        ask(engine, session, "PING")
        assert ask(engine, session, "EXEC") == reply


def test_after_a_promotion_expired_keys_are_deleted_and_recorded():
    engine = replica("SET k v PX 1", "SET l v PX 1")
    engine.keyspace.hide_expired = False
    assert engine.keyspace.next_expiry() == 1001
    assert ask(engine, engine.create_session(), "GET k") == b"$-1\r\n"
    engine.tick(LATE)
    assert engine.effects.take() == [(0, [b"DEL", b"k"]), (0, [b"DEL", b"l"])]
    assert engine.keyspace.expired_count == 2


def test_a_pause_of_writes_keeps_expired_keys_and_hides_them():
    """As in redis-server: the data stays the same until the pause ends."""
    with redis_server() as port, RawRedis(port) as theirs:
        engine = Engine()
        engine.set_effect_recording(True)
        session = engine.create_session()
        for line in ("SET lasting v", "SET k v PX 100", "WATCH k", "CLIENT PAUSE 600000 WRITE"):
            assert ask(engine, session, line, 1000) == theirs.ask(*line.split()) == b"+OK\r\n"
        wait_until(lambda: theirs.ask("EXISTS", "k") == b":0\r\n")
        engine.tick(LATE)
        engine.effects.take()
        for line in ("GET k", "TTL k", "KEYS *", "SCAN 0", "DBSIZE", "RANDOMKEY", "MULTI", "PING", "EXEC"):
            assert ask(engine, session, line) == theirs.ask(*line.split()), line
        assert engine.effects.take() == []
        for line in ("CLIENT UNPAUSE", "GET k"):
            assert ask(engine, session, line) == theirs.ask(*line.split())
        engine.tick(LATE + 1)
        assert ask(engine, session, "DBSIZE") == b":1\r\n"
        assert engine.effects.take() == [(0, [b"DEL", b"k"])]
