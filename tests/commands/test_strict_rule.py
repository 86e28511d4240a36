"""The rule STRICT rejects commands that would remove entries which other rules keep."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from support.portrait import portrait_of


def ids(talk: Any, key: str = "s") -> list[str]:
    return [entry[0].removesuffix("-0") for entry in talk(f"XRANGE {key} - +")]


@pytest.fixture
def unacked(talk: Any) -> Any:
    """A stream s of 1-0 to 6-0: g has acknowledged 1-0 and 2-0, and 3-0 is pending; h has read all."""
    talk.node_entries(2)
    for n in range(1, 7):
        talk(f"XADD s {n}-0 f {n}")
    talk("XGROUP CREATE s g 0")
    talk("XGROUP CREATE s h $")
    talk("XREADGROUP GROUP g ann COUNT 3 STREAMS s >")
    talk("XACK s g 1-0 2-0")
    assert talk("XCFGSET s KEEP-UNACKED 1 STRICT 1") == "OK"
    talk.effects()
    return talk


def kept(command: str, entry: str = "3-0", rule: str = "KEEP-UNACKED", key: str = "s") -> str:
    return f"-KEPT stream '{key}': {rule} keeps {entry}, and STRICT rejects {command}"


@pytest.mark.parametrize(
    "line",
    [
        "XTRIM s MAXLEN 3",
        "XTRIM s MAXLEN 0",
        "XTRIM s MAXLEN ~ 2",
        "XTRIM s MINID 3-1",
        "XTRIM s MINID ~ 5",
        "XTRIM s MAXLEN 3 DELREF",
        "XTRIM s MAXLEN ~ 3 LIMIT 100 DELREF",
        "XADD s MAXLEN 4 7-0 f v",
        "XADD s MAXLEN ~ 3 * f v",
        "XADD s MINID 9 7-0 f v",
        "XDEL s 1-0 3-0",
        "XDELEX s IDS 1 3-0",
        "XDELEX s DELREF IDS 2 1-0 3-0",
        "DEL s",
        "DEL other s",
        "UNLINK s",
        "DELEX s",
        "SET s v",
        "SET s v EX 10",
        "SET s v KEEPTTL",
        "SET s v XX",
        "SETEX s 10 v",
        "PSETEX s 10 v",
        "MSET other w s v",
        "MSETEX 2 other w s v EX 10",
        "RENAME other s",
        "COPY other s REPLACE",
        "FLUSHDB",
        "FLUSHALL",
    ],
)
def test_a_kept_entry_is_not_removed(unacked: Any, line: str) -> None:
    unacked("SET other v")
    unacked.effects()
    before = portrait_of(unacked.engine.keyspace.databases[0].values[b"s"])
    assert unacked(line) == kept(line.split()[0])
    assert portrait_of(unacked.engine.keyspace.databases[0].values[b"s"]) == before
    assert unacked.effects() == [] and unacked("GET other") == "v"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("XTRIM s MAXLEN 4", "3456"),
        ("XTRIM s MAXLEN ~ 3", "3456"),
        ("XTRIM s MINID 3", "3456"),
        ("XTRIM s MINID ~ 4", "3456"),
        ("XTRIM s MAXLEN 0 ACKED", "3456"),
        ("XADD s MAXLEN 5 7-0 f v", "34567"),
        ("XADD s MAXLEN ~ 4 7-0 f v", "34567"),
        ("XDEL s 1-0 9-0", "23456"),
        ("XDELEX s ACKED IDS 3 1-0 2-0 3-0", "3456"),
        ("XACKDEL s g IDS 1 3-0", "12456"),
        ("XACKDEL s g IDS 1 5-0", "123456"),
    ],
)
def test_what_no_rule_keeps_is_removed(unacked: Any, line: str, left: str) -> None:
    assert not str(unacked(line)).startswith("-")
    assert "".join(ids(unacked)) == left


def test_xackdel_is_rejected_while_another_group_needs_the_entry(unacked: Any) -> None:
    unacked("XGROUP SETID s h 2-0")
    for policy in ("KEEPREF", "DELREF"):
        assert unacked(f"XACKDEL s g {policy} IDS 1 3-0") == kept("XACKDEL")
    assert unacked("XPENDING s g")[0] == 1
    assert unacked("XACKDEL s g ACKED IDS 1 3-0") == [2]


def test_an_approximate_trim_that_would_remove_nothing_is_not_rejected(talk: Any) -> None:
    for n in range(1, 7):
        talk(f"XADD s {n}-0 f {n}")
    talk("XGROUP CREATE s g 0")
    talk("XCFGSET s KEEP-UNACKED 1 STRICT 1")
    assert talk("XADD s MAXLEN ~ 3 7-0 f v") == "7-0"
    assert talk("XTRIM s MINID ~ 5") == 0
    assert talk("XTRIM s MAXLEN 6") == kept("XTRIM", "1-0")


def test_a_new_entry_is_not_trimmed_at_once(unacked: Any) -> None:
    unacked("XREADGROUP GROUP g ann STREAMS s >")
    unacked("XACK s g 3-0 4-0 5-0 6-0")
    message = "-KEPT stream 's': KEEP-UNACKED keeps the new entry, and STRICT rejects XADD"
    assert unacked("XADD s MAXLEN 0 7-0 f v") == message
    assert unacked("XADD s MINID 9 7-0 f v") == message
    assert unacked("XADD s MAXLEN 1 7-0 f v") == "7-0"
    assert ids(unacked) == ["7"]


def test_what_is_not_archived_is_not_removed(talk: Any) -> None:
    for n in range(1, 5):
        talk(f"XADD s {n}-0 f {n}")
    talk("XGROUP CREATE s g $")
    talk("XCFGSET s KEEP-UNARCHIVED 1 STRICT 1")
    assert talk("XDEL s 2-0") == kept("XDEL", "2-0", "KEEP-UNARCHIVED")
    talk("SET {s}:headrace:archived 2-0")
    assert talk("XDEL s 2-0") == 1
    assert talk("XTRIM s MAXLEN 1 ACKED") == kept("XTRIM", "3-0", "KEEP-UNARCHIVED")
    assert talk("XTRIM s MAXLEN 2") == 1
    assert talk("XDELEX s ACKED IDS 1 3-0") == kept("XDELEX", "3-0", "KEEP-UNARCHIVED")
    talk("SET {s}:headrace:archived 4-0")
    assert talk("DEL s") == 1


def test_a_stream_whose_entries_are_all_acknowledged_may_be_deleted(unacked: Any) -> None:
    unacked("XREADGROUP GROUP g ann STREAMS s >")
    assert unacked("DEL s") == kept("DEL")
    unacked("XACK s g 3-0 4-0 5-0 6-0")
    assert unacked("DEL s") == 1


def test_moving_a_stream_and_its_groups_stays_possible(unacked: Any) -> None:
    assert unacked("RENAME s t") == "OK"
    assert unacked("DEL t") == kept("DEL", key="t")
    assert unacked("SWAPDB 0 1") == "OK"
    assert unacked("FLUSHDB") == "OK"
    assert unacked("FLUSHALL") == kept("FLUSHALL", key="t")
    unacked("SELECT 1")
    assert unacked("XGROUP DESTROY t g") == 1
    assert unacked("DEL t") == 1


def test_restore_does_not_replace_a_stream_that_keeps_entries(unacked: Any) -> None:
    unacked("SET other v")
    unacked.words("DUMP", "other")
    unacked.say(["DUMP", "other"], "a")
    payload = unacked.clients["a"].reply.take().split(b"\r\n", 1)[1][:-2]
    assert unacked.words("RESTORE", "s", "0", payload, "REPLACE") == kept("RESTORE")
    assert unacked.words("RESTORE", "s", "1", payload, "REPLACE", "ABSTTL") == kept("RESTORE")


def test_a_strict_stream_does_not_expire(unacked: Any) -> None:
    for line in ("EXPIRE s 10", "PEXPIRE s 10", "EXPIREAT s 9999999999", "PEXPIREAT s 1", "EXPIRE s 1 NX"):
        message = f"-KEPT stream 's': it must not expire, and STRICT rejects {line.split()[0]}"
        assert unacked(line) == message
    assert unacked("EXPIRE s 1 XX") == 0
    unacked.say(["DUMP", "s"], "a")
    payload = unacked.clients["a"].reply.take().split(b"\r\n", 1)[1][:-2]
    assert "must not expire" in unacked.words("RESTORE", "t", "1000", payload)
    assert unacked.words("RESTORE", "t", "0", payload) == "OK"
    unacked("XADD u 1-0 f v")
    unacked("EXPIRE u 10")
    assert unacked("XCFGSET u KEEP-UNACKED 1 STRICT 1") == (
        "-ERR STRICT must not be set on a stream that expires; PERSIST it first"
    )


def test_transactions_and_scripts_get_the_error(unacked: Any) -> None:
    for line in ("MULTI", "DEL s", "XDEL s 1-0", "EXEC"):
        reply = unacked(line) if line != "EXEC" else unacked.raw(line)
    assert reply.startswith(b"*2\r\n-KEPT stream 's'") and reply.endswith(b":1\r\n")
    assert "KEPT stream 's'" in unacked.words("EVAL", "return redis.call('DEL', KEYS[1])", "1", "s")
    assert ids(unacked) == ["2", "3", "4", "5", "6"]


def test_a_replay_and_the_rules_themselves_are_not_rejected(unacked: Any) -> None:
    engine = Engine()
    replayer = Replayer(engine, unacked.now)
    for line in (
        *(f"XADD s {n}-0 f {n}" for n in range(1, 5)),
        "XGROUP CREATE s g 0",
        "XCFGSET s KEEP-UNACKED 1 KEEP-UNARCHIVED 1 STRICT 1",
        "XTRIM s MAXLEN = 2",
        "XADD s MAXLEN = 0 5-0 f v",
        "XADD s 6-0 f v",
        "XDEL s 6-0",
        "XADD s 7-0 f v",
        "PEXPIREAT s 1",
        "DEL s",
    ):
        assert replayer.replay([word.encode() for word in line.split()]) is None, line
    unacked("XCFGSET s DROP-ACKED 1 KEEP-UNARCHIVED 1")
    assert ids(unacked) == ["3", "4", "5", "6"]


def test_strict_needs_a_rule_that_keeps_something(talk: Any) -> None:
    talk("XADD s 1-0 f v")
    assert talk("XCFGSET s STRICT 1") == "-ERR STRICT requires KEEP-UNACKED or KEEP-UNARCHIVED"
    talk("XCFGSET s KEEP-UNACKED 1 STRICT 1")
    assert talk("XCFGSET s KEEP-UNACKED 0") == "-ERR STRICT requires KEEP-UNACKED or KEEP-UNARCHIVED"
    assert talk("XCFGSET s STRICT 0") == "OK"
    assert talk("XTRIM s MAXLEN 0") == 1
