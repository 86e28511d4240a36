"""XADD: its IDs, its refusals in their order, and what it leaves in the log."""

import pytest

INVALID = "-ERR Invalid stream ID specified as stream command argument"
TOO_SMALL = "-ERR The ID specified in XADD is equal or smaller than the target stream top item"
ZERO = "-ERR The ID specified in XADD must be greater than 0-0"
ARITY = "-ERR wrong number of arguments for 'xadd' command"
EXHAUSTED = "-ERR The stream has exhausted the last possible ID, unable to add more items"
NO_LIMIT = "-ERR syntax error, LIMIT cannot be used without the special ~ option"
LAST = "18446744073709551615"


def test_the_answer_is_the_id(talk):
    assert talk("XADD s 5-3 f v") == "5-3"
    assert talk("XRANGE s - +") == [["5-3", ["f", "v"]]]


def test_a_star_takes_the_time(talk):
    talk.now = 1_700_000_000_000
    assert talk("XADD s * f v") == "1700000000000-0"
    assert talk("XADD s * f v") == "1700000000000-1"
    talk.now += 1
    assert talk("XADD s * f v") == "1700000000001-0"


def test_a_star_never_goes_back_when_the_clock_does(talk):
    talk.now = 50
    talk("XADD s 100-7 f v")
    assert talk("XADD s * f v") == "100-8"
    talk(f"XADD s 200-{LAST} f v")
    assert talk("XADD s * f v") == "201-0"


def test_a_star_may_stand_for_the_sequence_alone(talk):
    assert talk("XADD s 7-* f v") == "7-0"
    assert talk("XADD s 7-* f v") == "7-1"
    assert talk("XADD s 8-* f v") == "8-0"
    assert talk("XADD s 7-* f v") == TOO_SMALL
    assert talk(f"XADD s 9-{LAST} f v") == f"9-{LAST}"
    assert talk("XADD s 9-* f v") == TOO_SMALL


def test_sequences_of_millisecond_zero_begin_at_one(talk):
    assert talk("XADD s 0-* f v") == "0-1"
    assert talk("XADD s 0-* f v") == "0-2"


def test_milliseconds_alone_mean_sequence_zero(talk):
    assert talk("XADD s 5 f v") == "5-0"
    assert talk("XADD s 00006-01 f v") == "6-1"
    assert talk("XADD s +7-1 f v") == "7-1"


@pytest.mark.parametrize(
    "text",
    ["1-2-3", "1-", "-1", "3--1", "*-1", "4-**", "0x10-0", "-", "+", "$", ">", "1-2-*", "*-*", "-*", "1*"]
    + ["1 ", f"{LAST}0-0", f"0-{LAST}0", "0" * 127 + "1", "0" * 126 + "-*"],
)
def test_what_is_no_id_is_refused(talk, text):
    assert talk.words("XADD", "s", text, "f", "v") == INVALID
    assert talk("EXISTS s") == 0


def test_an_empty_id_is_refused(talk):
    assert talk.words("XADD", "s", "", "f", "v") == INVALID


def test_ids_only_go_up(talk):
    talk("XADD s 5-5 f v")
    for text in ("5-5", "5-4", "4-9", "5", "4", "0-1"):
        assert talk(f"XADD s {text} f v") == TOO_SMALL
    assert talk("XLEN s") == 1


def test_zero_is_refused_before_the_key_is_looked_at(talk):
    talk("SET string x")
    assert talk("XADD string 0-0 f v") == ZERO
    assert talk("XADD none NOMKSTREAM 0 f v") == ZERO
    assert talk("XADD string 0-1 f v").startswith("-WRONGTYPE")


def test_fields_come_in_pairs(talk):
    assert talk("XADD s 1-1 f") == ARITY
    assert talk("XADD s 1-1 f v g") == ARITY
    assert talk("XADD s MAXLEN 5 1-1") == ARITY
    assert talk("XADD s MAXLEN 5 NOMKSTREAM NOMKSTREAM") == ARITY
    assert talk("XADD string 0-0 f v g") == ARITY


def test_a_missing_stream_is_not_made_against_the_callers_will(talk):
    assert talk("XADD s NOMKSTREAM nomkstream * f v") is None
    assert talk("EXISTS s") == 0
    talk("XADD s 1-1 f v")
    assert talk("XADD s NOMKSTREAM 2-1 f v") == "2-1"


def test_the_last_id_of_all_ends_the_stream(talk):
    assert talk(f"XADD s {LAST}-{LAST} f v") == f"{LAST}-{LAST}"
    assert talk("XADD s * f v") == EXHAUSTED
    assert talk("XADD s 1-1 f v") == EXHAUSTED
    assert talk(f"XADD s {LAST}-* f v") == EXHAUSTED


def test_any_bytes_are_fields_and_values(talk):
    talk.words("XADD", "", "1-1", "", "", b"\0\r\n", b"\xff")
    assert talk.words("XRANGE", "", "-", "+") == [["1-1", ["", "", "\0\r\n", "\udcff"]]]


def test_trimming_follows_the_append(talk):
    for i in range(1, 6):
        talk(f"XADD s MAXLEN 3 {i}-0 f v")
    assert [e[0] for e in talk("XRANGE s - +")] == ["3-0", "4-0", "5-0"]
    assert talk("XADD s MINID 5 6-0 f v") == "6-0"
    assert talk("XLEN s") == 2
    assert talk("XADD s MAXLEN 0 7-0 f v") == "7-0"
    assert talk("XLEN s") == 0 and talk("EXISTS s") == 1


def test_options_may_come_in_any_order(talk):
    assert talk("XADD s LIMIT 5 maxlen ~ 10 nomkstream NOMKSTREAM 1-1 f v") is None
    assert talk("XADD s limit 5 NOMKSTREAM MAXLEN ~ 10 1-1 f v") is None
    assert talk("XADD s LIMIT -1 1-1 f v") == "-ERR The LIMIT argument must be >= 0."
    assert talk("XADD s LIMIT x 1-1 f v") == "-ERR value is not an integer or out of range"
    assert talk("XADD s LIMIT 1 LIMIT 0 1-1 f v") == NO_LIMIT
    assert talk("XADD s LIMIT 0 1-1 f v") == NO_LIMIT
    assert (
        talk("XADD s LIMIT 1 1-1 f v")
        == "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
    )
    assert talk("XADD s MAXLEN 5 LIMIT 1 1-1 f v") == NO_LIMIT
    assert talk("XADD s MAXLEN x 1-1 f v") == "-ERR value is not an integer or out of range"
    assert talk("XADD s MAXLEN -1 1-1 f v") == "-ERR The MAXLEN argument must be >= 0."
    assert talk("XADD s MINID - 1-1 f v") == INVALID
    assert (
        talk("XADD s MAXLEN 5 MINID 1 1-1 f v")
        == "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
    )
    assert talk("XADD s MAXLENGTH 1-1 f v") == INVALID
    assert talk("EXISTS s") == 0


def test_a_word_without_its_value_is_taken_for_the_id(talk):
    assert talk("XADD s NOMKSTREAM NOMKSTREAM MAXLEN") == INVALID
    assert talk("XADD s NOMKSTREAM NOMKSTREAM LIMIT") == INVALID


def test_the_log_gets_the_id_that_was_chosen(talk):
    talk.now = 77
    talk("XADD s * f v")
    talk("XADD s 77-* f v")
    talk("XADD s 80 f v")
    talk("XADD s NOMKSTREAM 81-* f v")
    assert talk.effects() == [
        "XADD s 77-0 f v",
        "XADD s 77-1 f v",
        "XADD s 80 f v",
        "XADD s NOMKSTREAM 81-0 f v",
    ]


def test_the_log_gets_the_exact_trim_that_an_approximate_one_was(talk):
    talk.node_entries(2)
    for i in range(1, 6):
        talk(f"XADD s {i}-0 f v")
    talk.effects()
    talk("XADD s MAXLEN ~ 2 LIMIT 10 6-0 f v")
    talk("XADD s MINID ~ 6 7-0 f v")
    talk("XADD s maxlen = 2 8-0 f v")
    talk("XADD s MAXLEN ~ 100 9-0 f v")
    assert talk.effects() == [
        "XADD s MAXLEN = 2 LIMIT 10 6-0 f v",
        "XADD s MINID = 5-0 7-0 f v",
        "XADD s maxlen = 2 8-0 f v",
        "XADD s MAXLEN = 3 9-0 f v",
    ]


def test_what_is_refused_leaves_nothing_in_the_log(talk):
    talk("XADD s 5-5 f v")
    talk.effects()
    talk("XADD s 5-5 f v")
    talk("XADD none NOMKSTREAM * f v")
    assert talk.effects() == []


def test_an_xadd_invalidates_watches(talk):
    talk("WATCH s")
    talk("XADD s 1-1 f v", client="b")
    talk("MULTI")
    assert talk("PING") == "QUEUED"
    assert talk("EXEC") == "nil-array"
