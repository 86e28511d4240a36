import gc
import weakref

import pytest

from headrace.streams import compaction, size
from headrace.streams.compaction import Compaction
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_id, trim_by_length
from headrace.structures.stream_id import StreamId

U64_MAX = 2**64 - 1


def numbered(n, entries_max=10, queue=None):
    stream = Stream()
    stream.compaction = queue
    for i in range(1, n + 1):
        words = [b"f", b"%d" % i] if i % 3 else [b"g", b"x" * (i % 90), b"", b"%d" % -i]
        stream.append(i, 0, words, 0, 1 << 20, entries_max)
    return stream


def entries_of(stream, reverse=False):
    iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, reverse)
    found = []
    while iterator.next():
        found.append((iterator.ms, iterator.seq, iterator.remaining_pieces()))
    return found


def run(queue):
    """Give queue as much time as it wants; how many steps it took."""
    now = steps = 0
    while queue.next_step_ms() >= 0:
        now = max(now + 1, queue.next_step_ms())
        queue.step(now)
        steps += 1
    return steps


@pytest.mark.parametrize(
    ("deleted", "gone"),
    [
        ((), 0),
        ((5,), 1),
        ((1, 10), 0),
        ((1, 2, 9, 10), 2),
        ((2, 3, 4, 6, 8, 9), 6),
        (range(1, 10), 8),
        (range(2, 11), 8),
    ],
)
def test_all_tombstones_go_but_the_first_and_the_last_entry(deleted, gone):
    stream = numbered(20)
    for i in deleted:
        stream.delete(i, 0)
    node = stream.first_node()
    before, used = entries_of(stream), node.pack.used
    assert compaction.remove_tombstones(node, stream.memory) == gone
    stream.check()
    assert entries_of(stream) == before and entries_of(stream, True) == before[::-1]
    assert node.live_count + node.deleted_count + gone == 10 and node.reclaimed_count == gone
    assert node.key() == StreamId(1, 0).key()
    assert node.uncompacted_size() == used
    assert (node.pack.used < used) == (gone > 0)


def test_a_tombstone_stays_that_does_not_come_before_what_follows():
    stream = numbered(10, 12)
    for i in range(2, 11):
        stream.delete(i, 0)
    stream.last_ms = 5
    stream.append(6, 0, [b"f", b"v"], 0, 1 << 20, 12)
    stream.append(7, 0, [b"f", b"v"], 0, 1 << 20, 12)
    node = stream.tail
    assert compaction.remove_tombstones(node, stream.memory) == 8  # 10-0 stays, for 6-0 follows it
    assert (node.live_count, node.deleted_count) == (3, 1)
    stream.check()


@pytest.mark.parametrize("n", [127, 128, 129, 130, 400])
def test_large_nodes_and_wide_counts_come_out_right(n):
    stream = numbered(n, 0)
    for i in range(2, n, 2):
        stream.delete(i, 0)
    node = stream.tail
    before, used = entries_of(stream), node.pack.used
    assert compaction.remove_tombstones(node, stream.memory) == len(range(2, n, 2))
    stream.check()
    assert entries_of(stream) == before and node.uncompacted_size() == used
    for i in range(3, n - 1, 2):
        stream.delete(i, 0)
    stream.check()
    again = numbered(n, 0)
    for i in range(2, n - 1):
        again.delete(i, 0)
    if n % 2:
        again.delete(n - 1, 0)
    assert node.uncompacted_size() == again.tail.pack.used


def test_a_listpack_may_have_more_elements_than_its_header_can_say():
    stream = Stream()
    for i in range(1, 11):
        stream.append(i, 0, [b"f", b""] * (4000 + i), 0, 0, 0)
    for i in range(2, 9):
        stream.delete(i, 0)
    node = stream.tail
    assert node.pack.count > 65535
    assert compaction.remove_tombstones(node, stream.memory) == 7
    stream.check()
    assert node.pack.count < 65535 and [ms for ms, _, _ in entries_of(stream)] == [1, 9, 10]


def test_sparse_nodes_are_rewritten_in_steps():
    queue = Compaction()
    stream = numbered(95, queue=queue)
    assert queue.next_step_ms() == -1
    for i in range(1, 96):
        if i % 10 not in (3, 7):
            stream.delete(i, 0)
    assert len(queue) == 1 and len(stream.live_counts.sparse_nodes.nodes) == 9
    before, full = entries_of(stream), size.memory_bytes(stream)
    assert run(queue) == 1
    stream.check()
    assert entries_of(stream) == before and size.memory_bytes(stream) < full
    assert stream.first_node().reclaimed_count == 6 and stream.tail.reclaimed_count == 0
    assert queue.next_step_ms() == -1 and len(queue) == 0


def test_a_step_is_bounded_and_the_next_comes_later():
    queue = Compaction()
    stream = Stream()
    stream.compaction = queue
    for i in range(1, 1201):
        stream.append(i, 0, [b"f", b"x" * 3000], 0, 0, 4)
    for i in range(1, 1201):
        if i % 4 != 2:
            stream.delete(i, 0)
    assert len(stream.live_counts.sparse_nodes.nodes) == 299
    queue.step(1000)
    left = len(stream.live_counts.sparse_nodes.nodes)
    assert 200 < left < 299
    assert stream.first_node().reclaimed_count == 1  # the oldest request comes first
    queue.step(1000)
    assert len(stream.live_counts.sparse_nodes.nodes) == left and queue.next_step_ms() == 1001
    queue.step(1001)
    assert len(stream.live_counts.sparse_nodes.nodes) < left
    queue.step(5)  # the clock was set back
    assert run(queue) > 5
    stream.check()


def test_half_deleted_nodes_and_few_tombstones_are_not_sparse():
    queue = Compaction()
    stream = numbered(20, queue=queue)
    for i in range(1, 6):
        stream.delete(i, 0)
    assert len(queue) == 0
    stream.delete(6, 0)
    assert len(queue) == 1
    small = numbered(6, 3, queue)
    small.delete(1, 0)
    small.delete(2, 0)
    assert small.live_counts.sparse_nodes is None


def test_the_tail_waits_until_it_is_closed():
    queue = Compaction()
    stream = numbered(10, 10, queue)
    for i in range(1, 9):
        stream.delete(i, 0)
    assert len(queue) == 0
    stream.append(11, 0, [b"f", b"v"], 0, 4096, 10)
    assert len(queue) == 1
    run(queue)
    assert stream.first_node().reclaimed_count == 7


def test_a_node_that_has_left_or_is_the_tail_again_is_not_rewritten():
    queue = Compaction()
    stream = numbered(30, queue=queue)
    for i in [*range(1, 8), *range(11, 18)]:
        stream.delete(i, 0)
    worn = stream.live_counts.sparse_nodes
    assert len(worn.nodes) == 2
    trim_by_id(stream, 11, 0, True, 0)
    assert len(worn.nodes) == 1
    for i in range(21, 31):
        stream.delete(i, 0)
    assert stream.tail.ms == 11 and len(worn.nodes) == 0
    run(queue)
    assert stream.tail.reclaimed_count == 0 and len(queue) == 0


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_rewritten_node_takes_as_many_entries_as_if_it_were_not(rewritten):
    stream = numbered(10, 10)
    stream.append(11, 0, [b"f", b"v"], 0, 1 << 20, 10)
    for i in range(2, 9):
        stream.delete(i, 0)
    if rewritten:
        assert compaction.remove_tombstones(stream.first_node(), stream.memory) == 7
    stream = stream.copy()
    stream.delete(11, 0)
    stream.append(12, 0, [b"f", b"v"], 0, 1 << 20, 12)
    stream.append(13, 0, [b"f", b"v"], 0, 1 << 20, 12)
    assert stream.nodes.key_count == 1
    stream.append(14, 0, [b"f", b"v"], 0, 1 << 20, 12)
    assert stream.nodes.key_count == 2
    stream.check()


def test_nodes_of_a_copy_are_rewritten_too():
    queue = Compaction()
    stream = numbered(30, queue=queue)
    for i in range(1, 8):
        stream.delete(i, 0)
    other = stream.copy()
    assert len(queue) == 2
    run(queue)
    assert stream.first_node().reclaimed_count == other.first_node().reclaimed_count == 6
    trim_by_length(other, 0, False, 0)
    stream.check()


def test_a_stream_that_waits_is_not_kept_alive():
    queue = Compaction()
    stream = numbered(30, queue=queue)
    for i in range(1, 8):
        stream.delete(i, 0)
    watch = weakref.ref(stream.live_counts.sparse_nodes)
    del stream
    gc.collect()
    assert watch() is None and len(queue) == 0 and queue.next_step_ms() == -1


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_rewritten_node_takes_as_many_bytes_as_if_it_were_not(rewritten):
    stream = numbered(10, 10)
    stream.append(11, 0, [b"f", b"v"], 0, 1 << 20, 10)
    for i in range(2, 9):
        stream.delete(i, 0)
    full = stream.first_node().pack.used
    if rewritten:
        assert compaction.remove_tombstones(stream.first_node(), stream.memory) == 7
    stream.delete(11, 0)
    stream.append(12, 0, [b"f", b"v"], 0, full + 3, 0)  # two bytes raw and one for the end: just too much
    assert stream.nodes.key_count == 2
    stream.delete(12, 0)
    stream.append(13, 0, [b"f", b"v"], 0, full + 4, 0)
    assert stream.nodes.key_count == 1
    stream.check()
