"""XREADGROUP: deliveries, recorded effects, and which waiters are served when."""

import pytest


def entry(i):
    return [f"{i}-0", ["f", str(i)]]


def test_a_delivery_and_the_new_position_are_recorded_atomically(grouped):
    grouped("XREADGROUP GROUP g ann COUNT 2 STREAMS s >")
    assert grouped.effects() == [
        "MULTI",
        "XCLAIM s g ann 0 1-0 2-0 TIME 1000 RETRYCOUNT 1 FORCE JUSTID LASTID 0-0",
        "XGROUP SETID s g 2-0 ENTRIESREAD 2",
        "EXEC",
    ]


def test_claimed_entries_with_the_same_count_are_recorded_together(grouped):
    grouped("XREADGROUP GROUP g ann STREAMS s >")
    grouped("XCLAIM s g ann 0 3-0 RETRYCOUNT 5 JUSTID")
    grouped.effects()
    grouped("XREADGROUP GROUP g bob CLAIM 0 STREAMS s >")
    assert grouped.effects() == [
        "MULTI",
        "XCLAIM s g bob 0 1-0 2-0 TIME 1000 RETRYCOUNT 2 FORCE JUSTID LASTID 3-0",
        "XCLAIM s g bob 0 3-0 TIME 1000 RETRYCOUNT 6 FORCE JUSTID LASTID 3-0",
        "EXEC",
    ]


def test_a_large_delivery_is_recorded_in_several_claims(talk):
    for i in range(1, 2502):
        talk(f"XADD s {i}-0 f v")
    talk("XGROUP CREATE s g 0")
    talk.effects()
    talk("XREADGROUP GROUP g ann STREAMS s >")
    claims = [line.split() for line in talk.effects() if line.startswith("XCLAIM")]
    assert [words.index("TIME") - 5 for words in claims] == [1000, 1000, 501]
    ids = [word for words in claims for word in words[5 : words.index("TIME")]]
    assert ids == [f"{i}-0" for i in range(1, 2502)]


def test_an_unknown_counter_is_recorded_as_minus_one(grouped):
    grouped("XDEL s 2-0")
    grouped.effects()
    grouped("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    assert grouped.effects()[-2] == "XGROUP SETID s g 1-0 ENTRIESREAD -1"


def test_with_noack_consumer_and_position_are_recorded(grouped):
    grouped("XREADGROUP GROUP g ann NOACK COUNT 1 STREAMS s >")
    grouped("XREADGROUP GROUP g ann NOACK STREAMS s >")
    assert grouped.effects() == [
        "MULTI",
        "XGROUP CREATECONSUMER s g ann",
        "XGROUP SETID s g 1-0 ENTRIESREAD 1",
        "EXEC",
        "XGROUP SETID s g 3-0 ENTRIESREAD 3",
    ]


def test_a_consumer_that_got_nothing_is_recorded_once(grouped):
    grouped("XREADGROUP GROUP g ann STREAMS s 0")
    grouped("XREADGROUP GROUP g ann STREAMS s 0")
    assert grouped.effects() == ["XGROUP CREATECONSUMER s g ann"]


def test_history_is_recorded_in_runs_of_equal_counts(grouped):
    grouped("XREADGROUP GROUP g ann STREAMS s >")
    grouped.tick(1100)
    grouped.effects()
    assert grouped("XREADGROUP GROUP g ann STREAMS s 1") == [["s", [entry(2), entry(3)]]]
    assert grouped.effects() == ["XCLAIM s g ann 0 2-0 3-0 TIME 1100 RETRYCOUNT 2 FORCE JUSTID"]
    grouped("XREADGROUP GROUP g ann STREAMS s 0")
    assert grouped.effects() == [
        "MULTI",
        "XCLAIM s g ann 0 1-0 TIME 1100 RETRYCOUNT 2 FORCE JUSTID",
        "XCLAIM s g ann 0 2-0 3-0 TIME 1100 RETRYCOUNT 3 FORCE JUSTID",
        "EXEC",
    ]
    grouped("XDEL s 2-0")
    grouped.effects()
    grouped("XREADGROUP GROUP g ann STREAMS s 2")
    assert grouped.effects() == ["XCLAIM s g ann 0 3-0 TIME 1100 RETRYCOUNT 4 FORCE JUSTID"]


def test_a_claiming_read_tells_claims_like_deliveries(grouped):
    grouped("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    grouped("XADD t 1-0 f 1")
    grouped("XGROUP CREATE t g 0")
    grouped.effects()
    grouped.tick(1100)
    assert grouped("XREADGROUP GROUP g bob COUNT 2 CLAIM 100 STREAMS s t > >") == [
        ["s", [[*entry(1), 100, 1], [*entry(2), 0, 0]]],
        ["t", [[*entry(1), 0, 0]]],
    ]
    assert grouped.effects() == [
        "MULTI",
        "XCLAIM s g bob 0 1-0 TIME 1100 RETRYCOUNT 2 FORCE JUSTID LASTID 1-0",
        "XCLAIM s g bob 0 2-0 TIME 1100 RETRYCOUNT 1 FORCE JUSTID LASTID 1-0",
        "XGROUP SETID s g 2-0 ENTRIESREAD 2",
        "XCLAIM t g bob 0 1-0 TIME 1100 RETRYCOUNT 1 FORCE JUSTID LASTID 0-0",
        "XGROUP SETID t g 1-0 ENTRIESREAD 1",
        "EXEC",
    ]


def test_inside_a_transaction_its_effects_stay_one_transaction(grouped):
    for line in ("MULTI", "XREADGROUP GROUP g ann COUNT 1 STREAMS s >", "XACK s g 1-0", "EXEC"):
        grouped(line)
    told = grouped.effects()
    assert [line.split()[0] for line in told] == ["MULTI", "XCLAIM", "XGROUP", "XACK", "EXEC"]


def test_reading_invalidates_no_watch(grouped):
    grouped("WATCH s")
    grouped("XREADGROUP GROUP g ann STREAMS s >", client="b")
    grouped("XACK s g 1-0", client="b")
    grouped("XCLAIM s g bob 0 2-0", client="b")
    grouped("MULTI")
    assert grouped("EXEC") == []


def test_a_refusal_delivers_nothing(grouped):
    assert grouped("XREADGROUP GROUP g ann STREAMS s s > x").startswith("-ERR Invalid stream ID")
    assert grouped("XINFO CONSUMERS s g") == []
    assert grouped("XREADGROUP GROUP g ann STREAMS s s > >") == [["s", [entry(1), entry(2), entry(3)]]]


def test_a_delivery_count_stays_at_its_maximum(grouped):
    grouped("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    grouped("XCLAIM s g ann 0 1-0 RETRYCOUNT 9223372036854775807 JUSTID")
    for line in (
        "XREADGROUP GROUP g ann STREAMS s 0",
        "XCLAIM s g ann 0 1-0",
        "XAUTOCLAIM s g ann 0 -",
        "XREADGROUP GROUP g ann COUNT 1 CLAIM 0 STREAMS s >",
    ):
        grouped(line)
        assert grouped("XPENDING s g - + 1")[0][3] == 9223372036854775807


def test_a_counter_of_entries_read_stays_at_its_maximum(grouped):
    most = 9223372036854775807
    grouped(f"XSETID s 3-0 ENTRIESADDED {most}")
    grouped(f"XGROUP SETID s g 2-0 ENTRIESREAD {most}")
    grouped.effects()
    grouped("XREADGROUP GROUP g ann STREAMS s >")
    assert f"XGROUP SETID s g 3-0 ENTRIESREAD {most}" in grouped.effects()
    assert grouped("XINFO GROUPS s")[0][-3:] == [most, "lag", 0]


def test_entries_more_than_can_be_counted_leave_the_counter_unknown(grouped):
    grouped("XSETID s 3-0 ENTRIESADDED 9223372036854775807")
    grouped("XADD s 4-0 f 4")
    grouped("XGROUP SETID s g 2-0 ENTRIESREAD 5")
    assert grouped("XINFO GROUPS s")[0][-3:] == [None, "lag", None]
    grouped.effects()
    grouped("XREADGROUP GROUP g ann STREAMS s >")
    assert "XGROUP SETID s g 4-0 ENTRIESREAD -1" in grouped.effects()


def test_the_last_possible_id_means_new_entries(grouped):
    last = "18446744073709551615-18446744073709551615"
    assert grouped(f"XREADGROUP GROUP g ann COUNT 1 STREAMS s {last}") == [["s", [entry(1)]]]


def test_a_group_at_the_end_of_all_ids_has_nothing_new(grouped):
    grouped("XGROUP SETID s g +")
    assert grouped("XREADGROUP GROUP g ann STREAMS s >") == "nil-array"


def test_members_of_a_group_are_served_in_turn_one_entry_each(grouped):
    grouped("XGROUP SETID s g $")
    for name in ("b", "c", "d"):
        assert grouped(f"XREADGROUP GROUP g {name} COUNT 1 BLOCK 0 STREAMS s >", client=name) == "(waits)"
    for line in ("MULTI", "XADD s 4-0 f 4", "XADD s 5-0 f 5", "EXEC"):
        grouped(line)
    assert grouped.order_served() == ["b", "c"]
    assert grouped.heard("c") == [["s", [entry(5)]]]
    assert grouped.heard("d") == "(waits)"


def test_a_plain_reader_a_group_and_another_group_are_each_served(grouped):
    grouped("XGROUP SETID s g $")
    grouped("XGROUP CREATE s h $")
    grouped("XREADGROUP GROUP g b BLOCK 0 STREAMS s >", client="b")
    grouped("XREAD BLOCK 0 STREAMS s $", client="c")
    grouped("XREADGROUP GROUP g d BLOCK 0 STREAMS s >", client="d")
    grouped("XREADGROUP GROUP h e BLOCK 0 STREAMS s >", client="e")
    grouped("XREAD BLOCK 0 STREAMS s $", client="f")
    grouped("XADD s 4-0 f 4")
    assert grouped.order_served() == ["b", "c", "e", "f"]


def test_news_for_one_of_many_members_tries_one(grouped):
    grouped("XGROUP SETID s g $")
    for i in range(300):
        grouped(f"XREADGROUP GROUP g c{i} BLOCK 0 STREAMS s >", client=f"c{i}")
    for consumer in ("c0", "c1"):
        grouped(f"XGROUP DELCONSUMER s g {consumer}")
    grouped("XADD s 4-0 f 4")
    assert grouped.heard("c0") == [["s", [entry(4)]]]
    names = [consumer[1] for consumer in grouped("XINFO CONSUMERS s g")]
    assert "c0" in names
    assert "c1" not in names  # it was not tried: nothing is left for it


def test_a_reader_of_several_keys_gets_an_error_when_one_is_removed(grouped):
    grouped("XGROUP CREATE t g 0 MKSTREAM")
    grouped("XGROUP SETID s g $")
    grouped("XREADGROUP GROUP g b BLOCK 0 STREAMS s t > >", client="b")
    grouped("DEL t")
    assert grouped.heard("b").startswith("-NOGROUP No such key 't' or consumer group 'g'")


def test_a_deleted_consumer_that_waits_is_made_again(grouped):
    grouped("XGROUP SETID s g $")
    grouped("XREADGROUP GROUP g b BLOCK 0 STREAMS s >", client="b")
    assert grouped("XGROUP DELCONSUMER s g b") == 0
    grouped("XADD s 4-0 f 4")
    assert grouped("XPENDING s g")[3] == [["b", "1"]]


def test_a_claiming_reader_wakes_when_the_oldest_entry_is_idle_enough(grouped):
    grouped("XREADGROUP GROUP g ann STREAMS s >")
    grouped.tick(1030)
    grouped("XREADGROUP GROUP g bob BLOCK 0 CLAIM 100 STREAMS s >", client="b")
    assert grouped.engine.next_deadline() == 1100
    grouped.tick(1099)
    assert grouped.heard("b") == "(waits)"
    grouped.tick(1100)
    assert len(grouped.heard("b")[0][1]) == 3


def test_a_claiming_reader_waits_on_when_the_entry_was_acknowledged(grouped):
    grouped("XREADGROUP GROUP g ann STREAMS s >")
    grouped("XREADGROUP GROUP g bob BLOCK 250 CLAIM 100 STREAMS s >", client="b")
    grouped("XACK s g 1-0 2-0 3-0")
    for now in (1100, 1200, 1249):
        grouped.tick(now)
        assert grouped.heard("b") == "(waits)"
    grouped.tick(1250)
    assert grouped.heard("b") == "nil-array"
    assert grouped.engine.next_deadline() == -1


def test_a_claiming_reader_is_served_when_an_entry_becomes_older(grouped):
    grouped("XREADGROUP GROUP g ann STREAMS s >")
    grouped("XREADGROUP GROUP g bob BLOCK 0 CLAIM 500 STREAMS s >", client="b")
    grouped("XCLAIM s g ann 0 2-0 IDLE 600")
    assert grouped.heard("b") == [["s", [[*entry(2), 600, 2]]]]


def test_keys_are_found_among_all_options(talk):
    words = "XREADGROUP GROUP g c COUNT 1 MAXCOUNT 2 MAXSIZE 3 CLAIM 4 NOACK STREAMS a b > >"
    assert talk(f"COMMAND GETKEYS {words}") == ["a", "b"]


@pytest.fixture
def mostly_deleted(talk):
    """Group g with 6,000 pending entries of ann, of which only the last two exist; one call passes 1,250."""
    n = 6000
    for i in range(n + 1):
        talk(f"XADD s 1-{i + 1} f {i}")
    talk("XGROUP CREATE s g 1-1")  # 1-1 stays, so that the others are not before the first entry
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk.words("XDEL", "s", *(f"1-{i}" for i in range(2, n)))
    talk.tick(2000)
    talk.effects()
    return talk


def polls_until_claimed(talk, words):
    """Poll until entries are claimed; return their IDs and the number of polls."""
    for polls in range(1, 20):
        reply = talk(words)
        if reply != "nil-array":
            return [entry[0] for entry in reply[0][1]], polls
    raise AssertionError("nothing was claimed")


CLAIM = "XREADGROUP GROUP g bob COUNT 1 CLAIM 500 STREAMS s >"


def test_each_claiming_read_passes_a_bounded_number_of_deleted_entries(mostly_deleted):
    assert polls_until_claimed(mostly_deleted, CLAIM) == (["1-6000"], 5)
    assert polls_until_claimed(mostly_deleted, CLAIM) == (["1-6001"], 1)
    assert mostly_deleted("XPENDING s g")[0] == 6000  # deleted ones stay pending


def test_a_claiming_reader_that_waits_passes_all_deleted_entries(mostly_deleted):
    mostly_deleted("XREADGROUP GROUP g bob COUNT 9 BLOCK 0 CLAIM 500 STREAMS s >", client="b")
    for _ in range(9):
        mostly_deleted.tick(mostly_deleted.engine.next_deadline())
    assert [one[0] for one in mostly_deleted.heard("b")[0][1]] == ["1-6000", "1-6001"]


def test_a_claiming_read_finds_what_became_older_than_passed_entries(mostly_deleted):
    polls_until_claimed(mostly_deleted, CLAIM)
    mostly_deleted("XCLAIM s g ann 0 1-6000 IDLE 1900")
    assert polls_until_claimed(mostly_deleted, CLAIM) == (["1-6000"], 1)
    mostly_deleted("XNACK s g SILENT IDS 1 1-6000")
    assert polls_until_claimed(mostly_deleted, CLAIM) == (["1-6000"], 1)
    assert polls_until_claimed(mostly_deleted, CLAIM)[0] == ["1-6001"]


def test_a_claiming_read_finds_entries_whose_ids_are_given_again(talk):
    for i in range(1, 6):
        talk(f"XADD s {i}-0 f {i}")
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk("XTRIM s MAXLEN 1")
    talk.tick(2000)
    assert polls_until_claimed(talk, CLAIM) == (["5-0"], 1)
    talk("XTRIM s MAXLEN 0")
    assert talk("XSETID s 1-0") == "OK"
    talk("XADD s 2-0 f again")
    assert polls_until_claimed(talk, CLAIM) == (["2-0"], 1)
