"""EntryWalk: through a node in both directions, piece by piece, and to an ID."""

import random

import pytest

from headrace.streams.node import create_node, total_argument_bytes
from headrace.streams.node_walk import EntryWalk, has_live_entry_from


def node_of(*entries):
    (ms, seq, first), *rest = entries
    node = create_node(ms, seq, first, 0, total_argument_bytes(first, 0))
    for ms, seq, words in rest:
        node.append(ms, seq, words, 0, total_argument_bytes(words, 0))
    return node


def test_a_walk_may_turn_round_anywhere():
    node = node_of(*((i, 0, [b"f", b"v" * i]) for i in range(1, 6)))
    walk = EntryWalk(node)
    seen = []
    for step in (walk.next, walk.next, walk.next, walk.previous, walk.next, walk.next):
        assert step()
        seen.append(walk.ms)
    assert seen == [1, 2, 3, 2, 3, 4]
    assert walk.next() and not walk.next()
    walk.enter_end(node)
    assert [walk.ms for _ in range(5) if walk.previous()] == [5, 4, 3, 2, 1]
    assert not walk.previous()


def test_a_walk_may_leave_an_entry_half_read():
    node = node_of((1, 0, [b"a", b"1", b"b", b"2"]), (2, 0, [b"c", b"3"]), (3, 0, [b"a", b"4", b"b", b"5"]))
    for steps in range(5):
        walk = EntryWalk(node)
        assert walk.next()
        for _ in range(steps):
            assert walk.next_field_or_value()
        assert walk.next() and walk.ms == 2
        assert walk.next_field_or_value() and walk.piece() == b"c"
        assert walk.next() and walk.ms == 3
        assert walk.next_field_or_value() and walk.piece() == b"a"


def test_pieces_of_every_kind_are_given_as_text():
    words = [b"", b"0", b"a" * 63, b"99", b"b" * 64, b"-5", b"c" * 5000, b"1234567890123"]
    walk = EntryWalk(node_of((1, 0, words), (2, 0, words[::-1])))
    for want in (words, words[::-1]):
        assert walk.next() and walk.field_count == 4
        found = []
        while walk.next_field_or_value():
            found.append(walk.piece())
        assert found == want


def test_only_fields_like_the_master_entrys_are_left_out():
    walk = EntryWalk(node_of((1, 0, [b"a", b"1"]), (2, 0, [b"a", b"2"]), (3, 0, [b"b", b"2"])))
    assert [walk.has_same_fields for _ in range(3) if walk.next()] == [True, True, False]


@pytest.mark.parametrize("seed", range(30))
def test_an_id_is_found_as_by_looking_at_all_entries(seed):
    """Times far apart or all the same, fields alike or not, tombstones anywhere, even out of order."""
    rng = random.Random(seed)
    ms, seq, ids = rng.choice([1, 2**40]), 0, []
    spread = rng.choice([0, 1, 50, 100_000])
    for _ in range(rng.randint(1, 60)):
        step = rng.randint(0, spread)
        ms, seq = (ms + step, rng.randint(0, 9)) if step else (ms, seq + rng.randint(1, 3000))
        ids.append((ms, seq))
    fields = [[b"a", b"12", b"b", b"x" * 70], [b"a", b"y" * 200, b"b", b"-9"], [b"c", b"1"]]
    node = node_of(*((*entry, rng.choice(fields)) for entry in ids))
    live = set(ids)
    for entry in rng.sample(ids, rng.randint(0, len(ids))):
        mark_deleted(node, entry)
        live.discard(entry)
    if not live or rng.random() < 0.5:  # XSETID had set the last ID back before this one
        last = max(live, default=ids[0])
        new = (last[0], last[1] + 1)
        node.append(*new, [b"a", b"1"], 0, total_argument_bytes([b"a", b"1"], 0))
        live.add(new)
    for entry in [*ids, *live]:
        for wanted in (entry, (entry[0], entry[1] + 1), (entry[0] + 1, 0), (max(entry[0] - 1, 0), 2**64 - 1)):
            walk = EntryWalk(node)
            expected = min((one for one in live if one >= wanted), default=None)
            assert walk.seek(*wanted) == (expected is not None)
            assert has_live_entry_from(node, *wanted) == (expected is not None)
            if expected is not None:
                assert (walk.ms, walk.seq) == expected and not walk.deleted
                assert walk.next_field_or_value() and walk.piece() in (b"a", b"c")
            else:
                assert not walk.next()


def mark_deleted(node, entry):
    walk = EntryWalk(node)
    while walk.next() and ((walk.ms, walk.seq) != entry or walk.deleted):
        pass
    node.mark_deleted(walk.at)
    node.set_counts(node.live_count - 1, node.deleted_count + 1)
