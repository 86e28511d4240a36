"""LocalReplyReader returns what clients' parser returns, except for errors and statuses, which are bytes."""

import random

import pytest

from headrace.errors import CommandError, ProtocolError
from headrace.resp.local_reply_reader import LocalReplyReader
from headrace.resp.reply_parser import ReplyParser
from headrace.resp.writer import ReplyWriter


def put_random(answer: ReplyWriter, chance: random.Random, depth: int) -> None:
    kind = chance.randrange(7 if depth else 6)
    if kind == 0:
        answer.simple(b"OK %d" % chance.randrange(100))
    elif kind == 1:
        answer.error(b"ERR no %d" % chance.randrange(100))
    elif kind == 2:
        answer.integer(chance.choice([0, 7, -1, 10, 2**63 - 1, -(2**63), chance.randrange(10**12)]))
    elif kind == 3:
        answer.bulk(chance.randbytes(chance.choice([0, 1, 9, 10, 300])))
    elif kind == 4:
        answer.null()
    elif kind == 5:
        answer.null_array()
    else:
        n = chance.randrange(12)
        answer.array(n)
        for _ in range(n):
            put_random(answer, chance, depth - 1)


def plain(value: object) -> object:
    """What both give, in one form."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, CommandError):
        return ("refused", str(value))
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_the_parser_of_replies(seed: int) -> None:
    chance = random.Random(seed)
    answer, parser, reader = ReplyWriter(), ReplyParser(), LocalReplyReader()
    count = 50
    for _ in range(count):
        put_random(answer, chance, 3)
    encoded = answer.take()
    answer.raw(encoded)
    parser.feed(encoded)
    for _ in range(count):
        assert plain(reader.read_reply(answer)) == plain(parser.next())
    assert answer.pending_bytes() == 0


def test_an_incomplete_reply_is_an_error_and_reads_nothing_after_it() -> None:
    whole = b"*3\r\n$5\r\nhello\r\n:12\r\n+OK\r\n"
    for at in range(len(whole)):
        answer = ReplyWriter()
        answer.raw(whole[:at])
        with pytest.raises((ProtocolError, AssertionError)):
            LocalReplyReader().read_reply(answer)
