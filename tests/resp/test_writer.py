"""Writing replies in both protocols."""

import pytest

from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.resp.writer import ReplyWriter


def answer(protocol: int = 2) -> ReplyWriter:
    made = ReplyWriter()
    made.protocol = protocol
    return made


@pytest.mark.parametrize(
    ("call", "arguments", "resp2", "resp3"),
    [
        ("ok", (), b"+OK\r\n", b"+OK\r\n"),
        ("simple", (b"QUEUED",), b"+QUEUED\r\n", b"+QUEUED\r\n"),
        ("error", (b"ERR no\r\nway",), b"-ERR no  way\r\n", b"-ERR no  way\r\n"),
        ("integer", (0,), b":0\r\n", b":0\r\n"),
        ("integer", (-1,), b":-1\r\n", b":-1\r\n"),
        ("integer", (10,), b":10\r\n", b":10\r\n"),
        ("integer", (2**63 - 1,), b":9223372036854775807\r\n", b":9223372036854775807\r\n"),
        ("integer", (-(2**63),), b":-9223372036854775808\r\n", b":-9223372036854775808\r\n"),
        ("bulk", (b"",), b"$0\r\n\r\n", b"$0\r\n\r\n"),
        ("bulk", (b"a\r\n\0",), b"$4\r\na\r\n\0\r\n", b"$4\r\na\r\n\0\r\n"),
        ("raw", (b"+PONG\r\n",), b"+PONG\r\n", b"+PONG\r\n"),
        ("stream_id", (0, 1), b"$3\r\n0-1\r\n", b"$3\r\n0-1\r\n"),
        ("stream_id", (12345678, 0), b"$10\r\n12345678-0\r\n", b"$10\r\n12345678-0\r\n"),
        ("stream_id", (1234567, 0), b"$9\r\n1234567-0\r\n", b"$9\r\n1234567-0\r\n"),
        ("null", (), b"$-1\r\n", b"_\r\n"),
        ("null_array", (), b"*-1\r\n", b"_\r\n"),
        ("array", (12,), b"*12\r\n", b"*12\r\n"),
        ("map", (3,), b"*6\r\n", b"%3\r\n"),
        ("set", (3,), b"*3\r\n", b"~3\r\n"),
        ("push", (3,), b"*3\r\n", b">3\r\n"),
        ("double", (2.5,), b"$3\r\n2.5\r\n", b",2.5\r\n"),
        ("double", (3.0,), b"$1\r\n3\r\n", b",3\r\n"),
        ("double", (float("-inf"),), b"$4\r\n-inf\r\n", b",-inf\r\n"),
        ("boolean", (True,), b":1\r\n", b"#t\r\n"),
        ("boolean", (False,), b":0\r\n", b"#f\r\n"),
        ("verbatim", (b"hello",), b"$5\r\nhello\r\n", b"=9\r\ntxt:hello\r\n"),
    ],
)
def test_each_type_in_both_protocols(call: str, arguments: tuple, resp2: bytes, resp3: bytes):
    for protocol, encoded in ((2, resp2), (3, resp3)):
        made = answer(protocol)
        getattr(made, call)(*arguments)
        assert made.pending_bytes() == len(encoded)
        assert made.take() == encoded
        assert made.pending_bytes() == 0


def test_the_largest_stream_id():
    made = answer()
    made.stream_id(2**64 - 1, 2**64 - 1)
    assert made.take() == b"$41\r\n18446744073709551615-18446744073709551615\r\n"


@pytest.mark.parametrize("n", [0, 1, 9, 10, 99, 100, 1234])
def test_the_length_of_an_array_may_be_known_last(n: int):
    made = answer()
    made.ok()
    mark = made.open_array()
    for i in range(n):
        made.integer(i)
    made.close_array(mark, n)
    made.ok()
    items = b"".join(b":%d\r\n" % i for i in range(n))
    assert made.take() == b"+OK\r\n*%d\r\n%s+OK\r\n" % (n, items)


@pytest.mark.parametrize(("protocol", "head"), [(2, b"*10\r\n"), (3, b"%5\r\n")])
def test_the_length_of_a_map_may_be_known_last(protocol: int, head: bytes):
    made = answer(protocol)
    mark = made.open_array()
    for i in range(10):
        made.integer(i)
    made.close_map(mark, 5)
    assert made.take() == head + b"".join(b":%d\r\n" % i for i in range(10))


def test_open_arrays_nest():
    made = answer()
    outer = made.open_array()
    for _ in range(11):
        inner = made.open_array()
        made.bulk(b"x")
        made.close_array(inner, 1)
    made.close_array(outer, 11)
    assert made.take() == b"*11\r\n" + b"*1\r\n$1\r\nx\r\n" * 11


def test_what_was_written_after_a_mark_can_be_discarded():
    made = answer()
    made.ok()
    mark = made.mark()
    made.bulk(b"partly done" * 1000)
    made.rewind(mark)
    made.error(b"ERR after all")
    assert made.take() == b"+OK\r\n-ERR after all\r\n"


def test_a_mark_survives_growing_over_what_is_sent():
    made = answer()
    made.bulk(b"a" * 200)
    made.mark_sent(150)
    rest = made.pending_bytes()
    mark = made.open_array()
    made.bulk(b"b" * 5000)
    made.close_array(mark, 1)
    assert made.take()[rest:] == b"*1\r\n$5000\r\n" + b"b" * 5000 + b"\r\n"


def test_replies_may_be_sent_in_pieces():
    made = answer()
    made.bulk(b"abc")
    made.mark_sent(4)
    made.bulk(b"def")
    assert made.take() == b"abc\r\n$3\r\ndef\r\n"


def test_a_drained_writer_keeps_little_memory():
    made = answer()
    made.bulk(bytes(1_000_000))
    assert made.cap >= 1_000_000
    made.mark_sent(made.pending_bytes())
    assert made.cap <= 4096
    made.ok()
    assert made.take() == b"+OK\r\n"


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_nested_value_reads_back(protocol: int):
    value = [b"a", [1, -2, [None, []]], {b"k": [2, b""]}]
    made = answer(protocol)
    made.value(value)
    parser = ReplyParser()
    parser.feed(made.take())
    expected = value if protocol == 3 else [b"a", [1, -2, [None, []]], [b"k", [2, b""]]]
    assert parser.next() == expected
    assert parser.next() is INCOMPLETE


def test_resp3_keeps_types_that_resp2_lacks():
    made = answer(3)
    made.value([True, 2.5, "status", {b"x"}])
    parser = ReplyParser()
    parser.feed(made.take())
    assert parser.next() == [True, 2.5, "status", [b"x"]]


def test_a_value_without_a_wire_type_is_a_bug():
    with pytest.raises(TypeError, match="object"):
        answer().value(object())


@pytest.mark.parametrize("digits", range(1, 21))
def test_numbers_around_each_power_of_ten(digits: int) -> None:
    ten = 10 ** (digits - 1)
    answer = ReplyWriter()
    for v in (ten - 1, ten, ten + 1, 10 * ten - 1):
        if v <= 2**64 - 1:
            answer.stream_id(v, v)
            text = b"%d-%d" % (v, v)
            assert answer.take() == b"$%d\r\n%s\r\n" % (len(text), text)
        if v <= 2**63 - 1:
            answer.integer(v)
            answer.integer(-v)
            assert answer.take() == b":%d\r\n:%d\r\n" % (v, -v)


def test_the_largest_numbers() -> None:
    answer = ReplyWriter()
    answer.integer(-(2**63))
    answer.integer(2**63 - 1)
    answer.stream_id(2**64 - 1, 2**64 - 1)
    text = b"18446744073709551615-18446744073709551615"
    assert answer.take() == b":-9223372036854775808\r\n:9223372036854775807\r\n$41\r\n" + text + b"\r\n"


def test_headers_of_every_length() -> None:
    answer = ReplyWriter()
    for n in [*range(12), 62, 63, 64, 99, 100, 101, 999, 1000, 65536]:
        answer.bulk(b"x" * n)
        assert answer.take() == b"$%d\r\n%s\r\n" % (n, b"x" * n)
        answer.array(n)
        assert answer.take() == b"*%d\r\n" % n


def test_a_reply_beyond_the_limit_is_dropped_and_stays_small() -> None:
    made = answer()
    made.limit = 1_000_000
    for _ in range(100):
        mark = made.open_array()
        for _ in range(100):
            made.bulk(b"x" * 1000)
        made.stream_id(1, 2)
        made.close_array(mark, 101)
    assert made.overflowed
    assert made.cap < 100_000
    assert made.pending_bytes() > 10_000_000  # distances go on: a budget in bytes still ends
    made.rewind(made.mark() - 5)
    made.bulk(b"y" * 300_000)
    assert made.overflowed


def test_one_string_may_be_longer_than_the_limit() -> None:
    made = answer()
    made.limit = 1000
    made.array(2)
    made.bulk(b"x" * 5000)
    assert not made.overflowed
    made.bulk(b"x" * 5000)
    assert made.overflowed


def test_a_reply_that_fits_the_limit_exactly_is_kept() -> None:
    made = answer()
    made.limit = 4096
    for _ in range(40):
        made.bulk(b"x" * 90)
    assert not made.overflowed
    assert made.take() == b"$90\r\n%s\r\n" % (b"x" * 90) * 40
