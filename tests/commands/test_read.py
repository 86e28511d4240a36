"""XLEN, XRANGE, XREVRANGE, XREAD: bounds, counts, refusals in their order, waiting."""

import pytest

INVALID = "-ERR Invalid stream ID specified as stream command argument"
NOT_INTEGER = "-ERR value is not an integer or out of range"
SYNTAX = "-ERR syntax error"
LAST = "18446744073709551615"


def entry(i):
    return [f"{i}-0", ["f", str(i)]]


@pytest.fixture
def five(talk):
    """Entries 1-0 to 5-0, two to a node."""
    talk.node_entries(2)
    for i in range(1, 6):
        talk(f"XADD s {i}-0 f {i}")
    return talk


def ids(answer):
    return [e[0] for e in answer]


def test_xlen(five):
    assert five("XLEN s") == 5
    assert five("XLEN none") == 0
    five("SET string x")
    assert five("XLEN string").startswith("-WRONGTYPE")


def test_a_range_has_both_its_ends(five):
    assert five("XRANGE s 2 4") == [entry(2), entry(3), entry(4)]
    assert five("XREVRANGE s 4 2") == [entry(4), entry(3), entry(2)]
    assert ids(five("XRANGE s - +")) == ["1-0", "2-0", "3-0", "4-0", "5-0"]
    assert five("XRANGE s 4 2") == []
    assert five("XREVRANGE s 2 4") == []


def test_a_bound_may_exclude_itself(five):
    assert ids(five("XRANGE s (1-0 (3-0")) == ["2-0"]
    assert ids(five("XREVRANGE s (3-0 (1-0")) == ["2-0"]
    five("XADD s 6-5 f v")
    assert ids(five("XRANGE s (6 +")) == ["6-5"]
    assert ids(five("XRANGE s (4 (6")) == ["5-0", "6-5"]


def test_a_bound_without_sequence_takes_the_whole_millisecond(talk):
    for seq in (0, 1, 7):
        talk(f"XADD s 3-{seq} f v")
    assert ids(talk("XRANGE s 3 3")) == ["3-0", "3-1", "3-7"]


def test_bounds_that_cannot_be(five):
    assert five(f"XRANGE s ({LAST}-{LAST} +") == "-ERR invalid start ID for the interval"
    assert five("XRANGE s - (0-0") == "-ERR invalid end ID for the interval"
    assert five("XRANGE s - (0") == []
    assert five("XRANGE s (- +") == INVALID
    assert five("XRANGE s - (+") == INVALID
    assert five("XREVRANGE s (0-0 x") == INVALID
    assert five("XREVRANGE s x (0-0") == INVALID


def test_count(five):
    assert ids(five("XRANGE s - + COUNT 2")) == ["1-0", "2-0"]
    assert ids(five("XREVRANGE s + - count 2")) == ["5-0", "4-0"]
    assert ids(five("XRANGE s - + COUNT 2 COUNT 1")) == ["1-0"]
    assert five("XRANGE s - + COUNT 0") == "nil-array"
    assert five("XRANGE s - + COUNT -3") == "nil-array"
    assert five("XRANGE none - + COUNT 0") == []
    assert five("XRANGE s - + COUNT x") == NOT_INTEGER
    assert five("XRANGE s - + COUNT") == SYNTAX
    assert five("XRANGE s - + FOO 1") == SYNTAX


def test_a_bad_bound_is_said_first_then_a_bad_count_then_the_type(talk):
    talk("SET string x")
    assert talk("XRANGE string x + COUNT y") == INVALID
    assert talk("XRANGE string - + COUNT y") == NOT_INTEGER
    assert talk("XRANGE string - +").startswith("-WRONGTYPE")
    assert talk("XRANGE none x +") == INVALID


def test_xread_gives_what_lies_above(five):
    assert five("XREAD STREAMS s 3-0") == [["s", [entry(4), entry(5)]]]
    assert five("XREAD COUNT 1 STREAMS s 3") == [["s", [entry(4)]]]
    assert len(five("XREAD COUNT 0 STREAMS s 0")[0][1]) == 5
    assert len(five("XREAD COUNT -5 STREAMS s 0")[0][1]) == 5
    assert five("XREAD STREAMS s 5-0") == "nil-array"
    assert five("XREAD STREAMS s $") == "nil-array"
    assert five(f"XREAD STREAMS s {LAST}-{LAST}") == "nil-array"


def test_xread_leaves_out_streams_without_news(five):
    five("XADD t 1-1 a b")
    assert five("XREAD STREAMS none s t s 0 4 1-1 4-0") == [["s", [entry(5)]], ["s", [entry(5)]]]


def test_xread_in_resp3_answers_a_map(five):
    five("HELLO 3")
    assert five("XREAD STREAMS s 4") == {"s": [entry(5)]}
    assert five.raw("XREAD STREAMS s 5") == b"_\r\n"
    assert five.raw("XRANGE s - + COUNT 0") == b"_\r\n"


def test_plus_is_the_last_entry_there_is(five):
    assert five("XREAD STREAMS s +") == [["s", [entry(5)]]]
    assert five("XREAD COUNT 3 STREAMS s +") == [["s", [entry(5)]]]
    five("XDEL s 5-0")
    assert five("XREAD STREAMS s +") == [["s", [entry(4)]]]
    assert five("XREAD STREAMS none +") == "nil-array"
    five("XTRIM s MAXLEN 0")
    assert five("XREAD STREAMS s +") == "nil-array"


def test_nothing_is_read_past_a_deleted_last_entry(five):
    five("XDEL s 5-0")
    assert five("XREAD STREAMS s 4-0") == "nil-array"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("COUNT 1 s", SYNTAX),
        ("FOO STREAMS s 0", SYNTAX),
        ("COUNT 1 STREAMS", SYNTAX),
        ("COUNT 1 BLOCK", SYNTAX),
        (
            "STREAMS s t 0",
            "-ERR Unbalanced 'xread' list of streams:"
            " for each stream key an ID, '+', or '$' must be specified.",
        ),
        ("COUNT x STREAMS s 0", NOT_INTEGER),
        ("BLOCK 1.5 STREAMS s 0", "-ERR timeout is not an integer or out of range"),
        ("BLOCK x STREAMS s 0", "-ERR timeout is not an integer or out of range"),
        ("BLOCK -1 STREAMS s 0", "-ERR timeout is negative"),
        ("BLOCK 9223372036854775807 STREAMS s 0", "-ERR timeout is out of range"),
        (
            "GROUP g c STREAMS s 0",
            "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        ("COUNT 1 GROUP g", SYNTAX),
        (
            "NOACK STREAMS s 0",
            "-ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        (
            "STREAMS s >",
            "-ERR The > ID can be specified only when calling XREADGROUP"
            " using the GROUP <group> <consumer> option.",
        ),
        ("STREAMS s -", INVALID),
        ("STREAMS s x", INVALID),
        ("STREAMS string x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("STREAMS s string x 0", INVALID),
        ("STREAMS string s 0 x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("STREAMS STREAMS 0", "nil-array"),
    ],
)
def test_xread_refuses(talk, words, answer):
    talk("SET string x")
    assert talk(f"XREAD {words}") == answer


def test_an_xread_without_news_and_without_block_answers_nothing(talk):
    assert talk("XREAD STREAMS none 0") == "nil-array"


def test_a_blocked_xread_is_served_by_the_append_that_wakes_it(talk):
    assert talk("XREAD BLOCK 0 STREAMS s $", client="b") == "(waits)"
    assert talk("XADD s 1-0 f 1") == "1-0"
    assert talk.heard("b") == [["s", [entry(1)]]]


def test_a_dollar_is_frozen_while_its_client_waits(five):
    assert five("XREAD BLOCK 0 STREAMS none s $ $", client="b") == "(waits)"
    five("DEL s")
    five("XADD s 4-0 f 4")
    assert five.heard("b") == "(waits)"
    five("XADD s 6-0 f 6")
    assert five.heard("b") == [["s", [entry(6)]]]


def test_waiters_are_served_in_order_of_arrival(talk):
    for name in ("b", "c", "d"):
        talk("XREAD BLOCK 0 STREAMS s 0", client=name)
    talk("XADD s 1-0 f 1")
    assert talk.order_served() == ["b", "c", "d"]


def test_the_deadline_answers_nothing(talk):
    talk.now = 1000
    talk("XREAD BLOCK 50 STREAMS s 0", client="b")
    talk.tick(1049)
    assert talk.heard("b") == "(waits)"
    talk.tick(1050)
    assert talk.heard("b") == "nil-array"
    talk("XADD s 1-0 f 1")
    assert talk.heard("b") == "(nothing)"


def test_inside_multi_no_client_is_blocked(talk):
    talk("MULTI")
    talk("XREAD BLOCK 0 STREAMS s $")
    assert talk("EXEC") == ["nil-array"]


def test_an_entry_added_and_deleted_in_one_transaction_wakes_no_reader(five):
    five("XREAD BLOCK 0 STREAMS s $", client="b")
    five("MULTI")
    five("XADD s 6-0 f 6")
    five("XDEL s 6-0")
    five("EXEC")
    assert five.heard("b") == "(waits)"
    five("XADD s 7-0 f 7")
    assert five.heard("b") == [["s", [entry(7)]]]


def test_two_entries_of_one_transaction_come_in_one_answer(talk):
    talk("XREAD BLOCK 0 STREAMS s 0", client="b")
    talk("MULTI")
    talk("XADD s 1-0 f 1")
    talk("XADD s 2-0 f 2")
    talk("EXEC")
    assert talk.heard("b") == [["s", [entry(1), entry(2)]]]


def test_a_plus_is_resolved_again_at_each_retry(talk):
    talk("XREAD BLOCK 0 STREAMS s +", client="b")
    talk("MULTI")
    talk("XADD s 1-0 f 1")
    talk("XADD s 2-0 f 2")
    talk("EXEC")
    assert talk.heard("b") == [["s", [entry(2)]]]


def test_deleting_or_replacing_the_key_and_xsetid_wake_no_reader(five):
    five("XREAD BLOCK 0 STREAMS s $", client="b")
    five("XSETID s 9-0")
    five("DEL s")
    five("SET s x")
    assert five.heard("b") == "(waits)"
    five("DEL s")
    five("XADD s 9-9 f v")
    assert five.heard("b") == [["s", [["9-9", ["f", "v"]]]]]


def test_a_blocked_resp3_reader_gets_a_map(talk):
    talk("HELLO 3", client="b")
    talk("XREAD BLOCK 0 STREAMS s 0", client="b")
    talk("XADD s 1-0 f 1")
    assert talk.heard("b") == {"s": [entry(1)]}


def test_keys_are_found_behind_streams(talk):
    assert talk("COMMAND GETKEYS XREAD COUNT 1 BLOCK 0 STREAMS a b 0 0") == ["a", "b"]
    assert (
        talk("COMMAND GETKEYS XREAD COUNT 1 STREAMS a b 0") == "-ERR Invalid arguments specified for command"
    )


@pytest.fixture
def three(talk):
    """Three streams of a hundred entries each, with a group at their beginning."""
    for key in "stu":
        for i in range(1, 101):
            talk(f"XADD {key} {i}-0 f {i}")
        talk(f"XGROUP CREATE {key} g 0")
    return talk


def counts(answer):
    return {key: len(found) for key, found in answer}


def test_maxcount_is_for_all_streams_together(three):
    assert counts(three("XREAD COUNT 50 MAXCOUNT 80 STREAMS s t u 0 0 0")) == {"s": 50, "t": 30}
    group = "XREADGROUP GROUP g c"
    assert counts(three(f"{group} COUNT 50 MAXCOUNT 80 STREAMS s t u > > >")) == {"s": 50, "t": 30}
    assert counts(three(f"{group} MAXCOUNT 25 STREAMS s t 0 0")) == {"s": 25}
    assert counts(three(f"{group} MAXCOUNT 60 CLAIM 0 STREAMS s t > >")) == {"s": 60}


def test_maxsize_lets_the_first_entry_in_and_none_after_it_is_spent(three):
    three(f"XADD big 1-0 f {'x' * 5000}")
    three("XADD big 2-0 f 2")
    assert counts(three("XREAD MAXSIZE 50 STREAMS big s 0 0")) == {"big": 1}
    found = counts(three("XREAD MAXSIZE 1000 STREAMS s t 0 0"))
    assert 20 < found["s"] < 45 and "t" not in found
    assert len(three.raw("XREAD MAXSIZE 1000 STREAMS s t 0 0")) < 1100


def test_in_a_transaction_earlier_replies_take_no_room(three):
    three("MULTI")
    three("XRANGE s - +")
    three("XREAD MAXSIZE 10000 STREAMS s 0")
    assert len(three("EXEC")[1][0][1]) == 100


def test_who_waits_keeps_its_limits(talk):
    talk("XREAD BLOCK 0 MAXCOUNT 1 STREAMS s 0", client="b")
    talk("MULTI")
    talk("XADD s 1-0 f 1")
    talk("XADD s 2-0 f 2")
    talk("EXEC")
    assert talk.heard("b") == [["s", [entry(1)]]]
