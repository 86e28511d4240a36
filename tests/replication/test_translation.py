"""Effects for replicas of Redis 7.0: applied to a real redis-server they give the same data."""

import pytest
import redis

from headrace.engine.engine import Engine
from headrace.persistence.dump import dump
from headrace.persistence.rdb import versions
from headrace.persistence.rule_records import recorded_command, rule_record
from headrace.replication.translation import Translator, first_unsupported_command, translate_one
from headrace.resp.request import request


def words(text: str) -> list[bytes]:
    return text.encode().split()


@pytest.mark.parametrize(
    ("effect", "replaced"),
    [
        ("XADD s 1-0 f v", ["XADD s 1-0 f v"]),
        ("XADD s NOMKSTREAM MAXLEN = 5 LIMIT 3 1-0 f v", ["XADD s NOMKSTREAM MAXLEN = 5 LIMIT 3 1-0 f v"]),
        ("XADD s KEEPREF MINID 5 1-0 KEEPREF v", ["XADD s MINID 5 1-0 KEEPREF v"]),
        ("XADD s IDMP p i MAXLEN 3 1-0 f v", ["XADD s MAXLEN 3 1-0 f v", "-XIDMPRECORD s p i 1-0"]),
        ("XADD s IDMP p i * f v", ["-XADD s IDMP p i * f v"]),
        ("XTRIM s MAXLEN = 5 KEEPREF", ["XTRIM s MAXLEN = 5"]),
        ("XDELEX s IDS 2 1-0 2-0", ["XDEL s 1-0 2-0"]),
        ("XDELEX s keepref ids 1 1-0", ["XDEL s 1-0"]),
        ("XDELEX s DELREF IDS 1 1-0", None),
        ("XTRIM s MAXLEN = 5 ACKED", None),
        ("XADD s MAXLEN 5 DELREF 1-0 f v", None),
        ("XADD s DELREF IDMP p i 1-0 f v", ["XADD s 1-0 f v", "-XIDMPRECORD s p i 1-0"]),
        ("XACKDEL s g IDS 1 1-0", None),
        ("SET k v IFEQ w", None),
        ("MSETEX 1 k v", None),
        ("HSET k f v", ["HSET k f v"]),
    ],
)
def test_an_effect_gets_the_form_of_redis_7_0(effect: str, replaced: list[str] | None) -> None:
    found = translate_one(words(effect))
    expected = (
        None
        if replaced is None
        else [rule_record(words(r[1:])) if r[0] == "-" else words(r) for r in replaced]
    )
    assert found == expected


def test_a_payload_that_redis_7_0_rejects_is_replaced_by_the_value(client: redis.Redis) -> None:
    engine = Engine()
    engine.set_effect_recording(True)
    session = engine.create_session()
    translator = Translator(engine.keyspace)
    now = 1_700_000_000_000
    engine.execute(session, words("XADD s 1-0 f v"), now)
    newest = dump(
        engine.keyspace.databases[0].values[b"s"],
        versions.by_name("redis-8.8"),
        compress=True,
        now_ms=now,
        settings=engine.keyspace.settings,
    )
    engine.effects.take()
    session.reply.take()
    for key in (b"a", b"b"):
        engine.execute(session, [b"RESTORE", key, b"0", newest], now)
    assert session.reply.take() == b"+OK\r\n" * 2
    items = engine.effects.take()
    assert first_unsupported_command(request(*items[0][1])) == "RESTORE"
    client.flushall()
    for _, effect in translator.translate(items):
        client.execute_command(*effect)
    assert client.xrange("a") == client.xrange("b") == [("1-0", {"f": "v"})]


def test_commands_for_headrace_only_are_messages_for_others() -> None:
    translator = Translator(Engine().keyspace)
    lines = ["MULTI", "XADD s IDMP p i 1-0 f v", "XADD s IDMP p i * f v", "XCFGSET s IDMP-MAXSIZE 5", "EXEC"]
    items = [(0, words(line)) for line in lines]
    found = [effect for _, effect in translator.translate(items)]
    assert [effect[0] for effect in found if effect[0] != b"PUBLISH"] == [b"MULTI", b"XADD", b"EXEC"]
    assert [recorded_command(effect) for effect in found if effect[0] == b"PUBLISH"] == [
        words("XIDMPRECORD s p i 1-0"),
        words("XADD s IDMP p i * f v"),
        words("XCFGSET s IDMP-MAXSIZE 5"),
    ]
