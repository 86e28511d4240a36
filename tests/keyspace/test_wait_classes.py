"""Waiters of one class wait for the same thing: if one finds nothing, those after it are not tried."""

from headrace.keyspace.blocking import Blocking, Waiter
from headrace.streams.memory_account import MemoryAccount


def wait(blocking, name, *keys, wait_class=None):
    waiter = Waiter(name, 0, [], list(keys), 0, lambda call: True, lambda call: None, wait_class=wait_class)
    blocking.add_waiter(waiter)
    return waiter


def tried(blocking, key, entries):
    """Return the waiters tried with so many entries for each class; a served waiter leaves."""
    names = []
    left = {}
    order = blocking.wake_order(0, key)
    waiter = order.next()
    while waiter is not None:
        names.append(waiter.session)
        served = waiter.wait_class is None or left.setdefault(waiter.wait_class, entries) > 0
        if served and waiter.wait_class is not None:
            left[waiter.wait_class] -= 1
        if served:
            blocking.remove(waiter)
        order.record_result(waiter, served)
        waiter = order.next()
    return names


def test_a_class_ends_with_the_first_waiter_that_finds_nothing():
    blocking = Blocking(MemoryAccount())
    for i in range(10_000):
        wait(blocking, i, b"a", wait_class="g")
    assert tried(blocking, b"a", 0) == [0]
    assert tried(blocking, b"a", 3) == [0, 1, 2, 3]
    assert tried(blocking, b"a", 1) == [3, 4]
    assert blocking.count == 9996


def test_waiters_are_tried_by_arrival_across_classes():
    blocking = Blocking(MemoryAccount())
    for name, wait_class in (("a1", "a"), ("x", None), ("b1", "b"), ("a2", "a"), ("y", None), ("b2", "b")):
        wait(blocking, name, b"k", wait_class=wait_class)
    assert tried(blocking, b"k", 1) == ["a1", "x", "b1", "a2", "y", "b2"]
    assert tried(blocking, b"k", 0) == ["a2", "b2"]


def test_an_unclassed_waiter_that_finds_nothing_stops_no_other():
    blocking = Blocking(MemoryAccount())
    first, second = (wait(blocking, name, b"k") for name in ("first", "second"))
    order = blocking.wake_order(0, b"k")
    assert order.next() is first
    order.record_result(first, False)
    assert order.next() is second
    order.record_result(second, False)
    assert order.next() is None


def test_a_waiter_that_names_a_key_twice_is_queued_once():
    blocking = Blocking(MemoryAccount())
    twice = wait(blocking, "twice", b"k", b"k", wait_class="g")
    assert blocking.waiters(0, b"k") == [twice]
    blocking.remove(twice)
    assert not blocking.queues


def test_a_timer_signals_its_key_once():
    blocking = Blocking(MemoryAccount())
    wait(blocking, "one", b"k", wait_class="g")
    blocking.schedule_key_signal(0, b"k", 50)
    blocking.schedule_key_signal(0, b"k", 70)
    assert blocking.next_deadline() == 50
    blocking.fire(49)
    assert blocking.take_ready() == []
    blocking.fire(50)
    assert blocking.take_ready() == [(0, b"k")]
    blocking.fire(100)
    assert blocking.take_ready() == []
    assert blocking.next_deadline() == -1


def test_an_earlier_timer_replaces_a_later_one():
    blocking = Blocking(MemoryAccount())
    wait(blocking, "one", b"k", wait_class="g")
    blocking.schedule_key_signal(0, b"k", 70)
    blocking.schedule_key_signal(0, b"k", 50)
    assert blocking.next_deadline() == 50
    blocking.fire(60)
    assert blocking.take_ready() == [(0, b"k")]
    assert blocking.next_deadline() == -1


def test_a_timer_is_removed_with_the_last_waiter():
    blocking = Blocking(MemoryAccount())
    one, two = (wait(blocking, name, b"k", wait_class="g") for name in "ab")
    blocking.schedule_key_signal(0, b"k", 50)
    blocking.remove(one)
    assert blocking.next_deadline() == 50
    blocking.remove(two)
    assert blocking.next_deadline() == -1


def test_removed_timers_leave_nothing_behind():
    blocking = Blocking(MemoryAccount())
    for i in range(10_000):
        one = wait(blocking, i, b"k", wait_class="g")
        blocking.schedule_key_signal(0, b"k", 10**6 + i)
        blocking.remove(one)
    assert blocking.next_deadline() == -1
