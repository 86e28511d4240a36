import pytest

from headrace.errors import ElementsTooLarge
from headrace.streams.iterator import StreamIterator
from headrace.streams.size import memory_bytes
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_id
from headrace.structures.stream_id import StreamId

U64_MAX = 2**64 - 1
LARGEST = StreamId(U64_MAX, U64_MAX)


def stream_of(ids, entries_max=3):
    stream = Stream()
    for ms, seq in ids:
        stream.append(ms, seq, [b"f", b"v%d" % ms], 0, 4096, entries_max)
    stream.check()
    return stream


def ids_of(stream, reverse=False):
    iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, reverse)
    found = []
    while iterator.next():
        found.append((iterator.ms, iterator.seq))
    return found


def numbered(n, entries_max=3):
    return stream_of([(i, 0) for i in range(1, n + 1)], entries_max)


def test_an_empty_stream_has_nothing():
    stream = Stream()
    stream.check()
    assert (stream.length, stream.entries_added, stream.nodes.key_count, stream.nodes.node_count) == (
        0,
        0,
        0,
        1,
    )
    assert stream.last_id() == stream.first_id() == stream.max_deleted_id() == StreamId(0, 0)
    assert stream.last_entry_id() is stream.first_node() is None
    assert not stream.delete(1, 0) and not stream.contains(0, 0)
    assert ids_of(stream) == ids_of(stream, reverse=True) == []


def test_appending_moves_the_counters():
    stream = stream_of([(5, 1), (5, 2), (9, 0), (9, 1)])
    assert (stream.length, stream.entries_added, stream.nodes.key_count) == (4, 4, 2)
    assert (stream.first_id(), stream.last_id()) == (StreamId(5, 1), StreamId(9, 1))
    assert stream.last_entry_id() == StreamId(9, 1)


def test_the_largest_id_can_be_stored_and_read():
    stream = stream_of([(1, 1), (U64_MAX, U64_MAX)])
    assert ids_of(stream) == ids_of(stream, reverse=True)[::-1] == [(1, 1), (U64_MAX, U64_MAX)]
    assert stream.last_id() == LARGEST


def test_a_node_takes_as_many_entries_as_it_may():
    assert [numbered(9, n).nodes.key_count for n in (1, 2, 3, 9, 0)] == [9, 5, 3, 1, 1]


def test_a_node_takes_entries_up_to_its_bytes():
    for size, nodes in ((40, 1), (41, 2)):  # 38 + 1 + 40 = 79 is below 80, one more is not
        stream = Stream()
        stream.append(1, 0, [b"f", b"a" * 10], 0, 80, 100)
        assert len(stream.tail.pack.to_bytes()) == 38
        stream.append(2, 0, [b"f", b"b" * size], 0, 80, 100)
        assert stream.nodes.key_count == nodes


def test_an_entry_larger_than_a_node_gets_one_of_its_own():
    stream = Stream()
    for i in range(3):
        stream.append(i + 1, 0, [b"f", b"x" * 10000], 0, 4096, 100)
    stream.check()
    assert stream.nodes.key_count == 3


def test_an_entry_of_more_than_a_gibibyte_is_refused_and_changes_nothing():
    stream = numbered(2)
    with pytest.raises(ElementsTooLarge, match="Elements are too large to be stored"):
        stream.append(9, 0, [b"f", b"x" * 2**24] * 65, 0, 0, 0)
    stream.check()
    assert (ids_of(stream), stream.last_id()) == ([(1, 0), (2, 0)], StreamId(2, 0))


def test_full_nodes_keep_no_spare_room():
    stream = numbered(1000, 100)
    first = stream.first_node().pack
    assert first.cap == len(first.to_bytes())


def test_a_deleted_entry_is_gone_and_its_id_remembered():
    stream = numbered(7)
    assert stream.delete(4, 0) and not stream.delete(4, 0)
    assert stream.delete(2, 0)
    assert not stream.delete(4, 1) and not stream.delete(0, 0) and not stream.delete(99, 0)
    stream.check()
    assert ids_of(stream) == ids_of(stream, reverse=True)[::-1] == [(i, 0) for i in (1, 3, 5, 6, 7)]
    assert stream.contains(5, 0) and not stream.contains(4, 0)
    assert (stream.length, stream.entries_added, stream.max_deleted_id()) == (5, 7, StreamId(4, 0))


def test_the_first_id_follows_the_first_live_entry():
    stream = numbered(7)
    for gone, first in ((1, 2), (3, 2), (2, 4), (4, 5), (6, 5), (5, 7)):
        assert stream.delete(gone, 0)
        stream.check()
        assert stream.first_id() == StreamId(first, 0)
    assert stream.delete(7, 0)
    stream.check()
    assert stream.first_id() == StreamId(0, 0)
    assert (stream.length, stream.nodes.key_count, stream.last_id()) == (0, 0, StreamId(7, 0))


def test_a_node_leaves_with_its_last_live_entry():
    stream = numbered(7)
    for i in (4, 5, 6):
        stream.delete(i, 0)
        stream.check()
    assert stream.nodes.key_count == 2
    stream.delete(7, 0)  # the tail goes, what was before it takes over
    stream.check()
    assert stream.last_entry_id() == StreamId(3, 0)
    stream.append(8, 0, [b"f", b"v"], 0, 4096, 4)
    stream.check()
    assert (stream.nodes.key_count, ids_of(stream)[-1]) == (1, (8, 0))


def test_the_last_entry_is_found_behind_tombstones():
    stream = numbered(6)
    for i in (6, 5):
        stream.delete(i, 0)
    assert (stream.last_entry_id(), stream.last_id()) == (StreamId(4, 0), StreamId(6, 0))


def test_tombstones_count_towards_a_full_node():
    stream = numbered(3)
    stream.delete(2, 0)
    stream.append(9, 0, [b"f", b"v"], 0, 4096, 3)
    assert stream.nodes.key_count == 2


def test_a_copy_lives_its_own_life():
    stream = numbered(8)
    copy = stream.copy()
    stream.delete(1, 0)
    stream.append(9, 0, [b"f", b"v"], 0, 4096, 3)
    copy.check()
    assert ids_of(copy) == [(i, 0) for i in range(1, 9)]
    copy.append(10, 0, [b"f", b"v"], 0, 4096, 3)
    copy.check()
    assert (copy.length, copy.entries_added) == (9, 9)


def test_memory_grows_with_the_entries():
    empty, one, hundred, thousand = [memory_bytes(numbered(n)) for n in (0, 1, 100, 1000)]
    assert 0 < empty < one < hundred < thousand


def test_an_id_set_back_below_a_dead_tail_finds_a_place_in_order():
    stream = numbered(2)
    stream.delete(2, 0)
    assert trim_by_id(stream, 2, 0, False, 0) == 1
    assert (stream.length, stream.nodes.key_count) == (0, 1)
    stream.last_ms = stream.last_seq = 0
    stream.append(0, 7, [b"f", b"v"], 0, 4096, 100)
    stream.check()
    assert ids_of(stream) == [(0, 7)]


def test_stored_nodes_are_loaded_in_order_only():
    stored = [(n.key(), n.pack.to_bytes()) for n in (numbered(3).tail, stream_of([(7, 0), (9, 0)]).tail)]
    stream = Stream()
    for key, data in stored:
        stream.append_stored_node(key, data)
    stream.length, stream.last_ms = 5, 9
    stream.update_first_id()
    stream.check()
    assert ids_of(stream) == [(1, 0), (2, 0), (3, 0), (7, 0), (9, 0)]
    for key, data in [*stored, (StreamId(8, 0).key(), stored[1][1])]:
        with pytest.raises(ValueError, match="node"):
            stream.append_stored_node(key, data)
    assert stream.nodes.key_count == 2


def test_a_node_that_was_read_and_dropped_is_not_read_again():
    """The stream remembers where it was last looked for an ID."""
    stream = Stream()
    for i in range(1, 13):
        stream.append(i, 0, [b"f", b"v"], 0, 0, 3)  # four nodes of three
    assert stream.contains(5, 0)
    for i in (4, 5, 6):
        assert stream.delete(i, 0)
    assert not stream.contains(5, 0)
    assert stream.contains(3, 0) and stream.contains(7, 0) and stream.contains(2, 0)
    for i in (12, 11, 10):  # now the node of 7 is the tail, and then that of 1
        assert stream.delete(i, 0)
    assert stream.contains(8, 0)
    for i in (7, 8, 9):
        assert stream.delete(i, 0)
    assert not stream.contains(8, 0) and stream.contains(1, 0)
    stream.append(13, 0, [b"f", b"v"], 0, 0, 3)
    assert stream.contains(13, 0) and not stream.contains(9, 0)
    stream.check()
