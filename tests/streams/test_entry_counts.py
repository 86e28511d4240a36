import random

import pytest

from headrace.streams import entry_counts
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_id, trim_by_length

U64_MAX = 2**64 - 1


def numbered(n, entries_max=3):
    stream = Stream()
    for i in range(1, n + 1):
        stream.append(i, 0, [b"f", b"%d" % i], 0, 4096, entries_max)
    return stream


def counted(stream, first, last):
    """The count the slow way."""
    iterator = StreamIterator(stream, *first, *last, False)
    n = 0
    while iterator.next():
        n += 1
    return n


def everywhere(stream, most):
    """Check all ranges from 0-0 to most-0 and to the end of all IDs."""
    stream.check()
    ends = [(ms, 0) for ms in range(most + 1)] + [(U64_MAX, U64_MAX)]
    for first in ends:
        for last in ends:
            assert entry_counts.count_between(stream, *first, *last) == counted(stream, first, last), (
                first,
                last,
            )


def test_an_empty_stream_has_nothing_between_any_ids():
    assert entry_counts.count_between(Stream(), 0, 0, U64_MAX, U64_MAX) == 0
    assert entry_counts.count_up_to(Stream(), 5, 5) == 0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 12, 13, 27])
def test_every_range_is_counted_exactly(n):
    everywhere(numbered(n), n + 1)


def test_both_ends_belong_to_a_range():
    stream = numbered(10)
    assert entry_counts.count_between(stream, 3, 0, 8, 0) == 6
    assert entry_counts.count_between(stream, 3, 1, 7, U64_MAX) == 4
    assert entry_counts.count_between(stream, 8, 0, 3, 0) == 0
    assert entry_counts.count_between(stream, 5, 0, 5, 0) == 1


def test_the_largest_id_is_counted():
    stream = Stream()
    stream.append(U64_MAX, U64_MAX, [b"f", b"v"], 0, 4096, 100)
    assert entry_counts.count_between(stream, U64_MAX, U64_MAX, U64_MAX, U64_MAX) == 1
    assert entry_counts.count_between(stream, 0, 0, U64_MAX, U64_MAX - 1) == 0


def test_deleted_entries_are_not_counted():
    stream = numbered(20)
    for i in (1, 5, 6, 7, 8, 9, 20):
        stream.delete(i, 0)
        everywhere(stream, 21)


def test_trimmed_entries_are_not_counted():
    stream = numbered(20)
    trim_by_length(stream, 16, False, 0)
    everywhere(stream, 21)
    trim_by_id(stream, 9, 0, False, 0)
    everywhere(stream, 21)
    trim_by_length(stream, 5, True, 0)
    everywhere(stream, 21)
    trim_by_length(stream, 0, True, 0)
    everywhere(stream, 21)


def test_a_node_that_is_the_tail_again_is_counted_while_it_grows():
    stream = numbered(9)
    stream.delete(9, 0)
    stream.delete(8, 0)
    stream.delete(7, 0)
    assert stream.tail.ms == 4 and stream.live_counts.node_count == 1
    for i in range(10, 14):
        stream.append(i, 0, [b"f", b"v"], 0, 4096, 5)
    everywhere(stream, 15)
    assert stream.live_counts.node_count == 2


def test_a_copy_counts_by_itself():
    stream = numbered(20)
    other = stream.copy()
    stream.delete(2, 0)
    trim_by_length(other, 10, False, 0)
    everywhere(stream, 21)
    everywhere(other, 21)


def test_stored_nodes_are_counted_as_they_come():
    stream = numbered(20)
    stream.delete(5, 0)
    other = Stream()
    for i in range(1, 21, 3):
        node = stream.node_for_id(i, 0)
        other.append_stored_node(node.key(), node.pack.to_bytes())
    for name in ("length", "last_ms", "last_seq", "first_ms", "first_seq"):
        setattr(other, name, getattr(stream, name))
    everywhere(other, 21)


def test_serials_of_dropped_nodes_are_reused():
    stream = Stream()
    for i in range(1, 601):
        stream.append(i, 0, [b"f", b"v"], 0, 4096, 1)
        trim_by_length(stream, 10, False, 0)
    stream.check()
    assert stream.live_counts.node_count == 9
    assert stream.live_counts.last_serial <= 2 * 9 + 64
    assert stream.live_counts.memory_bytes() < 2000


def test_unused_serials_anywhere_are_removed():
    stream = numbered(1000, 1)
    order = list(range(1, 1001))
    random.Random(7).shuffle(order)
    for i in order[:900]:
        stream.delete(i, 0)
    stream.check()
    assert stream.live_counts.last_serial <= 2 * 100 + 64
    left = sorted(order[900:])
    assert [entry_counts.count_up_to(stream, i, 0) for i in left] == list(range(1, 101))


def test_a_tail_of_tombstones_is_dropped_when_the_last_id_was_set_back():
    stream = numbered(5, 2)
    stream.delete(5, 0)
    stream.append(6, 0, [b"f", b"v"], 0, 4096, 2)
    stream.append(7, 0, [b"f", b"v"], 0, 4096, 2)
    stream.delete(7, 0)
    trim_by_id(stream, 7, 0, False, 0)
    assert (stream.length, stream.nodes.key_count) == (0, 1)
    stream.last_ms, stream.last_seq = 2, 0
    stream.append(3, 0, [b"f", b"v"], 0, 4096, 2)
    everywhere(stream, 9)


def test_the_lag_of_a_group_is_what_lies_after_its_last_id():
    stream = numbered(10)
    group = stream.make_group(b"g", 4, 0, -1)
    assert entry_counts.undelivered_count(stream, group) == 6
    stream.delete(7, 0)
    stream.delete(2, 0)
    assert entry_counts.undelivered_count(stream, group) == 5
    assert entry_counts.undelivered_count(stream, stream.make_group(b"ahead", 99, 0, -1)) == 0
    assert entry_counts.undelivered_count(stream, stream.make_group(b"behind", 0, 0, -1)) == 8
