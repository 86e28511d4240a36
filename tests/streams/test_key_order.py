"""ORDERED-BY: queues with several owners, their checks, and their memory."""

import os
import random
import subprocess
import sys

import pytest

from headrace.streams.rules import GroupRules
from headrace.streams.stream import Stream

RULES = GroupRules(lease_ms=100, ordered_by=b"key")


def ordered_group():
    stream = Stream()
    group = stream.make_group(b"g", 0, 0, 0)
    group.set_rules(RULES)
    return stream, group, group.ensure_key_order()


def add(group, ms, owner, value=b"v", time_ms=1000):
    group.pending.key_order.set_next_value(value)
    return group.pending.add(ms, 0, owner, time_ms, 1)


def test_the_last_of_two_owners_is_the_holder_again():
    _, group, order = ordered_group()
    ann, bob = (group.make_consumer(name, 1) for name in (b"ann", b"bob"))
    slots = [add(group, ms, owner) for ms, owner in ((1, ann), (2, ann), (3, bob), (4, ann))]
    queue = order.queue_of_value(b"v")
    group.check()
    assert queue.delivered_count_by_owner == {ann.number: 3, bob.number: 1}
    group.pending.remove(slots[0])
    assert queue.delivered_count_by_owner == {ann.number: 2, bob.number: 1}
    group.pending.assign(slots[2], ann, 1001, 2)
    group.check()
    assert queue.delivered_count_by_owner is None and queue.holder == ann.number
    assert not order.may_receive_next(queue, bob.number, 1050)
    assert order.may_receive_next(queue, ann.number, 1050)


@pytest.mark.parametrize("seed", range(8))
def test_every_change_keeps_owners_checks_and_memory_exact(seed):
    dice = random.Random(seed)
    stream, group, order = ordered_group()
    owners = [None, *(group.make_consumer(name, 1) for name in (b"ann", b"bob", b"cid"))]
    now = 1000
    for _ in range(400):
        now += dice.randrange(20)
        ms = dice.randrange(1, 40)
        slot = group.pending.find(ms, 0)
        owner = dice.choice(owners)
        if slot < 0:
            add(group, ms, owner, dice.choice([b"a", b"b", None]), dice.choice([0, now]))
        elif dice.random() < 0.3:
            group.pending.remove(slot)
        elif dice.random() < 0.9:
            group.pending.assign(slot, owner, dice.choice([0, now]), dice.randrange(3))
        elif (queue := order.pop_free_queue(now)) is not None:
            taken = order.take_delivered(queue)
            for number, one in enumerate(taken):
                if number % 2:
                    group.pending.assign(one, owners[1], now, 3)
            order.give_back(queue, taken[::2], now + 50)
        order.next_due_ms(now)
        stream.check()
    group.set_rules(GroupRules(lease_ms=100))
    assert stream.memory.total == stream.copy().memory.total


def test_queues_become_due_in_order_of_their_leases():
    _, group, order = ordered_group()
    ann = group.make_consumer(b"ann", 1)
    for ms, (value, time_ms) in enumerate(((b"c", 1030), (b"a", 1010), (b"b", 1020)), 1):
        add(group, ms, ann, value, time_ms)
    assert order.next_due_ms(1000) == 1110
    found = []
    for now in (1109, 1110, 1120, 1130):
        queue = order.pop_free_queue(now)
        found.append(queue and queue.ordering_value)
    assert found == [None, b"a", b"b", b"c"]


def test_a_removed_entry_leaves_no_check_behind():
    _, group, order = ordered_group()
    ann = group.make_consumer(b"ann", 1)
    for ms in range(1, 50):
        group.pending.remove(add(group, ms, ann, b"%d" % ms))
    assert len(order.check_timers) == 0 and order.next_due_ms(1000) == -1


CHILD = """
import sys
from headrace.streams.rules import GroupRules
from headrace.streams.stream import Stream

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def filled(rules, count, values):
    stream = Stream()
    group = stream.make_group(b"g", 0, 0, 0)
    group.set_rules(rules)
    ann = group.make_consumer(b"ann", 1)
    if rules.ordered_by:
        group.ensure_key_order()
    for ms in range(1, count + 1):
        if rules.ordered_by:
            group.pending.key_order.set_next_value(b"key-%020d" % (ms % values))
        group.pending.add(ms, 0, ann, 1000, 1)
    if rules.backoff_ms:
        group.due_entries.ensure_due_heap()
    return stream

rules = GroupRules(lease_ms=100, **eval(sys.argv[1]))
# So many that little of a block that has doubled is unused. After the first, nothing fits into what was free.
kept = [filled(rules, 500_000, int(sys.argv[2]))]
before = resident()
kept.append(filled(rules, 500_000, int(sys.argv[2])))
print(kept[1].memory.total / (resident() - before))
"""


@pytest.mark.compiled
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="its allocator takes more")
@pytest.mark.parametrize(
    ("rules", "values"),
    [("{'backoff_ms': (1,)}", 1), ("{'ordered_by': b'key'}", 500_000), ("{'ordered_by': b'key'}", 1000)],
)
def test_the_account_is_what_the_process_has_grown_by(rules, values):
    command = [sys.executable, "-c", CHILD, rules, str(values)]
    ratio = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 0.75 < ratio < 1.25
