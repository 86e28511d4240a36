"""Scheduled entries: XADD with DELAY and DUE."""

from __future__ import annotations

import random
from typing import Any

import pytest


def texts(talk: Any, key: str = "s") -> list[str]:
    return [entry[1][1] for entry in talk(f"XRANGE {key} - +")]


def test_a_delayed_entry_is_added_when_it_is_due(talk: Any) -> None:
    assert talk("XADD s DELAY 500 * f v g w") == "1000-0"
    assert talk("XRANGE {s}:scheduled - +") == [["1000-0", ["f", "v", "g", "w", "headrace:due", "1500"]]]
    assert talk("EXISTS s") == 0
    while (deadline := talk.engine.next_deadline()) > 0 and deadline < 1500:
        talk.tick(deadline)
        assert talk("EXISTS s") == 0
    talk.effects()
    talk.tick(1500)
    assert talk("XRANGE s - +") == [["1500-0", ["f", "v", "g", "w"]]]
    assert talk("XLEN {s}:scheduled") == 0
    assert talk.effects() == ["MULTI", "XADD s 1500-0 f v g w", "XDEL {s}:scheduled 1000-0", "EXEC"]
    assert talk.engine.next_deadline() == -1


def test_the_effect_of_scheduling_is_a_plain_xadd(talk: Any) -> None:
    talk("XADD s DUE 5000 * f v")
    assert talk.effects() == ["XADD {s}:scheduled 1000-0 f v headrace:due 5000"]


def test_entries_are_added_by_due_time_then_by_id(talk: Any) -> None:
    chance = random.Random(3)
    times = [chance.choice((1700, 2000, 2300, 2301, 4000, 9000)) for _ in range(300)]
    for number, due in enumerate(times):
        talk(f"XADD s DUE {due} * n {number}")
    while (deadline := talk.engine.next_deadline()) > 0:
        talk.tick(deadline)
        added = len(texts(talk)) if talk("EXISTS s") else 0
        assert added <= sum(due <= talk.now for due in times)
    expected = [str(number) for number, _ in sorted(enumerate(times), key=lambda item: item[1])]
    assert texts(talk) == expected


def test_a_past_time_is_due_at_once(talk: Any) -> None:
    talk("XADD s DUE 5 * f past")
    talk("XADD s DELAY 0 * f now")
    assert texts(talk) == ["past", "now"]


def test_a_blocked_reader_gets_a_scheduled_entry(talk: Any) -> None:
    assert talk("XREAD BLOCK 0 STREAMS s $", client="b") == "(waits)"
    talk("XADD s DELAY 10 * f v")
    talk.tick(talk.engine.next_deadline())
    talk.tick(1010)
    assert talk.heard("b")[0][1][0][1] == ["f", "v"]


def test_a_scheduled_entry_is_cancelled_by_xdel(talk: Any) -> None:
    talk("XADD s DELAY 10 * f v")
    assert talk("XDEL {s}:scheduled 1000-0") == 1
    talk.tick(2000)
    assert talk("EXISTS s") == 0 and talk.engine.next_deadline() == -1


def test_a_full_stream_delays_scheduled_entries_and_loses_none(talk: Any) -> None:
    talk("XADD s 1-0 f first")
    talk("XCFGSET s MAX-LEN 1 DISCARD NEW")
    talk("XADD s DELAY 10 * f second")
    for now in (1010, 2010, 3010):
        talk.tick(now)
        assert (texts(talk), talk("XLEN {s}:scheduled")) == (["first"], 1)
    talk("XDEL s 1-0")
    talk.tick(4010)
    assert texts(talk) == ["second"]


def test_a_schedule_that_was_loaded_is_delivered_in_order(talk: Any) -> None:
    for due in (5000, 3000, 4000):
        talk(f"XADD s DUE {due} * f {due}")
    payload = talk.engine.keyspace.databases[0].values[b"{s}:scheduled"].copy()
    other = type(talk)()
    other.engine.keyspace.databases[0].put(b"{s}:scheduled", payload)
    other.tick(9000)
    other.tick(9000)
    assert texts(other) == ["3000", "4000", "5000"]


@pytest.mark.parametrize("key", ["{shop}s", "a}b"])
def test_streams_with_braces_have_schedules_of_their_own(talk: Any, key: str) -> None:
    talk(f"XADD {key} DELAY 10 * f v")
    talk.tick(1010)
    talk.tick(1010)
    assert texts(talk, key) == ["v"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XADD s DELAY -1 * f v", "-ERR DELAY and DUE must be milliseconds of at most 17 digits"),
        ("XADD s DELAY 1 5-0 f v", "-ERR syntax error, DELAY and DUE are the only option"),
        ("XADD s DELAY 1 IDMP p i * f v", "-ERR syntax error, DELAY and DUE are the only option"),
        ("XADD s DELAY 1 * f", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD text DELAY 1 * f v", "-WRONGTYPE"),
        ("XADD s MAXLEN 5 DELAY 1 * f v", "-ERR"),
    ],
)
def test_an_invalid_request_schedules_nothing(talk: Any, line: str, error: str) -> None:
    talk("SET text x")
    assert talk(line).startswith(error)
    assert talk("DBSIZE") == 1


def test_thousands_that_are_due_at_once_are_delivered_in_steps(talk: Any) -> None:
    talk("MULTI")
    for number in range(5000):
        talk(f"XADD s DUE {2000 + number % 2} * n {number}")
    talk("EXEC")
    talk.tick(2000)
    first = talk("XLEN s")
    assert first < 1000
    for _ in range(200):
        talk.tick(2001)
        talk("PING")
    values = [int(fields[1]) for _, fields in talk("XRANGE s - +")]
    assert values == [*range(0, 5000, 2), *range(1, 5000, 2)]
    assert talk("XLEN {s}:scheduled") == 0


@pytest.mark.parametrize(
    "line",
    [
        "XADD {s}:scheduled * f v headrace:due 1000",
        "RENAME {s}:x {s}:scheduled",
        "RENAMENX {s}:x {s}:scheduled",
        "COPY {s}:x {s}:scheduled",
        "MOVE {s}:scheduled 1",
        "RESTORE {s}:scheduled 0 payload",
    ],
)
def test_a_user_schedules_nothing_for_a_stream_that_it_may_not_write(talk: Any, line: str) -> None:
    talk("XADD {s}:x * f v headrace:due 1000")
    talk("ACL SETUSER eve on nopass ~{s}:* +@all")
    talk("AUTH eve x", client="e")
    assert talk(line, client="e").startswith("-NOPERM")
    assert talk("XADD {s}:y * f v", client="e")[0] != "-"
    assert talk("XDEL {s}:scheduled 1-0", client="e") == 0
    talk("ACL SETUSER eve ~s")
    assert not str(talk(line, client="e")).startswith("-NOPERM")


@pytest.mark.parametrize(
    "line",
    ["XADD {s}:scheduled * f v headrace:due 1000", "RENAME {s}:x {s}:scheduled", "COPY {s}:x {s}:scheduled"],
)
def test_a_script_schedules_nothing_for_a_stream_that_its_user_may_not_write(talk: Any, line: str) -> None:
    talk("XADD {s}:x * f v headrace:due 1000")
    talk("ACL SETUSER eve on nopass ~{s}:* +@all")
    talk("AUTH eve x", client="e")
    script, words = "return redis.call(unpack(ARGV))", line.split()
    assert talk.words("EVAL", script, "0", *words, client="e").startswith("-ERR ACL failure in script")
    check = "return redis.acl_check_cmd(unpack(ARGV))"
    assert talk.words("EVAL", check, "0", *words, client="e") is None
    talk("ACL SETUSER eve ~s")
    assert talk.words("EVAL", check, "0", *words, client="e") == 1
    assert not str(talk.words("EVAL", script, "0", *words, client="e")).startswith("-")


@pytest.mark.parametrize(
    "words",
    [
        ("XADD", "{X}:scheduled", "*", "a", "1", "headrace:due", "1"),
        ("XADD", "{X}:scheduled::scheduled", "*", "a", "1", "headrace:due", "1", "headrace:due", "1"),
        ("RENAME", "q", "{X}:scheduled::scheduled"),
        ("XGROUP", "CFGSET", "q", "g", "LEASE", "9", "MAX-DELIVERIES", "1", "DEAD-LETTER", "{X}:scheduled"),
        ("EVAL", "return redis.call('XADD', '{X}:scheduled::scheduled', '*', 'headrace:due', '1')", "0"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_user_schedules_nothing_for_a_stream_that_is_not_his(talk: Any, words: tuple[str, ...]) -> None:
    talk("XADD q 1-1 headrace:due 1")
    talk("XGROUP CREATE q g 0")
    talk.engine.auth.begin_session(talk.engine.create_session())
    talk("ACL SETUSER eve on nopass ~q ~{X}:scheduled ~{X}:scheduled::scheduled +@all")
    talk("PING", client="eve")
    talk.engine.auth.begin_session(talk.clients["eve"])
    talk("AUTH eve x", client="eve")
    denied = talk.words(*words, client="eve")
    assert "NOPERM" in str(denied) or "No permissions to access a key" in str(denied)
    assert talk("EXISTS X {X}:scheduled {X}:scheduled::scheduled") == 0
