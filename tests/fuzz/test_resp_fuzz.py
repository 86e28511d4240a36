"""Hostile bytes: the same result whatever the chunking, and never more than an error."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.resp import parser as parser_module
from headrace.resp.inline import split_line
from headrace.resp.parser import RequestParser
from headrace.resp.replies import INCOMPLETE, ReplyParser
from headrace.resp.writer import Answer

COMPILED = parser_module.__file__.endswith(".so")
EXAMPLES = 400 if COMPILED else 100

# Bytes that the grammar is made of come up often, so that wrong requests are nearly right.
TOKENS = [
    b"*",
    b"$",
    b"\r\n",
    b"\n",
    b"\r",
    b"-",
    b":",
    b"+",
    b"_",
    b"#",
    b",",
    b"%",
    b">",
    b"~",
    b"|",
    b"=",
    b"!",
    b"(",
]
TOKENS += [
    b"0",
    b"1",
    b"2",
    b"3",
    b"10",
    b"-1",
    b"99",
    b"4294967295",
    b"536870912",
    b"a",
    b'"',
    b"'",
    b"\\",
    b"\0",
    b" ",
]
TOKENS += [
    b"*1\r\n$1\r\na\r\n",
    b"*2\r\n",
    b"$3\r\nabc\r\n",
    b"PING\r\n",
    b"%1\r\n",
    b"*0\r\n",
    b"\\x4",
    b"t",
    b"f",
]
noise = st.lists(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=8)), max_size=40).map(b"".join)
words = st.lists(st.binary(max_size=40), min_size=1, max_size=12)
cuts = st.lists(st.integers(1, 30), min_size=1, max_size=40)


def chunks(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


def requests(pieces: list[bytes]) -> list[object]:
    parser = RequestParser()
    found: list[object] = []
    try:
        for piece in pieces:
            parser.feed(piece)
            while (request := parser.next()) is not None:
                assert request
                found.append(request)
            assert 0 <= parser.pending() <= sum(map(len, pieces))
    except ProtocolError as wrong:
        found.append(str(wrong))
    return found


def replies(pieces: list[bytes]) -> list[object]:
    parser = ReplyParser()
    found: list[object] = []
    try:
        for piece in pieces:
            parser.feed(piece)
            while (reply := parser.next()) is not INCOMPLETE:
                found.append(repr(reply))
    except ProtocolError as wrong:
        found.append(str(wrong))
    return found


def encoded(request: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(request) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in request)


@settings(max_examples=EXAMPLES)
@given(noise, cuts)
def test_requests_do_not_depend_on_the_chunking(data: bytes, sizes: list[int]):
    assert requests(chunks(data, sizes)) == requests([data])


@settings(max_examples=EXAMPLES)
@given(noise, cuts)
def test_replies_do_not_depend_on_the_chunking(data: bytes, sizes: list[int]):
    assert replies(chunks(data, sizes)) == replies([data])


@settings(max_examples=EXAMPLES)
@given(st.lists(words, max_size=8), cuts)
def test_every_request_reads_back(sent: list[list[bytes]], sizes: list[int]):
    assert requests(chunks(b"".join(map(encoded, sent)), sizes)) == sent


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.binary()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=12), st.dictionaries(st.binary(), inner, max_size=5)),
    max_leaves=40,
)


@settings(max_examples=EXAMPLES)
@given(st.lists(values, max_size=5), cuts)
def test_every_answer_reads_back(sent: list[object], sizes: list[int]):
    answer = Answer(3)
    for value in sent:
        answer.value(value)
    assert replies(chunks(answer.take(), sizes)) == [repr(value) for value in sent]


@settings(max_examples=EXAMPLES)
@given(words)
def test_a_line_of_quoted_words_reads_back(sent: list[bytes]):
    line = b" ".join(b'"' + b"".join(b"\\x%02x" % byte for byte in word) + b'"' for word in sent)
    assert split_line(line) == sent


@settings(max_examples=EXAMPLES)
@given(noise)
def test_any_line_is_words_or_nothing(line: bytes):
    found = split_line(line)
    assert found is None or all(isinstance(word, bytes) for word in found)


def test_damaged_requests_never_do_more_than_fail():
    dice = random.Random(7)
    good = b"".join(
        encoded([b"XADD", b"orders", b"*", b"item", bytes(dice.randrange(300))]) for _ in range(20)
    )
    for _ in range(EXAMPLES):
        data = bytearray(good)
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        whole = requests([bytes(data)])
        cut = dice.randrange(len(data))
        assert requests([bytes(data[:cut]), bytes(data[cut:])]) == whole
