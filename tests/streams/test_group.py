import pytest

from headrace.streams import size
from headrace.streams.stream import Stream

U64_MAX = 2**64 - 1


def test_a_stream_has_no_groups_at_first():
    stream = Stream()
    assert (stream.group_count, stream.groups(), stream.group(b"g")) == (0, [], None)
    assert not stream.drop_group(b"g")
    assert (stream.idempotency, stream.idmp_duration_s, stream.idmp_maxsize) == (None, 100, 100)


def test_groups_are_listed_in_byte_order_of_their_names():
    stream = Stream()
    for name in (b"alice", b"zz", b"Bob", b"", b"\xff", b"a"):
        group = stream.make_group(name, 7, U64_MAX, 3)
        assert stream.group(name) is group
        assert (group.name, group.last_ms, group.last_seq, group.entries_read) == (name, 7, U64_MAX, 3)
    stream.check()
    assert [g.name for g in stream.groups()] == [b"", b"Bob", b"a", b"alice", b"zz", b"\xff"]
    assert stream.group_count == 6
    assert stream.drop_group(b"zz")
    assert not stream.drop_group(b"zz")
    assert (stream.group_count, stream.group(b"zz")) == (5, None)


def test_consumers_are_listed_in_byte_order_of_their_names():
    group = Stream().make_group(b"g", 0, 0, -1)
    for name in (b"alice", b"Bob", b"zz", b""):
        assert group.make_consumer(name, 5) is group.consumer(name)
    assert [c.name for c in group.consumers()] == [b"", b"Bob", b"alice", b"zz"]
    assert group.consumer_count() == 4
    assert group.consumer(b"bob") is None


def test_a_dropped_consumer_takes_its_pending_entries_along():
    group = Stream().make_group(b"g", 0, 0, -1)
    alice, bob = (group.make_consumer(name, 5) for name in (b"alice", b"bob"))
    for i in range(1, 11):
        group.pending.add(i, 0, (alice, bob)[i % 2], 100, 1)
    group.pending.assign(group.pending.find(2, 0), None, 0, 1)
    assert group.drop_consumer(alice) == 4
    group.check()
    assert group.consumer(b"alice") is None
    assert (group.pending.count, group.pending.unowned_count, bob.pending_count) == (6, 1, 5)
    again = group.make_consumer(b"alice", 9)
    assert (again.number, again.pending_count) == (alice.number, 0)
    assert group.drop_consumer(again) == 0
    group.check()


def test_a_copy_of_a_stream_has_groups_of_its_own():
    stream = Stream()
    for i in range(1, 6):
        stream.append(i, 0, [b"f", b"v"], 0, 4096, 2)
    stream.idmp_duration_s, stream.idmp_maxsize = 7, 8
    group = stream.make_group(b"g", 3, 0, 3)
    alice = group.make_consumer(b"alice", 5)
    group.pending.add(2, 0, alice, 100, 1)
    group.pending.add(1, 0, None, 0, 1)
    twin = stream.copy()
    twin.check()
    copied = twin.group(b"g")
    assert (twin.group_count, twin.idmp_duration_s, twin.idmp_maxsize) == (1, 7, 8)
    assert (copied.last_ms, copied.last_seq, copied.entries_read) == (3, 0, 3)
    assert copied.pending.owner_of(copied.pending.find(2, 0)) is copied.consumer(b"alice")
    twin.drop_group(b"g")
    copied.drop_consumer(copied.consumer(b"alice"))
    stream.check()
    assert (group.pending.count, alice.pending_count, stream.group_count) == (2, 1, 1)


@pytest.mark.parametrize("n", [1, 500])
def test_memory_counts_groups_consumers_and_pending_entries(n):
    stream = Stream()
    sizes = [size.memory_bytes(stream)]
    group = stream.make_group(b"g" * 100, 0, 0, -1)
    sizes.append(size.memory_bytes(stream))
    alice = group.make_consumer(b"a" * 100, 5)
    sizes.append(size.memory_bytes(stream))
    for i in range(n):
        group.pending.add(i, 0, alice, 100, 1)
    sizes.append(size.memory_bytes(stream))
    assert sizes[1] - sizes[0] >= 100
    assert sizes[2] - sizes[1] >= 100
    assert sizes[3] - sizes[2] >= 36 * n
