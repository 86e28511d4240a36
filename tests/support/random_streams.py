"""Streams made at random, with all that a stream can have, for tests of what is written and read of them."""

from headrace.streams import delivery, trim
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream

U64_MAX = 2**64 - 1
WORDS = [
    b"",
    b"f",
    b"g",
    b"0",
    b"12",
    b"-70000",
    b"x" * 63,
    b"y" * 70,
    b"z" * 5000,
    b"\xff\x00",
    b"temperature",
]
NAMES = [b"", b"g", b"gg", b"12", b"\x00\xff", b"a group of a long name, a long name"]


def random_stream(rng, keyspace, now_ms, *, entries=60):
    """A stream with up to so many entries, some deleted, with groups and producers."""
    stream = Stream()
    stream.compaction = keyspace.compaction
    per_node = rng.choice([1, 3, 100])
    step = rng.choice([1, 1000, 2**50])
    for _ in range(rng.randrange(entries)):
        words = [rng.choice(WORDS) for _ in range(2 * rng.choice([1, 1, 1, 2, 3]))]
        ms = min(stream.last_ms + rng.randrange(step), U64_MAX)
        seq = stream.last_seq + 1 if ms == stream.last_ms else rng.randrange(3)
        stream.append(ms, seq, words, 0, rng.choice([0, 300, 4096]), per_node)
    ids = ids_of(stream)
    for ms, seq in ids:
        if rng.random() < 0.2:
            stream.delete(ms, seq)
    if rng.random() < 0.3:
        trim.trim_by_length(stream, rng.randrange(len(ids) + 1), False, 0)
    if rng.random() < 0.2:
        stream.entries_added += rng.choice([1, 2**40])
    for name in rng.sample(NAMES, rng.randrange(4)):
        random_group(rng, stream, name, ids or [(5, 5)], now_ms)
    if rng.random() < 0.4:
        random_producers(rng, stream, keyspace, ids, now_ms)
    return stream


def random_group(rng, stream, name, ids, now_ms):
    last = rng.choice([(0, 0), (2**60, 0), *ids])
    group = stream.make_group(name, *last, rng.choice([-1, 0, 5, 2**62]))
    consumers = [
        group.make_consumer(name, now_ms - rng.randrange(10**6))
        for name in rng.sample(NAMES, rng.randrange(4))
    ]
    for consumer in consumers:
        consumer.active_ms = rng.choice([-1, consumer.seen_ms, consumer.seen_ms + 1])
    for ms, seq in ids:
        if rng.random() < 0.5:
            owner = rng.choice([None, *consumers])
            count = rng.choice([0, 1, 70, 2**63 - 1])
            group.pending.add(ms, seq, owner, now_ms - rng.randrange(1000), count)
    delivery.lag_or_unknown(stream, group)


def random_producers(rng, stream, keyspace, ids, now_ms):
    stream.idmp_duration_s = rng.choice([100, 86400])
    stream.idmp_maxsize = rng.choice([2, 100])
    memory = IdempotencyStore(stream.idmp_duration_s, keyspace.idempotency_sweeper)
    for n in range(rng.randrange(1, 6)):
        memory.record(
            rng.choice(NAMES[1:]), b"iid %d" % n, now_ms - rng.randrange(50_000), n, stream.idmp_maxsize
        )
    memory.duplicate_count = rng.choice([0, 7])
    stream.set_idempotency(memory)


def ids_of(stream):
    """The IDs of all live entries."""
    found = []
    iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, False)
    while iterator.next():
        found.append((iterator.ms, iterator.seq))
    return found
