"""XTRIM and XSETID: thresholds, LIMIT, refusals in their order, and what they leave in the log."""

import pytest

INVALID = "-ERR Invalid stream ID specified as stream command argument"
NOT_INTEGER = "-ERR value is not an integer or out of range"
SYNTAX = "-ERR syntax error"
NO_STRATEGY = "-ERR syntax error, XTRIM must be called with a trimming strategy"
NO_LIMIT = "-ERR syntax error, LIMIT cannot be used without the special ~ option"
ID_MAX = "18446744073709551615-18446744073709551615"
TWO = "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible"


@pytest.fixture
def five(talk):
    """Entries 1-0 to 5-0, two to a node."""
    talk.node_entries(2)
    for i in range(1, 6):
        talk(f"XADD s {i}-0 f v")
    talk.effects()
    return talk


def ids(talk):
    return [entry[0] for entry in talk("XRANGE s - +")]


def test_maxlen_keeps_the_newest(five):
    assert five("XTRIM s MAXLEN 2") == 3
    assert ids(five) == ["4-0", "5-0"]
    assert five("XTRIM s MAXLEN = 2") == 0
    assert five("XTRIM s MAXLEN 0") == 2
    assert five("EXISTS s") == 1


def test_minid_keeps_what_lies_at_or_above(five):
    assert five("XTRIM s MINID 3") == 2
    assert five("XTRIM s MINID = 3-1") == 1
    assert ids(five) == ["4-0", "5-0"]


def test_an_approximate_trim_takes_whole_nodes(five):
    assert five("XTRIM s MAXLEN ~ 4") == 0
    assert five("XTRIM s MAXLEN ~ 2") == 2
    assert five("XTRIM s MINID ~ 4") == 0
    assert five("XTRIM s MINID ~ 5") == 2
    assert ids(five) == ["5-0"]


def test_the_limit_counts_whole_nodes(five):
    assert five("XTRIM s MAXLEN ~ 0 LIMIT 1") == 0
    assert five("XTRIM s MAXLEN ~ 0 LIMIT 3") == 2
    assert five("XTRIM s MAXLEN ~ 0 LIMIT 1 LIMIT 2") == 2
    assert five("XTRIM s MAXLEN ~ 0 LIMIT 0") == 1


def test_without_limit_an_approximate_trim_stops_after_a_hundred_nodes(talk):
    talk.node_entries(1)
    for i in range(1, 151):
        talk(f"XADD s {i}-0 f v")
    assert talk("XTRIM s MAXLEN ~ 0") == 100
    assert talk("XTRIM s MAXLEN ~ 0") == 50


def test_a_node_of_any_size_gives_the_limit_ten_thousand(talk):
    talk.node_entries(0)
    talk("XADD s 1-0 f v")
    assert talk("XTRIM s MAXLEN ~ 0") == 1
    talk.node_entries(9223372036854775807)
    talk("XADD s 2-0 f v")
    assert talk("XTRIM s MAXLEN ~ 0") == 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("MAXLEN ~", NOT_INTEGER),
        ("MAXLEN =", NOT_INTEGER),
        ("MINID ~", INVALID),
        ("MAXLEN x", NOT_INTEGER),
        ("MAXLEN -1", "-ERR The MAXLEN argument must be >= 0."),
        ("MAXLEN 99999999999999999999", NOT_INTEGER),
        ("MINID -", INVALID),
        ("MINID +", INVALID),
        ("MINID (1", INVALID),
        ("MINID 1-*", INVALID),
        ("MAXLEN 1 MAXLEN 1", TWO),
        ("MAXLEN 1 MINID x", TWO),
        ("MINID 1 MINID 1", TWO),
        ("MAXLEN 1 NOMKSTREAM", SYNTAX),
        ("MAXLEN 1 LIMIT", SYNTAX),
        ("MAXLEN ~ ~ 5", NOT_INTEGER),
        ("FOO 1", SYNTAX),
        ("LIMIT 5", "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
        ("LIMIT 0", NO_STRATEGY),
        ("MAXLEN 1 LIMIT 0", NO_LIMIT),
        ("MAXLEN = 1 LIMIT 3", NO_LIMIT),
        ("MAXLEN ~ 1 LIMIT -1", "-ERR The LIMIT argument must be >= 0."),
        ("MAXLEN ~ 1 LIMIT x", NOT_INTEGER),
    ],
)
def test_what_is_wrong_is_said_even_of_a_missing_key(talk, words, answer):
    assert talk(f"XTRIM none {words}") == answer


def test_nothing_goes_from_a_missing_key_and_a_string_is_refused(talk):
    assert talk("XTRIM none MAXLEN 0") == 0
    assert talk("EXISTS none") == 0
    talk("SET string x")
    assert talk("XTRIM string MAXLEN 0").startswith("-WRONGTYPE")


def test_trimming_leaves_the_other_counters_alone(five):
    five("XTRIM s MAXLEN 2")
    info = dict(zip(*[iter(five("XINFO STREAM s"))] * 2, strict=True))
    assert info["entries-added"] == 5
    assert info["max-deleted-entry-id"] == "0-0"
    assert info["recorded-first-entry-id"] == "4-0"
    assert info["last-generated-id"] == "5-0"


def test_the_log_gets_what_an_approximate_trim_did(five):
    five("XTRIM s MAXLEN ~ 4")
    five("XTRIM s MAXLEN ~ 2 LIMIT 0")
    five("XTRIM s MINID ~ 5")
    five("XTRIM s MAXLEN ~ 0")
    five("XADD s 6-0 f v")
    five("XTRIM s MAXLEN 0")
    five("XTRIM s MAXLEN 0")
    assert five.effects() == [
        "XTRIM s MAXLEN = 3 LIMIT 0",
        "XTRIM s MINID = 5-0",
        "XTRIM s MAXLEN = 0",
        "XADD s 6-0 f v",
        "XTRIM s MAXLEN 0",
    ]


def test_the_log_names_the_first_record_even_when_it_is_deleted(five):
    five("XDEL s 3-0")
    five.effects()
    assert five("XTRIM s MINID ~ 3") == 2
    assert five.effects() == ["XTRIM s MINID = 3-0"]


def test_the_log_names_the_greatest_id_when_nothing_is_left(five):
    five("XTRIM s MINID ~ 9")
    assert five.effects() == ["XTRIM s MINID = 18446744073709551615-18446744073709551615"]


def test_a_trim_invalidates_watches_only_if_entries_are_removed(five):
    five("WATCH s")
    five("XTRIM s MAXLEN 9", client="b")
    five("XSETID s 9-0", client="b")
    five("MULTI")
    assert five("EXEC") == []
    five("WATCH s")
    five("XTRIM s MAXLEN 4", client="b")
    five("MULTI")
    assert five("EXEC") == "nil-array"


def test_xsetid_sets_the_last_id_and_the_counters(five):
    assert five("XSETID s 9-9 ENTRIESADDED 7 MAXDELETEDID 8-8") == "OK"
    info = dict(zip(*[iter(five("XINFO STREAM s"))] * 2, strict=True))
    assert info["last-generated-id"] == "9-9"
    assert info["entries-added"] == 7
    assert info["max-deleted-entry-id"] == "8-8"
    assert five("XSETID s 8-8 maxdeletedid 0-0 entriesadded 6 ENTRIESADDED 8") == "OK"
    assert five("XADD s 8-8 f v").startswith("-ERR The ID specified in XADD is equal")
    assert five.effects() == [
        "XSETID s 9-9 ENTRIESADDED 7 MAXDELETEDID 8-8",
        "XSETID s 8-8 maxdeletedid 0-0 entriesadded 6 ENTRIESADDED 8",
    ]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("x", INVALID),
        ("+", INVALID),
        ("9 ENTRIESADDED x", NOT_INTEGER),
        ("9 ENTRIESADDED -1", "-ERR entries_added must be positive"),
        ("9 MAXDELETEDID x", INVALID),
        (
            "9 MAXDELETEDID 9-1",
            "-ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
        ),
        ("9 ENTRIESADDED", SYNTAX),
        ("9 FOO 1", SYNTAX),
        ("9", "-ERR no such key"),
    ],
)
def test_xsetid_refuses_words_before_it_looks_for_the_key(talk, words, answer):
    assert talk(f"XSETID none {words}") == answer


def test_xsetid_refuses_what_the_stream_belies(five):
    five("SET string x")
    assert five("XSETID string 9").startswith("-WRONGTYPE")
    assert (
        five("XSETID s 4-9") == "-ERR The ID specified in XSETID is smaller than the target stream top item"
    )
    assert (
        five("XSETID s 9 ENTRIESADDED 4")
        == "-ERR The entries_added specified in XSETID is smaller than the target stream length"
    )
    five("XDEL s 5-0")
    assert (
        five("XSETID s 4-9") == "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
    )
    assert five("XSETID s 5-0") == "OK"
    five("XTRIM s MAXLEN 0")
    assert five("XSETID s 5-0 ENTRIESADDED 0") == "OK"


# ---- KEEPREF, DELREF, ACKED


@pytest.fixture
def acked(five):
    """Of 1-0 to 5-0, two to a node, group g has read all and acknowledged 1, 2 and 4."""
    five("XGROUP CREATE s g 0")
    five("XREADGROUP GROUP g ann STREAMS s >")
    five("XACK s g 1-0 2-0 4-0")
    five.effects()
    return five


def pending(talk):
    return [row[0] for row in talk("XPENDING s g - + 100")]


@pytest.mark.parametrize(
    "trim", ["MINID = 6", "MINID ~ 6", "MAXLEN = 0", "MAXLEN ~ 0", "MINID ~ 6-0 LIMIT 0"]
)
def test_acked_keeps_what_is_referenced_wherever_it_stands(acked, trim):
    assert acked(f"XTRIM s {trim} ACKED") == 3
    assert ids(acked) == ["3-0", "5-0"]
    assert pending(acked) == ["3-0", "5-0"]


@pytest.mark.parametrize("trim", ["MINID = 4", "MINID ~ 4", "MAXLEN = 2", "MAXLEN ~ 2"])
def test_delref_takes_references_along_and_looks_inside_nodes(acked, trim):
    assert acked(f"XTRIM s DELREF {trim}") == 3
    assert ids(acked) == ["4-0", "5-0"]
    assert pending(acked) == ["5-0"]


def test_keepref_leaves_references(acked):
    assert acked("XTRIM s MAXLEN 0 KEEPREF") == 5
    assert pending(acked) == ["3-0", "5-0"]


def test_acked_removes_newer_entries_when_older_ones_are_needed(acked):
    assert acked("XTRIM s MAXLEN = 3 ACKED") == 2
    assert ids(acked) == ["3-0", "4-0", "5-0"]
    assert acked("XTRIM s MAXLEN = 2 ACKED") == 1
    assert ids(acked) == ["3-0", "5-0"]
    assert acked("XTRIM s MAXLEN = 1 ACKED") == 0


def test_acked_needs_what_no_group_has_read(acked):
    acked("XADD s 6-0 f v")
    acked("XACK s g 3-0 5-0")
    assert acked("XTRIM s MAXLEN 0 ACKED") == 5
    assert ids(acked) == ["6-0"]


def test_the_limit_holds_inside_nodes_too(acked):
    assert acked("XTRIM s MINID ~ 6 ACKED LIMIT 2") == 2
    assert ids(acked) == ["3-0", "4-0", "5-0"]


def test_adding_heeds_references(acked):
    assert acked("XADD s MAXLEN = 1 ACKED 6-0 f v") == "6-0"
    assert ids(acked) == ["3-0", "5-0", "6-0"]
    assert acked("XADD s DELREF MAXLEN = 1 7-0 f v") == "7-0"
    assert ids(acked) == ["7-0"]
    assert pending(acked) == []
    assert acked("XADD s DELREF 8-0 f v") == "8-0"
    assert ids(acked) == ["7-0", "8-0"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("XTRIM s MAXLEN 1 ACKED ACKED", SYNTAX),
        ("XTRIM s KEEPREF MAXLEN 1 DELREF", SYNTAX),
        ("XTRIM s KEEPREF ACKED 5", SYNTAX),
        ("XTRIM s KEEPREF LIMIT 0", NO_STRATEGY),
        ("XTRIM s acked MAXLEN", SYNTAX),
        ("XADD s ACKED ACKED 9-0 f v", INVALID),
        ("XADD s KEEPREF MAXLEN 1 delref 9-0 f v", INVALID),
    ],
)
def test_a_policy_is_said_once(acked, words, answer):
    assert acked(words) == answer
    assert len(ids(acked)) == 5


def test_the_log_gets_the_policy_and_the_threshold_that_was_reached(acked):
    acked("XTRIM s MINID ~ 6 ACKED LIMIT 2")
    acked("XTRIM s MINID ~ 6-0 ACKED")
    acked("XADD s MAXLEN ~ 1 DELREF 7-0 f v")
    acked("XADD s MINID ~ 9 acked LIMIT 5 8-0 f v")
    assert acked.effects() == [
        "XTRIM s MINID = 3-0 ACKED LIMIT 2",
        "XTRIM s MINID = 6-0 ACKED",
        "XADD s MAXLEN = 1 DELREF 7-0 f v",
        "XADD s MINID = 9 acked LIMIT 5 8-0 f v",
    ]


@pytest.mark.parametrize("policy", ["KEEPREF", "DELREF", "ACKED"])
@pytest.mark.parametrize("limit", ["", " LIMIT 1", " LIMIT 2", " LIMIT 3", " LIMIT 4", " LIMIT 0"])
@pytest.mark.parametrize(
    "strategy",
    ["MAXLEN ~ 3", "MAXLEN ~ 4", "MINID ~ 4", "MINID ~ 6", "MINID ~ 9", "MAXLEN ~ 2", "MAXLEN ~ 0"],
)
def test_what_the_log_gets_does_the_same_again(acked, strategy, limit, policy):
    acked("XADD s 6-0 f v")
    acked("XDEL s 1-0")
    acked("XADD s 7-0 f v")
    acked("COPY s replica")
    acked.effects()
    acked(f"XTRIM s {strategy} {policy}{limit}")
    acked("HELLO 2", client="log")
    acked.clients["log"].replayed = True
    for line in acked.effects():
        acked(line.replace(" s ", " replica ", 1), client="log")
    assert acked("XRANGE replica - +") == acked("XRANGE s - +")
    assert acked("XPENDING replica g - + 100") == acked("XPENDING s g - + 100")


def test_the_log_gets_an_id_for_a_length_with_acked(acked):
    acked("XADD s 6-0 f v")
    acked("XTRIM s MAXLEN 4 ACKED")
    acked("XTRIM s MAXLEN ~ 1 ACKED")
    acked("XTRIM s MAXLEN = 1 ACKED")
    acked("XADD s ACKED MAXLEN = 2 7-0 f v")
    acked("XGROUP DESTROY s g")
    acked("XADD s MAXLEN ~ 100 ACKED 8-0 f v")
    acked("XTRIM s MAXLEN 0 ACKED")
    assert acked.effects() == [
        "XADD s 6-0 f v",
        "XTRIM s MINID 3-0 ACKED",
        f"XTRIM s MINID = {ID_MAX} ACKED",
        "XADD s ACKED MAXLEN = 4 7-0 f v",
        "XGROUP DESTROY s g",
        "XADD s MAXLEN = 5 ACKED 8-0 f v",
        f"XTRIM s MINID {ID_MAX} ACKED",
    ]


def test_where_acked_stops_in_one_log_it_stops_in_another_with_other_nodes(acked):
    """Three nodes of two here, one node there: the walk ends with a node that need not go."""
    acked("XADD s 6-0 f v")
    acked("XACK s g 3-0 5-0")
    acked("XGROUP SETID s g 7-0")
    acked.node_entries(100)
    acked("XADD r 1-0 f v")
    for i in range(2, 7):
        acked(f"XADD r {i}-0 f v")
    acked("XGROUP CREATE r g 7-0")
    acked("XGROUP CREATE r h 0")
    acked("XGROUP CREATE s h 0")
    for key in "sr":
        acked(f"XREADGROUP GROUP h ann COUNT 1 STREAMS {key} >")
        acked(f"XGROUP SETID {key} h 7-0")
    acked.effects()
    acked("XTRIM s MAXLEN ~ 4 ACKED")
    [line] = acked.effects()
    acked(line.replace(" s ", " r "))
    assert acked("XRANGE r - +") == acked("XRANGE s - +")
    assert ids(acked)[0] == "1-0" and len(ids(acked)) < 6


def test_trims_tell_once_and_only_when_something_went(acked):
    acked("CONFIG SET notify-keyspace-events KEA")
    acked("PSUBSCRIBE __keyevent*", client="b")
    heard = acked.clients["b"].reply
    heard.take()
    acked("XTRIM s MAXLEN 9")
    assert heard.take() == b""
    acked("XTRIM s MAXLEN 3")
    assert heard.take().count(b"__keyevent@0__:xtrim") == 1
    acked("XADD s MAXLEN 2 6-0 f v")
    told = heard.take()
    assert told.index(b"__keyevent@0__:xadd") < told.index(b"__keyevent@0__:xtrim")
    acked("XSETID s 9-0")
    assert heard.take().count(b"__keyevent@0__:xsetid") == 1
