"""Large values are freed in steps; they are gone, and in no memory account any more, at once."""

import sys

import pytest

from headrace.engine.engine import Engine

START_MS = 1_700_000_000_000
KEYS = 20_000


class Client:
    """One client of an engine, whose clock stands still until `pass_ms`."""

    def __init__(self):
        self.engine = Engine()
        self.session = self.engine.create_session()
        self.keyspace = self.engine.keyspace
        self.now_ms = START_MS

    def __call__(self, *words):
        argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.engine.execute(self.session, argv, self.now_ms)
        return self.session.reply.take()

    def pass_ms(self, ms=1):
        for _ in range(ms):
            self.now_ms += 1
            self.engine.tick(self.now_ms)

    def free_all(self):
        """Return how many steps it took."""
        steps = 0
        while self.keyspace.lazy_free.containers:
            assert self.engine.next_deadline() >= 0, "nothing would call tick()"
            self.pass_ms()
            steps += 1
            assert steps < 10_000
        return steps

    def fill_stream(self, key, entries=20_000):
        for number in range(1, entries + 1):
            self("XADD", key, f"{number}-0", "field", "a value of some length")
        assert self.keyspace.database(0).stream(key.encode()).memory.total > 1 << 18

    def add_pending(self, key, group, consumer, entries):
        self("XGROUP", "CREATE", key, group, "0")
        self("XREADGROUP", "GROUP", group, consumer, "COUNT", entries, "STREAMS", key, ">")


@pytest.fixture
def client():
    return Client()


def test_a_flush_removes_everything_at_once_and_frees_it_in_steps(client):
    value = b"a value that is referred to from outside"
    references = sys.getrefcount(value)
    for number in range(KEYS):
        client("SET", f"k{number}", value)
    assert client.keyspace.memory.total > KEYS * len(value)
    assert client("FLUSHALL") == b"+OK\r\n"
    assert client("DBSIZE") == b":0\r\n"
    assert client.keyspace.memory.total == 0
    before = client.keyspace.lazy_free.pending_count()
    assert before == KEYS and sys.getrefcount(value) == references + KEYS
    client.pass_ms()
    after = client.keyspace.lazy_free.pending_count()
    assert before > after >= before - 4 * 1024, "one step is one bounded part"
    client.free_all()
    assert sys.getrefcount(value) == references
    assert client.keyspace.lazy_free.freed == KEYS


def test_no_two_steps_fall_into_one_millisecond(client):
    for number in range(KEYS):
        client("SET", f"k{number}", "v")
    client("FLUSHALL")
    client.pass_ms()
    left = client.keyspace.lazy_free.pending_count()
    client.engine.tick(client.now_ms)
    assert client.keyspace.lazy_free.pending_count() == left


def test_few_keys_and_small_streams_are_freed_at_once(client):
    client("SET", "k", "v")
    client("XADD", "s", "1-0", "f", "v")
    client("DEL", "s")
    client("FLUSHALL")
    assert client.keyspace.lazy_free.containers == []


@pytest.mark.parametrize("command", ["DEL", "UNLINK"])
def test_a_large_stream_with_groups_is_freed_in_steps(client, command):
    client.fill_stream("s")
    for number in range(12):  # more than eight groups have an index
        client.add_pending("s", f"g{number}", "ann", 2_000)
    client("XGROUP", "CFGSET", "s", "g0", "LEASE", "1000", "BACKOFF", "10,100")
    client("XGROUP", "CFGSET", "s", "g1", "LEASE", "1000", "ORDERED-BY", "field")
    client("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
    client("XREADGROUP", "GROUP", "g0", "bob", "COUNT", "10", "STREAMS", "s", ">")
    client("XREADGROUP", "GROUP", "g1", "bob", "COUNT", "10", "STREAMS", "s", ">")
    assert client(command, "s") == b":1\r\n"
    assert client("EXISTS", "s") == b":0\r\n"
    assert client.keyspace.memory.total == 0
    assert client.free_all() > 2
    client("XADD", "s", "1-0", "f", "v")
    assert client("XRANGE", "s", "-", "+").count(b"1-0") == 1


def test_a_renamed_or_overwritten_stream_is_whole(client):
    client.fill_stream("s")
    expected = client("XRANGE", "s", "-", "+")
    client("RENAME", "s", "t")
    client.pass_ms(100)
    assert client("XRANGE", "t", "-", "+") == expected
    client("COPY", "t", "u")
    client("SET", "t", "text")
    client.pass_ms(100)
    assert client("XRANGE", "u", "-", "+") == expected
    client("MULTI")
    client("RENAME", "u", "v")
    client("RENAME", "v", "w")
    client("EXEC")
    client.pass_ms(100)
    assert client("XRANGE", "w", "-", "+") == expected
    assert client.keyspace.memory.total == client.keyspace.database(0).memory.total


def test_a_snapshot_in_progress_has_what_is_removed_meanwhile(client):
    client.fill_stream("s")
    client.fill_stream("t")
    for number in range(KEYS):
        client("SET", f"k{number}", "v")
    image = client.keyspace.freeze(client.now_ms)
    database = image.databases[0]
    client("DEL", "s")
    client.pass_ms(50)
    client("FLUSHALL")
    client.pass_ms(100)
    keys = {}
    while (key := database.next_key()) is not None:
        keys[key] = database.take_value(key)
    assert len(keys) == KEYS + 2 and keys[b"k7"] == b"v"
    assert keys[b"s"].length == keys[b"t"].length == 20_000
    del keys, database
    client.keyspace.release_image(image)
    assert client.free_all() > 5


def test_databases_that_are_exchanged_during_a_snapshot_stay_whole(client):
    for number in range(KEYS):
        client("SET", f"k{number}", "v")
    client("SELECT", 1)
    client("SET", "other", "v")
    image = client.keyspace.freeze(client.now_ms)
    client("SWAPDB", 0, 1)
    client.keyspace.release_image(image)
    client.pass_ms(100)
    assert client("DBSIZE") == b":%d\r\n" % KEYS
    assert client("GET", "k7") == b"$1\r\nv\r\n"


def test_the_flush_of_one_database_leaves_the_accounts_of_the_others(client):
    client.fill_stream("s")
    client("SELECT", 1)
    client("SET", "k", "v")
    client("PEXPIRE", "k", 60_000)
    first, second = client.keyspace.database(0), client.keyspace.database(1)
    sizes = first.memory.total, second.memory.total
    assert client.keyspace.memory.total == sum(sizes)
    client("SWAPDB", 0, 1)
    assert (second.memory.total, first.memory.total) == sizes
    client("FLUSHDB")
    assert client.keyspace.memory.total == first.memory.total == sizes[1]
    assert not client.keyspace.evictable
    client("SELECT", 0)
    client.fill_stream("s")
    client("SELECT", 1)
    client("SET", "other", "v")
    client("FLUSHDB")
    assert list(client.keyspace.evictable.values()) == [b"s"]
    assert client.keyspace.memory.total == first.memory.total


def test_streams_can_be_evicted_after_a_flush(client):
    client.keyspace.memory.limit = 600_000
    client.engine.write_gate.eviction.policy = "stream-oldest"
    client("FLUSHALL")
    for number in range(1, 60_000):
        assert client("XADD", "s", f"{number}-0", "field", "a value of some length").startswith(b"$")
    assert client.keyspace.memory.total <= 600_000
    assert client.engine.write_gate.eviction.evicted_entries > 0
