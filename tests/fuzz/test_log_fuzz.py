"""Logs with wrong bytes: a result or Damaged; what precedes the fault is not lost."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.persistence.aof.reader import LogReader
from headrace.persistence.damage import Damaged
from headrace.resp.request import request as record

EXAMPLES = settings(max_examples=150)


class Bytes:
    """A Source of bytes in memory, in pieces of the sizes given, over and over."""

    def __init__(self, data, sizes=(1 << 20,)):
        self.data, self.size, self.sizes, self.at, self.turn = data, len(data), sizes, 0, 0

    def read(self, n):
        n = min(n, self.sizes[self.turn % len(self.sizes)])
        self.turn += 1
        self.at += n
        return self.data[self.at - n : self.at]

    def close(self):
        pass


def read(data, sizes=(1 << 20,)):
    """(commands, what ended it, outcome)"""
    got = []
    reader = LogReader(Bytes(data, sizes), "log", lambda words: got.append(list(words)))
    try:
        reader.run()
    except Damaged as damage:
        return got, (damage.offset, damage.what), reader.result()
    return got, None, reader.result()


word = st.one_of(st.binary(max_size=12), st.sampled_from([b"*1\r\n", b"$4\r\nEXEC\r\n", b"\r\n", b"#"]))
command = st.lists(word, min_size=2, max_size=5).map(lambda words: record(*words))
transaction = st.lists(command, max_size=3).map(
    lambda inner: record(b"MULTI") + b"".join(inner) + record(b"EXEC")
)
note = st.binary(max_size=10).map(lambda b: b"#" + b.replace(b"\n", b"") + b"\n")
log = st.lists(st.one_of(command, command, transaction, note), max_size=8).map(b"".join)
pieces = st.lists(st.integers(1, 40), min_size=1, max_size=6)
# A change: where (in thousandths of the file), how many bytes go, which bytes come.
change = st.tuples(
    st.integers(0, 1000),
    st.integers(0, 4),
    st.one_of(
        st.binary(max_size=4), st.sampled_from([b"*", b"$", b"\r\n", b"9", b"-1", b"\0" * 8, b"*1\r\n"])
    ),
)


@EXAMPLES
@given(log, st.lists(change, max_size=3), pieces)
def test_any_bytes_end_in_an_outcome_that_no_chunking_changes(data, changes, sizes):
    for where, gone, come in changes:
        at = where * len(data) // 1000
        data = data[:at] + come + data[at + gone :]
    commands, damage, outcome = read(data)
    again = read(data, sizes)
    assert again[0] == commands and again[2]._replace(size=0) == outcome._replace(size=0)
    assert (damage is None) == (again[1] is None) and (damage is None or damage[0] == again[1][0])
    assert 0 <= outcome.valid_end <= len(data)
    if damage is not None:
        assert outcome.valid_end <= damage[0] <= len(data)
    # What counts is a log without a fault, and holds just those commands but for a transaction's that failed.
    head, fault, good = read(data[: outcome.valid_end])
    assert fault is None and not good.cut_within and good.valid_end == outcome.valid_end
    assert commands[: len(head)] == head
    if damage is None:
        assert commands == head


@EXAMPLES
@given(log, st.integers(0, 1000), st.integers(1, 255))
def test_one_wrong_byte_loses_nothing_before_it(data, where, mask):
    if not data:
        return
    at = where * (len(data) - 1) // 1000
    whole = read(data)[0]
    wrong = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
    commands = read(wrong)[0]
    before = read(data[:at])[0]
    assert commands[: len(before)] == before == whole[: len(before)]


def test_a_log_of_real_commands_with_faults_never_breaks_the_engine():
    """Whole keyspaces from broken logs: the engine's own checks hold after each."""
    rng = random.Random(20)
    names = [
        b"XADD",
        b"XDEL",
        b"XTRIM",
        b"XSETID",
        b"XGROUP",
        b"XCLAIM",
        b"SET",
        b"DEL",
        b"SELECT",
        b"RENAME",
    ]
    words = [b"s", b"t", b"g", b"CREATE", b"0", b"1-1", b"5-5", b"MAXLEN", b"MKSTREAM", b"2", b"f", b"JUSTID"]
    good = [
        [b"XADD", b"s", b"%d-1", b"f", b"v"],
        [b"XGROUP", b"CREATE", b"s", b"g", b"0"],
        [b"XCLAIM", b"s", b"g", b"c", b"0", b"%d-1", b"FORCE", b"JUSTID"],
        [b"XDEL", b"s", b"%d-1"],
    ]
    for _ in range(60):
        data = bytearray()
        for n in range(1, 30):
            if rng.random() < 0.7:
                data += record(*(w % (rng.randrange(n) + 1) if b"%d" in w else w for w in rng.choice(good)))
            else:
                data += record(rng.choice(names), *(rng.choice(words) for _ in range(rng.randrange(6))))
        if rng.random() < 0.5:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        engine = Engine()
        reader = LogReader(Bytes(bytes(data)), "log", Replayer(engine, 1000).replay)
        try:
            outcome = reader.run()
        except Damaged:
            outcome = reader.result()
        assert outcome.command_count >= outcome.failed_command_count
        for database in engine.keyspace.databases:
            for value in database.values.values():
                if not isinstance(value, (bytes, bytearray)):
                    value.check()
