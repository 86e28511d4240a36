import pytest

from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_id, trim_by_length
from headrace.structures.stream_id import StreamId

U64_MAX = 2**64 - 1


def numbered(n, entries_max=3, deleted=()):
    stream = Stream()
    for i in range(1, n + 1):
        stream.append(i, 0, [b"f", b"%d" % i], 0, 4096, entries_max)
    for i in deleted:
        assert stream.delete(i, 0)
    return stream


def ids_of(stream):
    iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, False)
    found = []
    while iterator.next():
        found.append(iterator.ms)
    return found


@pytest.mark.parametrize("maxlen", range(12))
def test_an_exact_trim_leaves_exactly_so_many(maxlen):
    stream = numbered(10)
    assert trim_by_length(stream, maxlen, False, 0) == max(0, 10 - maxlen)
    stream.check()
    assert ids_of(stream) == list(range(max(1, 11 - maxlen), 11))


@pytest.mark.parametrize(
    ("maxlen", "left"), [(10, 10), (8, 10), (7, 7), (5, 7), (4, 4), (2, 4), (1, 1), (0, 0)]
)
def test_an_approximate_trim_drops_only_whole_nodes(maxlen, left):
    stream = numbered(10)
    assert trim_by_length(stream, maxlen, True, 0) == 10 - left
    stream.check()
    assert stream.length == left


@pytest.mark.parametrize(("limit", "removed"), [(0, 4), (1, 0), (2, 2), (3, 2), (4, 4), (9, 4)])
def test_a_limit_counts_whole_nodes(limit, removed):
    assert trim_by_length(numbered(6, 2), 1, True, limit) == removed
    assert trim_by_id(numbered(6, 2), 6, 0, True, limit) == removed


@pytest.mark.parametrize("ms", range(12))
def test_an_exact_trim_by_id_leaves_what_is_not_before_it(ms):
    stream = numbered(10)
    assert trim_by_id(stream, ms, 0, False, 0) == min(max(0, ms - 1), 10)
    stream.check()
    assert ids_of(stream) == list(range(max(1, ms), 11))


@pytest.mark.parametrize(("ms", "left"), [(3, 10), (4, 7), (6, 7), (7, 4), (10, 1), (11, 0)])
def test_an_approximate_trim_by_id_drops_only_whole_nodes(ms, left):
    stream = numbered(10)
    assert trim_by_id(stream, ms, 0, True, 0) == 10 - left
    stream.check()
    assert stream.length == left


def test_trims_pass_over_tombstones_and_leave_max_deleted_alone():
    stream = numbered(9, deleted=(2, 4))
    assert trim_by_length(stream, 5, False, 0) == 2  # 1 and 3, with 2 between them
    stream.check()
    assert (ids_of(stream), stream.nodes.key_count) == ([5, 6, 7, 8, 9], 2)
    assert trim_by_length(stream, 4, False, 0) == 1
    stream.check()
    assert (stream.first_id(), stream.max_deleted_id()) == (StreamId(6, 0), StreamId(4, 0))
    assert (stream.entries_added, stream.last_id()) == (9, StreamId(9, 0))
    assert stream.first_node().key() == StreamId(4, 0).key()


def test_an_emptied_stream_has_no_first_id():
    stream = numbered(5)
    assert trim_by_length(stream, 0, True, 0) == 5
    stream.check()
    assert (stream.first_id(), stream.first_node()) == (StreamId(0, 0), None)


def test_a_trim_by_id_may_leave_a_node_of_tombstones():
    stream = numbered(2, deleted=(2,))
    assert trim_by_id(stream, 2, 0, False, 0) == 1
    stream.check()
    assert (stream.length, stream.nodes.key_count) == (0, 1)
    assert stream.last_entry_id() is None and ids_of(stream) == []
    assert trim_by_length(stream, 0, False, 0) == 0
    assert stream.nodes.key_count == 1
    stream.append(3, 0, [b"f", b"v"], 0, 4096, 100)
    stream.check()
    assert (stream.nodes.key_count, ids_of(stream)) == (1, [3])
    assert trim_by_id(stream, 9, 0, False, 0) == 1
    stream.check()
    assert stream.nodes.key_count == 0


def test_nothing_to_trim_changes_nothing():
    stream = Stream()
    assert trim_by_length(stream, 0, False, 0) == trim_by_id(stream, 5, 0, False, 0) == 0
    stream = numbered(3)
    assert trim_by_length(stream, U64_MAX, False, 0) == trim_by_id(stream, 0, 0, True, 0) == 0
    stream.check()
