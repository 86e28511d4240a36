"""XINFO: every field in its order, in both protocols."""

import pytest


@pytest.fixture
def stream(talk):
    talk.node_entries(2)
    for i in range(1, 13):
        talk(f"XADD s {i}-0 f {i}")
    talk("XDEL s 1-0")
    return talk


# What a stream says of idempotent producers before it has seen one.
NO_PRODUCERS = [
    *("idmp-duration", 100, "idmp-maxsize", 100, "pids-tracked", 0),
    *("iids-tracked", 0, "iids-added", 0, "iids-duplicates", 0),
]


def wrong_words(subcommand):
    return f"-ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try XINFO HELP."


def test_a_stream_shows_its_counters_and_its_ends(stream):
    assert stream("XINFO STREAM s") == [
        *("length", 11, "radix-tree-keys", 6, "radix-tree-nodes", 14),
        *("last-generated-id", "12-0", "max-deleted-entry-id", "1-0", "entries-added", 12),
        *("recorded-first-entry-id", "2-0", *NO_PRODUCERS, "groups", 0),
        *("first-entry", ["2-0", ["f", "2"]], "last-entry", ["12-0", ["f", "12"]]),
    ]


def test_an_empty_stream_has_no_ends(talk):
    talk("XADD s MAXLEN 0 5-5 f v")
    assert talk("XINFO STREAM s") == [
        *("length", 0, "radix-tree-keys", 0, "radix-tree-nodes", 1),
        *("last-generated-id", "5-5", "max-deleted-entry-id", "0-0", "entries-added", 1),
        *("recorded-first-entry-id", "0-0", *NO_PRODUCERS),
        *("groups", 0, "first-entry", None, "last-entry", None),
    ]


def test_in_resp3_it_is_a_map(stream):
    stream("HELLO 3")
    info = stream("XINFO STREAM s")
    assert list(info)[:2] == ["length", "radix-tree-keys"]
    assert info["first-entry"] == ["2-0", ["f", "2"]]
    full = stream("XINFO STREAM s FULL COUNT 1")
    assert full["entries"] == [["2-0", ["f", "2"]]]
    assert full["groups"] == []


@pytest.mark.parametrize(
    ("words", "shown"),
    [("FULL", 10), ("full count 3", 3), ("FULL COUNT 0", 11), ("FULL COUNT -1", 10), ("FULL COUNT 99", 11)],
)
def test_full_shows_entries(stream, words, shown):
    full = stream(f"XINFO STREAM s {words}")
    assert full[12:14] == ["recorded-first-entry-id", "2-0"]
    assert full[26] == "entries" and len(full[27]) == shown
    assert full[27][0] == ["2-0", ["f", "2"]]
    assert full[28:] == ["groups", []]


def test_other_words_are_refused_by_the_name_that_was_typed(stream):
    for words in ("FOO", "FULL COUNT", "FULL FOO 1", "FULL COUNT 1 2", "FOO COUNT 1"):
        assert stream(f"XINFO sTREAM s {words}") == wrong_words("sTREAM")
    assert stream("XINFO STREAM s FULL COUNT x") == "-ERR value is not an integer or out of range"


def test_a_missing_key_is_said_before_wrong_words(talk):
    talk("SET string x")
    assert talk("XINFO STREAM none FOO") == "-ERR no such key"
    assert talk("XINFO STREAM string FOO").startswith("-WRONGTYPE")
    assert talk("XINFO GROUPS none") == "-ERR no such key"
    assert talk("XINFO CONSUMERS none g") == "-ERR no such key"


def test_a_stream_without_groups_has_none_to_show(stream):
    assert stream("XINFO GROUPS s") == []
    assert stream("XINFO CONSUMERS s g") == "-NOGROUP No such consumer group 'g' for key name 's'"


def test_arity_is_the_subcommands(talk):
    assert talk("XINFO") == "-ERR wrong number of arguments for 'xinfo' command"
    assert talk("XINFO STREAM") == "-ERR wrong number of arguments for 'xinfo|stream' command"
    assert talk("XINFO GROUPS s x") == "-ERR wrong number of arguments for 'xinfo|groups' command"
    assert talk("XINFO CONSUMERS s") == "-ERR wrong number of arguments for 'xinfo|consumers' command"
    assert talk("XINFO HELP x") == "-ERR wrong number of arguments for 'xinfo|help' command"
    assert talk("XINFO Foo s") == "-ERR unknown subcommand 'Foo'. Try XINFO HELP."


def test_help_is_a_list_of_lines(talk):
    lines = talk("XINFO HELP")
    assert lines[0].startswith("XINFO <subcommand>")
    assert lines[-2:] == ["HELP", "    Prints this list."]
    assert talk.raw("XINFO HELP").count(b"\r\n+") == len(lines)


@pytest.fixture
def grouped(stream):
    """Two groups; ann and Bob each have entries of g pending."""
    stream("XGROUP CREATE s h $")
    stream("XGROUP CREATE s g 0")
    stream("XREADGROUP GROUP g ann COUNT 3 STREAMS s >")
    stream("XREADGROUP GROUP g Bob COUNT 1 STREAMS s >")
    return stream


def test_groups_and_consumers_stand_in_byte_order(grouped):
    grouped("HELLO 3")
    assert [group["name"] for group in grouped("XINFO GROUPS s")] == ["g", "h"]
    assert [consumer["name"] for consumer in grouped("XINFO CONSUMERS s g")] == ["Bob", "ann"]
    assert grouped("XINFO STREAM s")["groups"] == 2


def test_a_consumer_is_idle_since_it_was_seen_and_inactive_since_it_got_something(grouped):
    grouped.tick(1300)
    grouped("XREADGROUP GROUP g ann STREAMS s 99")
    grouped("XGROUP CREATECONSUMER s g new")
    grouped.tick(1500)
    assert [row[4:] for row in grouped("XINFO CONSUMERS s g")] == [
        ["idle", 500, "inactive", 500],
        ["idle", 200, "inactive", 500],
        ["idle", 200, "inactive", -1],
    ]


def test_full_shows_groups_with_so_many_of_each_pending_list(grouped):
    grouped("HELLO 3")
    grouped("XNACK s g FAIL IDS 1 3-0")
    group, other = grouped("XINFO STREAM s FULL COUNT 2")["groups"]
    assert list(group) == [
        *("name", "last-delivered-id", "entries-read", "lag"),
        *("pel-count", "nacked-count", "pending", "consumers"),
    ]
    assert (group["pel-count"], group["nacked-count"]) == (4, 1)
    assert group["pending"] == [["2-0", "ann", 1000, 1], ["3-0", "", 0, 1]]
    bob, ann = group["consumers"]
    assert bob == {
        "name": "Bob",
        "seen-time": 1000,
        "active-time": 1000,
        "pel-count": 1,
        "pending": [["5-0", 1000, 1]],
    }
    assert ann["pel-count"] == 2 and ann["pending"] == [["2-0", 1000, 1], ["4-0", 1000, 1]]
    assert other["pending"] == other["consumers"] == []
    assert len(grouped("XINFO STREAM s FULL COUNT 0")["groups"][0]["pending"]) == 4
