"""EntryLookup finds exactly the existing entries, in any order of look-ups."""

import random

import pytest

from headrace.commands.stream.entry_lookup import EntryLookup
from headrace.streams.stream import Stream


def stream_of(ids):
    stream = Stream()
    for ms in ids:
        stream.append(ms, 0, [b"n", b"%d" % ms], 0, 4096, 7)
    return stream


def found(finder, ms, seq=0):
    entry = finder.find(ms, seq)
    return None if entry is None else (entry.ms, entry.seq, entry.remaining_pieces())


def here(ms):
    return (ms, 0, [b"n", b"%d" % ms])


@pytest.mark.parametrize("seed", range(20))
def test_it_finds_what_is_there_in_any_order(seed):
    dice = random.Random(seed)
    ids = sorted(dice.sample(range(1, 400), 150))
    stream = stream_of(ids)
    for ms in dice.sample(ids, 40):
        stream.delete(ms, 0)
        ids.remove(ms)
    finder = EntryLookup(stream)
    wanted = 0
    for _ in range(300):
        wanted = dice.choice([wanted, wanted + 1, wanted + dice.randrange(60), dice.randrange(420)]) % 420
        assert found(finder, wanted) == (here(wanted) if wanted in ids else None)
        assert found(finder, wanted, 1) is None


def test_the_same_entry_twice_has_its_pieces_twice():
    finder = EntryLookup(stream_of([1, 2, 3]))
    assert found(finder, 2) == found(finder, 2) == here(2)
    assert found(finder, 1) == here(1)
    assert found(finder, 9) is None
    assert found(finder, 3) == here(3)


def test_an_empty_stream_has_nothing():
    assert found(EntryLookup(Stream()), 1) is None
