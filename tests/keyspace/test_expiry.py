"""Expiry times of keys, in order."""

import random
import sys

from headrace.keyspace.expiry import DatabaseExpiryTimes
from headrace.keyspace.key_table import KeyTable
from headrace.keyspace.keyspace_image import DatabaseImage
from headrace.streams.memory_account import MemoryAccount


def test_the_earliest_expiry_is_first():
    expiry = DatabaseExpiryTimes(MemoryAccount())
    for key, at in ((b"a", 30), (b"b", 10), (b"c", 20)):
        expiry.set(key, at)
    assert expiry.next_expiry() == 10
    assert expiry.next_due_key(9) is None
    buried = []
    while (key := expiry.next_due_key(20)) is not None:
        expiry.remove(key)
        buried.append(key)
    assert buried == [b"b", b"c"]
    assert expiry.next_expiry() == 30


def test_the_last_expiry_set_is_valid():
    expiry = DatabaseExpiryTimes(MemoryAccount())
    expiry.set(b"a", 10)
    expiry.set(b"a", 50)
    expiry.set(b"b", 20)
    expiry.remove(b"b")
    assert expiry.next_due_key(49) is None
    assert expiry.next_expiry() == 50
    assert expiry.get(b"a") == 50 and expiry.get(b"b") == -1
    assert not expiry.is_due(b"a", 49) and expiry.is_due(b"a", 50) and not expiry.is_due(b"b", 50)
    assert expiry.sum_of_times == 50 and len(expiry) == 1


def test_a_time_set_again_and_again_does_not_pile_up():
    expiry = DatabaseExpiryTimes(MemoryAccount())
    expiry.set(b"other", 7)
    for at in range(100_000):
        expiry.set(b"a", at)
    stale = 0
    while expiry.next_due_key(10**9) is not None:
        expiry.remove(expiry.next_due_key(10**9))
        stale += 1
    assert stale == 2
    assert expiry.sum_of_times == 0


def test_random_times_are_those_of_a_dictionary():
    rng = random.Random(3)
    memory = MemoryAccount()
    expiry = DatabaseExpiryTimes(memory)
    model: dict[bytes, int] = {}
    for step in range(30_000):
        key = b"%d" % rng.randrange(12_000)
        if rng.random() < 0.75:
            model[key] = rng.randrange(5_000)
            expiry.set(key, model[key])
        else:
            assert expiry.remove(key) == (model.pop(key, None) is not None)
        if step % 1000 == 0:
            expiry.times.check()
            now = rng.randrange(5_000)
            assert expiry.count_due(now) == sum(at <= now for at in model.values())
            assert expiry.next_expiry() == min(model.values())
            assert expiry.sum_of_times == sum(model.values())
    assert {key: expiry.get(key) for key in model} == model
    while (key := expiry.next_due_key(2_500)) is not None:
        assert model.pop(key) == expiry.get(key)
        expiry.remove(key)
    assert min(model.values()) > 2_500 and len(expiry) == len(model)
    for key in model:
        expiry.remove(key)
    assert len(expiry) == expiry.sum_of_times == memory.total == 0


def test_a_snapshot_keeps_the_times_of_its_moment():
    expiry = DatabaseExpiryTimes(MemoryAccount())
    for key, at in ((b"same", 10), (b"later", 20), (b"gone", 30)):
        expiry.set(key, at)
    image = DatabaseImage(0, 1, 1000, KeyTable(), expiry.times, expiry.count_due(10))
    assert (image.key_count, image.expiring_count) == (-1, 2)
    expiry.image = image
    expiry.set(b"later", 99)
    expiry.remove(b"gone")
    expiry.set(b"new", 5)
    expected = {b"same": 10, b"later": 20, b"gone": 30, b"new": -1}
    assert {key: image.expiry_of(key) for key in expected} == expected


def test_a_time_before_1970_counts_as_1970():
    expiry = DatabaseExpiryTimes(MemoryAccount())
    expiry.set(b"a", -5)
    expiry.set(b"a", -7)
    assert expiry.get(b"a") == 0 and expiry.is_due(b"a", 0) and expiry.sum_of_times == 0 and len(expiry) == 1
    assert expiry.remove(b"a") and expiry.memory.total == 0


def test_times_beyond_64_bits_in_sum_are_averaged_rightly():
    expiry = DatabaseExpiryTimes(MemoryAccount())
    for i in range(4):
        expiry.set(b"%d" % i, 2**63 - 1)
    assert expiry.sum_of_times // len(expiry) == 2**63 - 1


def test_removed_expiries_leave_no_stale_items():
    memory = MemoryAccount()
    expiry = DatabaseExpiryTimes(memory)
    keys = [b"key:%d" % n for n in range(1000)]
    for n, key in enumerate(keys):
        expiry.set(key, n)
    for key in keys:
        assert expiry.remove(key)
    references = [sys.getrefcount(key) for key in keys]
    fresh = [b"fresh:%d" % n for n in range(1000)]  # nothing else holds these
    expected = max(sys.getrefcount(key) for key in fresh)
    held = sum(count > expected for count in references)
    assert held <= 64, "a key is held by a time that it has no more"
    assert len(expiry) == expiry.sum_of_times == memory.total == 0
