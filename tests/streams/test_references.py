"""Deletion by policy: references to an entry, and what DELREF and ACKED trims leave."""

import os
import random

import pytest

from headrace.streams import references
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_id, trim_by_length

COMPILED = "HEADRACE_COMPILED" in os.environ
U64_MAX = 2**64 - 1
KEEPREF, DELREF, ACKED = 0, 1, 2


def numbered(n, entries_max=2):
    stream = Stream()
    for ms in range(1, n + 1):
        stream.append(ms, 0, [b"f", b"v"], 0, 4096, entries_max)
    return stream


def group_at(stream, ms, pending=(), unowned=(), name=b"g"):
    group = stream.make_group(name, ms, 0, -1)
    consumer = group.make_consumer(b"c", 0)
    for one in pending:
        group.pending.add(one, 0, consumer, 1, 1)
    for one in unowned:
        group.pending.add(one, 0, None, 0, 1)
    return group


def ids_of(stream):
    iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, False)
    found = []
    while iterator.next():
        found.append(iterator.ms)
    return found


def referenced(stream, *ids):
    return [ms for ms in ids if references.is_referenced(stream, ms, 0)]


def test_without_groups_nothing_is_referenced():
    stream = numbered(3)
    assert referenced(stream, 0, 1, 3, 99) == []
    group_at(stream, 0)
    stream.drop_group(b"g")
    assert referenced(stream, 1, 99) == []
    assert references.drop_references(stream, 1, 0) == 0


def test_what_a_group_has_not_read_is_referenced_even_if_it_never_was():
    stream = numbered(5)
    group_at(stream, 3)
    assert referenced(stream, 1, 2, 3, 4, 5, 99) == [4, 5, 99]
    slow = group_at(stream, 1, name=b"slow")
    assert referenced(stream, 1, 2, 3, 4) == [2, 3, 4]
    slow.last_ms = 4
    assert referenced(stream, 1, 2, 3, 4) == [4]
    slow.last_ms = 0
    assert referenced(stream, 1, 2, 3, 4) == [1, 2, 3, 4]
    stream.drop_group(b"slow")
    assert referenced(stream, 1, 2, 3, 4) == [4]


def test_what_is_pending_is_referenced_be_it_unowned():
    stream = numbered(5)
    group_at(stream, 5, pending=[2], unowned=[4])
    group_at(stream, 5, pending=[2, 3], name=b"other")
    assert referenced(stream, *range(1, 6)) == [2, 3, 4]
    assert [references.drop_references(stream, ms, 0) for ms in range(1, 6)] == [0, 2, 1, 1, 0]
    assert referenced(stream, *range(1, 6)) == []
    stream.check()


@pytest.mark.parametrize("approximate", [False, True])
def test_acked_trims_skip_referenced_entries(approximate):
    stream = numbered(5)
    group_at(stream, 5, pending=[3, 5])
    assert trim_by_id(stream, 6, 0, approximate, 0, ACKED) == 3
    stream.check()
    assert ids_of(stream) == [3, 5]
    assert (stream.first_ms, stream.max_deleted_ms, stream.entries_added) == (3, 0, 5)


def test_acked_trims_keep_all_that_is_unread():
    stream = numbered(10)
    group_at(stream, 4, pending=[2])
    assert trim_by_length(stream, 1, False, 0, ACKED) == 3
    assert ids_of(stream) == [2, 5, 6, 7, 8, 9, 10]
    group_at(stream, 0, name=b"slow")
    assert trim_by_length(stream, 1, False, 0, ACKED) == 0
    stream.check()


def test_an_acked_trim_stops_in_the_node_in_which_the_length_would_be_met():
    stream = numbered(6, entries_max=3)
    group_at(stream, 6, pending=[1, 2, 3])
    assert trim_by_length(stream, 4, False, 0, ACKED) == 0  # 4-0 to 6-0 are in the next node
    assert trim_by_length(stream, 3, False, 0, ACKED) == 3  # the first node may go whole: look further
    assert ids_of(stream) == [1, 2, 3]
    stream.check()


@pytest.mark.parametrize("policy", [DELREF, ACKED])
@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("maxlen", range(9))
def test_trims_by_length_with_a_policy_are_exact(policy, approximate, maxlen):
    stream = numbered(8, entries_max=3)
    group_at(stream, 8)
    assert trim_by_length(stream, maxlen, approximate, 0, policy) == 8 - maxlen
    stream.check()
    assert ids_of(stream) == list(range(9 - maxlen, 9))
    assert stream.nodes.key_count == len({(ms - 1) // 3 for ms in range(9 - maxlen, 9)})


@pytest.mark.parametrize("policy", [DELREF, ACKED])
def test_a_trim_to_nothing_removes_the_largest_id_too(policy):
    stream = numbered(1)
    stream.append(U64_MAX, U64_MAX, [b"f", b"v"], 0, 4096, 100)
    assert trim_by_length(stream, 0, True, 0, policy) == 2
    stream.check()
    assert (stream.length, stream.nodes.key_count) == (0, 0)


def test_delref_trims_take_the_references_along():
    stream = numbered(6)
    group = group_at(stream, 6, pending=[1, 3, 5], unowned=[2])
    other = group_at(stream, 2, pending=[1, 2], name=b"other")
    assert trim_by_id(stream, 4, 0, True, 0, DELREF) == 3
    stream.check()
    assert ids_of(stream) == [4, 5, 6]
    assert (group.pending.count, group.pending.unowned_count, other.pending.count) == (1, 0, 0)
    assert group.pending.find(5, 0) >= 0


def test_keepref_trims_leave_the_references():
    stream = numbered(6)
    group = group_at(stream, 6, pending=[1, 3, 5])
    assert trim_by_id(stream, 4, 0, False, 0, KEEPREF) == 3
    assert group.pending.count == 3


@pytest.mark.parametrize(("limit", "removed"), [(1, 0), (2, 2), (3, 2), (4, 4), (5, 4), (6, 6)])
@pytest.mark.parametrize("policy", [DELREF, ACKED])
def test_a_limit_stops_before_a_node_too_many(policy, limit, removed):
    stream = numbered(8)
    group_at(stream, 8)
    assert trim_by_id(stream, 8, 0, True, limit, policy) == removed
    stream.check()
    assert ids_of(stream) == list(range(removed + 1, 9))


def test_trims_with_a_policy_skip_tombstones():
    stream = numbered(6, entries_max=3)
    group_at(stream, 6, pending=[1])
    assert stream.delete(2, 0)
    assert trim_by_length(stream, 2, False, 0, ACKED) == 3
    stream.check()
    assert ids_of(stream) == [1, 6]
    assert stream.max_deleted_ms == 2


def by_the_book(entries, nodes, maxlen, below, limit, policy, read, held):
    """What must be left, entry by entry: nodes are lists of IDs, dead ones among them."""
    left, removed = set(entries), 0
    for node in nodes:
        alive = [i for i in node if i in left]
        if (below is None and len(left) <= maxlen) or (limit and removed + len(alive) > limit):
            break
        eligible = node[-1] < below if below is not None else len(left) - len(alive) >= maxlen
        for i in node:
            if (below is None and len(left) <= maxlen) or (below is not None and i >= below):
                break
            if i in left and not (policy == ACKED and (i > read or i in held)):
                left.remove(i)
                removed += 1
        if not eligible:
            break
    return sorted(left)


@pytest.mark.parametrize("seed", range(300 if COMPILED else 60))
def test_trims_agree_with_a_simple_model(seed):
    rng = random.Random(seed)
    n, size = rng.randrange(1, 30), rng.randrange(1, 6)
    stream = numbered(n, entries_max=size)
    dead = rng.sample(range(1, n + 1), rng.randrange(n // 2 + 1))
    for ms in dead:
        stream.delete(ms, 0)
    nodes = [list(range(i, min(i + size, n + 1))) for i in range(1, n + 1, size)]
    nodes = [node for node in nodes if not set(node) <= set(dead)]
    held = rng.sample(range(1, n + 1), rng.randrange(n // 2 + 1))
    read = rng.choice([n, n, rng.randrange(n + 1)])
    group = group_at(stream, read, pending=held[1:], unowned=held[:1])
    policy, limit = rng.choice([DELREF, ACKED]), rng.choice([0, 0, rng.randrange(n)])
    entries = ids_of(stream)
    maxlen, below = rng.randrange(n), rng.choice([None, rng.randrange(n + 2)])
    expected = by_the_book(entries, nodes, maxlen, below, limit, policy, read, held)
    if below is None:
        removed = trim_by_length(stream, maxlen, True, limit, policy)
    else:
        removed = trim_by_id(stream, below, 0, True, limit, policy)
    stream.check()
    assert ids_of(stream) == expected
    assert removed == len(entries) - len(expected)
    gone = set(entries) - set(expected)
    assert group.pending.count == len(set(held) - (gone if policy == DELREF else set()))
