"""XPENDING: its two forms, its filters, and its refusals in their order."""

import pytest


@pytest.fixture
def given(talk):
    """1-0 and 2-0 pending for ann since 1000, 3-0 for Bob since 1200; now it is 1500."""
    talk("XGROUP CREATE s g 0 MKSTREAM")
    for i in range(1, 4):
        talk(f"XADD s {i}-0 f {i}")
    talk("XREADGROUP GROUP g ann COUNT 2 STREAMS s >")
    talk.tick(1200)
    talk("XREADGROUP GROUP g Bob STREAMS s >")
    talk.tick(1500)
    return talk


ONE, TWO, THREE = ["1-0", "ann", 500, 1], ["2-0", "ann", 500, 1], ["3-0", "Bob", 300, 1]


def test_the_short_form_sums_up_consumers_in_byte_order(given):
    given("XGROUP CREATECONSUMER s g idle")
    assert given("XPENDING s g") == [3, "1-0", "3-0", [["Bob", "1"], ["ann", "2"]]]


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("- + 10", [ONE, TWO, THREE]),
        ("- + 2", [ONE, TWO]),
        ("- + 0", []),
        ("- + -5", []),
        ("2 2 10", [TWO]),
        ("(1-0 (3-0 10", [TWO]),
        ("3 1 10", []),
        ("- + 10 ann", [ONE, TWO]),
        ("- + 1 ann", [ONE]),
        ("(1-0 + 10 ann", [TWO]),
        ("- + 10 nobody", []),
        ("IDLE 400 - + 10", [ONE, TWO]),
        ("idle 301 - + 1 Bob", []),
        ("IDLE 300 - + 1 Bob", [THREE]),
        ("IDLE -1 - + 10", [ONE, TWO, THREE]),
    ],
)
def test_the_long_form_lists(given, words, rows):
    assert given(f"XPENDING s g {words}") == rows


def test_an_entry_delivered_in_the_future_is_not_idle_at_all(given):
    given.tick(1100)
    assert given("XPENDING s g - + 10 Bob") == [["3-0", "Bob", 0, 1]]


def test_refusals_come_in_order(given):
    integer, syntax = "-ERR value is not an integer or out of range", "-ERR syntax error"
    invalid = "-ERR Invalid stream ID specified as stream command argument"
    given("SET string x")
    for words, answer in (
        ("none g IDLE x -", integer),
        ("none g IDLE 1 - +", syntax),
        ("none g x y z", integer),
        ("none g x y 1", invalid),
        ("string g - + 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("none g - + 1", "-NOGROUP No such key 'none' or consumer group 'g'"),
        ("s nobody", "-NOGROUP No such key 's' or consumer group 'nobody'"),
        ("s g -", syntax),
        ("s g - + 1 ann more and more", syntax),
    ):
        assert given(f"XPENDING {words}") == answer
