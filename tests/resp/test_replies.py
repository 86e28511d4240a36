"""Parsing replies of both protocols: complete, in pieces, and invalid."""

import math

import pytest

from headrace.errors import CommandError, ProtocolError
from headrace.resp.reply_parser import INCOMPLETE, Push, ReplyParser

EVERY_KIND = (
    b"+OK\r\n:12\r\n$-1\r\n*-1\r\n*0\r\n*3\r\n$1\r\na\r\n:-5\r\n*1\r\n_\r\n%1\r\n+k\r\n~1\r\n,2.5\r\n"
    b"|1\r\n+ttl\r\n:5\r\n#t\r\n#f\r\n=7\r\ntxt:abc\r\n>2\r\n+message\r\n$0\r\n\r\n"
    b"(123456789012345678901234567890\r\n,-inf\r\n%0\r\n*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n"
)
THEIR_VALUES = [
    "OK",
    12,
    None,
    None,
    [],
    [b"a", -5, [None]],
    {"k": [2.5]},
    True,
    False,
    b"abc",
    ["message", b""],
    123456789012345678901234567890,
    -math.inf,
    {},
    [1, 2],
]


def read(*chunks: bytes) -> list[object]:
    parser = ReplyParser()
    replies = []
    for chunk in chunks:
        parser.feed(chunk)
        while (reply := parser.next()) is not INCOMPLETE:
            replies.append(reply)
    return replies


def test_every_kind_of_reply_is_read():
    assert read(EVERY_KIND) == THEIR_VALUES


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_replies_may_be_cut_anywhere(size: int):
    chunks = [EVERY_KIND[at : at + size] for at in range(0, len(EVERY_KIND), size)]
    assert read(*chunks) == THEIR_VALUES


def test_an_error_is_a_value():
    short, long = read(b"-ERR no\r\n!10\r\nERR really\r\n")
    assert isinstance(short, CommandError) and str(short) == "ERR no"
    assert isinstance(long, CommandError) and str(long) == "ERR really"


def test_a_push_is_told_from_an_array():
    push, array = read(b">1\r\n+m\r\n*1\r\n+m\r\n")
    assert isinstance(push, Push)
    assert not isinstance(array, Push)


def test_not_a_number_is_a_double():
    (value,) = read(b",nan\r\n")
    assert isinstance(value, float) and math.isnan(value)


def test_a_list_as_key_is_spelt_out():
    assert read(b"%1\r\n*1\r\n:1\r\n:2\r\n") == [{"[1]": 2}]


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n",
        b":x\r\n",
        b":\r\n",
        b"$x\r\n",
        b"$-2\r\n",
        b"$536870913\r\n",
        b"*-2\r\n",
        b"*4294967296\r\n",
        b"#x\r\n",
        b",x\r\n",
        b"\r\n",
        b"+" + b"x" * 70000,
        b"*1\r\n" * 65,
    ],
)
def test_invalid_replies_are_rejected(data: bytes):
    with pytest.raises(ProtocolError):
        read(data)


def test_64_levels_are_read():
    (value,) = read(b"*1\r\n" * 64 + b":7\r\n")
    for _ in range(64):
        assert isinstance(value, list)
        (value,) = value
    assert value == 7


def test_a_declared_count_allocates_nothing():
    parser = ReplyParser()
    parser.feed(b"*4294967295\r\n$536870912\r\nabc")
    assert parser.next() is INCOMPLETE
    assert parser.cap <= 512
