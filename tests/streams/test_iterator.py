from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream

U64_MAX = 2**64 - 1


def stream_of(n, entries_max=4):
    stream = Stream()
    for i in range(1, n + 1):
        stream.append(10 * i, i % 3, [b"n", b"%d" % i, b"name", b"entry %d" % i], 0, 4096, entries_max)
    return stream


def read(stream, start=(0, 0), end=(U64_MAX, U64_MAX), reverse=False):
    iterator = StreamIterator(stream, *start, *end, reverse)
    found = []
    while iterator.next():
        found.append(iterator.ms)
    assert not iterator.next(), "an iterator at its end stays there"
    return found


def test_a_range_includes_both_its_ends():
    stream = stream_of(20)
    assert read(stream, (50, 2), (90, 0)) == [50, 60, 70, 80, 90]
    assert read(stream, (50, 2), (90, 0), reverse=True) == [90, 80, 70, 60, 50]


def test_a_range_may_begin_and_end_between_entries():
    stream = stream_of(20)
    assert read(stream, (45, 0), (61, 9)) == read(stream, (45, 0), (61, 9), reverse=True)[::-1] == [50, 60]
    assert read(stream, (50, 3), (60, U64_MAX)) == [60]


def test_an_empty_range_gives_nothing():
    stream = stream_of(20)
    for start, end in (((41, 0), (49, 0)), ((90, 0), (50, 0)), ((201, 0), (U64_MAX, 0)), ((0, 0), (9, 0))):
        assert read(stream, start, end) == read(stream, start, end, reverse=True) == []


def test_tombstones_are_skipped_at_every_edge():
    stream = stream_of(12)
    for i in (1, 4, 5, 9, 12):
        assert stream.delete(10 * i, i % 3)
    live = [10 * i for i in (2, 3, 6, 7, 8, 10, 11)]
    assert read(stream) == read(stream, reverse=True)[::-1] == live
    assert read(stream, (40, 0), (90, 9)) == [60, 70, 80]


def test_an_entry_is_read_piece_by_piece():
    iterator = StreamIterator(stream_of(3), 20, 2, U64_MAX, U64_MAX, False)
    assert iterator.next() and (iterator.ms, iterator.seq, iterator.field_count) == (20, 2, 2)
    assert iterator.next_field_or_value() and iterator.next_field_or_value()
    assert iterator.remaining_pieces() == [b"name", b"entry 2"]
    assert not iterator.next_field_or_value() and iterator.remaining_pieces() == []
    assert iterator.next() and iterator.remaining_pieces() == [b"n", b"3", b"name", b"entry 3"]


def test_integers_are_given_as_their_text():
    numbers = [0, 9, 10, 127, 128, -1, 4096, -70000, 2**31, -(2**63), 2**63 - 1]
    words = [piece for n in numbers for piece in (b"%d" % n, b"%d" % -n if n > -(2**63) else b"x")]
    stream = Stream()
    stream.append(1, 1, words, 0, 4096, 100)
    stream.append(1, 2, [b"1", b"-0"], 0, 4096, 100)
    iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, False)
    assert iterator.next() and iterator.remaining_pieces() == words
    assert iterator.next() and iterator.remaining_pieces() == [b"1", b"-0"]


def test_an_iterator_over_nothing_gives_nothing():
    iterator = StreamIterator(Stream(), 0, 0, U64_MAX, U64_MAX, False)
    assert not iterator.next() and not iterator.next_field_or_value() and iterator.remaining_pieces() == []
