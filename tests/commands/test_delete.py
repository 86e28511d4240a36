"""XDEL: all or nothing, and only what was there counts."""

import pytest

INVALID = "-ERR Invalid stream ID specified as stream command argument"


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


def test_it_spoils_who_watches_only_when_something_went(three):
    three("WATCH s")
    three("XDEL s 9-9", client="b")
    three("MULTI")
    assert three("EXEC") == []
    three("WATCH s")
    three("XDEL s 1-0", client="b")
    three("MULTI")
    assert three("EXEC") == "nil-array"
