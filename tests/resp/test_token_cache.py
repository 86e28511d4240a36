"""Repeated arguments are the same objects, and always the right ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.resp.parser import RequestParser
from headrace.resp.request import request as encoded


def test_an_argument_of_another_client_is_the_same_object() -> None:
    said = []
    for _ in range(2):
        parser = RequestParser()
        parser.feed(encoded(b"XADD", b"orders", b"device"))
        said.append(parser.next())
    assert said[0] is not None and said[1] is not None
    assert all(a is b for a, b in zip(said[0], said[1], strict=True))


def test_a_long_word_is_not_remembered() -> None:
    parser = RequestParser()
    parser.feed(encoded(b"v" * 100) * 2)
    first, second = parser.next(), parser.next()
    assert first == second == [b"v" * 100] and first is not None and second is not None
    assert first[0] is not second[0]


def test_words_of_one_slot_are_distinguished() -> None:
    """First, middle and last byte and the length are all that the place depends on."""
    parser = RequestParser()
    words = [b"a%02db%02dc" % (i, i) for i in range(100)] * 2
    parser.feed(b"".join(encoded(word) for word in words))
    assert [parser.next() for _ in words] == [[word] for word in words]


@given(st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=20), max_size=20), st.integers(1, 50))
def test_cached_words_are_unchanged(requests: list[list[bytes]], cut: int) -> None:
    parser = RequestParser()
    heard = []
    sent = b"".join(encoded(*words) for words in requests)
    for at in range(0, len(sent), cut):
        parser.feed(sent[at : at + cut])
        while (request := parser.next()) is not None:
            heard.append(request)
    assert heard == requests
    assert parser.pending_bytes() == 0
