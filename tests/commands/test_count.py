"""XCOUNT and XLAG, and when worn nodes are rewritten."""

import pytest


@pytest.fixture
def nine(talk):
    """Entries 1-0 to 9-0, two to a node."""
    talk.node_entries(2)
    for i in range(1, 10):
        talk(f"XADD s {i}-0 f v")
    talk.effects()
    return talk


@pytest.mark.parametrize(
    ("bounds", "n"),
    [
        ("- +", 9),
        ("3 5", 3),
        ("3-0 5-0", 3),
        ("(3 5", 2),
        ("3-0 (5-0", 2),
        ("(3 (4", 1),  # 3-1 to 4-0's predecessor, 3 having all its sequence numbers
        ("9 +", 1),
        ("10 +", 0),
        ("- 0", 0),
        ("5 3", 0),
        ("+ -", 0),
        ("4 4", 1),
        ("4-1 4-9", 0),
    ],
)
def test_xcount_counts_what_xrange_answers(nine, bounds, n):
    n = len(nine(f"XRANGE s {bounds}"))
    assert nine(f"XCOUNT s {bounds}") == n


def test_xcount_heeds_deletions_and_trims(nine):
    nine("XDEL s 2-0 9-0")
    assert nine("XCOUNT s - +") == 7
    assert nine("XCOUNT s 2 9") == 6
    nine("XTRIM s MAXLEN 3")
    assert nine("XCOUNT s - +") == 3
    assert nine("XCOUNT s - 6") == 1


def test_xcount_of_nothing_is_zero_and_of_a_string_an_error(talk):
    assert talk("XCOUNT none - +") == 0
    talk("SET string x")
    assert talk("XCOUNT string - +").startswith("-WRONGTYPE")


@pytest.mark.parametrize(
    "words", ["x +", "- x", "(+ +", "- (-", "(18446744073709551615-18446744073709551615 +"]
)
def test_xcount_refuses_the_bounds_that_xrange_refuses(nine, words):
    refusal = nine(f"XRANGE s {words}")
    assert refusal.startswith("-ERR")
    assert nine(f"XCOUNT s {words}") == nine(f"XCOUNT none {words}") == refusal


def test_xlag_is_known_where_redis_gives_up(nine):
    nine("XGROUP CREATE s g 0")
    assert nine("XLAG s g") == 9
    nine("XREADGROUP GROUP g ann COUNT 4 STREAMS s >")
    assert nine("XLAG s g") == 5
    nine("XDEL s 6-0")
    lag = dict(zip(*[iter(nine("XINFO GROUPS s")[0])] * 2, strict=True))["lag"]
    assert (lag, nine("XLAG s g")) == (None, 4)
    nine("XGROUP SETID s g 8-0")
    assert nine("XLAG s g") == 1
    nine("XGROUP SETID s g $")
    assert nine("XLAG s g") == 0


def test_xlag_needs_a_group(nine):
    assert nine("XLAG s g") == "-NOGROUP No such key 's' or consumer group 'g'"
    assert nine("XLAG none g") == "-NOGROUP No such key 'none' or consumer group 'g'"
    nine("SET string x")
    assert nine("XLAG string g").startswith("-WRONGTYPE")


def test_neither_changes_anything(nine):
    nine("XGROUP CREATE s g 0")
    nine.effects()
    nine("XCOUNT s - +")
    nine("XLAG s g")
    assert nine.effects() == []


def rewritten(talk, key=b"s"):
    node = talk.engine.keyspace.databases[0].stream(key).first_node()
    return node.reclaimed_count > 0


@pytest.fixture
def worn(talk):
    """Eight of the ten entries of the first node are deleted."""
    talk.node_entries(10)
    for i in range(1, 15):
        talk(f"XADD s {i}-0 f v")
    talk("XDEL s 1 2 3 4 5 6 7 8")
    return talk


def test_worn_nodes_are_rewritten_when_time_passes(worn):
    engine = worn.engine
    assert not rewritten(worn)
    worn.effects()
    assert 0 <= engine.next_deadline() <= worn.now
    worn.tick(worn.now + 1)
    assert rewritten(worn)
    worn.tick(worn.now + 10)
    assert engine.next_deadline() == -1
    assert [entry[0] for entry in worn("XRANGE s - +")] == [f"{i}-0" for i in range(9, 15)]
    assert worn.effects() == []


def test_the_setting_stops_it_and_lets_it_go_on(worn):
    settings = worn.engine.keyspace.settings
    settings.stream_compact_tombstones = False
    assert worn.engine.next_deadline() == -1
    worn.tick(worn.now + 100)
    assert not rewritten(worn)
    settings.stream_compact_tombstones = True
    worn.tick(worn.now + 1)
    assert rewritten(worn)


def test_a_pause_of_the_clients_does_not_stop_it(worn):
    worn("CLIENT PAUSE 1000 WRITE", client="b")
    worn.tick(worn.now + 1)
    assert rewritten(worn)
    worn.tick(worn.now + 10)
    assert worn.engine.next_deadline() == 2000


def test_copied_and_renamed_streams_take_part(worn):
    worn("COPY s t")
    worn("RENAME s u")
    worn.tick(worn.now + 1)
    assert rewritten(worn, b"t") and rewritten(worn, b"u")


def test_a_stream_made_by_xgroup_takes_part(talk):
    talk.node_entries(4)
    talk("XGROUP CREATE s g $ MKSTREAM")
    for i in range(1, 10):
        talk(f"XADD s {i}-0 f v")
    talk("XDEL s 1 2 3")
    talk.tick(talk.now + 1)
    assert rewritten(talk)
