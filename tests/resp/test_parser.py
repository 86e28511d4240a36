"""Parsing requests: complete, in pieces, inline, and invalid."""

import pytest

from headrace.errors import ProtocolError
from headrace.resp.parser import RequestParser

ECHO = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n"


def parsed(*chunks: bytes) -> list[list[bytes]]:
    parser = RequestParser()
    requests = []
    for chunk in chunks:
        parser.feed(chunk)
        while (request := parser.next()) is not None:
            requests.append(request)
    return requests


def refusal(data: bytes) -> str:
    with pytest.raises(ProtocolError) as wrong:
        parsed(data)
    return str(wrong.value)


def test_a_request_may_arrive_one_byte_at_a_time():
    parser = RequestParser()
    for byte in ECHO[:-1]:
        parser.feed(bytes([byte]))
        assert parser.next() is None
    parser.feed(ECHO[-1:])
    assert parser.next() == [b"ECHO", b"hi"]
    assert parser.next() is None


@pytest.mark.parametrize("cut", range(1, len(ECHO)))
def test_a_request_may_be_cut_anywhere(cut: int):
    assert parsed(ECHO[:cut], ECHO[cut:] + ECHO) == [[b"ECHO", b"hi"]] * 2


def test_requests_follow_each_other_without_pause():
    assert parsed(ECHO * 1000) == [[b"ECHO", b"hi"]] * 1000


def test_words_may_be_empty_and_hold_any_byte():
    data = bytes(range(256)) + b"\r\n$3\r\n"
    assert parsed(b"*3\r\n$0\r\n\r\n$%d\r\n%s\r\n$1\r\n*\r\n" % (len(data), data)) == [[b"", data, b"*"]]


@pytest.mark.parametrize("nothing", [b"\r\n", b"\n", b"   \r\n", b"*0\r\n", b"*-1\r\n", b"*-7\r\n"])
def test_empty_requests_are_passed_over(nothing: bytes):
    assert parsed(nothing + ECHO + nothing + nothing + ECHO) == [[b"ECHO", b"hi"]] * 2


def test_an_inline_request_is_a_line():
    assert parsed(b"SET key value\r\nGET  key \nPI", b"NG\r\n") == [
        [b"SET", b"key", b"value"],
        [b"GET", b"key"],
        [b"PING"],
    ]


def test_inline_requests_and_arrays_mix():
    assert parsed(b"PING\r\n" + ECHO + b"PING\r\n") == [[b"PING"], [b"ECHO", b"hi"], [b"PING"]]


@pytest.mark.parametrize(
    "count", [b"x", b"", b"01", b"-0", b"1 ", b"+1", b"1048577", b"99999999999999999999", b"-"]
)
def test_an_invalid_count_is_rejected(count: bytes):
    assert refusal(b"*" + count + b"\r\n") == "Protocol error: invalid multibulk length"


@pytest.mark.parametrize("size", [b"x", b"", b"-1", b"03", b"536870913", b"9" * 30, b"1e3"])
def test_an_invalid_length_is_rejected(size: bytes):
    assert refusal(b"*1\r\n$" + size + b"\r\n") == "Protocol error: invalid bulk length"


def test_the_longest_word_is_what_the_configuration_says():
    parser = RequestParser()
    parser.bulk_max = 10
    parser.feed(b"*1\r\n$10\r\n0123456789\r\n*1\r\n$11\r\n")
    assert parser.next() == [b"0123456789"]
    with pytest.raises(ProtocolError, match="invalid bulk length"):
        parser.next()


def test_a_word_that_does_not_begin_with_a_dollar_is_refused():
    assert refusal(b"*1\r\nabc\r\n") == "Protocol error: expected '$', got 'a'"
    assert refusal(b"*2\r\n$1\r\na\r\n*1\r\n") == "Protocol error: expected '$', got '*'"


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"*", "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
        (b"GET ", "too big inline request"),
    ],
)
def test_a_line_without_end_is_refused_past_64_kilobytes(head: bytes, text: str):
    line = head.rpartition(b"\n")[2]
    assert parsed(head + b"1" * (65536 - len(line))) == []
    assert refusal(head + b"1" * (65537 - len(line))) == f"Protocol error: {text}"


@pytest.mark.parametrize("line", [b'GET "key', b"GET 'key", b'GET "a"b', b"GET 'a'b", b'GET "a\\"'])
def test_unbalanced_quotes_are_refused(line: bytes):
    assert refusal(line + b"\r\n") == "Protocol error: unbalanced quotes in request"


def test_a_declared_length_allocates_nothing():
    parser = RequestParser()
    parser.feed(b"*1000000\r\n$536870912\r\nabc")
    assert parser.next() is None
    assert parser.cap <= 512
    assert parser.pending_bytes() == len(b"*1000000\r\n$536870912\r\nabc") - len(b"*1000000\r\n")


def test_pending_counts_the_words_of_a_request_begun():
    parser = RequestParser()
    words = b"$5\r\nabcde\r\n" * 3
    parser.feed(b"*4\r\n" + words)
    assert parser.next() is None
    assert parser.pending_bytes() == len(words)
    parser.feed(b"$1\r\nx\r\n")
    assert parser.next() == [b"abcde"] * 3 + [b"x"]
    assert parser.pending_bytes() == 0


def test_a_parser_with_nothing_pending_keeps_little_memory():
    parser = RequestParser()
    value = bytes(1_000_000)
    parser.feed(b"*1\r\n$1000000\r\n" + value + b"\r\n")
    assert parser.next() == [value]
    assert parser.next() is None
    assert parser.cap <= 4096


def test_a_long_word_in_small_pieces():
    value = bytes(range(256)) * 400
    data = b"*2\r\n$3\r\nSET\r\n$%d\r\n%s\r\n" % (len(value), value)
    pieces = [data[i : i + 1000] for i in range(0, len(data), 1000)]
    assert parsed(*pieces) == [[b"SET", value]]
