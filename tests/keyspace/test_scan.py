import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.keyspace import scan
from headrace.keyspace.scan import Order


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (b"*", [b"", b"a", b"any\x00thing"], []),
        (b"", [b""], [b"a"]),
        (b"a", [b"a"], [b"", b"A", b"aa"]),
        (b"a*", [b"a", b"abc"], [b"ba", b""]),
        (b"*a", [b"a", b"ba", b"aa"], [b"ab"]),
        (b"a*b*c", [b"abc", b"aXbYc", b"abbc", b"abcbc"], [b"ac", b"acb", b"abcd"]),
        (b"a**b", [b"ab", b"axxb"], [b"a"]),
        (b"?", [b"a", b"\xff"], [b"", b"ab"]),
        (b"h?llo", [b"hello", b"hallo"], [b"hllo"]),
        (b"h[ae]llo", [b"hello", b"hallo"], [b"hillo", b"h[ae]llo"]),
        (b"h[^e]llo", [b"hallo", b"hbllo"], [b"hello"]),
        (b"h[a-c]llo", [b"hallo", b"hcllo"], [b"hdllo"]),
        (b"h[c-a]llo", [b"hallo", b"hbllo"], [b"hdllo"]),
        (b"[a-]", [b"a", b"]", b"^"], [b"b", b"-"]),  # the range from ] to a, never closed
        (b"[\\]]", [b"]"], [b"\\"]),
        (b"\\*", [b"*"], [b"a", b"\\*"]),
        (b"\\", [b"\\"], [b""]),
        (b"[", [], [b"["]),
        (b"[a", [b"a"], [b"b", b"[a"]),
        (b"[]", [], [b"", b"]"]),
        (b"[^]", [b"a"], [b""]),
        (b"a[b-", [b"ab", b"a-"], [b"ac"]),
    ],
)
def test_patterns_describe_what_they_say(pattern, yes, no):
    assert [text for text in yes + no if scan.matches(pattern, text)] == yes


def test_case_is_ignored_on_request():
    assert scan.matches(b"MAX*", b"maxmemory", True)
    assert scan.matches(b"[A-C]x", b"bX", True)
    assert not scan.matches(b"MAX*", b"maxmemory")


def test_many_stars_cost_no_exponential_time():
    assert not scan.matches(b"a*" * 30 + b"b", b"a" * 200)


TEXT = st.lists(st.sampled_from([b"a", b"b", b"-", b"\xff"]), max_size=8).map(b"".join)
PIECES = st.sampled_from([b"a", b"b", b"?", b"*", b"[ab]", b"[^a]", b"[a-b]", b"\\*", b"-"])
MEANING = {b"?": b"[\\x00-\\xff]", b"*": b"[\\x00-\\xff]*", b"\\*": b"\\*", b"-": b"-"}


@given(st.lists(PIECES, max_size=8), TEXT)
def test_a_pattern_means_the_regular_expression_made_of_its_pieces(pieces, text):
    expression = b"".join(MEANING.get(piece, piece) for piece in pieces)
    assert scan.matches(b"".join(pieces), text) == (re.fullmatch(expression, text, re.DOTALL) is not None)


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_hostile_patterns_only_answer_yes_or_no(pattern, text):
    assert scan.matches(pattern, text) in (True, False)


def test_an_order_goes_through_all_keys_once():
    order = Order([b"%d" % i for i in range(25)])
    cursor, found = 0, []
    while True:
        cursor, keys = order.step(cursor, 10)
        found += keys
        if not cursor:
            break
    assert found == [b"%d" % i for i in range(25)]


def test_closing_holes_does_not_move_what_a_cursor_points_at():
    live = {b"%d" % i: None for i in range(600)}
    order = Order(live)
    cursor, seen = order.step(0, 100)
    for i in range(2000):  # keys that come and go at once: holes, closed more than once
        live[b"gone%d" % i] = None
        order.add(b"gone%d" % i, live)
        del live[b"gone%d" % i]
    assert len(order.keys) < 2000
    while cursor:
        cursor, keys = order.step(cursor, 100)
        seen += keys
    assert [key for key in seen if key in live] == [b"%d" % i for i in range(600)]


def test_a_cursor_from_nowhere_is_harmless():
    order = Order([b"a"])
    assert order.step(10**6, 10) == (0, [])
