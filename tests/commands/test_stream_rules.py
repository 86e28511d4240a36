"""Rules of a stream: limits, what they keep, DISCARD, DROP-ACKED; what is recorded of them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.persistence import rule_records
from headrace.persistence.dump import dump, restore
from headrace.persistence.rdb.versions import by_name
from headrace.streams import retention
from support.portrait import portrait_of


def ids(talk: Any, key: str = "s") -> list[str]:
    return [entry[0] for entry in talk(f"XRANGE {key} - +")]


def fill(talk: Any, count: int, key: str = "s") -> None:
    for n in range(1, count + 1):
        talk(f"XADD {key} {n}-0 f {n}")


def settle(talk: Any) -> None:
    """Tick until nothing is left to do at this time."""
    while talk.engine.next_deadline() == talk.now:
        talk.tick(talk.now)


def replayed(talk: Any, records: list[tuple[int, list[bytes]]]) -> Engine:
    """Return an engine that has replayed these effects."""
    engine = Engine()
    replayer = Replayer(engine, talk.now)
    for _, words in records:
        if words[0] not in (b"MULTI", b"EXEC"):
            assert replayer.replay(words) is None, words
    return engine


# limits


def test_max_len_trims_whole_nodes(talk: Any) -> None:
    talk.node_entries(3)
    fill(talk, 1)
    assert talk("XCFGSET s MAX-LEN 5") == "OK"
    for n in range(2, 12):
        talk(f"XADD s {n}-0 f v")
        assert min(n, 5) <= talk("XLEN s") <= 7
    assert ids(talk) == [f"{n}-0" for n in range(7, 12)]


def test_an_exact_limit_keeps_that_many_entries(talk: Any) -> None:
    fill(talk, 1)
    talk("XCFGSET s MAX-LEN 5 EXACT 1")
    for n in range(2, 12):
        talk(f"XADD s {n}-0 f v")
        assert talk("XLEN s") == min(n, 5)


def test_the_effects_of_a_limit_are_an_xadd_and_an_xtrim(talk: Any) -> None:
    fill(talk, 3)
    talk("XCFGSET s MAX-LEN 3 EXACT 1")
    talk.effects()
    talk("XADD s 9-0 f v")
    assert talk.effects() == ["XADD s 9-0 f v", "XTRIM s MAXLEN = 3"]


def test_a_limit_applies_to_what_was_there_before(talk: Any) -> None:
    talk.node_entries(10)
    fill(talk, 100)
    talk("XCFGSET s MAX-LEN 20")
    assert talk("XLEN s") == 20


def test_max_bytes_keeps_at_most_so_many_bytes(talk: Any) -> None:
    talk.node_entries(10)
    fill(talk, 200)
    size = talk("MEMORY USAGE s")
    talk(f"XCFGSET s MAX-BYTES {size // 2}")
    talk.tick(talk.now)
    assert 0.3 * size < talk("MEMORY USAGE s") < 0.6 * size
    assert 50 < talk("XLEN s") < 110 and ids(talk)[-1] == "200-0"


def test_max_bytes_does_not_count_pending_entries_that_are_gone(talk: Any) -> None:
    talk.node_entries(10)
    fill(talk, 200)
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    stream = talk.engine.keyspace.databases[0].stream(b"s")
    size = retention.total_node_bytes(stream)
    talk(f"XCFGSET s MAX-BYTES {size}")
    talk("XADD s 201-0 f v")
    for n in range(1, 201):
        talk(f"XACK s g {n}-0")
    for n in range(202, 302):
        talk(f"XADD s {n}-0 f v")
        assert retention.total_node_bytes(stream) <= size


def test_max_age_removes_entries_without_any_xadd(talk: Any) -> None:
    talk.node_entries(2)
    for at in (1000, 1100, 1200, 1300):
        talk(f"XADD s {at}-0 f v")
    talk("XCFGSET s MAX-AGE 500")
    settle(talk)
    talk.tick(1500)
    assert talk("XLEN s") == 4
    assert talk.engine.next_deadline() == 1601  # the node of 1000 and 1100
    talk.tick(1601)
    settle(talk)
    assert ids(talk) == ["1200-0", "1300-0"]
    talk.tick(talk.engine.next_deadline())
    assert (talk.now, ids(talk)) == (1801, [])
    settle(talk)
    assert talk.engine.next_deadline() == -1


def test_an_exact_max_age_removes_each_entry_at_its_time(talk: Any) -> None:
    for at in (1000, 1100, 1200):
        talk(f"XADD s {at}-0 f v")
    talk("XCFGSET s MAX-AGE 500 EXACT 1")
    seen = []
    settle(talk)
    while (deadline := talk.engine.next_deadline()) > 0:
        talk.tick(deadline)
        settle(talk)
        seen.append((talk.now, talk("XLEN s")))
    assert seen == [(1501, 2), (1601, 1), (1701, 0)]


def test_a_large_trim_takes_several_turns(talk: Any) -> None:
    talk.node_entries(1)
    fill(talk, 1000)
    talk("XCFGSET s MAX-LEN 10")
    lengths = []
    while talk.engine.next_deadline() == talk.now:
        talk.tick(talk.now)
        lengths.append(talk("XLEN s"))
    assert lengths[0] == 792 and lengths[-1] == 10 and len(lengths) < 10


# what the limits keep


def test_keep_unacked_keeps_what_a_group_has_not_acknowledged(talk: Any) -> None:
    fill(talk, 5)
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g ann COUNT 3 STREAMS s >")
    talk("XACK s g 1-0 3-0")
    talk("XCFGSET s MAX-LEN 5 EXACT 1 KEEP-UNACKED 1")
    talk("XADD s 6-0 f v")
    assert ids(talk)[0] == "2-0"
    assert talk("XADD s 7-0 f v") == "-FULL stream 's' is at its limit: MAX-LEN 5"
    talk("XACK s g 2-0")  # 3-0 was acknowledged before
    assert talk("XADD s 7-0 f v") == "7-0"
    assert ids(talk) == [f"{n}-0" for n in range(3, 8)]


def test_keep_unacked_with_max_age_removes_entries_when_they_are_acknowledged(talk: Any) -> None:
    fill(talk, 3)
    talk("XGROUP CREATE s g 0")
    talk("XCFGSET s MAX-AGE 10 EXACT 1 KEEP-UNACKED 1")
    talk.tick(2000)
    assert talk("XLEN s") == 3
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk("XACK s g 1-0")
    assert ids(talk) == ["2-0", "3-0"]
    talk("XGROUP DESTROY s g")
    assert ids(talk) == []


def test_without_a_group_keep_unacked_keeps_nothing(talk: Any) -> None:
    fill(talk, 3)
    talk("XCFGSET s MAX-LEN 2 EXACT 1 KEEP-UNACKED 1")
    assert talk("XADD s 4-0 f v") == "4-0"
    assert ids(talk) == ["3-0", "4-0"]


def test_keep_unarchived_keeps_what_is_above_the_watermark(talk: Any) -> None:
    fill(talk, 5)
    talk("XCFGSET s MAX-LEN 2 EXACT 1 KEEP-UNARCHIVED 1")
    assert talk("XADD s 6-0 f v") == "-FULL stream 's' is at its limit: MAX-LEN 2"
    talk.tick(talk.now)
    assert talk("XLEN s") == 5
    talk("SET {s}:headrace:archived 4-0:4")
    talk.tick(talk.now + 1000)
    assert ids(talk) == ["4-0", "5-0"]
    talk("XADD s 7-0 f v")
    assert talk("XADD s 8-0 f v") == "-FULL stream 's' is at its limit: MAX-LEN 2"
    assert ids(talk) == ["5-0", "7-0"]


@pytest.mark.parametrize(
    "watermark",
    ["9-0:9", "4-0:7", "4-0::00000000", "none"],
    ids=["of a longer stream", "of more entries", "of other entries", "damaged"],
)
def test_the_watermark_of_another_stream_does_not_count(talk: Any, watermark: str) -> None:
    fill(talk, 5)
    talk(f"SET {{s}}:headrace:archived {watermark}")
    talk("XCFGSET s MAX-LEN 2 EXACT 1 KEEP-UNARCHIVED 1")
    talk.tick(talk.now)
    assert talk("XLEN s") == 5


def test_keep_unarchived_keeps_what_any_of_the_archives_lacks(talk: Any) -> None:
    fill(talk, 5)
    talk("XCFGSET s MAX-LEN 2 EXACT 1 KEEP-UNARCHIVED 1")
    for watermarks, kept in [
        (["4-0:4 one /lake/one", "0-0 two /lake/two"], 5),
        (["4-0:4 one /lake/one", "4-0:7 two /lake/two"], 5),
        (["4-0:4 one /lake/one", "2-0:2 two /lake/two"], 3),
        (["3-0:3 one /lake/one", "4-0:4 two /lake/two"], 2),
    ]:
        talk.words("SET", "{s}:headrace:archived", "\n".join(watermarks))
        talk.tick(talk.now + 1000)
        assert talk("XLEN s") == kept, watermarks


def test_discard_new_rejects_xadd_and_adds_nothing(talk: Any) -> None:
    talk("XGROUP CREATE s g 0 MKSTREAM")
    talk("XCFGSET s MAX-LEN 2 DISCARD NEW DROP-ACKED 1")
    assert [talk(f"XADD s {n}-0 f v") for n in (1, 2)] == ["1-0", "2-0"]
    talk.effects()
    assert talk("XADD s 3-0 f v") == "-FULL stream 's' is at its limit: MAX-LEN 2"
    assert talk.effects() == [] and talk("XLEN s") == 2
    talk("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    talk("XACK s g 1-0")
    assert talk("XADD s 3-0 f v") == "3-0"


# DROP-ACKED


def test_an_entry_is_removed_when_all_groups_have_acknowledged_it(talk: Any) -> None:
    fill(talk, 3)
    talk("XGROUP CREATE s g 0")
    talk("XGROUP CREATE s h 0")
    talk("XCFGSET s DROP-ACKED 1")
    for group in "gh":
        talk(f"XREADGROUP GROUP {group} ann STREAMS s >")
    talk("XACK s g 1-0 2-0")
    assert talk("XLEN s") == 3
    talk.effects()
    talk("XACK s h 1-0 3-0")
    assert talk.effects() == ["XACK s h 1-0 3-0", "XDEL s 1-0"]
    talk("XGROUP DESTROY s h")
    assert ids(talk) == ["3-0"]


def test_drop_acked_removes_what_a_noack_read_passes(talk: Any) -> None:
    fill(talk, 3)
    talk("XGROUP CREATE s g 0")
    talk("XCFGSET s DROP-ACKED 1")
    talk("XREADGROUP GROUP g ann NOACK COUNT 2 STREAMS s >")
    assert ids(talk) == ["3-0"]


def test_a_blocked_noack_reader_drops_what_it_gets(talk: Any) -> None:
    talk("XGROUP CREATE s g 0 MKSTREAM")
    talk("XCFGSET s DROP-ACKED 1")
    assert talk("XREADGROUP GROUP g ann NOACK BLOCK 0 STREAMS s >", client="b") == "(waits)"
    talk("XADD s 1-0 f v")
    assert talk.heard("b") == [["s", [["1-0", ["f", "v"]]]]]
    assert talk("XLEN s") == 0


# setting rules


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            "MAX-LEN x",
            "-ERR MAX-LEN must be an integer from 1 to 9223372036854775807; 0 or - removes the rule",
        ),
        (
            "MAX-LEN -5",
            "-ERR MAX-LEN must be an integer from 1 to 9223372036854775807; 0 or - removes the rule",
        ),
        ("MAX-AGE 1.5", "-ERR MAX-AGE must be milliseconds from 1 to 3153600000000; 0 or - removes the rule"),
        ("MAX-LEN 5 max-len 6", "-ERR MAX-LEN specified multiple times"),
        ("MAX-AGE 0 EXACT 1", "-ERR EXACT requires MAX-LEN or MAX-BYTES or MAX-AGE"),
        ("DISCARD NEW MAX-AGE 5", "-ERR DISCARD requires MAX-LEN or MAX-BYTES"),
        ("MAX-LEN 5 DISCARD SOME", "-ERR DISCARD must be OLD or NEW; 0 or - removes the rule"),
        ("MAX-LEN", "-ERR syntax error"),
        ("NO-SUCH 5", "-ERR syntax error"),
    ],
)
def test_an_invalid_rule_changes_nothing(talk: Any, words: str, error: str) -> None:
    fill(talk, 3)
    talk("XCFGSET s MAX-AGE 7000")
    talk.effects()
    assert (
        talk(f"XCFGSET s MAX-AGE 8000 {words}" if "MAX-AGE" not in words else f"XCFGSET s {words}") == error
    )
    assert talk.effects() == []
    assert talk("XINFO STREAM s")[-2:] == ["rules", ["MAX-AGE", "7000"]]


def test_rules_are_shown_only_if_there_are_some(talk: Any) -> None:
    fill(talk, 1)
    before = [talk("XINFO STREAM s"), talk("XINFO STREAM s FULL")]
    talk("XCFGSET s MAX-LEN 5 EXACT 1 KEEP-UNACKED 1")
    assert talk("XINFO STREAM s")[-1] == ["MAX-LEN", "5", "EXACT", "1", "KEEP-UNACKED", "1"]
    assert talk("XINFO STREAM s FULL")[-2] == "rules"
    talk("XCFGSET s MAX-LEN - EXACT 0 KEEP-UNACKED -")
    assert [talk("XINFO STREAM s"), talk("XINFO STREAM s FULL")] == before


def test_a_changed_rule_is_recorded_as_a_message(talk: Any) -> None:
    fill(talk, 1)
    talk.engine.effects.take()
    talk("XCFGSET s MAX-LEN 5 IDMP-MAXSIZE 7")
    multi, options, rules, end = (words for _, words in talk.engine.effects.take())
    assert (multi, end) == ([b"MULTI"], [b"EXEC"])
    assert options == [b"XCFGSET", b"s", b"IDMP-DURATION", b"100", b"IDMP-MAXSIZE", b"7"]
    assert rules[:2] == [b"PUBLISH", b"headrace:rules"]
    assert rule_records.recorded_command(rules) == [b"XCFGSET", b"s", b"MAX-LEN", b"5"]
    talk("XCFGSET s MAX-LEN 5")
    assert talk.effects() == []  # nothing was changed


def test_clients_cannot_publish_records_of_rules(talk: Any) -> None:
    assert "reserved" in talk("PUBLISH headrace:rules x")


@pytest.mark.parametrize(
    "damaged",
    [b"", b"*1\r\n", b"*1\r\n$7\r\nXCFGSET", b"*1\r\n$8\r\nFLUSHALL\r\n", b"*1\r\n$9\r\nXCFGSET\r\n"],
)
def test_a_damaged_record_is_none(damaged: bytes) -> None:
    assert rule_records.recorded_command([b"PUBLISH", rule_records.CHANNEL, damaged]) is None


# what rules survive


def test_replayed_effects_give_the_same_data_and_rules(talk: Any) -> None:
    talk.node_entries(3)
    records = []
    talk("XGROUP CREATE s g 0 MKSTREAM")
    talk("XCFGSET s MAX-LEN 6 KEEP-UNACKED 1")
    for n in range(1, 30):
        talk(f"XADD s {n}-0 f {n}")
        talk("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
        talk(f"XACK s g {n}-0")
    records = talk.engine.effects.take()
    other = replayed(talk, records)
    mine, theirs = (engine.keyspace.databases[0].values[b"s"] for engine in (talk.engine, other))
    assert portrait_of(mine) == portrait_of(theirs)
    assert theirs.rules == mine.rules and theirs.rules.keep_unacked


def test_rules_survive_copy_rename_and_dump(talk: Any) -> None:
    fill(talk, 3)
    talk("XGROUP CREATE s g 0")
    talk("XCFGSET s MAX-LEN 3 EXACT 1")
    talk("XGROUP CFGSET s g LEASE 1000")
    rules = talk("XINFO STREAM s")[-1]
    talk("COPY s copy")
    talk("RENAME s renamed")
    for key in ("copy", "renamed"):
        talk(f"XADD {key} 9-0 f v")
        assert (talk("XLEN " + key), talk("XINFO STREAM " + key)[-1]) == (3, rules)
        assert talk("XINFO GROUPS " + key)[0][-2:] == ["rules", ["LEASE", "1000"]]
    stream = talk.engine.keyspace.databases[0].values[b"copy"]
    again = restore(dump(stream, by_name("redis-8.8"), compress=False, now_ms=0), talk.engine.keyspace, 0)
    assert again.rules == stream.rules and again.group(b"g").rules == stream.group(b"g").rules


def test_a_swapped_database_keeps_its_rules(talk: Any) -> None:
    fill(talk, 3)
    talk("XCFGSET s MAX-AGE 500 EXACT 1")
    talk("SWAPDB 0 1")
    talk("SELECT 1")
    talk.tick(2000)
    talk.tick(2000)
    assert talk("XLEN s") == 0


def test_rules_end_with_their_stream(talk: Any) -> None:
    for removal in ("DEL s", "FLUSHALL", "SET s x"):
        fill(talk, 3)
        talk("XCFGSET s MAX-AGE 500")
        assert len(talk.engine.keyspace.rule_registry.streams) == 1
        talk(removal)
        assert (
            not talk.engine.keyspace.rule_registry.streams and not talk.engine.keyspace.rule_registry.backlog
        )
        talk("DEL s")


# IFLAST


def test_iflast_adds_only_after_the_expected_entry(talk: Any) -> None:
    assert talk("XADD s IFLAST 5-0 1-0 f v") is None
    assert talk("EXISTS s") == 0
    assert talk("XADD s IFLAST 0-0 1-0 f v") == "1-0"
    assert talk("XADD s IFLAST 0-0 2-0 f v") is None
    talk.effects()
    assert talk("XADD s MAXLEN = 1 IFLAST 1-0 2-* f v") == "2-0"
    assert talk.effects() == ["XADD s MAXLEN = 1 2-0 f v"]
    assert talk("XADD s IFLAST 2-0 IFLAST 2-0 * f v") == "-ERR syntax error, IFLAST specified multiple times"
    assert talk("XADD s IFLAST x * f v").startswith("-ERR Invalid stream ID")


def test_an_idempotent_xadd_with_iflast_may_be_repeated(talk: Any) -> None:
    first = talk("XADD s IDMP p a IFLAST 0-0 * f v")
    assert talk("XADD s IDMP p a IFLAST 0-0 * f v") == first
    assert talk("XLEN s") == 1
