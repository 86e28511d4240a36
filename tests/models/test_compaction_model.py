"""One history, with and without compaction: nobody can tell by the replies."""

import os
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.engine.engine import Engine
from headrace.structures.rax_walk import RaxCursor

COMPILED = "HEADRACE_COMPILED" in os.environ

KEYS = st.sampled_from([b"s", b"s", b"s", b"t"])
POLICY = st.sampled_from([b"", b"", b"", b"KEEPREF", b"DELREF", b"ACKED"])
BYTES_MAX = st.sampled_from([120, 400, 1200, 0])
ENTRIES_MAX = st.sampled_from([6, 10, 12, 0])
VALUES = st.sampled_from([b"v", b"12", b"-40000", b"x" * 30, b"y" * 70])


class Twice(RuleBasedStateMachine):
    """`worn` keeps its tombstones, `fresh` is rewritten after every command; both are told the same."""

    def __init__(self):
        super().__init__()
        self.sparse_nodes, self.fresh = Engine(), Engine()
        self.sessions = [engine.create_session() for engine in (self.sparse_nodes, self.fresh)]
        self.sparse_nodes.keyspace.settings.stream_compact_tombstones = False
        self.now = 1000
        self.last = 0  # of the IDs n-0 given to any stream

    @initialize(
        bytes_max=BYTES_MAX, entries_max=ENTRIES_MAX, n=st.integers(20, 150), back=st.integers(0, 150)
    )
    def begin(self, bytes_max, entries_max, n, back):
        self.limits(bytes_max, entries_max)
        self.add(b"s", n, b"v", 2)
        self.make_a_group(b"s", back)

    @rule(bytes_max=BYTES_MAX, entries_max=ENTRIES_MAX)
    def limits(self, bytes_max, entries_max):
        for engine in (self.sparse_nodes, self.fresh):
            engine.keyspace.settings.stream_node_max_bytes = bytes_max
            engine.keyspace.settings.stream_node_max_entries = entries_max

    def say(self, *words):
        argv = [w if isinstance(w, bytes) else b"%d" % w for w in words if w != b""]
        replies = []
        for engine, session in zip((self.sparse_nodes, self.fresh), self.sessions, strict=True):
            engine.execute(session, list(argv), self.now)
            replies.append(session.reply.take())
        self.now += 10
        self.sparse_nodes.tick(self.now)
        self.fresh.tick(self.now)
        assert replies[0] == replies[1], argv
        return replies[0]

    @rule(key=KEYS, n=st.sampled_from([1, 3, 10, 140]), value=VALUES, names=st.sampled_from([1, 2]))
    def add(self, key, n, value, names):
        for _ in range(n):
            self.last += 1
            words = [b"name", value, b"other", b"1"] if self.last % names else [b"name", value]
            self.say(b"XADD", key, b"%d-0" % self.last, *words)

    @rule(key=KEYS, value=VALUES, maxlen=st.integers(0, 60), policy=POLICY, limit=st.sampled_from([0, 5, 20]))
    def add_and_trim(self, key, value, maxlen, policy, limit):
        self.last += 1
        id_ = b"%d-0" % self.last
        self.say(b"XADD", key, policy, b"MAXLEN", b"~", maxlen, b"LIMIT", limit, id_, b"name", value)

    @rule(key=KEYS, ends=st.tuples(st.integers(1, 300), st.integers(0, 150)), keep=st.integers(2, 9))
    def delete_most_of_a_stretch(self, key, ends, keep):
        back, n = ends
        first = max(1, self.last - back)
        gone = [b"%d" % i for i in range(first, min(first + n, self.last + 1)) if i % keep]
        if gone:
            self.say(b"XDEL", key, *gone)

    @rule(key=KEYS, data=st.data())
    def delete_all_after_a_rewritten_node(self, key, data):
        """That node is the tail then, and the next entries may go into it."""
        stream = self.fresh.keyspace.databases[0].stream(key)
        nodes = []
        cursor = RaxCursor(stream.nodes) if stream else None
        more = cursor and cursor.seek("^")
        while more:
            nodes.append(cursor.value)
            more = cursor.next()
        ends = [after.ms for node, after in pairwise(nodes) if node.reclaimed_count]
        if ends:
            end = data.draw(st.sampled_from(ends))
            self.say(b"XDEL", key, *[b"%d" % i for i in range(end, self.last + 1)])

    @rule(key=KEYS, n=st.integers(0, 60), how=st.sampled_from([b"=", b"~"]), policy=POLICY)
    def trim_to_length(self, key, n, how, policy):
        self.say(b"XTRIM", key, b"MAXLEN", how, n, policy)

    @rule(key=KEYS, back=st.integers(0, 200), how=st.sampled_from([b"=", b"~"]), policy=POLICY)
    def trim_to_id(self, key, back, how, policy):
        self.say(b"XTRIM", key, b"MINID", how, max(0, self.last - back), policy)

    @rule(key=KEYS, back=st.integers(1, 12), n=st.integers(1, 12))
    def set_the_last_id_back(self, key, back, n):
        """Tombstones are out of order then, once there are entries again."""
        last = max(0, self.last - back)
        self.say(b"XDEL", key, *[b"%d" % i for i in range(last + 1, self.last + 1)] or [b"1"])
        self.say(b"XSETID", key, self.last, b"ENTRIESADDED", 9999, b"MAXDELETEDID", b"0-0")
        if self.say(b"XSETID", key, last) == b"+OK\r\n":
            for i in range(1, n + 1):
                self.say(b"XADD", key, b"%d-0" % (last + i), b"name", b"v")
            self.last = max(self.last, last + n)

    @rule(key=KEYS, back=st.integers(0, 200))
    def make_a_group(self, key, back):
        self.say(b"XGROUP", b"CREATE", key, b"g", max(0, self.last - back))

    @rule(key=KEYS, count=st.integers(1, 60), ack=st.booleans())
    def read(self, key, count, ack):
        group = [b"XREADGROUP", b"GROUP", b"g", b"ann", b"COUNT", count]
        self.say(*group, *([b"NOACK"] if ack else []), b"STREAMS", key, b">")

    @rule(key=KEYS, back=st.integers(0, 200), n=st.integers(1, 60))
    def acknowledge(self, key, back, n):
        first = max(0, self.last - back)
        self.say(b"XACKDEL", key, b"g", b"ACKED", b"IDS", n, *[b"%d" % i for i in range(first, first + n)])

    @rule()
    def copy(self):
        self.say(b"COPY", b"s", b"t", b"REPLACE")

    @rule(key=KEYS, first=st.integers(0, 400), last=st.integers(0, 400))
    def look(self, key, first, last):
        self.say(b"XRANGE", key, first, last)
        self.say(b"XREVRANGE", key, last, first, b"COUNT", 7)
        self.say(b"XCOUNT", key, first, last)
        self.say(b"XLAG", key, b"g")
        self.say(b"XPENDING", key, b"g")

    @invariant()
    def both_say_the_same(self):
        for key in (b"s", b"t"):
            self.say(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", 0)
            self.say(b"XINFO", b"STREAM", key)
            for engine in (self.sparse_nodes, self.fresh):
                stream = engine.keyspace.databases[0].stream(key)
                if stream is not None:
                    stream.check()


TestCompactionModel = Twice.TestCase
TestCompactionModel.settings = settings(max_examples=250 if COMPILED else 12, stateful_step_count=30)
