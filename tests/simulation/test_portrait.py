"""The portrait contains and names every change that a client could observe."""

import pytest

from headrace.engine.engine import Engine
from support.portrait import alive, differences, portrait

SCENE = """SET text hello
    SELECT 3
    XADD s 1-0 f 1
    XADD s 2-0 f 2
    XADD s 3-0 f 3
    XADD s IDMP p i * f 4
    XGROUP CREATE s g 0
    XREADGROUP GROUP g ann COUNT 2 STREAMS s >
    XREADGROUP GROUP g bob COUNT 1 STREAMS s >
    PEXPIRE s 200000"""


def run(engine, session, line, now):
    engine.execute(session, line.split(), now)
    answer = session.reply.take()
    assert not answer.startswith(b"-"), (line, answer)


def scene():
    engine = Engine()
    session = engine.create_session()
    for line in SCENE.encode().splitlines():
        run(engine, session, line, 1000)
    return engine, session


def test_the_same_history_gives_the_same_portrait():
    one, other = portrait(scene()[0].keyspace, nodes=True), portrait(scene()[0].keyspace, nodes=True)
    assert one == other
    assert differences(one, other) == []
    assert one[0, b"text"] == {"type": "string", "value": b"hello", "expiry": -1}
    assert [entry for entry, _ in one[3, b"s"]["entries"]] == [(1, 0), (2, 0), (3, 0), (1000, 0)]
    assert one[3, b"s"]["groups"][b"g"]["pending"][2] == ((3, 0), b"bob", 1000, 1)


@pytest.mark.parametrize(
    "line",
    """XADD s 2000-0 f v;XDEL s 2-0;XSETID s 2000-0;XACK s g 1-0;XCLAIM s g ann 0 3-0
    XCLAIM s g bob 0 3-0 TIME 5
    XCLAIM s g bob 0 3-0 RETRYCOUNT 7 JUSTID;XCLAIM s g ann 0 1-0 TIME 1000 RETRYCOUNT 1
    XGROUP CREATECONSUMER s g cid;XGROUP SETID s g 1-0
    XGROUP SETID s g 3-0 ENTRIESREAD 2;XGROUP CREATE s h 0;XADD s IDMP p j 1000-* f v;XCFGSET s IDMP-MAXSIZE 7
    XADD s IDMP p i * f 4;XREADGROUP GROUP g ann STREAMS s 9-0;XNACK s g SILENT IDS 1 1-0
    PERSIST s;SET t 1;DEL s;COPY s t;MOVE s 0""".replace("\n", ";").split(";"),
)
def test_a_change_is_seen_and_named(line):
    engine, session = scene()
    before = portrait(engine.keyspace)
    if "IDMP p j" in line:
        line = line.replace("1000-*", "*")
    run(engine, session, line.strip().encode(), 1001)
    assert differences(before, portrait(engine.keyspace)) != []


def test_what_a_log_does_not_store_can_be_left_out():
    engine, session = scene()
    before = portrait(engine.keyspace, times=False)
    run(engine, session, b"XREADGROUP GROUP g ann STREAMS s 9-0", 5000)
    assert portrait(engine.keyspace, times=False) == before


def test_ties_in_the_order_of_delivery_can_be_left_out():
    engine, session = scene()
    before, strict = portrait(engine.keyspace, ties=False), portrait(engine.keyspace)
    run(engine, session, b"XCLAIM s g ann 0 1-0 TIME 1000 RETRYCOUNT 1 JUSTID", 1000)
    assert portrait(engine.keyspace) != strict
    assert portrait(engine.keyspace, ties=False) == before


def test_expired_keys_are_not_in_a_portrait():
    shown = portrait(scene()[0].keyspace)
    assert alive(shown, 1000) == shown
    assert alive(shown, 101_000)[3, b"s"]["idmp"]["iids"] == {}
    assert list(alive(shown, 201_000)) == [(0, b"text")]
