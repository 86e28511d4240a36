"""DUMP and RESTORE: recorded effects, events, and payloads rejected beyond Redis.

Their replies beside a real server's stand in the conformance tests.
"""

import re

import pytest

from headrace.engine.engine import Engine
from support.portrait import differences, portrait

HISTORY = """
    SET plain value
    SET number 12345
    SET long xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    APPEND grown bytes
    XADD s 1-1 a 1
    XADD s 1-2 a 2
    XADD s 2-0 a 3 b 4
    XDEL s 1-2
    XGROUP CREATE s g 0
    XREADGROUP GROUP g alice COUNT 1 STREAMS s >
    XGROUP CREATECONSUMER s g bob
    XGROUP CREATE s other 1-1 ENTRIESREAD 1
    XGROUP CREATE empty g $ MKSTREAM
    XADD idle IDMP p i * f v
    XGROUP CREATE idle g 0
    XREADGROUP GROUP g c STREAMS idle >
    XNACK idle g FAIL IDS 1 1000000-0
"""
KEYS = ("plain", "number", "long", "grown", "s", "empty", "idle")


@pytest.fixture
def stocked(talk):
    """Strings and streams of all kinds; it is 1000 s now."""
    talk.now = 1_000_000
    for line in HISTORY.split("\n"):
        if line.strip():
            assert not str(talk(line)).startswith("-"), line
    talk.engine.effects.take()
    return talk


def payload(talk, key):
    """What DUMP answers, as bytes."""
    reply = talk.raw(f"DUMP {key}")
    head, _, rest = reply.partition(b"\r\n")
    assert head == b"$%d" % (len(rest) - 2)
    return rest[:-2]


def effects(talk):
    return [words for _, words in talk.engine.effects.take()]


@pytest.mark.parametrize("key", KEYS)
def test_a_restored_value_is_the_one_that_was_dumped(stocked, key):
    before = portrait(stocked.engine.keyspace, times=False)[0, key.encode()]
    data = payload(stocked, key)
    assert stocked.words("RESTORE", "copy", "0", data) == "OK"
    after = portrait(stocked.engine.keyspace, times=False)[0, b"copy"]
    assert differences(before, after) == []
    stocked.words("RESTORE", key, "0", data, "REPLACE")
    assert differences(before, portrait(stocked.engine.keyspace, times=False)[0, key.encode()]) == []
    assert payload(stocked, "copy") == data


def test_a_restored_stream_lives_on_by_itself(stocked):
    stocked.words("RESTORE", "copy", "0", payload(stocked, "s"))
    assert stocked("XADD copy 3-0 a 5") == "3-0"
    assert stocked("XACK copy g 1-1") == 1
    assert stocked("XLEN s") == 2
    assert stocked("XPENDING s g")[0] == 1
    for stream in (stocked.engine.keyspace.databases[0].stream(key) for key in (b"s", b"copy")):
        stream.check()


def test_what_a_restored_stream_knows_of_producers_is_forgotten_in_time(stocked):
    stocked.words("RESTORE", "copy", "0", payload(stocked, "idle"))
    assert stocked("XADD copy IDMP p i * f v") == "1000000-0"
    stocked.tick(stocked.now + 200_000)
    assert stocked("XADD copy IDMP p i * f v") != "1000000-0"


def test_the_log_gets_the_moment_of_death(stocked):
    data = payload(stocked, "plain")
    for words, effect in [
        (["a", "0", data], ["a", "0", data]),
        (["a", "0", data, "replace"], ["a", "0", data, "replace"]),
        (["b", "5000", data], ["b", "1005000", data, "ABSTTL"]),
        (["b", "7000", data, "REPLACE"], ["b", "1007000", data, "REPLACE", "ABSTTL"]),
        (["c", "1000001", data, "ABSTTL"], ["c", "1000001", data, "ABSTTL"]),
        (["d", "1000000", data, "ABSTTL"], None),
        (["d", "9", data, "IDLETIME", "3"], ["d", "1000009", data, "IDLETIME", "3", "ABSTTL"]),
    ]:
        assert stocked.words("RESTORE", *words) == "OK"
        expected = (
            []
            if effect is None
            else [[b"RESTORE", *(w if isinstance(w, bytes) else w.encode() for w in effect)]]
        )
        assert effects(stocked) == expected
    assert stocked.words("RESTORE", "c", "1", data, "ABSTTL", "REPLACE") == "OK"
    assert effects(stocked) == [[b"DEL", b"c"]]
    assert stocked("EXISTS c") == 0
    assert stocked.words("RESTORE", "a", "0", b"nonsense", "REPLACE").startswith("-ERR DUMP payload")
    assert stocked.words("RESTORE", "a", "0", data).startswith("-BUSYKEY")
    assert effects(stocked) == []


def test_the_log_repeated_gives_the_same_keyspace(stocked):
    for at, key in enumerate(KEYS):
        stocked.words("RESTORE", f"copy{at}", str(at * 1000), payload(stocked, key))
    stocked.words("RESTORE", "s", "2500", payload(stocked, "long"), "REPLACE")
    stocked("RENAME s gone")
    log = effects(stocked)
    again = Engine()
    session = again.create_session()
    session.replayed = True
    again.keyspace.ignore_expiry = True
    for words in log[:-1]:  # all but the RENAME: read long after everything has died
        again.execute(session, words, 9_000_000)
        assert session.reply.take() == b"+OK\r\n"
    restored = portrait(again.keyspace, times=False)
    assert restored[0, b"s"]["expiry"] == 1_002_500
    again.execute(session, log[-1], 9_000_000)
    mine = portrait(stocked.engine.keyspace, times=False)
    theirs = portrait(again.keyspace, times=False)
    assert sorted(theirs) == [(0, b"copy%d" % at) for at in range(len(KEYS))] + [(0, b"gone")]
    assert (
        differences(
            {place: mine[place] for place in theirs if place[1] != b"copy6"},
            {place: theirs[place] for place in theirs if place[1] != b"copy6"},
        )
        == []
    )


def test_a_time_to_live_past_all_numbers_is_the_longest(stocked):
    stocked.words("RESTORE", "a", str(2**63 - 1), payload(stocked, "plain"))
    assert stocked("PEXPIRETIME a") == 2**63 - 1


def test_blocked_readers_are_woken_by_the_stream_that_comes(stocked):
    data = payload(stocked, "s")
    assert stocked("XREAD BLOCK 0 STREAMS copy 1-1", client="b") == "(waits)"
    assert stocked("XREAD BLOCK 0 STREAMS copy 9-9", client="c") == "(waits)"
    stocked.words("RESTORE", "copy", "0", data)
    assert stocked.heard("b") == [["copy", [["2-0", ["a", "3", "b", "4"]]]]]
    assert stocked.heard("c") == "(waits)"


def test_blocked_members_of_a_group_are_woken(stocked):
    stocked("XGROUP CREATE target g $ MKSTREAM")
    assert stocked("XREADGROUP GROUP g c BLOCK 0 STREAMS target >", client="b") == "(waits)"
    stocked.words("RESTORE", "target", "0", payload(stocked, "s"), "REPLACE")
    assert stocked.heard("b") == [["target", [["2-0", ["a", "3", "b", "4"]]]]]
    assert stocked("XREADGROUP GROUP g c BLOCK 0 STREAMS target >", client="b") == "(waits)"
    stocked.words("RESTORE", "target", "0", payload(stocked, "plain"), "REPLACE")
    assert stocked.heard("b").startswith("-WRONGTYPE")


def test_restore_invalidates_watches_of_the_key(stocked):
    data = payload(stocked, "plain")
    for words, answer in [
        (["w", "0", data], "nil-array"),
        (["w", "0", data], ["v"]),  # refused: nothing has changed
        (["w", "1", data, "REPLACE", "ABSTTL"], "nil-array"),
        (["w", "1", data, "REPLACE", "ABSTTL"], ["v"]),
    ]:
        stocked("WATCH w", client="b")
        stocked.words("RESTORE", *words)
        stocked("MULTI", client="b")
        stocked("ECHO v", client="b")
        assert stocked("EXEC", client="b") == answer, words


def test_events(stocked):
    data, stream = payload(stocked, "plain"), payload(stocked, "s")
    stocked("CONFIG SET notify-keyspace-events AEnoc")
    stocked.say(["PSUBSCRIBE", "__keyevent@0__:*"], "b")
    listener = stocked.clients["b"].reply
    listener.take()
    for words, events in [
        (["e", "0", data], [b"new", b"restore"]),
        (["e", "0", data, "REPLACE"], [b"new", b"restore", b"overwritten"]),
        (["e", "0", stream, "REPLACE"], [b"new", b"restore", b"overwritten", b"type_changed"]),
        (["e", "1", stream, "REPLACE", "ABSTTL"], [b"del"]),
        (["e", "1", stream, "REPLACE", "ABSTTL"], []),
    ]:
        stocked.words("RESTORE", *words)
        assert re.findall(rb"__keyevent@0__:(\w+)\r\n", listener.take()) == events, words


def test_a_payload_is_checked_to_the_last_byte(stocked):
    """A changed byte never gives another value: the checksum, or else the check of the value, rejects it."""
    data = payload(stocked, "s")
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 1 << at % 8
        assert stocked.words("RESTORE", "x", "0", bytes(wrong)).startswith("-ERR DUMP payload")
    for length in range(len(data)):
        assert stocked.words("RESTORE", "x", "0", data[:length]).startswith("-ERR DUMP payload")
    assert stocked("EXISTS x") == 0
