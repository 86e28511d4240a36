"""Large blocks that are lent to one busy client after the other."""

from headrace.resp.buffer_pool import BufferPool
from headrace.resp.parser import RequestParser
from headrace.resp.writer import ReplyWriter

KEPT_MAX = 4096
LARGE = 100_000


def answers_of(spare: BufferPool, n: int) -> list[ReplyWriter]:
    answers = [ReplyWriter() for _ in range(n)]
    for answer in answers:
        answer.pool = spare
    return answers


def test_a_large_block_is_lent_from_one_writer_to_the_next():
    first, second = answers_of(BufferPool(), 2)
    first.bulk(b"a" * LARGE)
    large = first.cap
    assert first.take() == b"$100000\r\n" + b"a" * LARGE + b"\r\n"
    assert first.cap <= KEPT_MAX
    second.bulk(b"small")
    second.bulk(b"b" * KEPT_MAX)
    assert second.cap == large > LARGE, "it has made a block of its own"
    assert second.take() == b"$5\r\nsmall\r\n$4096\r\n" + b"b" * KEPT_MAX + b"\r\n"
    assert second.cap <= KEPT_MAX


def test_a_borrower_gets_its_own_block_back():
    first, second = answers_of(BufferPool(), 2)
    first.bulk(b"a" * LARGE)
    first.take()
    second.bulk(b"b" * 1000)
    own = second.cap
    for _ in range(3):
        second.bulk(b"b" * 10_000)
        assert second.cap > LARGE
        second.take()
        assert second.cap == own


def test_two_borrowers_at_once_do_not_share_a_block():
    first, second = answers_of(BufferPool(), 2)
    for _ in range(3):
        first.bulk(b"a" * 20_000)
        second.bulk(b"b" * 20_000)
        first.bulk(b"c" * 20_000)
        assert first.take() == b"".join(b"$20000\r\n" + c * 20_000 + b"\r\n" for c in (b"a", b"c"))
        assert second.take() == b"$20000\r\n" + b"b" * 20_000 + b"\r\n"
        assert max(first.cap, second.cap) <= KEPT_MAX


def test_a_huge_block_is_not_kept():
    spare = BufferPool()
    first, second = answers_of(spare, 2)
    first.bulk(b"a" * 1_000_000)
    first.take()
    second.bulk(b"b" * 10_000)
    assert second.cap < 100_000


def test_requests_arrive_in_lent_blocks_as_in_others():
    spare = BufferPool()
    parsers = [RequestParser() for _ in range(2)]
    requests = b"".join(b"*2\r\n$4\r\nECHO\r\n$5\r\n%05d\r\n" % i for i in range(5000))
    for parser in parsers:
        parser.pool = spare
    for _ in range(2):
        for parser in parsers:
            parser.feed(requests[:65_537])
            heard = []
            while words := parser.next():
                heard.append(words)
            parser.feed(requests[65_537:])
            while words := parser.next():
                heard.append(words)
            assert heard == [[b"ECHO", b"%05d" % i] for i in range(5000)]
            assert parser.cap <= KEPT_MAX
