"""With many groups, an index finds those that refer to an entry: it agrees with a search of all groups."""

import os
import random

import pytest

from headrace.streams import delivery, references, retention
from headrace.streams.iterator import StreamIterator
from headrace.streams.pending_index import PendingIndex
from headrace.streams.stream import Stream
from headrace.structures.stream_id import StreamId

COMPILED = "HEADRACE_COMPILED" in os.environ
MANY = 40


def stream_of(n):
    stream = Stream()
    for ms in range(1, n + 1):
        stream.append(ms, 0, [b"f", b"v"], 0, 4096, 4)
    return stream


def name_of(number):
    return b"group %d" % number


def make(stream, number, ms, pending=()):
    group = stream.make_group(name_of(number), ms, 0, -1)
    consumer = group.make_consumer(b"c", 0)
    for one in pending:
        group.pending.add(one, 0, consumer, 1, 1)
    return group


def holders_by_search(stream, ms):
    return sorted(group.name for group in stream.groups() if group.pending.find(ms, 0) >= 0)


def lowest_by_search(stream):
    return min((StreamId(group.last_ms, group.last_seq) for group in stream.groups()), default=None)


def first_unacked_by_search(stream):
    lowest = lowest_by_search(stream)
    if lowest is None:
        return None
    wanted = [lowest.successor()]
    for group in stream.groups():
        slot = group.pending.first_by_id_from(stream.first_ms, stream.first_seq)
        while slot >= 0 and not stream.contains(group.pending.ms_of(slot), 0):
            slot = group.pending.next_by_id(slot)
        if slot >= 0:
            wanted.append(StreamId(group.pending.ms_of(slot), 0))
    return min(wanted)


def assert_agrees(stream, n):
    stream.check()
    for ms in range(1, n + 2):
        held = holders_by_search(stream, ms)
        assert sorted(group.name for group in references.groups_with_pending(stream, ms, 0)) == held
        assert references.is_pending(stream, ms, 0) == bool(held)
        for group in stream.groups():
            assert references.is_pending(stream, ms, 0, group) == bool({*held} - {group.name})
    assert references.lowest_last_id(stream) == lowest_by_search(stream)


class History:
    """Random changes of a stream and its groups."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.n = 12
        self.stream = stream_of(self.n)

    def entry(self):
        return self.random.randrange(1, self.n + 1)

    def group(self):
        return self.random.choice(self.stream.groups() or [None])

    def create(self):
        number = self.random.randrange(MANY)
        if self.stream.group(name_of(number)) is None:
            held = self.random.sample(range(1, self.n + 1), self.random.randrange(self.n))
            make(self.stream, number, self.random.randrange(self.n + 1), held)

    def destroy(self):
        if (group := self.group()) is not None:
            self.stream.drop_group(group.name)

    def deliver(self):
        if (group := self.group()) is not None and group.pending.find(ms := self.entry(), 0) < 0:
            group.pending.add(ms, 0, self.random.choice([None, *group.consumers()]), 5, 1)

    def acknowledge(self):
        if (group := self.group()) is not None and (slot := group.pending.find(self.entry(), 0)) >= 0:
            group.pending.remove(slot)

    def move(self):
        if (group := self.group()) is not None:
            delivery.set_position(self.stream, group, self.random.randrange(self.n + 1), 0)

    def drop_consumer(self):
        if (group := self.group()) is not None and group.consumers():
            group.drop_consumer(group.consumers()[0])

    def drop_references(self):
        ms = self.entry()
        held = holders_by_search(self.stream, ms)
        assert references.drop_references(self.stream, ms, 0) == len(held)

    def delete(self):
        self.stream.delete(self.entry(), 0)

    def run(self, steps):
        works = [self.create] * 3 + [self.deliver, self.acknowledge, self.move] * 2
        works += [self.destroy, self.drop_consumer, self.drop_references, self.delete]
        for _ in range(steps):
            self.random.choice(works)()


@pytest.mark.parametrize("seed", range(200 if COMPILED else 40))
def test_the_index_agrees_with_a_search(seed):
    history = History(seed)
    for _ in range(5):
        history.run(60)
        assert_agrees(history.stream, history.n)
    copy = history.stream.copy()
    assert_agrees(copy, history.n)


@pytest.mark.parametrize("seed", range(100 if COMPILED else 20))
def test_the_first_unacknowledged_entry_agrees_with_a_search(seed):
    history = History(seed)
    for _ in range(5):
        history.run(40)
        found = retention.first_unacked_id(history.stream)
        wanted = first_unacked_by_search(history.stream)
        assert found == wanted or (
            found is not None and found < wanted and not between(history, found, wanted)
        )


def between(history, first, end):
    """Whether the stream has entries from `first` to before `end`."""
    last = end.predecessor()
    return StreamIterator(history.stream, first.ms, first.seq, last.ms, last.seq, False).next()


def test_a_copy_of_a_stream_with_many_groups_has_an_index():
    stream = stream_of(30)
    for number in range(20):
        make(stream, number, 30, [number + 1])
    copy = stream.copy()
    assert len(references.unindexed_groups(copy)) == len(references.unindexed_groups(stream)) == 8
    assert_agrees(copy, 30)
    assert references.drop_references(copy, 15, 0) == 1
    make(copy, 20, 30, [3])
    assert_agrees(copy, 30)
    assert_agrees(stream, 30)


def test_a_copy_of_a_stream_with_few_groups_has_no_index():
    stream = stream_of(3)
    for number in range(8):
        make(stream, number, 3, [1])
    assert stream.copy().reference_index is None


def test_a_dropped_group_of_many_entries_leaves_its_keys_for_later_changes():
    n = 3000
    stream = stream_of(n)
    for number in range(9):
        make(stream, number, n, [1] if number == 3 else [])
    before = stream.memory.total
    big = make(stream, 99, n, range(1, n + 1))
    assert references.is_pending(stream, n, 0)
    assert stream.memory.total > before + n * 90
    assert stream.drop_group(big.name)
    stream.check()
    assert len(stream.reference_index.tree.tree) == n - 1000  # keys: the rest is left for later
    assert not references.is_pending(stream, n, 0)
    assert retention.first_unacked_id(stream) == StreamId(1, 0)
    slot = stream.group(name_of(3)).pending.find(1, 0)
    stream.group(name_of(3)).pending.remove(slot)
    for _ in range(3):  # each removes a thousand
        found = retention.first_unacked_id(stream)
    assert found == StreamId(n, 1)
    stream.check()
    assert len(stream.reference_index.tree.tree) == 0
    assert stream.memory.total < before + 1000
    make(stream, 100, 0)  # takes the number of the dropped group
    assert len(stream.reference_index.groups_by_number) == 2
    stream.check()


@pytest.mark.skipif(COMPILED, reason="compiled calls cannot be counted")
def test_the_work_does_not_grow_with_the_number_of_groups(monkeypatch):
    searches = []
    find = PendingIndex.find

    def counting(index, ms, seq):
        searches.append(ms)
        return find(index, ms, seq)

    monkeypatch.setattr(PendingIndex, "find", counting)

    def work(groups):
        stream = stream_of(10)
        for number in range(groups):
            make(stream, number, 10, [number % 7 + 1] if number < 20 else [])
        searches.clear()
        for ms in range(1, 11):
            references.is_referenced(stream, ms, 0)
            references.drop_references(stream, ms, 0)
        retention.first_unacked_id(stream)
        return len(searches)

    assert work(2000) == work(50)
