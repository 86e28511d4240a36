"""The remembered idempotent requests of a stream, and their expiry."""

import gc

import pytest

from headrace.streams.idempotency import IdempotencyStore, IdempotencySweeper, iid_from_content
from headrace.structures.stream_id import StreamId


@pytest.fixture
def sweeper():
    return IdempotencySweeper()


@pytest.fixture
def store(sweeper):
    return IdempotencyStore(10, sweeper)


def iids(store, pid):
    return [iid for p, iid, _ in store.items() if p == pid]


@pytest.mark.parametrize(
    ("pairs", "iid"),
    [
        ([b"f", b"v"], "6e95729ee727f0814aedffba55730079"),
        ([b"field", b"value"], "626368b66e85051415a2b01bf8e32dc5"),
        ([b"a", b"1", b"b", b"2"], "c5b282935f77a53123e1ff7a302a11f2"),
        ([b"b", b"2", b"a", b"1"], "c5b282935f77a53123e1ff7a302a11f2"),
        ([b"f", b"v", b"f", b"v"], "9a79073b2d2a35cba229f103f1b26a64"),
        ([b"fv", b""], "e3567d0a61d4ef6b654a49dbcd9ddb90"),
        ([b"", b""], "1a9f7ebbaea1d61d30b6b8daa3e38da7"),
    ],
)
def test_pairs_have_one_iid_in_any_order(pairs, iid):
    assert iid_from_content([b"XADD", b"s", b"*", *pairs], 3).hex() == iid


def test_what_was_recorded_is_found_under_its_producer_only(store):
    store.record(b"p", b"1", 5, 6, 100)
    assert store.lookup(b"p", b"1") == StreamId(5, 6)
    assert store.lookup(b"p", b"2") is None
    assert store.lookup(b"q", b"1") is None
    assert (store.producer_count(), store.iid_count(), store.added_count, store.duplicate_count) == (
        1,
        1,
        1,
        0,
    )


def test_the_oldest_iid_beyond_the_maximum_is_removed(store):
    for i in range(5):
        store.record(b"p", b"%d" % i, 100 + i, 0, 3)
    store.record(b"q", b"0", 100, 9, 3)
    assert iids(store, b"p") == [b"2", b"3", b"4"]
    assert iids(store, b"q") == [b"0"]
    assert (store.iid_count(), store.added_count) == (4, 6)


def test_an_iid_recorded_again_is_the_newest_with_its_new_id(store):
    store.record(b"p", b"1", 100, 0, 3)
    store.record(b"p", b"2", 101, 0, 3)
    store.record(b"p", b"1", 102, 0, 3)
    assert store.items() == [(b"p", b"2", StreamId(101, 0)), (b"p", b"1", StreamId(102, 0))]


def test_clearing_keeps_the_counters(store):
    store.record(b"p", b"1", 100, 0, 3)
    store.duplicate_count += 2
    store.clear()
    assert (store.producer_count(), store.iid_count(), store.added_count, store.duplicate_count) == (
        0,
        0,
        1,
        2,
    )


def test_an_iid_expires_when_its_entry_is_as_old_as_the_duration(store):
    store.record(b"p", b"1", 1000, 0, 100)
    store.record(b"p", b"2", 1001, 0, 100)
    store.expire(10_999, 100)
    assert iids(store, b"p") == [b"1", b"2"]
    store.expire(11_000, 100)
    assert iids(store, b"p") == [b"2"]
    store.expire(11_001, 100)
    assert store.producer_count() == 0


def test_nothing_expires_while_the_clock_is_younger_than_the_duration(store):
    store.record(b"p", b"1", 0, 1, 100)
    store.expire(9_999, 100)
    assert store.iid_count() == 1
    store.expire(10_000, 100)
    assert store.iid_count() == 0


def test_expiry_stops_at_the_first_iid_that_has_not_expired(store):
    store.record(b"p", b"young", 5000, 0, 100)
    store.record(b"p", b"old", 1000, 0, 100)
    store.record(b"q", b"old", 1000, 0, 100)
    store.expire(11_000, 100)
    assert iids(store, b"p") == [b"young", b"old"]
    assert iids(store, b"q") == []


def test_an_id_in_the_far_future_does_not_expire(store):
    store.record(b"p", b"1", 2**64 - 1, 0, 100)
    store.expire(2**62, 100)
    assert store.iid_count() == 1


def test_one_expiry_does_bounded_work_and_the_next_continues(store):
    for i in range(100):
        store.record(b"p%d" % i, b"1", 5000, 0, 100)
    for i in range(100, 110):
        store.record(b"p%d" % i, b"1", 1000, 0, 100)
    assert store.expire(11_000, 60) == 60
    assert store.iid_count() == 110
    store.expire(11_000, 60)
    assert store.iid_count() == 100


def test_a_copy_has_the_same_iids_and_is_independent(store, sweeper):
    store.record(b"p", b"1", 1000, 0, 100)
    store.duplicate_count += 1
    other = store.copy()
    other.record(b"p", b"2", 1001, 0, 100)
    assert iids(store, b"p") == [b"1"]
    assert iids(other, b"p") == [b"1", b"2"]
    assert (other.duration_s, other.added_count, other.duplicate_count) == (10, 2, 1)
    sweeper.sweep(20_000)
    assert store.iid_count() == other.iid_count() == 0


def test_memory_grows_with_what_is_remembered(store):
    empty = store.memory_bytes()
    store.record(b"p", b"x" * 1000, 1, 1, 100)
    assert store.memory_bytes() > empty + 1000


def test_a_sweep_runs_about_once_a_second_while_iids_exist(store, sweeper):
    assert sweeper.next_sweep_ms() == -1
    store.record(b"p", b"1", 1000, 0, 100)
    sweeper.sweep(10_500)
    assert sweeper.next_sweep_ms() == 11_500
    sweeper.sweep(11_499)
    assert store.iid_count() == 1
    sweeper.sweep(11_500)
    assert store.iid_count() == 0
    assert sweeper.next_sweep_ms() == -1


def test_a_clock_set_back_does_not_put_the_next_sweep_off(store, sweeper):
    ahead = IdempotencyStore(10, sweeper)
    ahead.record(b"p", b"1", 10**9, 0, 100)
    sweeper.sweep(10**9)
    store.record(b"p", b"1", 1000, 0, 100)
    sweeper.sweep(11_000)
    assert (store.iid_count(), ahead.iid_count()) == (0, 1)


def test_a_store_that_was_empty_is_swept_again(store, sweeper):
    store.record(b"p", b"1", 1000, 0, 100)
    sweeper.sweep(11_000)
    store.record(b"p", b"2", 11_000, 0, 100)
    store.record(b"p", b"3", 11_000, 0, 100)
    sweeper.sweep(21_000)
    assert store.iid_count() == 0


def test_every_stream_gets_its_turn_though_a_sweep_is_bounded(sweeper):
    stores = []
    for i in range(30):
        one = IdempotencyStore(10, sweeper)
        for k in range(1000):
            one.record(b"p%d" % k, b"1", 1000 if i == 29 else 10_000, 0, 100)
        stores.append(one)
    now = 11_000
    for _ in range(12):
        sweeper.sweep(now)
        now = sweeper.next_sweep_ms()
    assert stores[29].iid_count() == 0
    assert sum(one.iid_count() for one in stores) == 29_000


def test_deleted_streams_do_not_pile_up_in_the_queue(sweeper):
    for _ in range(1000):
        IdempotencyStore(10, sweeper).record(b"p", b"1", 1000, 0, 100)
        gc.collect(0)
    last = IdempotencyStore(10, sweeper)
    last.record(b"p", b"1", 1000, 0, 100)
    assert len(sweeper) <= 3
    sweeper.sweep(11_000)
    assert sweeper.next_sweep_ms() == -1
