from headrace.keyspace.blocking import Blocking, Waiter
from headrace.streams.memory_account import MemoryAccount


def waiter(name, *keys, deadline=0, database=0):
    return Waiter(name, database, [], list(keys), deadline, lambda call: True, lambda call: None)


def names(waiters):
    return [waiter.session for waiter in waiters]


def test_waiters_are_queued_by_arrival_for_every_key():
    blocking = Blocking(MemoryAccount())
    for name, keys in (("one", [b"a"]), ("two", [b"b", b"a"]), ("three", [b"a", b"b"])):
        blocking.add_waiter(waiter(name, *keys))
    assert names(blocking.waiters(0, b"a")) == ["one", "two", "three"]
    assert names(blocking.waiters(0, b"b")) == ["two", "three"]
    assert names(blocking.waiters(1, b"a")) == []


def test_a_removed_waiter_leaves_all_queues_and_the_others_keep_their_order():
    blocking = Blocking(MemoryAccount())
    waiters = [waiter(i, b"a", b"b") for i in range(4)]
    for one in waiters:
        blocking.add_waiter(one)
    blocking.remove(waiters[1])
    blocking.remove(waiters[1])
    assert names(blocking.waiters(0, b"a")) == names(blocking.waiters(0, b"b")) == [0, 2, 3]
    assert blocking.count == 3
    for one in waiters:
        blocking.remove(one)
    assert blocking.count == 0 and not blocking.queues


def test_only_keys_with_waiters_become_ready_in_order_of_signals():
    blocking = Blocking(MemoryAccount())
    blocking.signal(0, b"a")
    assert blocking.take_ready() == []
    blocking.add_waiter(waiter("one", b"a", b"b"))
    for key in (b"b", b"none", b"a", b"b"):
        blocking.signal(0, key)
    blocking.signal(1, b"a")
    assert blocking.take_ready() == [(0, b"b"), (0, b"a")]
    assert blocking.take_ready() == []


def test_all_keys_of_a_database_can_be_signalled():
    blocking = Blocking(MemoryAccount())
    blocking.add_waiter(waiter("one", b"a", b"b"))
    blocking.add_waiter(waiter("two", b"c", database=1))
    blocking.signal_all(0)
    assert blocking.take_ready() == [(0, b"a"), (0, b"b")]


def test_deadlines_pass_in_order_and_take_the_waiter_out():
    blocking = Blocking(MemoryAccount())
    for name, deadline in (("never", 0), ("late", 30), ("soon", 10), ("then", 20), ("too", 20)):
        blocking.add_waiter(waiter(name, b"a", deadline=deadline))
    assert blocking.next_deadline() == 10
    assert names(blocking.pop_expired(9)) == []
    assert names(blocking.pop_expired(20)) == ["soon", "then", "too"]
    assert names(blocking.waiters(0, b"a")) == ["never", "late"]
    assert blocking.next_deadline() == 30


def test_a_served_waiter_has_no_deadline_any_more():
    blocking = Blocking(MemoryAccount())
    served = waiter("served", b"a", deadline=10)
    blocking.add_waiter(served)
    blocking.remove(served)
    assert blocking.next_deadline() == -1
    assert blocking.pop_expired(100) == []


def test_removed_waiters_leave_nothing_behind():
    blocking = Blocking(MemoryAccount())
    kept = waiter("kept", b"a", deadline=10**9)
    blocking.add_waiter(kept)
    for i in range(10_000):
        one = waiter(i, b"a", deadline=10**8 + i)
        blocking.add_waiter(one)
        blocking.remove(one)
    assert blocking.next_deadline() == 10**9
    assert blocking.count == 1 and names(blocking.waiters(0, b"a")) == ["kept"]
