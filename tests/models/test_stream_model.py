"""A Stream against a sorted list of entries."""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_id, trim_by_length
from headrace.structures.stream_id import StreamId

COMPILED = "HEADRACE_COMPILED" in os.environ
U64_MAX = 2**64 - 1

NAMES = st.sampled_from([b"a", b"b", b"7", b"", b"x" * 70])
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda v: b"%d" % v), st.binary(max_size=90), st.just(b"n" * 5000)
)
WORDS = st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4).map(
    lambda pairs: [word for pair in pairs for word in pair]
)
STEPS = st.tuples(st.sampled_from([0, 0, 1, 2, 500, 2**33]), st.integers(0, 3))


def key_of(ms, seq):
    return StreamId(ms, seq).key()


class StreamModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.stream = Stream()
        self.entries = {}  # (ms, seq) -> words, in order
        self.last = self.max_deleted = (0, 0)
        self.added = 0

    @initialize(
        start=st.sampled_from([0, 5, 1700000000000, 2**63 - 3, U64_MAX - 2000]),
        bytes_max=st.sampled_from([1, 80, 200, 4096, 0]),
        entries_max=st.sampled_from([1, 2, 5, 100, 0]),
    )
    def limits(self, start, bytes_max, entries_max):
        self.start, self.bytes_max, self.entries_max = start, bytes_max, entries_max

    def add(self, new, words):
        self.stream.append(*new, [b"XADD", b"key", *words], 2, self.bytes_max, self.entries_max)
        self.entries[new] = words
        self.last = new
        self.added += 1

    @rule(step=STEPS, words=WORDS)
    def append(self, step, words):
        ms, seq = (self.start, 1) if self.last == (0, 0) else self.last
        new = (ms, seq + 1 + step[1]) if step[0] == 0 else (ms + step[0], step[1])
        if new[0] <= U64_MAX and new > self.last:
            self.add(new, words)

    @rule(words=WORDS, n=st.integers(2, 12))
    def append_a_few_alike(self, words, n):
        for _ in range(n):
            self.append_next(words)

    @rule(words=WORDS, now=st.sampled_from([0, 1700000000005]))
    def append_at(self, words, now):
        self.append_next(words, now)

    def append_next(self, words, now=0):
        if self.last < (U64_MAX, U64_MAX):
            new = StreamId(*self.last).successor()
            self.add(max((now, 0), (new.ms, new.seq)), words)

    def some_id(self, data):
        known = st.sampled_from([*self.entries, self.last, (0, 0), (U64_MAX, U64_MAX)])
        ms, seq = data.draw(known)
        off = data.draw(st.sampled_from([-1, 0, 0, 0, 1]))
        return ms, min(max(0, seq + off), U64_MAX)

    @rule(data=st.data())
    def delete(self, data):
        some = self.some_id(data)
        assert self.stream.contains(*some) == (some in self.entries)
        assert self.stream.delete(*some) == (some in self.entries)
        if self.entries.pop(some, None) is not None:
            self.max_deleted = max(self.max_deleted, some)

    @rule(data=st.data())
    def delete_a_stretch(self, data):
        first, last = sorted([self.some_id(data), self.some_id(data)])
        for gone in [i for i in self.entries if first <= i <= last]:
            assert self.stream.delete(*gone)
            del self.entries[gone]
            self.max_deleted = max(self.max_deleted, gone)

    @rule(data=st.data())
    def trim_to_length(self, data):
        maxlen = data.draw(st.integers(0, len(self.entries) + 1))
        removed = trim_by_length(self.stream, maxlen, False, 0)
        assert removed == max(0, len(self.entries) - maxlen)
        self.drop_first(removed)

    @rule(data=st.data())
    def trim_to_id(self, data):
        lowest = self.some_id(data)
        assert trim_by_id(self.stream, *lowest, False, 0) == sum(i < lowest for i in self.entries)
        self.entries = {i: words for i, words in self.entries.items() if i >= lowest}

    @rule(data=st.data(), limit=st.sampled_from([0, 0, 1, 5]))
    def trim_roughly(self, data, limit):
        nodes, length = self.stream.nodes.key_count, len(self.entries)
        if data.draw(st.booleans()):
            maxlen = data.draw(st.integers(0, length + 1))
            removed = trim_by_length(self.stream, maxlen, True, limit)
            assert removed <= max(0, length - maxlen)
        else:
            lowest = self.some_id(data)
            removed = trim_by_id(self.stream, *lowest, True, limit)
            assert removed <= sum(i < lowest for i in self.entries)
        assert removed == 0 or self.stream.nodes.key_count < nodes
        assert limit == 0 or removed <= limit
        self.drop_first(removed)

    def drop_first(self, n):
        self.entries = dict(list(self.entries.items())[n:])

    @rule(data=st.data(), reverse=st.booleans())
    def read_a_range(self, data, reverse):
        first, last = self.some_id(data), self.some_id(data)
        want = [i for i in self.entries if first <= i <= last]
        iterator = StreamIterator(self.stream, *first, *last, reverse)
        for ms, seq in reversed(want) if reverse else want:
            assert iterator.next()
            assert (iterator.ms, iterator.seq) == (ms, seq)
            assert iterator.remaining_pieces() == self.entries[ms, seq]
            assert 2 * iterator.field_count == len(self.entries[ms, seq])
        assert not iterator.next()

    @rule()
    def copy(self):
        self.stream = self.stream.copy()

    @invariant()
    def both_hold_the_same(self):
        stream = self.stream
        stream.check()
        assert (stream.length, stream.entries_added) == (len(self.entries), self.added)
        assert stream.last_id().key() == key_of(*self.last)
        assert stream.max_deleted_id().key() == key_of(*self.max_deleted)
        ids = list(self.entries)
        assert stream.first_id().key() == key_of(*(ids[0] if ids else (0, 0)))
        last = stream.last_entry_id()
        assert (last and last.key()) == (key_of(*ids[-1]) if ids else None)
        for reverse in (False, True):
            iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, reverse)
            found = []
            while iterator.next():
                found.append((iterator.ms, iterator.seq))
            assert found == (ids[::-1] if reverse else ids)


TestStreamModel = StreamModel.TestCase
TestStreamModel.settings = settings(max_examples=300 if COMPILED else 40, stateful_step_count=30)
