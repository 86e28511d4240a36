"""ORDERED-BY: entries with the same value of a field are processed in order, across all consumers."""

from __future__ import annotations

from typing import Any

import pytest

from commands.test_group_rules import entry_ids, pending, read


@pytest.fixture
def ordered(talk: Any) -> Any:
    """A stream s and a group g, ordered by the field k, with a lease of 100 ms. The time is 1000."""
    talk("XGROUP CREATE s g 0 MKSTREAM")
    assert talk("XGROUP CFGSET s g LEASE 100 ORDERED-BY k") == "OK"
    for number, key in enumerate("aabab", 1):
        talk(f"XADD s {number}-0 k {key}")
    talk.effects()
    return talk


def test_entries_of_a_key_go_to_one_consumer(ordered: Any) -> None:
    assert read(ordered, "ann", "COUNT 1") == ["1-0"]
    assert read(ordered, "bob") == ["3-0", "5-0"]
    assert read(ordered, "ann") == ["2-0", "4-0"]
    assert pending(ordered) == [
        ["1-0", "ann", 1],
        ["2-0", "ann", 1],
        ["3-0", "bob", 1],
        ["4-0", "ann", 1],
        ["5-0", "bob", 1],
    ]


def test_waiting_entries_are_pending_with_delivery_count_0(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    ordered.effects()
    assert read(ordered, "bob", "COUNT 1") == ["3-0"]
    assert pending(ordered) == [["1-0", "ann", 1], ["2-0", "ann", 0], ["3-0", "bob", 1]]
    assert ordered.effects() == [
        "MULTI",
        "XCLAIM s g ann 0 2-0 TIME 1000 RETRYCOUNT 0 FORCE JUSTID LASTID 2-0",
        "XCLAIM s g bob 0 3-0 TIME 1000 RETRYCOUNT 1 FORCE JUSTID LASTID 3-0",
        "XGROUP SETID s g 3-0 ENTRIESREAD 3",
        "EXEC",
    ]


def test_a_key_is_free_when_its_delivered_entries_are_acknowledged(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    read(ordered, "bob")
    ordered("XACK s g 1-0")
    assert read(ordered, "cid", "COUNT 1") == ["2-0"]
    assert read(ordered, "ann") is None
    assert read(ordered, "cid") == ["4-0"]


def test_entries_without_the_field_are_not_ordered(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    ordered("XADD s 6-0 other a")
    ordered("XADD s 7-0 other a")
    assert read(ordered, "bob") == ["3-0", "5-0", "6-0", "7-0"]
    ordered.tick(1100)
    assert read(ordered, "cid", "COUNT 9") == ["1-0", "2-0", "4-0", "3-0", "5-0", "6-0", "7-0"]


def test_all_entries_of_a_key_move_together_when_leases_end(ordered: Any) -> None:
    assert read(ordered, "ann", "COUNT 2") == ["1-0", "2-0"]
    ordered.tick(1050)
    ordered("XCLAIM s g ann 0 1-0 JUSTID")
    ordered.tick(1100)
    assert read(ordered, "bob") == ["3-0", "5-0"]  # one lease of a is not over
    ordered.tick(1150)
    assert read(ordered, "bob", "COUNT 2") == ["1-0", "2-0"]
    assert read(ordered, "cid") is None
    assert read(ordered, "bob") == ["4-0"]
    assert pending(ordered)[:2] == [["1-0", "bob", 2], ["2-0", "bob", 2]]


def test_the_holder_gets_no_more_while_one_lease_has_ended(ordered: Any) -> None:
    assert read(ordered, "ann", "COUNT 1") == ["1-0"]
    ordered.tick(1060)
    assert read(ordered, "ann", "COUNT 1") == ["2-0"]
    ordered.tick(1100)
    assert read(ordered, "ann", "COUNT 1") == ["3-0"]
    assert read(ordered, "ann") == ["5-0"]
    ordered("XACK s g 1-0")
    assert read(ordered, "ann") == ["4-0"]


def test_a_part_of_a_key_that_moves_waits_for_its_new_holder(ordered: Any) -> None:
    assert read(ordered, "ann", "COUNT 5") == ["1-0", "2-0", "3-0", "4-0", "5-0"]
    ordered.tick(1100)
    ordered.effects()
    assert read(ordered, "bob", "COUNT 1") == ["1-0"]
    assert ordered.effects() == [
        "MULTI",
        "XCLAIM s g bob 0 1-0 TIME 1100 RETRYCOUNT 2 FORCE JUSTID LASTID 5-0",
        "XCLAIM s g bob 0 4-0 2-0 TIME 0 RETRYCOUNT 1 FORCE JUSTID LASTID 5-0",
        "EXEC",
    ]
    assert read(ordered, "cid") == ["3-0", "5-0"]
    assert read(ordered, "bob", "COUNT 1") == ["2-0"]
    assert read(ordered, "bob") == ["4-0"]


def test_a_slow_key_does_not_block_others(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    for number in range(6, 1200):
        ordered(f"XADD s {number}-0 k a")
    ordered("XADD s 2000-0 k z")
    assert [read(ordered, "bob") for _ in range(4)] == [["3-0", "5-0"], None, None, ["2000-0"]]


def test_a_blocked_reader_continues_until_it_finds_something(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 5")
    assert read(ordered, "bob", "BLOCK 0", client="b") == "(waits)"
    ordered("MULTI")
    for number in range(6, 1200):
        ordered(f"XADD s {number}-0 k a")
    ordered("XADD s 2000-0 k z")
    ordered("EXEC")
    for _ in range(10):
        ordered.tick(1000)
    assert entry_ids(ordered.heard("b")) == ["2000-0"]


def test_a_blocked_holder_wakes_for_entries_that_others_let_wait(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 5")
    assert read(ordered, "ann", "BLOCK 0", client="a2") == "(waits)"
    ordered("XADD s 6-0 k a")
    assert entry_ids(ordered.heard("a2")) == ["6-0"]


def test_a_blocked_reader_wakes_when_a_key_is_free(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    read(ordered, "bob")
    assert read(ordered, "cid", "BLOCK 0", client="c") == "(waits)"
    ordered("XACK s g 1-0")
    assert entry_ids(ordered.heard("c")) == ["2-0", "4-0"]


@pytest.mark.parametrize("begin", [1000, 1037, 1099])
def test_a_blocked_reader_wakes_when_a_lease_ends(ordered: Any, begin: int) -> None:
    ordered.tick(begin)
    read(ordered, "ann")
    assert read(ordered, "cid", "BLOCK 0", client="c") == "(waits)"
    while (next_ms := ordered.engine.next_deadline()) < begin + 100:
        assert next_ms > ordered.now  # it does not wake up for nothing again and again
        ordered.tick(next_ms)
        assert ordered.heard("c") == "(waits)"
    assert next_ms == begin + 100
    ordered.tick(next_ms)
    assert entry_ids(ordered.heard("c")) == ["1-0", "2-0", "4-0", "3-0", "5-0"]


def test_a_blocked_reader_wakes_after_a_lease_was_renewed(ordered: Any) -> None:
    ordered.tick(1037)
    read(ordered, "ann")
    assert read(ordered, "cid", "BLOCK 0", client="c") == "(waits)"
    ordered.tick(1090)
    ordered("XCLAIM s g ann 0 1-0 2-0 3-0 4-0 5-0 JUSTID")
    for now in (1137, 1150, 1189):
        ordered.tick(now)
        assert ordered.heard("c") == "(waits)"
    assert ordered.engine.next_deadline() == 1190
    ordered.tick(1190)
    assert len(entry_ids(ordered.heard("c"))) == 5


def test_a_nacked_entry_comes_back_before_later_ones_of_its_key(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    ordered("XNACK s g FAIL IDS 1 1-0")
    assert read(ordered, "bob", "COUNT 2") == ["1-0", "2-0"]


def test_dead_letters_let_the_key_continue(ordered: Any) -> None:
    ordered("XGROUP CFGSET s g MAX-DELIVERIES 1")
    read(ordered, "ann", "COUNT 1")
    ordered.tick(1100)
    assert read(ordered, "bob") == ["3-0", "5-0"]
    assert [fields[1] for _, fields in ordered("XRANGE {s}:dead - +")] == ["a"]
    assert read(ordered, "bob") == ["2-0", "4-0"]


def test_dead_letters_of_entries_that_wait(ordered: Any) -> None:
    ordered("XGROUP CFGSET s g MAX-DELIVERIES 1")
    read(ordered, "ann", "COUNT 5")
    ordered("XGROUP CREATECONSUMER s g bob")
    ordered("XGROUP DELCONSUMER s g ann")
    assert read(ordered, "cid") is None
    assert len(ordered("XRANGE {s}:dead - +")) == 5
    assert pending(ordered) == []


def test_each_entry_without_a_dead_letter_is_tried_again_after_a_second(ordered: Any) -> None:
    ordered("XGROUP CFGSET s g MAX-DELIVERIES 1 DEAD-LETTER graves")
    ordered("SET graves text")  # no dead letter can be added to it
    ordered("XGROUP CREATECONSUMER s g bob")

    def leave_entries() -> None:
        read(ordered, "ann")
        ordered("XGROUP DELCONSUMER s g ann")
        assert read(ordered, "cid") is None

    leave_entries()  # 1-0 to 5-0
    ordered.tick(1900)
    ordered("XADD s 6-0 k c")
    leave_entries()
    ordered("DEL graves")
    ordered.tick(1999)
    assert read(ordered, "cid", "BLOCK 0", client="c") == "(waits)"
    assert ordered("XLEN graves") == 0
    ordered.tick(2000)
    assert ordered("XLEN graves") == 5
    ordered.tick(2900)
    assert ordered("XLEN graves") == 6 and pending(ordered) == []


def test_max_pending_counts_delivered_entries_only(ordered: Any) -> None:
    ordered("XGROUP CFGSET s g MAX-PENDING 1")
    assert read(ordered, "ann") == ["1-0"]
    assert read(ordered, "bob") == ["3-0"]
    assert read(ordered, "cid") is None
    ordered("XACK s g 1-0 3-0")
    assert read(ordered, "ann") == ["2-0"]
    assert read(ordered, "bob") == ["5-0"]
    assert pending(ordered) == [["2-0", "ann", 1], ["4-0", "ann", 0], ["5-0", "bob", 1]]


def test_history_does_not_deliver_what_waits(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    read(ordered, "bob")
    assert entry_ids(ordered("XREADGROUP GROUP g ann STREAMS s 0")) == ["1-0"]


def test_a_read_with_claim_shows_delivery_counts(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    ordered.tick(1050)
    reply = ordered("XREADGROUP GROUP g cid CLAIM 50 STREAMS s >")
    assert [[entry[0], *entry[2:]] for entry in reply[0][1]] == [
        ["1-0", 50, 1],
        ["2-0", 0, 0],
        ["3-0", 0, 0],
        ["4-0", 0, 0],
        ["5-0", 0, 0],
    ]


def test_entries_of_a_removed_consumer_wait_for_others(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 4")
    ordered("XGROUP CREATECONSUMER s g bob")
    ordered("XDEL s 2-0")
    ordered.effects()
    assert ordered("XGROUP DELCONSUMER s g ann") == 4
    assert ordered.effects() == [
        "MULTI",
        "XCLAIM s g bob 0 1-0 3-0 4-0 TIME 0 FORCE JUSTID",
        "XGROUP DELCONSUMER s g ann",
        "EXEC",
    ]
    assert read(ordered, "cid", "COUNT 2") == ["3-0", "1-0"]
    assert read(ordered, "cid") == ["4-0", "5-0"]


def test_the_last_consumer_with_pending_entries_is_not_removed(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    assert ordered("XGROUP DELCONSUMER s g ann").startswith("-ERR consumer 'ann' has 1 pending entries")
    assert pending(ordered) == [["1-0", "ann", 1]]


def test_an_inactive_consumer_loses_its_keys(ordered: Any) -> None:
    ordered("XGROUP CFGSET s g LEASE 100000 CONSUMER-TTL 500")
    read(ordered, "ann", "COUNT 2")
    ordered.tick(1499)
    assert read(ordered, "bob") == ["3-0", "5-0"]
    ordered.tick(1500)
    assert read(ordered, "cid") == ["1-0", "2-0", "4-0"]


def test_the_rule_applies_to_entries_that_are_pending_already(talk: Any) -> None:
    talk("XGROUP CREATE s g 0 MKSTREAM")
    for number, key in enumerate("aabab", 1):
        talk(f"XADD s {number}-0 k {key}")
    read(talk, "ann", "COUNT 1")
    read(talk, "bob", "COUNT 1")
    talk("XGROUP CFGSET s g LEASE 100 ORDERED-BY k")
    assert read(talk, "bob", "COUNT 1") == ["3-0"]
    assert read(talk, "ann") is None  # both hold entries of a
    talk("XACK s g 1-0")
    assert read(talk, "bob") == ["5-0", "4-0"]


def test_thousands_of_pending_entries_are_read_in_steps(talk: Any) -> None:
    talk("XGROUP CREATE s g 0 MKSTREAM")
    for number in range(1, 3001):
        talk(f"XADD s {number}-0 k {number % 7}")
    read(talk, "ann", "COUNT 2500")
    talk("XGROUP CFGSET s g LEASE 100 ORDERED-BY k")
    assert read(talk, "bob", "COUNT 9") is None
    assert read(talk, "bob", "BLOCK 0", client="b") == "(waits)"
    for now in (1000, 1050, 1100, 1101, 1102):
        talk.tick(now)
    got = entry_ids(talk.heard("b"))
    assert got[:2] == ["1-0", "8-0"]


def test_setting_the_group_back_delivers_to_the_holder_only(ordered: Any) -> None:
    read(ordered, "ann", "COUNT 1")
    ordered("XGROUP SETID s g 0")
    assert read(ordered, "bob", "COUNT 1") == ["3-0"]
    assert read(ordered, "ann") == ["2-0", "4-0"]
    assert pending(ordered)[0] == ["1-0", "ann", 1]


def test_a_longer_lease_applies_to_keys_that_were_due(ordered: Any) -> None:
    read(ordered, "ann")
    assert read(ordered, "cid", "COUNT 1 BLOCK 0", client="c") == "(waits)"
    ordered("XGROUP CFGSET s g MAX-PENDING 1")
    ordered.tick(1100)
    assert entry_ids(ordered.heard("c")) == ["1-0"]
    assert read(ordered, "cid", "BLOCK 0", client="c") == "(waits)"
    ordered("XGROUP CFGSET s g LEASE 500")
    ordered.tick(1400)
    assert read(ordered, "bob") is None
    ordered.tick(1500)
    assert read(ordered, "bob") == ["3-0"]
    assert ordered("XPENDING s g 3-0 3-0 1")[0][3] == 2
