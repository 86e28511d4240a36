import os
import random

import pytest

from headrace.streams import delivery
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_length

COMPILED = "HEADRACE_COMPILED" in os.environ
U64_MAX = 2**64 - 1


class Scene:
    """A stream of 1-0 to 5-0 with one group, and moves that a row of a table can name."""

    def __init__(self):
        self.stream = Stream()
        self.group = self.stream.make_group(b"g", 0, 0, -1)
        self.consumer = self.group.make_consumer(b"c", 0)
        for ms in range(1, 6):
            self.add(ms)

    def add(self, ms):
        self.stream.append(ms, 0, [b"f", b"v"], 0, 4096, 3)

    def at(self, ms, entries_read=-1):
        self.group.last_ms, self.group.last_seq, self.group.entries_read = ms, 0, entries_read

    def read(self, n=100):
        group = self.group
        iterator = StreamIterator(self.stream, group.last_ms, group.last_seq + 1, U64_MAX, U64_MAX, False)
        for _ in range(n):
            if not iterator.next():
                return
            delivery.deliver(self.stream, group, self.consumer, iterator.ms, iterator.seq, 1000, True)

    def xdel(self, *ids):
        for ms in ids:
            assert self.stream.delete(ms, 0)

    def trim(self, maxlen):
        trim_by_length(self.stream, maxlen, False, 0)

    def added(self, n):
        self.stream.entries_added = n

    def answers(self):
        lag = (
            delivery.lag_or_unknown(self.stream, self.group)
            if delivery.lag_is_known(self.stream, self.group)
            else None
        )
        return None if self.group.entries_read == -1 else self.group.entries_read, lag


@pytest.mark.parametrize(
    ("moves", "entries_read", "lag"),
    [
        ("at 0", None, 5),
        ("at 5", None, 0),
        ("at 1", None, 4),
        ("at 3", None, None),
        ("at 9", None, None),
        ("at 3; read", 5, 0),
        ("at 0; read 2", 2, 3),
        ("at 0; read 2; xdel 1", 2, 3),
        ("at 0; read 2; xdel 2", 2, None),
        ("at 0; read 2; xdel 4", 2, None),
        ("at 0; read 2; xdel 4; read 1", None, None),
        ("at 0; read 2; xdel 4; read", 5, 0),
        ("xdel 3", None, None),
        ("xdel 1", None, 4),
        ("xdel 1 2; at 1", None, 3),
        ("xdel 1 2; at 2", None, 3),
        ("xdel 1; read 1", 2, 3),
        ("read 1; trim 2", 1, 2),
        ("read 1; trim 2; read 1", 4, 1),
        ("read 1; trim 0", 1, 0),
        ("read 1; xdel 1 2 3 4 5", 1, 0),
        ("xdel 1 2 3 4 5; add 6", None, 1),
        ("read; xdel 5", 5, 0),
        ("read; xdel 5; add 6", 5, None),
        ("read; at 0", None, 5),
        ("at 2 2", 2, 3),
        ("at 3 100", 100, 2),
        ("read; trim 1; added 1", 5, 0),
        ("read 4; trim 2; added 2", 4, 1),
        ("read; trim 2; added 2; add 6", 5, 1),
    ],
)
def test_entries_read_and_lag_are_those_of_the_table(moves, entries_read, lag):
    scene = Scene()
    for move in moves.split("; "):
        name, *numbers = move.split()
        getattr(scene, name)(*map(int, numbers))
    scene.stream.check()
    assert scene.answers() == (entries_read, lag)


def test_nothing_lags_behind_a_stream_that_never_had_an_entry():
    stream = Stream()
    group = stream.make_group(b"g", 0, 0, -1)
    assert (delivery.lag_is_known(stream, group), delivery.lag_or_unknown(stream, group)) == (True, 0)
    assert delivery.entries_read_at(stream, 7, 7) == 0


@pytest.mark.parametrize(
    ("moves", "ms", "expected"),
    [
        ("", 0, 0),
        ("", 1, 1),
        ("", 3, -1),
        ("", 5, 5),
        ("", 6, -1),
        ("trim 2", 3, 3),
        ("trim 2", 4, 4),
        ("trim 0", 2, 5),
        ("trim 0", 6, -1),
        ("xdel 3", 2, -1),
        ("xdel 3", 0, -1),
        ("xdel 1", 0, 1),
        ("xdel 1", 2, 2),
        ("xdel 5", 5, 5),
    ],
)
def test_entries_read_is_the_number_of_entries_ever_added_before(moves, ms, expected):
    scene = Scene()
    for move in filter(None, moves.split("; ")):
        name, *numbers = move.split()
        getattr(scene, name)(*map(int, numbers))
    assert delivery.entries_read_at(scene.stream, ms, 0) == expected


def test_a_delivery_makes_the_entry_pending_and_the_consumer_active():
    scene = Scene()
    scene.read(2)
    pending = scene.group.pending
    slot = pending.find(2, 0)
    assert (pending.count, pending.delivery_time_of(slot), pending.delivery_count_of(slot)) == (2, 1000, 1)
    assert pending.owner_of(slot) is scene.consumer
    assert (scene.consumer.active_ms, scene.group.last_ms, scene.group.entries_read) == (1000, 2, 2)


def test_a_delivery_that_needs_no_acknowledgement_counts_all_the_same():
    scene = Scene()
    delivery.deliver(scene.stream, scene.group, scene.consumer, 1, 0, 1000, False)
    assert (scene.group.pending.count, scene.group.last_ms, scene.group.entries_read) == (0, 1, 1)
    assert scene.consumer.active_ms == 1000


@pytest.mark.parametrize("unowned", [False, True])
def test_a_delivery_after_the_group_was_set_back_takes_the_entry_over(unowned):
    scene = Scene()
    scene.read(3)
    pending = scene.group.pending
    pending.assign(pending.find(2, 0), None if unowned else scene.consumer, 500, 9)
    other = scene.group.make_consumer(b"other", 0)
    scene.at(1)
    delivery.deliver(scene.stream, scene.group, other, 2, 0, 2000, True)
    slot = pending.find(2, 0)
    assert (pending.delivery_time_of(slot), pending.delivery_count_of(slot), pending.count) == (2000, 1, 3)
    assert pending.owner_of(slot) is other
    assert (scene.consumer.pending_count, other.pending_count, pending.unowned_count) == (2, 1, 0)
    scene.stream.check()


def test_what_the_group_has_read_may_lie_after_the_last_entry():
    scene = Scene()
    scene.at(9, 5)
    scene.add(10)
    scene.read()
    assert scene.answers() == (6, 0)


def left_to_read(stream, group):
    iterator = StreamIterator(stream, group.last_ms, group.last_seq + 1, U64_MAX, U64_MAX, False)
    n = 0
    while iterator.next():
        n += 1
    return n


@pytest.mark.parametrize("seed", range(400 if COMPILED else 40))
def test_a_lag_that_is_known_is_exact(seed):
    rng = random.Random(seed)
    scene = Scene()
    stream, group = scene.stream, scene.group
    known = 0
    for _ in range(60):
        if delivery.lag_is_known(stream, group):
            known += 1
            assert delivery.lag_or_unknown(stream, group) == left_to_read(stream, group)
        move = rng.choice(["add", "add", "add", "read", "read", "xdel", "trim", "at"])
        if move == "add":
            scene.add(stream.last_ms + rng.choice([1, 1, 3]))
        elif move == "read":
            scene.read(rng.randrange(4))
        elif move == "xdel":
            stream.delete(rng.randrange(stream.first_ms, stream.last_ms + 1), 0)
        elif move == "trim" and rng.random() < 0.3:
            scene.trim(rng.randrange(stream.length + 1))
        elif move == "at" and rng.random() < 0.3:
            scene.at(rng.choice([0, stream.first_ms, rng.randrange(stream.last_ms + 1), stream.last_ms]))
    assert known > 0
    stream.check()
