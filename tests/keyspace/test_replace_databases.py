"""A keyspace whose data are replaced by those of another, as after a snapshot of the primary."""

from headrace.engine.engine import Engine
from headrace.keyspace.keyspace import Keyspace
from headrace.resp.reply_parser import ReplyParser

NOW = 1_000_000


def ask(engine, session, line, now=NOW):
    engine.execute(session, line.encode().split(), now)
    return reply_of(session)


def reply_of(session):
    parser = ReplyParser()
    parser.feed(session.reply.take())
    return parser.next()


def filled(*lines):
    engine = Engine()
    session = engine.create_session()
    for line in lines:
        ask(engine, session, line)
    return engine, session


def replace(engine, *lines):
    other, _ = filled(*lines)
    total = other.keyspace.memory.total
    engine.keyspace.replace_databases(other.keyspace)
    engine.after_nonclient_change()
    return total


def test_all_data_are_those_of_the_other():
    engine, session = filled("SET a 1", "XADD old 1-0 f v", "SELECT 2", "SET b 2")
    replace(engine, "SET a 3 EX 10", "XADD s 1-0 f v", "SELECT 3", "SET c 4")
    assert [ask(engine, session, f"SELECT {i}") and ask(engine, session, "DBSIZE") for i in (0, 2, 3)] == [
        2,
        0,
        1,
    ]
    ask(engine, session, "SELECT 0")
    assert ask(engine, session, "GET a") == b"3" and ask(engine, session, "TTL a") == 10
    assert ask(engine, session, "GET a", NOW + 10_000) is None
    assert ask(engine, session, "XLEN s") == 1


def test_memory_is_accounted_as_before():
    engine, session = filled("XADD old 1-0 f v", "SET a 1 EX 5")
    total = replace(engine, "XADD s 1-0 f v", "XGROUP CREATE s g 0", "SET b 2 EX 5")
    memory = engine.keyspace.memory
    assert memory.total == total
    for i in range(2, 1000):
        ask(engine, session, f"XADD s {i}-0 field value")
    assert memory.total > total + 10_000
    assert list(engine.keyspace.evictable) == [engine.keyspace.databases[0].values[b"s"]]
    ask(engine, session, "FLUSHALL")
    assert memory.total == 0


def test_watches_of_old_and_new_keys_are_invalidated():
    for key, reply in (("old", None), ("new", None), ("neither", [b"PONG"])):
        engine, session = filled("SET old 1", f"WATCH {key}")
        replace(engine, "SET new 1")
        ask(engine, session, "MULTI")
        ask(engine, session, "PING")
        found = ask(engine, session, "EXEC")
        assert (found is None) == (reply is None)


def test_waiters_are_served_from_the_new_data():
    engine, session = filled("XADD s 1-0 f v")
    ask(engine, session, "XREAD BLOCK 0 STREAMS s t 5-0 0")
    assert session.waiter is not None
    replace(engine, "XADD t 9-0 f v")
    assert session.waiter is None
    assert reply_of(session) == [[b"t", [[b"9-0", [b"f", b"v"]]]]]


def test_a_scan_in_progress_returns_every_key_that_stays():
    lines = [f"SET key{i} 1" for i in range(50)]
    engine, session = filled(*lines)
    cursor, found = ask(engine, session, "SCAN 0 COUNT 20")
    assert cursor != b"0"
    replace(engine, *lines, *[f"SET new{i} 1" for i in range(30)])
    while cursor != b"0":
        cursor, keys = ask(engine, session, f"SCAN {cursor.decode()} COUNT 7")
        found += keys
    assert {b"key%d" % i for i in range(50)} <= set(found)
    assert len(found) == len(set(found))


def test_compaction_and_expiry_of_iids_go_on_in_the_new_streams():
    engine, _ = filled()
    lines = [f"XADD s {i}-0 f v" for i in range(1, 301)] + [f"XDEL s {i}-0" for i in range(2, 90)]
    other, _ = filled(*lines)
    engine.keyspace.replace_databases(other.keyspace)
    assert engine.keyspace.compaction is other.keyspace.compaction
    assert engine.next_deadline() >= 0
    before = engine.keyspace.memory.total
    for i in range(1000):
        engine.tick(NOW + i)
    assert engine.keyspace.memory.total < before


def test_settings_stay():
    engine, _ = filled()
    other = Keyspace()
    other.settings.stream_node_max_entries = 7
    engine.keyspace.replace_databases(other)
    assert engine.keyspace.settings.stream_node_max_entries == 100
