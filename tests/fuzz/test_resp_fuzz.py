"""Requests, replies and lines by Hypothesis: independent of chunking, and read back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets_protocol import WORDS, read_line, read_replies, read_requests, replies_of, requests_of
from headrace.resp import parser as parser_module
from headrace.resp.inline import split_line
from headrace.resp.request import request
from headrace.resp.writer import ReplyWriter

COMPILED = parser_module.__file__.endswith(".so")
EXAMPLES = settings(max_examples=400 if COMPILED else 100)
# Bytes that the grammar is made of come up often, so that wrong requests are nearly right.
noise = st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=8)), max_size=40).map(b"".join)
words = st.lists(st.binary(max_size=40), min_size=1, max_size=12)
cuts = st.lists(st.integers(1, 30), min_size=1, max_size=40)


def chunks(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@EXAMPLES
@given(noise, cuts)
def test_requests_do_not_depend_on_the_chunking(data: bytes, sizes: list[int]):
    read_requests(data)
    assert requests_of(chunks(data, sizes)) == requests_of([data])


@EXAMPLES
@given(noise, cuts)
def test_replies_do_not_depend_on_the_chunking(data: bytes, sizes: list[int]):
    read_replies(data)
    assert repr(replies_of(chunks(data, sizes))) == repr(replies_of([data]))


@EXAMPLES
@given(noise)
def test_any_line_is_split_or_rejected(line: bytes):
    read_line(line)


@EXAMPLES
@given(st.lists(words, max_size=8), cuts)
def test_every_request_reads_back(sent: list[list[bytes]], sizes: list[int]):
    assert requests_of(chunks(b"".join(request(*each) for each in sent), sizes)) == (sent, "")


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.binary()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=12), st.dictionaries(st.binary(), inner, max_size=5)),
    max_leaves=40,
)


@EXAMPLES
@given(st.lists(values, max_size=5), cuts)
def test_every_reply_reads_back(sent: list[object], sizes: list[int]):
    answer = ReplyWriter(3)
    for value in sent:
        answer.value(value)
    assert repr(replies_of(chunks(answer.take(), sizes))) == repr((sent, ""))


@EXAMPLES
@given(words)
def test_a_line_of_quoted_words_reads_back(sent: list[bytes]):
    line = b" ".join(b'"' + b"".join(b"\\x%02x" % byte for byte in word) + b'"' for word in sent)
    assert split_line(line) == sent
