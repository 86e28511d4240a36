"""Counts between IDs against a sorted list, over streams that are changed in every way there is."""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.streams import entry_counts
from headrace.streams.compaction import Compaction
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_id, trim_by_length

COMPILED = "HEADRACE_COMPILED" in os.environ
U64_MAX = 2**64 - 1


class CountingModel(RuleBasedStateMachine):
    @initialize(entries_max=st.sampled_from([1, 2, 3, 7]))
    def begin(self, entries_max):
        self.entries_max = entries_max
        self.queue = Compaction()
        self.stream = Stream()
        self.stream.compaction = self.queue
        self.ids = []
        self.now = 0

    @rule(n=st.sampled_from([1, 1, 2, 10, 40]), step=st.sampled_from([(0, 1), (1, 0), (3, 5)]))
    def append(self, n, step):
        for _ in range(n):
            last = self.stream.last_id()
            new = (last.ms + step[0], last.seq + step[1] if step[0] == 0 else step[1])
            self.stream.append(*new, [b"f", b"v"], 0, 4096, self.entries_max)
            self.ids.append(new)

    @rule(data=st.data())
    def delete_a_stretch(self, data):
        first, last = sorted([self.some_place(data), self.some_place(data)])
        for gone in self.ids[first:last]:
            assert self.stream.delete(*gone)
        del self.ids[first:last]

    @rule(data=st.data(), every=st.integers(2, 5))
    def delete_here_and_there(self, data, every):
        gone = self.ids[self.some_place(data) :: every]
        for one in gone:
            assert self.stream.delete(*one)
        self.ids = [one for one in self.ids if one not in gone]

    @rule(data=st.data(), approximate=st.booleans())
    def trim_to_length(self, data, approximate):
        left = self.some_place(data)
        del self.ids[: trim_by_length(self.stream, left, approximate, 0)]

    @rule(data=st.data(), approximate=st.booleans())
    def trim_to_id(self, data, approximate):
        del self.ids[: trim_by_id(self.stream, *self.some_id(data), approximate, 0)]

    @rule(data=st.data(), policy=st.sampled_from([1, 2]))
    def trim_by_policy(self, data, policy):
        del self.ids[: trim_by_length(self.stream, self.some_place(data), False, 0, policy)]

    @rule()
    def copy(self):
        self.stream = self.stream.copy()

    @rule()
    def compact(self):
        self.now += 10
        self.queue.step(self.now)

    @rule(data=st.data())
    def count(self, data):
        first, last = self.some_id(data), self.some_id(data)
        want = sum(first <= one <= last for one in self.ids)
        assert entry_counts.count_between(self.stream, *first, *last) == want
        group = self.stream.make_group(b"g", *first, -1)
        assert entry_counts.undelivered_count(self.stream, group) == sum(one > first for one in self.ids)
        self.stream.drop_group(b"g")

    def some_place(self, data):
        return data.draw(st.integers(0, len(self.ids)))

    def some_id(self, data):
        known = [(0, 0), (U64_MAX, U64_MAX), *self.ids[:: max(1, len(self.ids) // 20)]]
        ms, seq = data.draw(st.sampled_from(known))
        return ms, min(max(0, seq + data.draw(st.sampled_from([-1, 0, 0, 1]))), U64_MAX)

    @invariant()
    def the_sums_are_right(self):
        if hasattr(self, "stream"):
            self.stream.check()
            assert self.stream.length == len(self.ids)


TestCountingModel = CountingModel.TestCase
TestCountingModel.settings = settings(max_examples=300 if COMPILED else 25, stateful_step_count=40)
