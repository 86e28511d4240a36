"""Those who wait for the same stand in one lane: who finds nothing speaks for all behind him."""

from headrace.keyspace.blocking import Blocking, Waiter


def wait(blocking, name, *keys, lane=None):
    waiter = Waiter(name, 0, list(keys), 0, lambda call: True, lambda call: None, lane=lane)
    blocking.wait(waiter)
    return waiter


def tried(blocking, key, entries):
    """Who is tried when there are so many entries for each lane; who gets one leaves."""
    names = []
    left = {}
    turns = blocking.turns(0, key)
    waiter = turns.next()
    while waiter is not None:
        names.append(waiter.session)
        served = waiter.lane is None or left.setdefault(waiter.lane, entries) > 0
        if served and waiter.lane is not None:
            left[waiter.lane] -= 1
        if served:
            blocking.forget(waiter)
        turns.found(waiter, served)
        waiter = turns.next()
    return names


def test_a_lane_ends_with_the_first_who_finds_nothing():
    blocking = Blocking()
    for i in range(10_000):
        wait(blocking, i, b"a", lane="g")
    assert tried(blocking, b"a", 0) == [0]
    assert tried(blocking, b"a", 3) == [0, 1, 2, 3]
    assert tried(blocking, b"a", 1) == [3, 4]
    assert blocking.count == 9996


def test_turns_are_taken_by_arrival_whatever_the_lane():
    blocking = Blocking()
    for name, lane in (("a1", "a"), ("x", None), ("b1", "b"), ("a2", "a"), ("y", None), ("b2", "b")):
        wait(blocking, name, b"k", lane=lane)
    assert tried(blocking, b"k", 1) == ["a1", "x", "b1", "a2", "y", "b2"]
    assert tried(blocking, b"k", 0) == ["a2", "b2"]


def test_one_without_a_lane_who_finds_nothing_stops_nobody():
    blocking = Blocking()
    first, second = (wait(blocking, name, b"k") for name in ("first", "second"))
    turns = blocking.turns(0, b"k")
    assert turns.next() is first
    turns.found(first, False)
    assert turns.next() is second
    turns.found(second, False)
    assert turns.next() is None


def test_who_names_a_key_twice_stands_there_once():
    blocking = Blocking()
    twice = wait(blocking, "twice", b"k", b"k", lane="g")
    assert blocking.waiters(0, b"k") == [twice]
    blocking.forget(twice)
    assert not blocking.queues


def test_an_alarm_is_news_at_its_time_once():
    blocking = Blocking()
    wait(blocking, "one", b"k", lane="g")
    blocking.arm(0, b"k", 50)
    blocking.arm(0, b"k", 70)
    assert blocking.next_deadline() == 50
    blocking.ring(49)
    assert blocking.take_ready() == []
    blocking.ring(50)
    assert blocking.take_ready() == [(0, b"k")]
    blocking.ring(100)
    assert blocking.take_ready() == []
    assert blocking.next_deadline() == -1


def test_an_earlier_alarm_replaces_a_later_one():
    blocking = Blocking()
    wait(blocking, "one", b"k", lane="g")
    blocking.arm(0, b"k", 70)
    blocking.arm(0, b"k", 50)
    assert blocking.next_deadline() == 50
    blocking.ring(60)
    assert blocking.take_ready() == [(0, b"k")]
    assert blocking.next_deadline() == -1


def test_an_alarm_is_forgotten_with_the_last_who_waits():
    blocking = Blocking()
    one, two = (wait(blocking, name, b"k", lane="g") for name in "ab")
    blocking.arm(0, b"k", 50)
    blocking.forget(one)
    assert blocking.next_deadline() == 50
    blocking.forget(two)
    assert blocking.next_deadline() == -1


def test_alarms_that_come_and_go_leave_nothing_behind():
    blocking = Blocking()
    for i in range(10_000):
        one = wait(blocking, i, b"k", lane="g")
        blocking.arm(0, b"k", 10**6 + i)
        blocking.forget(one)
    assert blocking.next_deadline() == -1
