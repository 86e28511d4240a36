"""A stream with cold runs answers as the same stream without them, whatever is done to both."""

import random

import pytest

from headrace.persistence import dump as dumping
from headrace.persistence.rdb.versions import by_name
from headrace.streams import deletions, trim
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from support.cold_support import cool, small_cache

U64 = (1 << 64) - 1
KEEPREF, DELREF, ACKED = range(3)


NEWEST = by_name("redis-8.8")


def dump(stream, now_ms):
    return dumping.dump(stream, NEWEST, compress=False, now_ms=now_ms, complete=True)


def filled(entries=60, node_entries=4):
    stream = Stream()
    for ms in range(1, entries + 1):
        stream.append(ms, 0, [b"n", b"%d" % ms], 0, 0, node_entries)
    return stream


def ids(stream, first=(0, 0), last=(U64, U64), reverse=False):
    walk = StreamIterator(stream, *first, *last, reverse)
    found = []
    while walk.next():
        found.append((walk.ms, walk.seq, walk.remaining_pieces()))
    return found


def test_a_cold_stream_is_read_as_before():
    hot, cold, cache = filled(), filled(), small_cache()
    while cool(cold, cache, 100):
        pass
    cold.check()
    assert (
        cold.run_count() > 3
        and cold.cold.totals.entry_count == 56
        and len(cold.nodes) == cold.run_count() + 1
    )
    for first in range(0, 62, 3):
        for last in range(first, 62, 5):
            for reverse in (False, True):
                assert ids(cold, (first, 0), (last, 0), reverse) == ids(hot, (first, 0), (last, 0), reverse)
            assert cold.count_up_to(last, 0) == hot.count_up_to(last, 0)
    assert dump(cold, 0) == dump(hot, 0)


def test_whole_runs_are_trimmed_without_reading_them():
    cold, cache = filled(), small_cache()
    while cool(cold, cache, 100):
        pass
    loads = cache.source.loads
    per_run = cold.first_node().live_count
    assert trim.trim_by_length(cold, 60 - 2 * per_run, True, 0) == 2 * per_run
    assert cold.first_id().ms == 2 * per_run + 1
    assert cache.source.loads == loads
    cold.check()


def test_a_copy_and_its_original_are_independent():
    cold, cache = filled(), small_cache()
    while cool(cold, cache, 100):
        pass
    cold.delete(3, 0)
    copy = cold.copy()
    cold.delete(5, 0)
    copy.delete(6, 0)
    cold.check()
    copy.check()
    assert {ms for ms, _, _ in ids(cold)} == set(range(1, 61)) - {3, 5}
    assert {ms for ms, _, _ in ids(copy)} == set(range(1, 61)) - {3, 6}


def test_the_last_run_becomes_warm_when_the_tail_is_deleted():
    hot, cold, cache = filled(), filled(), small_cache()
    while cool(cold, cache, 100):
        pass
    for stream in (hot, cold):
        for ms in range(57, 61):
            stream.delete(ms, 0)
        stream.check()
        stream.append(70, 0, [b"n", b"70"], 0, 0, 4)
        stream.check()
    assert dump(cold, 0) == dump(hot, 0)


def test_a_run_that_leaves_the_stream_leaves_the_cache():
    cold, cache = filled(), small_cache()
    cache.limit = 1 << 20
    while cool(cold, cache, 100):
        pass
    ids(cold)
    assert cache.memory.total > 0 and cache.misses == cold.run_count()
    ids(cold)
    assert cache.hits > 0 and cache.misses == cold.run_count()
    trim.trim_by_length(cold, 0, False, 0)
    assert cache.memory.total == 0
    assert (
        cold.run_count()
        == cold.cold.totals.entry_count
        == cold.cold.totals.bytes_if_loaded
        == cold.cold.totals.node_count
        == 0
    )
    cold.check()


def change(rng, stream, step):
    """Change the stream as the random generator says; return what that returned."""
    what = rng.random()
    top = stream.last_ms
    ms = rng.randint(max(top - 80, 0), top + 2) if rng.random() < 0.8 else rng.randint(0, top + 1)
    if what < 0.45 or not top:
        for _ in range(rng.randint(1, 12)):
            stream.append(stream.last_ms + 1, 0, [b"n", b"%d" % step], 0, 0, rng.choice([3, 4, 5]))
        return stream.length
    if what < 0.75:
        return stream.delete(ms, 0)
    approximate, limit = rng.random() < 0.5, rng.choice([0, 0, 3, 10])
    policy = rng.choice([KEEPREF, KEEPREF, DELREF, ACKED])
    log = deletions.new_deletions(stream)
    length = max(stream.length - rng.randint(0, 25), 0)
    if what < 0.85:
        reached = trim.reached_entry_count(stream, False, length, 0, 0, approximate, limit, 0)
        return reached, trim.trim_by_length(stream, length, approximate, limit, policy, log)
    if what < 0.95:
        ms = rng.randint(stream.first_ms, stream.first_ms + 30)
        reached = trim.reached_entry_count(stream, True, 0, ms, 0, approximate, limit, 0)
        return reached, trim.trim_by_id(stream, ms, 0, approximate, limit, policy, log)
    group = stream.group(b"g")
    if group is None:
        group = stream.make_group(b"g", 0, 0, 0)
        group.make_consumer(b"ann", 1)
    if stream.length and ms > group.last_ms:
        group.last_ms = ms
        group.pending.add(ms, 0, group.consumer(b"ann"), 1, 1)
    return None


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_have_the_same_results(seed):
    hot, cold, cache = Stream(), Stream(), small_cache()
    cache.limit = random.Random(seed).choice([1, 2000, 100_000])
    chance = random.Random(seed)
    images = []
    for step in range(150):
        wanted = change(random.Random(seed * 1000 + step), hot, step)
        assert change(random.Random(seed * 1000 + step), cold, step) == wanted
        if chance.random() < 0.3:
            cool(cold, cache, chance.choice([30, 100, 300]))
        if chance.random() < 0.02 and not images:
            images = [hot.frozen_image(step + 1), cold.frozen_image(step + 1)]
        if images and chance.random() < 0.1:
            assert nodes_in(images[1]) == nodes_in(images[0])
            for image in images:
                image.close()
            images = []
        if step % 10 == 0:
            cold.check()
            compare(chance, hot, cold)
    cold.check()
    compare(chance, hot, cold)


def nodes_in(image):
    found = []
    while image.next_node():
        found.append((image.node_ms, image.node_seq, bytes(image.node_data[: image.node_size])))
    assert len(found) == image.node_count
    return found


def compare(chance, hot, cold):
    top = hot.last_ms + 1
    first, last = sorted((chance.randint(0, top), chance.randint(0, top)))
    reverse = chance.random() < 0.5
    assert ids(cold, (first, 0), (last, 0), reverse) == ids(hot, (first, 0), (last, 0), reverse)
    assert cold.count_up_to(first, 0) == hot.count_up_to(first, 0)
    assert (cold.first_id(), cold.last_id(), cold.length) == (hot.first_id(), hot.last_id(), hot.length)
    assert cold.last_entry_id() == hot.last_entry_id()
    assert cold.node_count() == hot.node_count()
    assert dump(cold, 0) == dump(hot, 0)
    assert dump(cold.copy(), 0) == dump(hot, 0)


def test_ids_of_dropped_nodes_are_forgotten():
    cold, cache = filled(), small_cache()
    while cool(cold, cache, 100):
        pass
    run = cold.first_node().run
    memory = cold.memory.total
    for ms in (2, 3, 6, 7):
        cold.delete(ms, 0)
    assert len(run.encoded_deleted_ids()) == 64 and cold.memory.total == memory + 64
    trim.trim_by_id(cold, 5, 0, False, 0)
    assert (
        cold.first_node().run is run
        and len(run.encoded_deleted_ids()) == 32
        and cold.memory.total == memory + 32
    )
    cold.check()
