"""BACKOFF: the due times of pending entries are exact after each change, and part of the memory account."""

import random

import pytest

from headrace.streams.redelivery import DueWalk
from headrace.streams.rules import GroupRules
from headrace.streams.stream import Stream

RULES = GroupRules(lease_ms=100, backoff_ms=(10, 500))


def backoff_group():
    stream = Stream()
    group = stream.make_group(b"g", 0, 0, 0)
    group.set_rules(RULES)
    return stream, group


def due_times(group):
    """Return (due time, ms) of all owned entries, in order."""
    pending, found = group.pending, []
    slot = pending.first_by_id_from(0, 0)
    while slot >= 0:
        if pending.owner_of(slot) is not None:
            found.append((group.due_entries.due_of(slot), pending.ms_of(slot)))
        slot = pending.next_by_id(slot)
    return sorted(found)


def change(dice, group, owners):
    """Add, deliver again, release or remove a random entry."""
    pending, ms = group.pending, dice.randrange(1, 40)
    slot = pending.find(ms, 0)
    owner = dice.choice(owners)
    time_ms = dice.choice([0, dice.randrange(1000, 1500)])
    if slot < 0:
        pending.add(ms, 0, owner, time_ms, dice.randrange(3))
    elif dice.random() < 0.3:
        pending.remove(slot)
    else:
        pending.assign(slot, owner, time_ms, dice.randrange(3))


@pytest.mark.parametrize("seed", range(8))
def test_due_times_are_exact_after_each_change(seed):
    dice = random.Random(seed)
    stream, group = backoff_group()
    owners = [None, group.make_consumer(b"ann", 1), group.make_consumer(b"bob", 1)]
    for step in range(300):
        change(dice, group, owners)
        if step >= 50:  # the heap is made when it is first needed
            group.due_entries.ensure_due_heap()
            stream.check()
            times = due_times(group)
            assert group.pending.due_heap.timers.first_deadline() == (times[0][0] if times else -1)
        if step == 200:
            group.drop_consumer(owners.pop())
    now = 1400
    walk, met = DueWalk(group.due_entries, now), []
    while (slot := walk.next()) >= 0:
        if group.pending.owner_of(slot) is not None:
            met.append((group.due_entries.due_of(slot), group.pending.ms_of(slot), slot))
    assert [item[:2] for item in met] == [time for time in due_times(group) if time[0] <= now]
    walk.put_back([item[2] for item in met])
    stream.check()


def test_the_memory_of_due_times_is_accounted_until_the_rule_is_removed():
    stream, group = backoff_group()
    ann = group.make_consumer(b"ann", 1)
    for ms in range(1, 5001):
        group.pending.add(ms, 0, ann, 1000, 1)
    without = stream.memory.total
    group.due_entries.ensure_due_heap()
    blocks = group.pending.due_heap.timers.block_bytes()
    assert blocks >= 32 * 5000 and stream.memory.total == without + blocks
    group.set_rules(GroupRules(lease_ms=100))
    assert stream.memory.total == without


def test_a_copy_and_a_frozen_copy_have_no_due_times_at_first():
    _, group = backoff_group()
    group.pending.add(1, 0, group.make_consumer(b"ann", 1), 1000, 1)
    assert group.due_entries.next_due_ms() == 1110
    assert group.copy().pending.due_heap is None and group.frozen_copy().pending.due_heap is None
