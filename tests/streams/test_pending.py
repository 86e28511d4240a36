import os
import random

import pytest

from headrace.streams.group import Group
from headrace.streams.pending_arena import PendingArena

COMPILED = "HEADRACE_COMPILED" in os.environ
U64_MAX = 2**64 - 1
NOW = 1700000000000


def group_with(*names):
    group = Group(b"g", 0, 0, -1)
    return group, group.pending, *(group.make_consumer(name, NOW) for name in names)


def ids_by(pending, slot, step):
    found = []
    while slot >= 0:
        found.append((pending.ms_of(slot), pending.seq_of(slot)))
        slot = step(slot)
    return found


def ids(pending):
    return ids_by(pending, pending.first_by_id_from(0, 0), pending.next_by_id)


def order(pending):
    return [ms for ms, _ in ids_by(pending, pending.first_by_delivery(), pending.next_by_delivery)]


def own_ids(pending, consumer):
    return ids_by(
        pending,
        pending.first_of_consumer_from(consumer, 0, 0),
        lambda slot: pending.next_of_consumer(consumer, slot),
    )


def test_nothing_is_pending_at_first():
    group, pending, alice = group_with(b"alice")
    group.check()
    assert (pending.count, pending.unowned_count, alice.pending_count) == (0, 0, 0)
    assert {
        pending.first_by_delivery(),
        pending.last_by_delivery(),
        pending.last_by_id(),
        pending.find(0, 0),
        pending.first_by_id_from(0, 0),
    } == {-1}
    assert pending.first_of_consumer_from(alice, 0, 0) == -1


def test_an_entry_says_what_it_was_added_with():
    group, pending, alice = group_with(b"alice")
    slot = pending.add(5, 7, alice, NOW, 1)
    assert pending.find(5, 7) == slot
    assert (pending.ms_of(slot), pending.seq_of(slot)) == (5, 7)
    assert (pending.delivery_time_of(slot), pending.delivery_count_of(slot)) == (NOW, 1)
    assert pending.owner_of(slot) is alice
    assert {pending.find(5, 6), pending.find(5, 8), pending.find(0, 0), pending.find(U64_MAX, 0)} == {-1}
    group.check()


def test_an_id_is_pending_once():
    group, pending, alice, bob = group_with(b"alice", b"bob")
    for i in (1, 2, 3):
        pending.add(i, 0, alice, NOW, 1)
    for i in (1, 2, 3):
        with pytest.raises(ValueError, match=f"{i}-0"):
            pending.add(i, 0, bob, NOW, 1)
    group.check()
    assert (pending.count, alice.pending_count, bob.pending_count) == (3, 3, 0)


@pytest.mark.parametrize(
    ("ms", "seq", "time", "count"),
    [
        (2**48, 0, NOW, 1),
        (U64_MAX, U64_MAX, NOW, 1),
        (1, 2**32, NOW, 1),
        (1, 1, 2**48, 1),
        (1, 1, 2**63 - 1, 1),
        (1, 1, NOW, 65536),
        (1, 1, NOW, 2**63 - 1),
    ],
)
def test_large_numbers_make_records_wide_and_change_nothing_else(ms, seq, time, count):
    group, pending, alice, bob = group_with(b"alice", b"bob")
    before = [pending.add(i, i, (alice, bob, None)[i % 3], i, i) for i in range(2, 9)]
    narrow = pending.memory_bytes()
    slot = pending.add(ms, seq, alice, time, count)
    group.check()
    assert pending.memory_bytes() > narrow
    assert (pending.ms_of(slot), pending.seq_of(slot)) == (ms, seq)
    assert (pending.delivery_time_of(slot), pending.delivery_count_of(slot)) == (time, count)
    for i, other in enumerate(before, 2):
        assert (pending.ms_of(other), pending.seq_of(other), pending.delivery_count_of(other)) == (i, i, i)
        assert pending.delivery_time_of(other) == (0 if i % 3 == 2 else i)


def test_more_consumers_than_a_narrow_record_can_number():
    if not COMPILED:
        pytest.skip("long, interpreted")
    group, pending = group_with()
    consumers = [group.make_consumer(b"%d" % i, 0) for i in range(65600)]
    for i, consumer in enumerate(consumers):
        pending.add(i, 0, consumer, 0, 1)
    assert all(pending.owner_of(pending.find(i, 0)) is consumers[i] for i in range(0, 65600, 99))
    assert pending.owner_of(pending.find(65599, 0)) is consumers[65599]
    group.check()


def test_delivery_order_is_by_time_and_then_by_order_of_calls():
    group, pending, alice = group_with(b"alice")
    for ms, time in [(1, 100), (2, 200), (3, 100), (4, 50), (5, 200), (6, 150), (7, 0)]:
        pending.add(ms, 0, alice, time, 1)
    group.check()
    assert order(pending) == [7, 4, 1, 3, 6, 2, 5]
    pending.record_redelivery(pending.find(4, 0), 300, 2)
    pending.assign(pending.find(2, 0), alice, 100, 2)
    group.check()
    assert order(pending) == [7, 1, 3, 2, 6, 5, 4]


def test_unowned_entries_are_first_in_order_of_release():
    group, pending, alice, bob = group_with(b"alice", b"bob")
    for ms in range(1, 7):
        pending.add(ms, 0, alice, 10 - ms, 1)
    for ms in (3, 1, 5):
        pending.assign(pending.find(ms, 0), None, 999, 4)
    pending.add(9, 0, None, 999, 0)
    group.check()
    assert order(pending) == [3, 1, 5, 9, 6, 4, 2]
    assert (pending.unowned_count, alice.pending_count) == (4, 3)
    slot = pending.find(3, 0)
    assert (pending.owner_of(slot), pending.delivery_time_of(slot), pending.delivery_count_of(slot)) == (
        None,
        0,
        4,
    )

    pending.record_redelivery(slot, 5, 6)  # given back again: behind the others
    assert order(pending) == [1, 5, 9, 3, 6, 4, 2]
    assert (pending.delivery_time_of(slot), pending.delivery_count_of(slot)) == (0, 6)
    pending.assign(pending.find(9, 0), bob, 0, 1)  # the oldest time there is goes behind the unowned
    group.check()
    assert order(pending) == [1, 5, 3, 9, 6, 4, 2]
    assert (pending.unowned_count, bob.pending_count) == (3, 1)
    pending.remove(slot)
    pending.remove(pending.find(5, 0))
    pending.remove(pending.find(1, 0))
    group.check()
    assert pending.unowned_count == 0
    assert order(pending) == [9, 6, 4, 2]


def test_claiming_up_to_the_newest_visits_every_entry_once():
    group, pending, alice, bob = group_with(b"alice", b"bob")
    for ms in range(1, 8):
        pending.add(ms, 0, alice, ms, 1)
    claimed = []
    slot, stop = pending.first_by_delivery(), pending.last_by_delivery()
    while slot >= 0:
        following = -1 if slot == stop else pending.next_by_delivery(slot)
        pending.assign(slot, bob, 1000, 2)
        claimed.append(pending.ms_of(slot))
        slot = following
    group.check()
    assert claimed == order(pending) == list(range(1, 8))
    assert (alice.pending_count, bob.pending_count) == (0, 7)


def test_a_step_from_an_entry_of_another_consumer_is_an_error():
    _, pending, alice, bob = group_with(b"alice", b"bob")
    slot = pending.add(1, 0, alice, NOW, 1)
    pending.add(2, 0, bob, NOW, 1)
    with pytest.raises(KeyError):
        pending.next_of_consumer(bob, slot)


def test_a_slot_that_was_never_allocated_is_an_error():
    _, pending, alice = group_with(b"alice")
    for slot in (0, 5, 1024, 10**9):
        with pytest.raises(IndexError):
            pending.ms_of(slot)
    pending.add(1, 0, alice, NOW, 1)
    with pytest.raises(IndexError):
        pending.remove(3)


@pytest.mark.parametrize("how", ["rising", "falling", "shuffled", "from the middle"])
def test_many_entries_in_any_order_agree_with_a_model(how):
    rng = random.Random(how)
    n = 6000 if COMPILED else 1500
    group, pending, *consumers = group_with(b"a", b"b", b"c")
    new = [(i // 3, i % 3) for i in range(n)]
    if how == "falling":
        new.reverse()
    elif how == "shuffled":
        rng.shuffle(new)
    elif how == "from the middle":
        new.sort(key=lambda one: abs(one[0] - n // 6))
    owner = {}
    for i, one in enumerate(new):
        owner[one] = consumers[rng.randrange(3)]
        pending.add(*one, owner[one], NOW + i, 1)
    group.check()
    gone = rng.sample(new, n * 9 // 10)
    for one in gone:
        pending.remove(pending.find(*one))
        del owner[one]
    group.check()
    assert ids(pending) == sorted(owner)
    for consumer in consumers:
        assert own_ids(pending, consumer) == sorted(one for one in owner if owner[one] is consumer)
    for one in new:
        assert (pending.find(*one) >= 0) == (one in owner)
    for one in gone:
        pending.add(*one, consumers[0], NOW + n, 1)
    group.check()
    assert ids(pending) == sorted(new)


def test_an_entry_takes_at_most_41_bytes():
    n = 60000 if COMPILED else 12000
    group, pending, *consumers = group_with(b"a", b"b", b"c")
    nothing = pending.memory_bytes()
    for i in range(n):
        pending.add(NOW + i, 0, consumers[i % 3], NOW + i, 1)
    assert pending.memory_bytes() - nothing <= 41 * n
    for i in range(n):
        pending.remove(pending.find(NOW + i, 0))
    group.check()
    assert pending.memory_bytes() < nothing + 3000, "the memory was not given back"


def test_one_large_number_widens_only_its_neighbourhood():
    _, pending, alice = group_with(b"alice")
    for i in range(8000):
        pending.add(NOW + i, 0, alice, NOW + i, 1)
    before = pending.memory_bytes()
    pending.record_redelivery(pending.find(NOW + 4000, 0), NOW, 2**63 - 1)
    assert 0 < pending.memory_bytes() - before <= 1024 * 16


def test_memory_is_freed_while_a_queue_advances():
    _, pending, alice = group_with(b"alice")
    sizes = []
    for i in range(12000):
        pending.add(NOW + i, 0, alice, NOW + i, 1)
        if i >= 2000:
            pending.remove(pending.find(NOW + i - 2000, 0))
        if i % 2000 == 1999:
            sizes.append(pending.memory_bytes())
    assert max(sizes) < 2 * sizes[0]


def test_a_copy_is_independent_of_the_original():
    group, pending, alice, bob = group_with(b"alice", b"bob")
    carol = group.make_consumer(b"carol", 5)
    group.drop_consumer(bob)
    for i in range(2000):
        pending.add(i, 0, (alice, carol, None)[i % 3], NOW + i % 7, 65530 + i)
    alice.active_ms = 99
    twin = group.copy()
    twin.check()
    assert ids(twin.pending) == ids(pending)
    assert order(twin.pending) == order(pending)
    assert [(c.name, c.number, c.seen_ms, c.active_ms, c.pending_count) for c in twin.consumers()] == [
        (c.name, c.number, c.seen_ms, c.active_ms, c.pending_count) for c in group.consumers()
    ]
    was = order(pending)
    twin.drop_consumer(twin.consumer(b"alice"))
    while twin.pending.count:
        twin.pending.remove(twin.pending.first_by_delivery())
    twin.check()
    group.check()
    assert order(pending) == was
    assert pending.owner_of(pending.find(0, 0)) is alice
    assert twin.make_consumer(b"dave", 0).number in (1, 2)


def test_entries_loaded_consumer_by_consumer_are_in_order():
    n = 20000 if COMPILED else 2000
    group, pending, alice, bob, carol = group_with(b"alice", b"bob", b"carol")
    for k, consumer in enumerate((alice, bob, carol)):
        for i in range(k, n, 3):
            pending.add(i, 0, consumer, NOW + i, 1)
    group.check()
    assert order(pending) == list(range(n))


@pytest.mark.skipif(COMPILED, reason="calls from C to C are not seen")
def test_early_entries_are_linked_in_a_few_steps_though_each_is_acknowledged(monkeypatch):
    group, pending, alice, bob = group_with(b"alice", b"bob")
    steps = 0
    delivery_time_of = PendingArena.delivery_time_of

    def counted(records, slot):
        nonlocal steps
        steps += 1
        return delivery_time_of(records, slot)

    for i in range(1000):
        pending.add(i, 0, alice, NOW + i, 1)
    monkeypatch.setattr(PendingArena, "delivery_time_of", counted)
    for i in range(1000, 1100):  # the clock was set back
        pending.remove(pending.add(i, 0, bob, NOW - 3_600_000 + i, 1))
    assert 1000 <= steps < 2000
    group.check()


@pytest.mark.parametrize("seed", range(60 if COMPILED else 6))
def test_no_entry_is_linked_before_those_noted_as_deleted(seed):
    _group, pending, alice = group_with(b"alice")
    chosen = random.Random(seed)
    noted, last, passed = set(), 0, 0
    for _ in range(150):
        slots = [pending.find(*one) for one in ids(pending)]
        match chosen.choice(["add", "add", "early", "release", "assign", "remove", "note"]):
            case "add":
                last += 1
                pending.add(last, 0, alice, NOW + last, 1)
            case "early":
                last += 1
                pending.add(last, 0, alice, NOW + chosen.randrange(last), 1)
            case "release" if slots:
                pending.assign(chosen.choice(slots), None, 0, 1)
            case "assign" if slots:
                pending.assign(chosen.choice(slots), alice, NOW + chosen.randrange(2 * last), 1)
            case "remove" if slots:
                pending.remove(chosen.choice(slots))
            case "note":
                slot = pending.first_existing_by_delivery()
                for _ in range(chosen.randrange(6)):
                    if slot >= 0:
                        noted.add((pending.ms_of(slot), 0))
                        pending.note_deleted_through(slot)
                        slot = pending.next_by_delivery(slot)
        pending.check()
        left = ids_by(pending, pending.first_existing_by_delivery(), pending.next_by_delivery)
        before = set(ids(pending)) - set(left)
        assert before <= noted
        passed = max(passed, len(before))
    assert passed > 3
