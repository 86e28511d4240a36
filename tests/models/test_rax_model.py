"""A radix tree and cursors through it, against a dict that is sorted anew each time."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.structures import rax
from headrace.structures.rax import Rax
from headrace.structures.rax_walk import RaxCursor

COMPILED = rax.__file__.endswith(".so")

names = st.lists(st.sampled_from([b"a", b"b", b"ab", b"\x00", b"\xff"]), max_size=7).map(b"".join)
ids = st.tuples(st.integers(0, 600), st.sampled_from([0, 1, 2, 255, 256, 1 << 40])).map(
    lambda pair: pair[0].to_bytes(8, "big") + pair[1].to_bytes(8, "big")
)
keys = st.one_of(names, ids, st.binary(max_size=4))
cursors = st.integers(0, 1)


def nodes_wanted(present):
    """How many nodes these keys make, told from their prefixes alone."""
    prefixes = {b""} | {key[:n] for key in present for n in range(1, len(key) + 1)}
    ways = dict.fromkeys(prefixes, 0)
    for prefix in prefixes:
        if prefix:
            ways[prefix[:-1]] += 1
    return sum(
        not prefix or prefix in present or ways[prefix] > 1 or ways[prefix[:-1]] > 1 for prefix in prefixes
    )


class RaxAndDict(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.tree = Rax()
        self.model = {}
        self.cursors = [RaxCursor(self.tree), RaxCursor(self.tree)]
        self.places = [None, None]
        self.serial = 0

    @initialize(start=st.lists(keys, max_size=30))
    def fill(self, start):
        for key in start:
            self.insert(key)

    @rule(key=keys)
    def insert(self, key):
        self.serial += 1
        assert self.tree.insert(key, self.serial) == (key not in self.model)
        self.model[key] = self.serial

    @rule(key=keys)
    def remove(self, key):
        assert self.tree.remove(key) == (self.model.pop(key, None) is not None)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_one_that_is_there(self, data):
        self.remove(data.draw(st.sampled_from(sorted(self.model))))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), more=keys)
    def insert_near_one_that_is_there(self, data, more):
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.insert(key[: data.draw(st.integers(0, len(key)))] + more)

    @rule(key=keys)
    def find(self, key):
        assert self.tree.find(key) == self.model.get(key)
        assert self.tree.contains(key) == (key in self.model)

    @rule(which=cursors, op=st.sampled_from(["^", "$", "=", ">", ">=", "<", "<="]), key=keys)
    def seek(self, which, op, key):
        allowed = {
            "^": lambda other: True,
            "$": lambda other: True,
            "=": lambda other: other == key,
            ">": lambda other: other > key,
            ">=": lambda other: other >= key,
            "<": lambda other: other < key,
            "<=": lambda other: other <= key,
        }[op]
        nearest = max if op in ("$", "<", "<=") else min
        wanted = nearest(filter(allowed, self.model), default=None)
        self.lands(which, self.cursors[which].seek(op, key), wanted)

    @rule(which=cursors)
    def step(self, which):
        place = self.places[which]
        wanted = None if place is None else min((k for k in self.model if k > place), default=None)
        self.lands(which, self.cursors[which].next(), wanted)

    @rule(which=cursors)
    def step_back(self, which):
        place = self.places[which]
        wanted = None if place is None else max((k for k in self.model if k < place), default=None)
        self.lands(which, self.cursors[which].previous(), wanted)

    @precondition(lambda self: self.places[0] is not None)
    @rule()
    def remove_under_the_cursor(self):
        self.remove(self.places[0])

    def lands(self, which, stands, wanted):
        cursor = self.cursors[which]
        assert stands == (wanted is not None)
        assert cursor.key == (wanted or b"")
        assert cursor.value == (None if wanted is None else self.model[wanted])
        self.places[which] = wanted

    @invariant()
    def holds(self):
        self.tree.check()
        assert len(self.tree) == len(self.model)
        assert self.tree.node_count == nodes_wanted(self.model)

    def teardown(self):
        cursor = RaxCursor(self.tree)
        walked = []
        stands = cursor.seek("^")
        while stands:
            walked.append((cursor.key, cursor.value))
            stands = cursor.next()
        assert walked == sorted(self.model.items())
        for key in self.model:
            assert self.tree.remove(key)
        self.tree.check()
        assert self.tree.node_count == 1


RaxAndDict.TestCase.settings = settings(max_examples=200 if COMPILED else 40, stateful_step_count=50)
TestRaxAndDict = RaxAndDict.TestCase
