"""A group's pending entries against a dictionary, a list of the unowned, and a list in delivery order."""

import bisect
import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.streams.group import Group

COMPILED = "HEADRACE_COMPILED" in os.environ
U64_MAX = 2**64 - 1
NAMES = st.sampled_from([b"", b"a", b"b", b"c"])
TIMES = st.one_of(st.integers(0, 9), st.sampled_from([1700000000000, 2**48, 2**63 - 1]))
COUNTS = st.sampled_from([0, 1, 2, 65535, 65536, 2**63 - 1])
PICKS = st.integers(0, 10**6)


class GroupModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.group = Group(b"g", 0, 0, -1)
        self.pending = {}  # ID -> [consumer's name or None, time, count]
        self.unowned = []  # IDs, as they were given back
        self.owned = []  # (time, ID), by time, equal times in the order of delivery
        self.names = set()

    @initialize(
        ms=st.sampled_from([0, 1700000000000, 2**48 - 4, U64_MAX - 3]),
        seq=st.sampled_from([0, 2**32 - 4, U64_MAX - 99]),
    )
    def region(self, ms, seq):
        """Few IDs, so that they meet again; some regions make the records wide."""
        self.ids = sorted((ms + i % 4, seq + i // 4) for i in range(60))

    # ---- the model's own moves

    def line_up(self, one, owner, time, count):
        self.pending[one] = [owner, time if owner is not None else 0, count]
        if owner is None:
            self.unowned.append(one)
        else:
            at = bisect.bisect_right([t for t, _ in self.owned], time)
            self.owned.insert(at, (time, one))

    def step_out(self, one):
        owner, time, _ = self.pending[one]
        if owner is None:
            self.unowned.remove(one)
        else:
            self.owned.remove((time, one))

    def order(self):
        return self.unowned + [one for _, one in self.owned]

    def consumer(self, name):
        if name is None:
            return None
        found = self.group.consumer(name)
        assert (found is not None) == (name in self.names)
        if found is None:
            self.names.add(name)
            found = self.group.make_consumer(name, 77)
            assert (found.seen_ms, found.active_ms, found.pending_count) == (77, -1, 0)
        return found

    def picked(self, pick):
        return sorted(self.pending)[pick % len(self.pending)]

    def read(self, slot):
        pending = self.group.pending
        owner = pending.owner_of(slot)
        name = None if owner is None else owner.name
        return (pending.ms_of(slot), pending.seq_of(slot)), [
            name,
            pending.delivery_time_of(slot),
            pending.delivery_count_of(slot),
        ]

    def walk(self, slot, step):
        found = []
        while slot >= 0:
            found.append(self.read(slot)[0])
            slot = step(slot)
        return found

    # ---- what can be done

    @rule(pick=PICKS, name=st.none() | NAMES, time=TIMES, count=COUNTS)
    def add(self, pick, name, time, count):
        one = self.ids[pick % len(self.ids)]
        pending = self.group.pending
        owner = self.consumer(name)
        if one in self.pending:
            assert self.read(pending.find(*one)) == (one, self.pending[one])
            try:
                pending.add(*one, owner, time, count)
            except ValueError:
                return
            raise AssertionError(f"{one} was added twice")
        assert pending.find(*one) == -1
        slot = pending.add(*one, owner, time, count)
        self.line_up(one, name, time, count)
        assert self.read(slot) == (one, self.pending[one])

    @rule(pick=PICKS)
    def remove(self, pick):
        if self.pending:
            one = self.picked(pick)
            self.group.pending.remove(self.group.pending.find(*one))
            self.step_out(one)
            del self.pending[one]

    @rule(pick=PICKS, name=st.none() | NAMES, time=TIMES, count=COUNTS)
    def assign(self, pick, name, time, count):
        if self.pending:
            one = self.picked(pick)
            self.group.pending.assign(self.group.pending.find(*one), self.consumer(name), time, count)
            self.step_out(one)
            self.line_up(one, name, time, count)

    @rule(pick=PICKS, time=TIMES, count=COUNTS)
    def touch(self, pick, time, count):
        if self.pending:
            one = self.picked(pick)
            self.group.pending.record_redelivery(self.group.pending.find(*one), time, count)
            self.step_out(one)
            self.line_up(one, self.pending[one][0], time, count)

    @rule(name=NAMES)
    def drop_consumer(self, name):
        if name in self.names:
            lost = [one for one, entry in self.pending.items() if entry[0] == name]
            assert self.group.drop_consumer(self.group.consumer(name)) == len(lost)
            for one in lost:
                self.step_out(one)
                del self.pending[one]
            self.names.remove(name)

    @rule()
    def go_on_with_a_copy(self):
        twin = self.group.copy()
        for consumer in self.group.consumers():
            self.group.drop_consumer(consumer)
        while self.group.pending.count:
            self.group.pending.remove(self.group.pending.first_by_delivery())
        self.group.check()
        self.group = twin

    @rule(pick=PICKS, name=NAMES)
    def look_from_an_id(self, pick, name):
        one = self.ids[pick % len(self.ids)]
        pending = self.group.pending
        rest = sorted(i for i in self.pending if i >= one)
        assert self.walk(pending.first_by_id_from(*one), pending.next_by_id) == rest
        consumer = self.consumer(name)
        own = [i for i in rest if self.pending[i][0] == name]
        assert (
            self.walk(
                pending.first_of_consumer_from(consumer, *one),
                lambda slot: pending.next_of_consumer(consumer, slot),
            )
            == own
        )

    # ---- what must hold

    @invariant()
    def everything_is_as_the_model_says(self):
        self.group.check()
        pending = self.group.pending
        assert (pending.count, pending.unowned_count) == (len(self.pending), len(self.unowned))
        assert self.walk(pending.first_by_id_from(0, 0), pending.next_by_id) == sorted(self.pending)
        assert self.walk(pending.first_by_delivery(), pending.next_by_delivery) == self.order()
        assert self.walk(pending.last_by_delivery(), lambda slot: -1) == self.order()[-1:]
        assert self.walk(pending.last_by_id(), lambda slot: -1) == sorted(self.pending)[-1:]
        for one, entry in self.pending.items():
            assert self.read(pending.find(*one)) == (one, entry)
        assert [c.name for c in self.group.consumers()] == sorted(self.names)
        for consumer in self.group.consumers():
            own = [one for one, entry in self.pending.items() if entry[0] == consumer.name]
            assert consumer.pending_count == len(own)


TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = settings(
    max_examples=150 if COMPILED else 15, stateful_step_count=60 if COMPILED else 30
)
