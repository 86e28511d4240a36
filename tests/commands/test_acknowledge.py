"""XACK, XACKDEL, XNACK: what the log gets, and what counts as a change of the key."""

import pytest


@pytest.fixture
def given(talk):
    """Entries 1-0 to 3-0, all pending for ann."""
    talk("XGROUP CREATE s g 0 MKSTREAM")
    for i in range(1, 4):
        talk(f"XADD s {i}-0 f {i}")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk.effects()
    return talk


def test_an_acknowledgement_is_recorded_only_if_an_entry_was_pending(given):
    assert given("XACK s g 1-0 1-0 9-0") == 1
    assert given("XACK s g 1-0 9-0") == 0
    assert given.effects() == ["XACK s g 1-0 1-0 9-0"]


def test_one_bad_id_acknowledges_nothing(given):
    assert given("XACK s g 1-0 x").startswith("-ERR Invalid stream ID")
    assert given("XPENDING s g")[0] == 3
    assert given("XACK s nobody x") == given("XACK none g x") == 0


def test_xackdel_is_recorded_when_an_entry_was_acknowledged(given):
    assert given("XACKDEL s g ACKED IDS 2 1-0 9-0") == [1, -1]
    assert given("XACKDEL s g DELREF IDS 1 1-0") == [-1]
    assert given.effects() == ["XACKDEL s g ACKED IDS 2 1-0 9-0"]
    assert given("XLEN s") == 2


def test_an_entry_that_was_deleted_before_counts_as_deleted(given):
    given("XDEL s 2-0")
    assert given("XACKDEL s g IDS 1 2-0") == [1]


def test_only_a_deletion_invalidates_watches(given):
    given("XGROUP CREATE s h 0")
    for line, answer in (("XACKDEL s g ACKED IDS 1 1-0", []), ("XACKDEL s g IDS 1 2-0", "nil-array")):
        given("WATCH s")
        given(line, client="b")
        given("MULTI")
        assert given("EXEC") == answer


def test_xnack_is_recorded_as_it_was_requested(given):
    assert given("XNACK s g FAIL IDS 2 1-0 1-0") == 2
    assert given("XNACK s g FAIL IDS 1 9-0 FORCE") == 0
    assert given.effects() == ["XNACK s g FAIL IDS 2 1-0 1-0"]


def test_giving_back_is_all_or_nothing_and_changes_no_consumer(given):
    given.tick(1500)
    assert given("XNACK s g FAIL IDS 2 1-0 x").startswith("-ERR Invalid stream ID")
    assert given("XPENDING s g")[3] == [["ann", "3"]]
    given("XNACK s g FAIL IDS 1 1-0")
    assert given("XINFO CONSUMERS s g") == [["name", "ann", "pending", 2, "idle", 500, "inactive", 500]]


def test_the_removal_of_a_deleted_entry_without_owner_is_recorded_as_a_claim(given):
    given("XNACK s g FAIL IDS 2 1-0 2-0")
    given("XDEL s 1-0 2-0")
    given.effects()
    given("XCLAIM s g bob 0 1-0")
    assert given("XAUTOCLAIM s g bob 0 - JUSTID") == ["0-0", ["3-0"], ["2-0"]]
    made, claim = "XGROUP CREATECONSUMER s g bob", "XCLAIM s g bob 0 %d-0 JUSTID"
    assert given.effects()[:6] == ["MULTI", claim % 1, made, "EXEC", "MULTI", claim % 2]


def test_a_group_may_be_removed_with_entries_without_owner(given):
    given("XNACK s g FAIL IDS 3 1-0 2-0 3-0")
    assert given("XGROUP DELCONSUMER s g ann") == 0
    assert given("XGROUP DESTROY s g") == 1
    assert given("XDELEX s ACKED IDS 1 1-0") == [1]
