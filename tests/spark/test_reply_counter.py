"""Replies are counted, and errors found, exactly as if they had been parsed."""

from __future__ import annotations

import random

import pytest

from headrace.errors import ProtocolError
from headrace.spark.sink.reply_counter import ReplyCounter

Reply = bytes | int | str | None | list["Reply"] | Exception


def encoded(reply: Reply) -> bytes:
    match reply:
        case None:
            return b"$-1\r\n"
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case int():
            return b":%d\r\n" % reply
        case str():
            return b"+%b\r\n" % reply.encode()
        case list():
            return b"*%d\r\n" % len(reply) + b"".join(encoded(r) for r in reply)
        case _:
            return b"-%b\r\n" % str(reply).encode()


def some_reply(r: random.Random, depth: int = 0) -> Reply:
    kind = r.randrange(7 if depth < 2 else 5)
    if kind == 0:
        return r.choice([None, b"", b"\r\n-ERR no\r\n", b"-", b"5-1", b"*3\r\n"])
    if kind == 1:
        return r.randbytes(r.randrange(40))
    if kind == 2:
        return r.choice([0, -1, 1 << 40])
    if kind == 3:
        return r.choice(["OK", "QUEUED", "-odd"])
    if kind == 4:
        return ValueError(f"ERR number {r.randrange(100)}")
    return [some_reply(r, depth + 1) for _ in range(r.randrange(4))]


def flat(reply: Reply) -> list[Reply]:
    """The elements in the order in which they arrive; nested arrays count themselves, too."""
    if not isinstance(reply, list):
        return [reply]
    return [e for item in reply for e in ([[]] if isinstance(item, list) else []) + flat(item)]


def errors_of(replies: list[Reply]) -> list[tuple[int, int, str]]:
    found = []
    for i, reply in enumerate(replies):
        if isinstance(reply, Exception):
            found.append((i, -1, str(reply)))
        elif isinstance(reply, list):
            found += [(i, j, str(e)) for j, e in enumerate(flat(reply)) if isinstance(e, Exception)]
    return found


def test_errors_are_found_wherever_the_bytes_are_cut() -> None:
    for seed in range(300):
        r = random.Random(seed)
        replies = [some_reply(r) for _ in range(r.randrange(1, 8))]
        raw = b"".join(map(encoded, replies))
        tally = ReplyCounter()
        tally.expect(len(replies))
        at = 0
        while at < len(raw):
            assert not tally.received_all()
            n = r.randrange(1, 12)
            tally.feed(raw[at : at + n])
            at += n
        assert tally.received_all()
        assert tally.errors == errors_of(replies)
        last = replies[-1]
        if not isinstance(last, Exception | list):
            assert tally.last_reply_string == (str(last).encode() if isinstance(last, int | str) else last)


def test_replies_that_are_not_yet_expected_wait() -> None:
    tally = ReplyCounter()
    tally.feed(b"+OK\r\n$3\r\n7:2\r\n*-1\r\n")
    tally.expect(2)
    assert tally.received_all() and tally.last_reply_string == b"7:2" and not tally.last_reply_is_null
    tally.expect(1)
    assert tally.received_all() and tally.last_reply_is_null and tally.last_reply_string is None


@pytest.mark.parametrize("raw", [b"?\r\n", b"$-2\r\n", b"*x\r\n", b"\r\n", b"%1\r\n+a\r\n+b\r\n"])
def test_bytes_that_are_not_a_reply_are_rejected(raw: bytes) -> None:
    tally = ReplyCounter()
    tally.expect(1)
    tally.feed(raw)
    with pytest.raises(ProtocolError):
        tally.received_all()


def test_the_strings_of_the_last_reply_are_kept_if_asked_for():
    counter = ReplyCounter()
    counter.expect(2, keep_strings=True)
    counter.feed(b"$5\r\nfirst\r\n*4\r\n$4\r\nname\r\n*2\r\n:1\r\n$1\r\nx\r\n$-1\r\n$4\r\nlast\r\n")
    assert counter.received_all() and counter.strings == [b"name", b"x", b"last"]
    counter.expect(1)
    counter.feed(b"*1\r\n$1\r\nx\r\n")
    assert counter.received_all() and counter.strings == []
