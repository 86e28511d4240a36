"""Glob patterns: what they describe, and how much work a comparison is."""

import random
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace import limits
from headrace.keyspace import glob
from headrace.keyspace.glob import Glob, PatternTooComplex


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (b"*", [b"a", b"any\x00thing"], [b""]),
        (b"**", [b"a"], [b""]),
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
    assert [text for text in yes + no if Glob(pattern).matches(text)] == yes


def test_case_is_ignored_on_request():
    assert Glob(b"MAX*", True).matches(b"maxmemory")
    assert Glob(b"[A-C]x", True).matches(b"bX")
    assert not Glob(b"MAX*").matches(b"maxmemory")


def test_many_stars_cost_no_exponential_time():
    assert not Glob(b"a*" * 30 + b"b").matches(b"a" * 200)


TEXT = st.lists(st.sampled_from([b"a", b"b", b"-", b"\xff"]), min_size=1, max_size=8).map(b"".join)
PIECES = st.sampled_from([b"a", b"b", b"?", b"*", b"[ab]", b"[^a]", b"[a-b]", b"\\*", b"-"])
MEANING = {b"?": b"[\\x00-\\xff]", b"*": b"[\\x00-\\xff]*", b"\\*": b"\\*", b"-": b"-"}


@given(st.lists(PIECES, max_size=8), TEXT)
def test_a_pattern_means_the_regular_expression_made_of_its_pieces(pieces, text):
    expression = b"".join(MEANING.get(piece, piece) for piece in pieces)
    assert Glob(b"".join(pieces)).matches(text) == (re.fullmatch(expression, text, re.DOTALL) is not None)


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_hostile_patterns_return_a_result(pattern, text):
    assert Glob(pattern).matches(text) in (True, False)


class Reference:
    """A pattern as the set of bytes of each element, matched by the set of offsets that are reached."""

    def __init__(self, pattern: bytes, ignore_case: bool) -> None:
        self.fold = bytes.lower if ignore_case else bytes
        self.elements: list[frozenset[int] | None] = []  # the bytes an element accepts; None is a star
        at = 0
        while at < len(pattern):
            at = self.read(pattern, at)

    def accepted(self, test) -> frozenset[int]:
        return frozenset(c for c in range(256) if test(c))

    def read(self, pattern: bytes, at: int) -> int:
        c = pattern[at]
        if c == ord("*"):
            self.elements.append(None)
            return at + 1
        if c == ord("?"):
            self.elements.append(frozenset(range(256)))
            return at + 1
        if c == ord("["):
            return self.read_class(pattern, at + 1)
        if c == ord("\\") and at + 1 < len(pattern):
            at += 1
        wanted = self.fold(pattern[at : at + 1])
        self.elements.append(self.accepted(lambda byte: self.fold(bytes([byte])) == wanted))
        return at + 1

    def read_class(self, pattern: bytes, at: int) -> int:
        inverted = pattern[at : at + 1] == b"^"
        at += inverted
        members: set[int] = set()
        while at < len(pattern) and pattern[at] != ord("]"):
            if pattern[at] == ord("\\") and at + 1 < len(pattern):
                members.add(pattern[at + 1])
                at += 2
                continue
            low = high = pattern[at]
            if at + 2 < len(pattern) and pattern[at + 1] == ord("-"):
                low, high = sorted((low, pattern[at + 2]))
                at += 2
            low, high = (self.fold(bytes([c]))[0] for c in (low, high))
            members |= self.accepted(lambda c, a=low, b=high: a <= self.fold(bytes([c]))[0] <= b)
            at += 1
        self.elements.append(self.accepted(lambda c: (c in members) != inverted))
        return at + 1

    def matches(self, text: bytes) -> bool:
        if not text:
            return not self.elements
        reached = {0}
        for element in self.elements:
            if element is None:
                reached = set(range(min(reached), len(text) + 1)) if reached else set()
            else:
                reached = {i + 1 for i in reached if i < len(text) and text[i] in element}
        return len(text) in reached


ODD = [
    b"a",
    b"b",
    b"A",
    b"B",
    b"?",
    b"*",
    b"[",
    b"]",
    b"^",
    b"-",
    b"\\",
    b"[ab]",
    b"[^a]",
    b"[a-b]",
    b"[Z-a]",
]
REPEATED = st.builds(
    lambda piece, n: piece * n, st.sampled_from([*ODD, b"a*", b"?a", b"[ab]*"]), st.integers(0, 90)
)
PATTERN = st.lists(st.one_of(st.sampled_from(ODD), REPEATED), max_size=6).map(b"".join)
LETTERS = st.sampled_from([b"a", b"b", b"A", b"B", b"-", b"]", b"\\"])
LONG = st.builds(lambda piece, n: piece * n, LETTERS, st.integers(0, 150))
LONG_TEXT = st.lists(st.one_of(LETTERS, LONG), max_size=6).map(b"".join)


@given(PATTERN, LONG_TEXT, st.booleans())
@example(b"*" + b"a" * 40 + b"b*", b"a" * 200 + b"b" + b"a" * 10, False)
@example(b"*" + b"[ab]?" * 70 + b"c*", b"ab" * 200 + b"c", False)
@example(b"*" + b"a" * 30 + b"*" + b"?A" * 40 + b"[^b]", b"a" * 400, True)
def test_long_patterns_mean_what_short_ones_do(pattern, text, ignore_case):
    expected = Reference(pattern, ignore_case).matches(text)
    assert Glob(pattern, ignore_case).matches(text) == expected
    used = Glob(pattern, ignore_case)  # the same with tables made for another text
    used.matches(b"a" * 400 + b"b")
    assert used.matches(text) == expected


@pytest.mark.parametrize(
    "segment", [b"a" * 40, b"?" * 300 + b"b", b"[ab]" * 200 + b"c", b"ab" * 60 + b"[x]", b"[^b]" * 17]
)
def test_segments_of_each_kind_are_found_in_the_middle(segment):
    chance = random.Random(5)
    wanted = bytes(chance.choice(b"abcx") for _ in range(50))
    reference = Reference(b"*" + segment + b"*" + b"a" * 20 + b"*", False)
    matcher = Glob(b"*" + segment + b"*" + b"a" * 20 + b"*")
    for _ in range(50):
        text = b"".join(
            chance.choice([b"a", b"ab", b"a" * 30, b"b" * 9, b"x", b"c", wanted]) for _ in range(70)
        )
        assert matcher.matches(text) == reference.matches(text)


def test_a_segment_that_is_no_literal_has_a_limit():
    most = limits.GLOB_SEGMENT_MAX
    for wild in (b"?", b"[ab]", b"[^c]"):
        assert Glob(b"*" + wild + b"a" * (most - 1) + b"*").matches(b"a" * most * 2)
        with pytest.raises(PatternTooComplex):
            Glob(b"*" + wild + b"a" * most + b"*")
    assert Glob(b"*" + b"a" * 9 * most + b"*").matches(b"a" * 10 * most)  # literals have none
    assert Glob(b"?" * 2 * most + b"*" + b"?" * 2 * most).matches(b"a" * 5 * most)  # nor have both ends


def test_select_returns_each_name_once_whatever_its_case():
    names = [b"maxmemory", b"maxclients", b"save", b"Port"]
    assert glob.matching_names([b"MAX*", b"maxmemory", b"port", b"sav\\e"], names) == names
    assert glob.matching_names([b"max?", b"ort"], names) == []
