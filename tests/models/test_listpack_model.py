"""A listpack against a list of bytes."""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.structures.listpack import Listpack

COMPILED = "HEADRACE_COMPILED" in os.environ

EDGES = [s * 2**b + d for b in (7, 12, 15, 23, 31, 63) for s in (1, -1) for d in (-1, 0, 1)]
SIZES = st.sampled_from([0, 1, 62, 63, 64, 65, 125, 126, 127, 4095, 4096, 16377, 16378, 16379])
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda v: b"%d" % v),
    st.sampled_from(EDGES).map(lambda v: b"%d" % v),
    st.binary(max_size=40),
    st.text("0123456789-+ ", max_size=22).map(str.encode),
    st.builds(lambda n, c: bytes([c]) * n, SIZES, st.integers(0, 255)),
)


class ListpackModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.pack = Listpack()
        self.values = []

    def offset(self, i):
        at = self.pack.first_at()
        for _ in range(i):
            at = self.pack.next_at(at)
        return at

    @rule(value=VALUES)
    def append(self, value):
        at = self.pack.append(value)
        self.values.append(value)
        assert self.pack.get(at) == value
        assert self.pack.last_at() == at

    @rule(v=st.integers(-(2**63), 2**63 - 1))
    def append_int(self, v):
        self.pack.append_int(v)
        self.values.append(b"%d" % v)

    @rule(value=VALUES, data=st.data())
    def insert(self, value, data):
        i = data.draw(st.integers(0, len(self.values)))
        at = self.offset(i) if i < len(self.values) else self.pack.used
        self.pack.insert(at, value)
        self.values.insert(i, value)
        assert self.pack.get(at) == value

    @rule(value=VALUES, data=st.data())
    def replace(self, value, data):
        if self.values:
            i = data.draw(st.integers(0, len(self.values) - 1))
            self.pack.replace(self.offset(i), value)
            self.values[i] = value

    @rule(
        v=st.one_of(st.integers(0, 130), st.sampled_from(EDGES).filter(lambda v: v < 2**63)), data=st.data()
    )
    def replace_int(self, v, data):
        if self.values and v >= -(2**63):
            i = data.draw(st.integers(0, len(self.values) - 1))
            self.pack.replace_int(self.offset(i), v)
            self.values[i] = b"%d" % v

    @rule(data=st.data())
    def delete(self, data):
        if self.values:
            i = data.draw(st.integers(0, len(self.values) - 1))
            self.pack.delete(self.offset(i))
            del self.values[i]

    @rule()
    def shrink(self):
        self.pack.shrink()

    @rule()
    def store_and_load(self):
        data = self.pack.to_bytes()
        self.pack = Listpack.from_bytes(data)
        assert self.pack.to_bytes() == data

    @rule()
    def copy(self):
        self.pack = self.pack.copy()

    @invariant()
    def both_hold_the_same(self):
        self.pack.check()
        assert len(self.pack) == len(self.values)
        forwards, at = [], self.pack.first_at()
        while at >= 0:
            forwards.append(self.pack.get(at))
            at = self.pack.next_at(at)
        backwards, at = [], self.pack.last_at()
        while at >= 0:
            backwards.append(self.pack.get(at))
            at = self.pack.previous_at(at)
        assert forwards == self.values
        assert backwards == self.values[::-1]


TestListpackModel = ListpackModel.TestCase
TestListpackModel.settings = settings(max_examples=300 if COMPILED else 60, stateful_step_count=40)
