import pytest

# What single transactions answer is in tests/replay/transactions.txt and beside a real Redis in
# tests/conformance; here stands what neither can show.


def test_nothing_is_watched_after_exec_discard_reset_or_the_end(talk):
    watching = talk.engine.keyspace.database(0).watched_keys
    for ending in ("EXEC", "DISCARD"):
        talk("WATCH a b")
        talk("MULTI")
        assert watching.watches
        talk(ending)
        assert not watching.watches
    for ending in ("RESET", "UNWATCH"):
        talk("WATCH a b")
        talk(ending)
        assert not watching.watches
    talk("WATCH a b")
    talk.engine.close(talk.clients["a"])
    assert not watching.watches


@pytest.mark.parametrize(("commands", "wrapped"), [(0, False), (1, False), (2, True)])
def test_the_effects_of_a_transaction_are_one(talk, commands, wrapped):
    talk("MULTI")
    talk("GET k0")
    for i in range(commands):
        talk(f"SET k{i} v")
    talk("EXEC")
    written = [f"SET k{i} v" for i in range(commands)]
    assert talk.effects() == (["MULTI", *written, "EXEC"] if wrapped else written)


def test_a_transaction_that_is_not_run_has_no_effects(talk):
    talk("WATCH k")
    talk("SET k 1", client="b")
    talk.effects()
    talk("MULTI")
    talk("SET k 2")
    assert talk("EXEC") == "nil-array"
    talk("MULTI")
    talk("SET k 2")
    assert talk("GET").startswith("-ERR wrong number")
    assert talk("EXEC").startswith("-EXECABORT")
    assert talk.effects() == []
    assert talk("GET k") == "1"


def test_a_long_transaction_answers_every_request_in_order(talk):
    talk("MULTI")
    for _ in range(500):
        assert talk("INCR n") == "QUEUED"
    assert talk("EXEC") == list(range(1, 501))


def test_the_clock_stands_still_inside_a_transaction(talk):
    talk("MULTI")
    for _ in range(3):
        talk("XADD s * f v")
    assert talk("EXEC") == ["1000-0", "1000-1", "1000-2"]


def test_a_malformed_exec_ends_the_transaction_and_the_watch(talk):
    talk("WATCH k")
    talk("MULTI")
    talk("SET k v")
    assert (
        talk("EXEC now")
        == "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
    )
    assert talk("EXEC") == "-ERR EXEC without MULTI"
    assert talk("EXISTS k") == 0
    assert not talk.engine.keyspace.database(0).watched_keys.watches
