"""XDEL: all or nothing, and only what was there counts. XDELEX: what groups hold of an entry counts, too."""

import pytest

INVALID = "-ERR Invalid stream ID specified as stream command argument"
BAD_COUNT = "-ERR Number of IDs must be a positive integer"
MISMATCH = "-ERR The `numids` parameter must match the number of arguments"
SYNTAX = "-ERR syntax error"


@pytest.fixture
def three(talk):
    for i in range(1, 4):
        talk(f"XADD s {i}-0 f v")
    talk.effects()
    return talk


def test_it_answers_how_many_were_there(three):
    assert three("XDEL s 1-0 2-0 2-0 9-9 3") == 3
    assert three("XLEN s") == 0
    assert three("EXISTS s") == 1


def test_one_bad_id_and_nothing_is_deleted(three):
    assert three("XDEL s 1-0 x 2-0") == INVALID
    assert three("XDEL s 1-0 +") == INVALID
    assert three("XLEN s") == 3
    assert three.effects() == []


def test_a_missing_key_has_nothing_to_delete_whatever_the_ids(talk):
    assert talk("XDEL none x") == 0


def test_a_string_is_refused_whatever_the_ids(talk):
    talk("SET string x")
    assert talk("XDEL string x").startswith("-WRONGTYPE")


def test_the_counters_tell_of_it(three):
    three("XDEL s 1-0 3-0")
    info = dict(zip(*[iter(three("XINFO STREAM s"))] * 2, strict=True))
    assert info["max-deleted-entry-id"] == "3-0"
    assert info["recorded-first-entry-id"] == "2-0"
    assert info["last-generated-id"] == "3-0"
    assert info["entries-added"] == 3
    three("XDEL s 2-0")
    info = dict(zip(*[iter(three("XINFO STREAM s"))] * 2, strict=True))
    assert info["max-deleted-entry-id"] == "3-0"
    assert info["recorded-first-entry-id"] == "0-0"


def test_it_is_logged_as_it_came_when_something_went(three):
    three("XDEL s 9-9")
    three("XDEL s 9-9 2")
    assert three.effects() == ["XDEL s 9-9 2"]


def test_a_deletion_invalidates_watches_only_if_an_entry_was_removed(three):
    three("WATCH s")
    three("XDEL s 9-9", client="b")
    three("MULTI")
    assert three("EXEC") == []
    three("WATCH s")
    three("XDEL s 1-0", client="b")
    three("MULTI")
    assert three("EXEC") == "nil-array"


# ---- XDELEX


@pytest.fixture
def read(talk):
    """Entries 1-0 to 5-0; g has read all and acknowledged 1 and 2, h has read 1 to 4."""
    for i in range(1, 6):
        talk(f"XADD s {i}-0 f v")
    talk("XGROUP CREATE s g 0")
    talk("XGROUP CREATE s h 0")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk("XREADGROUP GROUP h bob COUNT 4 STREAMS s >")
    talk("XACK s g 1-0 2-0")
    talk.effects()
    return talk


def ids(talk):
    return [entry[0] for entry in talk("XRANGE s - +")]


def pending(talk, group):
    return [row[0] for row in talk(f"XPENDING s {group} - + 100")]


def test_xdelex_tells_of_each_id(talk):
    for i in range(1, 4):
        talk(f"XADD s {i}-0 f v")
    assert talk("XDELEX s IDS 4 1-0 9-9 1-0 3") == [1, -1, -1, 1]
    assert ids(talk) == ["2-0"]
    assert talk("XDELEX s IDS 1 2-0") == [1]
    assert talk("EXISTS s") == 1


def test_keepref_leaves_what_is_pending(read):
    assert read("XDELEX s KEEPREF IDS 2 3-0 4-0") == [1, 1]
    assert read("XDELEX s IDS 1 5-0") == [1]
    assert ids(read) == ["1-0", "2-0"]
    assert pending(read, "g") == ["3-0", "4-0", "5-0"]
    assert pending(read, "h") == ["1-0", "2-0", "3-0", "4-0"]


def test_delref_takes_it_from_every_group(read):
    assert read("XDELEX s DELREF IDS 2 3-0 1-0") == [1, 1]
    assert pending(read, "g") == ["4-0", "5-0"]
    assert pending(read, "h") == ["2-0", "4-0"]
    assert read("XINFO CONSUMERS s h")[0][3] == 2


def test_delref_removes_references_to_a_deleted_entry(read):
    read("XDEL s 3-0")
    assert read("XDELEX s DELREF IDS 2 3-0 9-9") == [-1, -1]
    assert pending(read, "g") == ["4-0", "5-0"]
    assert pending(read, "h") == ["1-0", "2-0", "4-0"]


def test_acked_deletes_only_what_all_groups_are_done_with(read):
    assert read("XDELEX s ACKED IDS 5 1-0 2-0 3-0 4-0 5-0") == [2, 2, 2, 2, 2]
    read("XACK s h 1-0 3-0")
    assert read("XDELEX s ACKED IDS 5 1-0 2-0 3-0 4-0 5-0") == [1, 2, 2, 2, 2]
    read("XACK s g 3-0 5-0")
    assert read("XDELEX s ACKED IDS 5 1-0 2-0 3-0 4-0 5-0") == [-1, 2, 1, 2, 2]
    assert ids(read) == ["2-0", "4-0", "5-0"]


def test_acked_asks_for_references_before_existence(read):
    read("XDEL s 3-0 1-0")
    assert read("XDELEX s ACKED IDS 4 0-5 3-0 4-5 9-9") == [-1, 2, 2, 2]
    read("XGROUP DESTROY s h")
    assert read("XDELEX s ACKED IDS 5 0-5 1-0 2-0 4-5 9-9") == [-1, -1, 1, -1, 2]


def test_acked_without_groups_deletes_all(talk):
    talk("XADD s 1-0 f v")
    assert talk("XDELEX s ACKED IDS 2 1-0 9-9") == [1, -1]


def test_a_group_set_back_needs_entries_again(read):
    read("XGROUP DESTROY s h")
    read("XGROUP SETID s g 0")
    assert read("XDELEX s ACKED IDS 1 1-0") == [2]
    read("XGROUP SETID s g 1-0")
    assert read("XDELEX s ACKED IDS 2 1-0 2-0") == [1, 2]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("IDS 2 1-0 2-0 DELREF", [1, 1]),
        ("acked ids 2 8-0 9-0", [-1, -1]),
        ("IDS 1 1-0 IDS 1 2-0", [1]),
        ("KEEPREF IDS 2 1-0 KEEPREF", INVALID),
        ("KEEPREF DELREF IDS 1 1-0", SYNTAX),
        ("ACKED ACKED IDS 1 1-0", SYNTAX),
        ("DELREF IDS 1 1-0 DELREF", SYNTAX),
        ("IDS 1 1-0 2-0", SYNTAX),
        ("IDS 1 1-0 IDS", SYNTAX),
        ("OTHER IDS 1 1-0", SYNTAX),
        ("KEEPREF 1-0 2-0", SYNTAX),
        ("IDS 3 1-0 2-0", MISMATCH),
        ("IDS 0 1-0 2-0", BAD_COUNT),
        ("IDS -1 1-0 2-0", BAD_COUNT),
        ("IDS x 1-0 2-0", BAD_COUNT),
        ("IDS 01 1-0 2-0", BAD_COUNT),
        ("IDS 9223372036854775807 1-0 2-0", BAD_COUNT),
        ("IDS 99999999999999999999 1-0 2-0", BAD_COUNT),
        ("IDS 2 1-0 -", INVALID),
        ("IDS 2 1-0 *", INVALID),
    ],
)
def test_xdelex_words(talk, words, answer):
    talk("XADD s 1-0 f v")
    talk("XADD s 2-0 f v")
    assert talk(f"XDELEX s {words}") == answer
    if isinstance(answer, str):
        assert ids(talk) == ["1-0", "2-0"]


def test_xdelex_without_ids(talk):
    assert talk("XDELEX s KEEPREF IDS 1") == MISMATCH
    assert talk("XDELEX s KEEPREF ACKED IDS") == SYNTAX
    assert talk("XDELEX s IDS 1 1-0 IDS") == SYNTAX
    assert talk("XDELEX s IDS 1") == "-ERR wrong number of arguments for 'xdelex' command"
    assert talk.words("XDELEX", "s", "KEEPREF", "x", "y") == SYNTAX


def test_a_missing_key_has_none_of_them_valid_or_not(talk):
    assert talk("XDELEX s DELREF IDS 3 1-0 oops -") == [-1, -1, -1]
    assert talk("XDELEX s IDS 0 1-0") == BAD_COUNT


def test_another_type_is_refused_before_the_words_are_read(talk):
    talk("SET s x")
    assert talk("XDELEX s WHAT EVER YOU LIKE").startswith("-WRONGTYPE")


def test_xdelex_raises_the_largest_deleted_id(talk):
    for i in range(1, 4):
        talk(f"XADD s {i}-0 f v")
    talk("XDELEX s IDS 2 2-0 1-0")
    stream = talk.engine.keyspace.databases[0].stream(b"s")
    assert str(stream.max_deleted_id()) == "2-0"
    assert str(stream.first_id()) == "3-0"
    assert (stream.length, stream.entries_added) == (1, 3)


def test_xdelex_is_recorded_as_it_came_when_something_changed(read):
    read("XDELEX s IDS 1 9-9")
    read("XDELEX s ACKED IDS 1 3-0")
    read("XDELEX s DELREF IDS 1 9-9")
    assert read.effects() == []
    read("XDEL s 3-0")
    read("XDELEX s DELREF IDS 2 3-0 9-9")
    read("XDELEX s IDS 2 4-0 9-9")
    assert read.effects() == ["XDEL s 3-0", "XDELEX s DELREF IDS 2 3-0 9-9", "XDELEX s IDS 2 4-0 9-9"]


def test_each_id_that_touched_something_is_a_change(read):
    read("XDEL s 3-0")
    before = read.engine.keyspace.changes
    read("XDELEX s DELREF IDS 4 3-0 4-0 1-0 9-9")
    assert read.engine.keyspace.changes == before + 3


def test_removing_references_alone_invalidates_no_watch_and_publishes_no_event(read):
    read("XDEL s 3-0")
    read("CONFIG SET notify-keyspace-events KEA")
    read("PSUBSCRIBE __keyevent*", client="c")
    read.clients["c"].reply.take()
    read("WATCH s", client="b")
    read("XDELEX s DELREF IDS 1 3-0")
    assert read.clients["c"].reply.take() == b""
    read("MULTI", client="b")
    assert read("EXEC", client="b") == []
    read("WATCH s", client="b")
    read("XDELEX s DELREF IDS 2 4-0 5-0")
    assert read.clients["c"].reply.take().count(b"__keyevent@0__:xdel") == 1
    read("MULTI", client="b")
    assert read("EXEC", client="b") == "nil-array"
