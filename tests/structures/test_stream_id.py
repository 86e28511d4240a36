import pytest

from headrace.errors import CommandError, IdsExhausted, InvalidStreamId
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

U64_MAX = 2**64 - 1
LAST = StreamId(U64_MAX, U64_MAX)
ORDERED = [
    StreamId(0, 0),
    StreamId(0, 1),
    StreamId(0, U64_MAX),
    StreamId(1, 0),
    StreamId(255, 7),
    StreamId(256, 0),
    StreamId(2**63, 3),
    LAST,
]


def test_ids_are_ordered_by_milliseconds_then_sequence():
    for i, a in enumerate(ORDERED):
        for j, b in enumerate(ORDERED):
            assert (a < b, a <= b, a > b, a >= b) == (i < j, i <= j, i > j, i >= j)
            assert (a == b, a != b, a.precedes(b)) == (i == j, i != j, i < j)


def test_an_id_equals_no_other_thing():
    assert StreamId(1, 2) != (1, 2)
    assert StreamId(1, 2) != b"1-2"


def test_equal_ids_are_one_dictionary_key():
    assert {StreamId(1, 2): "x"}[StreamId(1, 2)] == "x"


def test_keys_sort_as_the_ids_do_and_lead_back_to_them():
    keys = [i.key() for i in ORDERED]
    assert keys == sorted(keys)
    assert [stream_id.from_key(k) for k in keys] == ORDERED
    assert StreamId(1, 258).key().hex() == "00000000000000010000000000000102"
    assert stream_id.key_of(1, 258) == StreamId(1, 258).key()


def test_a_key_of_another_length_is_refused():
    for n in (0, 15, 17):
        with pytest.raises(ValueError, match="16 bytes"):
            stream_id.from_key(bytes(n))


def test_an_id_is_written_as_two_decimal_numbers():
    assert StreamId(0, 0).text() == b"0-0"
    assert LAST.text() == b"18446744073709551615-18446744073709551615"
    assert str(StreamId(12, 3)) == "12-3"
    assert repr(StreamId(12, 3)) == "StreamId(12, 3)"


def test_a_formatted_id_is_parsed_back():
    for i in ORDERED:
        assert stream_id.parse(i.text(), 9) == i


def test_the_successor_carries_into_the_milliseconds():
    assert StreamId(5, 6).successor() == StreamId(5, 7)
    assert StreamId(5, U64_MAX).successor() == StreamId(6, 0)
    with pytest.raises(IdsExhausted):
        LAST.successor()


def test_the_predecessor_borrows_from_the_milliseconds():
    assert StreamId(5, 6).predecessor() == StreamId(5, 5)
    assert StreamId(5, 0).predecessor() == StreamId(4, U64_MAX)
    with pytest.raises(ValueError):
        StreamId(0, 0).predecessor()


@pytest.mark.parametrize(
    ("text", "ms", "seq"),
    [
        (b"1-2", 1, 2),
        (b"00001-01", 1, 1),
        (b"+2-1", 2, 1),
        (b" 3-1", 3, 1),
        (b"3-+1", 3, 1),
        (b"3- \t+1", 3, 1),
        (b"7", 7, 42),
        (b"0" * 127, 0, 42),
        (b"18446744073709551615-0", U64_MAX, 0),
    ],
)
def test_valid_ids_are_parsed(text, ms, seq):
    assert stream_id.parse(text, 42) == StreamId(ms, seq)


BROKEN = [
    b"1-2-3",
    b"1-",
    b"-1",
    b"3--1",
    b"",
    b"*-1",
    b"4-**",
    b"0x10-0",
    b"18446744073709551616",
    b"1-18446744073709551616",
    b"1-99999999999999999999999",
    b"1 ",
    b"1-1 ",
    b"+",
    b" ",
    b"++1",
    b"+ 1",
    b"1-\xb2",
    b"1\x00",
    b"$",
    b">",
    b"*",
    b"0" * 128,
]


@pytest.mark.parametrize("text", [*BROKEN, b"-", b"(1-1"])
def test_invalid_ids_are_rejected(text):
    with pytest.raises(InvalidStreamId):
        stream_id.parse(text, 0)


def test_a_bound_may_be_the_smallest_or_the_largest_id():
    assert stream_id.parse_bound(b"-", 7) == StreamId(0, 0)
    assert stream_id.parse_bound(b"+", 7) == LAST
    assert stream_id.parse_bound(b"5", 7) == StreamId(5, 7)


def test_a_missing_sequence_takes_in_the_whole_millisecond():
    assert stream_id.parse_start(b"5") == StreamId(5, 0)
    assert stream_id.parse_end(b"5") == StreamId(5, U64_MAX)
    assert (stream_id.parse_start(b"-"), stream_id.parse_end(b"+")) == (StreamId(0, 0), LAST)
    assert (stream_id.parse_start(b"+"), stream_id.parse_end(b"-")) == (LAST, StreamId(0, 0))


def test_an_open_bound_excludes_its_id_after_the_sequence_is_filled_in():
    assert stream_id.parse_start(b"(2") == StreamId(2, 1)
    assert stream_id.parse_end(b"(2") == StreamId(2, U64_MAX - 1)
    assert stream_id.parse_start(b"(2-18446744073709551615") == StreamId(3, 0)
    assert stream_id.parse_end(b"(2-0") == StreamId(1, U64_MAX)
    assert stream_id.parse_end(b"(0") == StreamId(0, U64_MAX - 1)


@pytest.mark.parametrize("text", [*(b"(" + t for t in BROKEN if len(t) < 128), b"(-", b"(+", b"((1"])
def test_invalid_open_bounds_are_rejected(text):
    with pytest.raises(InvalidStreamId):
        stream_id.parse_start(text)
    with pytest.raises(InvalidStreamId):
        stream_id.parse_end(text)


def test_nothing_lies_outside_the_last_and_the_first_id():
    with pytest.raises(CommandError, match=r"^ERR invalid start ID for the interval$"):
        stream_id.parse_start(b"(" + LAST.text())
    with pytest.raises(CommandError, match=r"^ERR invalid end ID for the interval$"):
        stream_id.parse_end(b"(0-0")
