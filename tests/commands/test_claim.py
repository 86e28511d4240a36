"""XCLAIM and XAUTOCLAIM: the owners of the entries afterwards, and the recorded effects."""

import pytest


@pytest.fixture
def given(talk):
    """Entries 1-0 to 4-0, the first three pending for ann since 1000; now it is 1500."""
    talk("XGROUP CREATE s g 0 MKSTREAM")
    for i in range(1, 5):
        talk(f"XADD s {i}-0 f {i}")
    talk("XREADGROUP GROUP g ann COUNT 3 STREAMS s >")
    talk.tick(1500)
    talk.effects()
    return talk


def rows(talk):
    return [" ".join(map(str, row)) for row in talk("XPENDING s g - + 10")]


def test_a_claim_is_recorded_with_the_id_as_typed_and_the_groups_position(given):
    assert given("XCLAIM s g bob 500 1 2-0 9-0") == [["1-0", ["f", "1"]], ["2-0", ["f", "2"]]]
    assert given.effects() == [
        "MULTI",
        "XCLAIM s g bob 0 1 TIME 1500 RETRYCOUNT 2 FORCE JUSTID LASTID 3-0",
        "XCLAIM s g bob 0 2-0 TIME 1500 RETRYCOUNT 2 FORCE JUSTID LASTID 3-0",
        "EXEC",
    ]
    assert rows(given) == ["1-0 bob 0 2", "2-0 bob 0 2", "3-0 ann 500 1"]


def test_what_is_not_idle_enough_stays_where_it_is(given):
    assert given("XCLAIM s g bob 501 1-0 2-0") == []
    assert given.effects() == ["XGROUP CREATECONSUMER s g bob"]
    assert given("XINFO CONSUMERS s g")[1] == ["name", "bob", "pending", 0, "idle", 0, "inactive", -1]


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ("IDLE 200", "1-0 bob 200 2"),
        ("IDLE 2000", "1-0 bob 0 2"),
        ("TIME 1400", "1-0 bob 100 2"),
        ("TIME 9999", "1-0 bob 0 2"),
        ("TIME -5", "1-0 bob 0 2"),
        ("JUSTID", "1-0 bob 0 1"),
        ("RETRYCOUNT 7", "1-0 bob 0 7"),
        ("RETRYCOUNT 0 JUSTID", "1-0 bob 0 0"),
        ("RETRYCOUNT -7", "1-0 bob 0 2"),
        ("IDLE 1 TIME 1300 IDLE 3", "1-0 bob 3 2"),
    ],
)
def test_options_say_what_the_claim_looks_like(given, options, row):
    given(f"XCLAIM s g bob 0 1-0 {options}")
    assert rows(given)[0] == row


def test_force_makes_pending_what_exists(given):
    assert given("XCLAIM s g bob 999999 4-0 9-0 FORCE JUSTID") == ["4-0"]
    assert given("XCLAIM s g bob 0 4-0 FORCE") == [["4-0", ["f", "4"]]]
    assert rows(given)[3] == "4-0 bob 0 2"


def test_a_deleted_entry_is_removed_from_pending_and_recorded_with_its_old_state(given):
    given("XDEL s 1-0")
    given.effects()
    assert given("XCLAIM s g bob 999999 1-0 FORCE") == []
    assert given.effects() == [
        "MULTI",
        "XCLAIM s g ann 0 1-0 TIME 1000 RETRYCOUNT 1 FORCE JUSTID LASTID 3-0",
        "XGROUP CREATECONSUMER s g bob",
        "EXEC",
    ]
    assert rows(given) == ["2-0 ann 500 1", "3-0 ann 500 1"]


def test_lastid_alone_is_recorded_as_a_position(given):
    given("XCLAIM s g bob 0 9-9 LASTID 2-0")
    assert given.effects() == ["XGROUP CREATECONSUMER s g bob"]
    given("XCLAIM s g bob 0 9-9 LASTID 4-0")
    assert given.effects() == ["XGROUP SETID s g 4-0 ENTRIESREAD 3"]
    given("XCLAIM s g bob 0 1-0 LASTID 5-0")
    assert given.effects()[0].endswith("LASTID 5-0")


def test_xclaim_refuses_in_order(given):
    given("SET string x")
    for words, answer in (
        ("string g b x 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("none g b x 1", "-NOGROUP No such key 'none' or consumer group 'g'"),
        ("s g b x y", "-ERR Invalid min-idle-time argument for XCLAIM"),
        ("s g b 0 1-0 FOO x", "-ERR Unrecognized XCLAIM option 'FOO'"),
        ("s g b 0 1-0 IDLE", "-ERR Unrecognized XCLAIM option 'IDLE'"),
        ("s g b 0 1-0 IDLE x", "-ERR Invalid IDLE option argument for XCLAIM"),
        ("s g b 0 1-0 TIME x", "-ERR Invalid TIME option argument for XCLAIM"),
        ("s g b 0 1-0 RETRYCOUNT x", "-ERR Invalid RETRYCOUNT option argument for XCLAIM"),
        ("s g b 0 1-0 LASTID x", "-ERR Invalid stream ID specified as stream command argument"),
    ):
        assert given(f"XCLAIM {words}") == answer
    assert len(given("XINFO CONSUMERS s g")) == 1


def test_autoclaim_goes_through_everything_bit_by_bit(given):
    assert given("XAUTOCLAIM s g bob 500 - COUNT 2") == [
        "3-0",
        [["1-0", ["f", "1"]], ["2-0", ["f", "2"]]],
        [],
    ]
    assert given("XAUTOCLAIM s g bob 500 3-0 COUNT 2 JUSTID") == ["0-0", ["3-0"], []]
    assert rows(given) == ["1-0 bob 0 2", "2-0 bob 0 2", "3-0 bob 0 1"]
    assert len(given.effects()) == 5  # two in a transaction, and one


def test_autoclaim_looks_at_ten_times_its_count(given):
    for i in range(5, 30):
        given(f"XADD s {i}-0 f {i}")
    given("XREADGROUP GROUP g ann STREAMS s >")
    given("XCLAIM s g ann 0 29-0 TIME 1000 JUSTID")
    assert given("XAUTOCLAIM s g bob 400 4 COUNT 2") == ["24-0", [], []]
    assert given("XAUTOCLAIM s g bob 400 24-0 COUNT 2 JUSTID") == ["0-0", ["29-0"], []]


def test_autoclaim_counts_and_removes_deleted_entries_of_any_age(given):
    given("XDEL s 1-0 2-0")
    given.effects()
    assert given("XAUTOCLAIM s g bob 9999 - COUNT 1") == ["2-0", [], ["1-0"]]
    assert given("XAUTOCLAIM s g bob 0 - COUNT 2 JUSTID") == ["0-0", ["3-0"], ["2-0"]]
    assert [line.split()[3:6] for line in given.effects() if line.startswith("XCLAIM")] == [
        ["ann", "0", "1-0"],
        ["ann", "0", "2-0"],
        ["bob", "0", "3-0"],
    ]


def test_autoclaim_refuses_before_it_looks_for_the_key(given):
    for words, answer in (
        ("none g b x y COUNT", "-ERR Invalid min-idle-time argument for XAUTOCLAIM"),
        ("none g b 0 y COUNT", "-ERR Invalid stream ID specified as stream command argument"),
        ("none g b 0 - COUNT", "-ERR syntax error"),
        ("none g b 0 - COUNT 0", "-ERR COUNT must be > 0"),
        ("none g b 0 - COUNT x", "-ERR COUNT must be > 0"),
        ("none g b 0 - COUNT 576460752303423488", "-ERR COUNT must be > 0"),
        ("none g b 0 -", "-NOGROUP No such key 'none' or consumer group 'g'"),
    ):
        assert given(f"XAUTOCLAIM {words}") == answer
    assert given("XAUTOCLAIM s g b 0 - COUNT 576460752303423487")[0] == "0-0"
