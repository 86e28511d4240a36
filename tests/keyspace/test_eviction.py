"""Memory is accounted for and limited, and entries are evicted."""

from __future__ import annotations

import random
import sys

import pytest

from headrace.engine.engine import Engine
from headrace.keyspace.eviction import EVICTED_NODES_MAX, LOOKED_AT_MAX, SAMPLE_SIZE
from headrace.keyspace.keyspace import Keyspace, string_memory_bytes
from headrace.streams.stream import Stream
from support.all_commands import Follower, History
from support.cold_support import RunsInMemory
from support.portrait import alive, differences, portrait

OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
PLACE = 44
TIME = PLACE + 88
NODE = 10  # entries


class Limited:
    """An engine with a limit, whose effects are kept."""

    def __init__(self, most: int = 0, policy: str = "stream-oldest") -> None:
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.keyspace = self.engine.keyspace
        self.keyspace.settings.stream_node_max_entries = NODE
        self.engine.write_gate.eviction.policy = policy
        self.session = self.engine.create_session()
        self.now = 1_700_000_000_000
        if most:
            self.keyspace.memory.limit = most

    def say(self, *words: str | bytes) -> bytes:
        argv = [word.encode() if isinstance(word, str) else word for word in words]
        self.engine.execute(self.session, argv, self.now)
        return bytes(self.session.reply.take())

    def fill(self, key: str, entries: int, size: int = 50) -> None:
        for _ in range(entries):
            self.now += 1
            assert self.say("XADD", key, "*", "f", b"x" * size).startswith(b"$")

    def stream(self, key: str) -> Stream:
        found = self.keyspace.databases[self.session.database].values[key.encode()]
        assert isinstance(found, Stream)
        return found

    def replayed(self) -> Keyspace:
        """What a start would find in the log."""
        follower = Follower(self.now)
        follower.repeat(self.engine.effects.items)
        return follower.engine.keyspace


def weighed(keyspace: Keyspace) -> int:
    """What all keys weigh, added up, and the waiting clients."""
    total = keyspace.client_memory.total
    for database in keyspace.databases:
        for key, value in database.values.items():
            total += PLACE + string_memory_bytes(len(key)) + (TIME if database.expiry(key) >= 0 else 0)
            if isinstance(value, Stream):
                value.check()  # its own weight is the sum of its parts'
                total += value.memory.total
            else:
                total += string_memory_bytes(len(value))
    return total


@pytest.mark.parametrize("seed", range(6))
def test_the_account_equals_the_memory_of_all_keys(seed: int) -> None:
    history = History(seed)
    keyspace = history.engine.keyspace
    for _ in range(6):
        history.run(250)
        assert keyspace.memory.total == weighed(keyspace)
        for stream in keyspace.evictable:
            assert any(stream in database.values.values() for database in keyspace.databases)
    history.say(0, "FLUSHALL")
    assert keyspace.memory.total == keyspace.client_memory.total and not keyspace.evictable


def test_a_string_changed_in_place_is_accounted_for() -> None:
    server = Limited()
    for words in (
        ("APPEND", "k", "ab"),
        ("APPEND", "k", b"c" * 1000),
        ("APPEND", "k", b"d" * 5000),
        ("SETRANGE", "k", "9000", "e"),
        ("SETRANGE", "l", "100", "e"),
        ("SETRANGE", "l", "10", "eeee"),
        ("INCR", "n"),
        ("SET", "k", "short"),
        ("RENAME", "k", "another"),
    ):
        server.say(*words)
        assert server.keyspace.memory.total == weighed(server.keyspace), words


def test_an_expiry_is_accounted_for_while_it_exists() -> None:
    server = Limited()
    for line in (
        "SET k v EX 10",
        "SET k v EX 20",
        "EXPIRE k 30",
        "SET k v KEEPTTL",
        "COPY k l",
        "RENAME k m",
        "PERSIST m",
        "EXPIRE m 10",
        "SWAPDB 0 3",
        "SELECT 3",
        "MOVE m 5",
        "DEL l",
        "SELECT 5",
        "SET m v",
        "EXPIRE m 1",
    ):
        assert not server.say(*line.split()).startswith(b"-"), line
        assert server.keyspace.memory.total == weighed(server.keyspace), line
    assert server.keyspace.memory.total > PLACE + TIME
    server.now += 1000
    assert server.say("GET", "m") == b"$-1\r\n"
    assert server.keyspace.memory.total == 0
    server.say("SET", "k", "v", "EX", "10")
    server.say("FLUSHDB")
    assert server.keyspace.memory.total == 0


def test_without_eviction_writes_are_refused_and_the_rest_goes_on() -> None:
    server = Limited(policy="noeviction")
    server.fill("s", 30)
    server.say("XGROUP", "CREATE", "s", "g", "0")
    server.keyspace.memory.limit = 100
    assert server.say("XADD", "s", "*", "f", "v") == OOM
    assert server.say("SET", "k", "v") == OOM
    assert server.say("XLEN", "s") == b":30\r\n"
    assert b"x" * 50 in server.say("XREADGROUP", "GROUP", "g", "ann", "COUNT", "1", "STREAMS", "s", ">")
    first = server.say("XPENDING", "s", "g").split(b"\r\n")[3]
    assert server.say("XACK", "s", "g", first) == b":1\r\n"
    assert server.say("XDEL", "s", first) == b":1\r\n"
    assert server.say("XTRIM", "s", "MAXLEN", "5") == b":24\r\n"
    assert server.stream("s").length == 5 and server.engine.write_gate.eviction.evicted_entries == 0
    server.say("DEL", "s")
    assert server.say("SET", "k", "v") == b"+OK\r\n", "there is room again"


def test_the_cache_of_cold_runs_makes_room_before_a_write_is_refused() -> None:
    server = Limited(policy="noeviction")
    cold = server.engine.open_cold_storage(RunsInMemory(), 0)
    cold.run_bytes = 1
    server.fill("s", 300)
    cold.hot_bytes_limit = 1
    cold.cool_all_to_limit()
    server.say("XRANGE", "s", "-", "+")
    assert cold.cache.memory.total > 10_000
    server.keyspace.memory.limit = server.keyspace.memory.total - 5_000
    kept = cold.cache.memory.total - 5_000
    assert server.say("XADD", "s", "*", "f", "v").startswith(b"$")
    assert 0 < cold.cache.memory.total <= kept, "only what is needed leaves it"
    server.keyspace.memory.limit = 100
    assert server.say("XADD", "s", "*", "f", "v") == OOM
    assert cold.cache.memory.total == 0
    server.keyspace.memory.limit = 0
    server.say("XRANGE", "s", "-", "+")
    cold.cache.set_limit(5_000)
    assert 0 < cold.cache.memory.total <= 5_000
    assert server.stream("s").length == 301


def test_a_transaction_is_refused_when_it_is_queued_and_when_it_is_run() -> None:
    server = Limited(policy="noeviction")
    server.fill("s", 5)
    server.keyspace.memory.limit = 100
    assert server.say("MULTI") == b"+OK\r\n"
    assert server.say("GET", "k") == b"+QUEUED\r\n", "it needs no memory"
    assert server.say("XADD", "s", "*", "f", "v") == OOM
    assert server.say("EXEC").startswith(b"-EXECABORT")
    server.keyspace.memory.limit = 10_000
    server.say("MULTI")
    assert server.say("XADD", "s", "*", "f", "v") == b"+QUEUED\r\n"
    server.keyspace.memory.limit = 100
    assert server.say("EXEC") == b"-EXECABORT Transaction discarded because of: " + OOM[1:]
    server.keyspace.memory.limit = 10_000
    server.say("MULTI")
    server.say("GET", "k")
    server.keyspace.memory.limit = 100
    assert server.say("EXEC") == b"*1\r\n$-1\r\n", "it needs none"
    server.say("MULTI")
    assert server.say("DISCARD") == b"+OK\r\n"
    assert server.stream("s").length == 5


def test_the_biggest_stream_loses_its_oldest_entries() -> None:
    server = Limited()
    server.fill("small", 30)
    server.fill("big", 300)
    server.fill("middle", 100)
    before = server.keyspace.memory.total
    server.keyspace.memory.limit = before - 5000
    assert server.say("SET", "k", "v") == b"+OK\r\n"
    assert server.keyspace.memory.total <= before - 5000 + 200
    assert (server.stream("small").length, server.stream("middle").length) == (30, 100)
    gone = server.engine.write_gate.eviction.evicted_entries
    assert server.stream("big").length == 300 - gone and 0 < gone <= 80
    assert server.stream("big").entries_added == 300


def test_a_deleted_stream_is_not_referenced_any_more() -> None:
    server = Limited()
    server.fill("s", 100)
    stream = server.stream("s")
    server.keyspace.memory.limit = server.keyspace.memory.total - 1000
    assert server.say("SET", "k", "v") == b"+OK\r\n"
    assert server.engine.write_gate.eviction.evicted_entries > 0
    assert server.say("DEL", "s") == b":1\r\n"
    fresh = object()
    assert sys.getrefcount(stream) == sys.getrefcount(fresh), (
        "its memory would be free when the data weigh less, and not before"
    )


def test_among_many_streams_the_biggest_is_evicted_repeatedly() -> None:
    server = Limited()
    server.fill("big", 1000)
    for n in range(4 * SAMPLE_SIZE):
        server.fill(f"s{n}", 3 * NODE)
    for _ in range(5):  # it is met in one of them, and then kept to
        server.keyspace.memory.limit = server.keyspace.memory.total - 1
        assert server.say("SET", "k", "v") == b"+OK\r\n"
    small = [server.stream(f"s{n}").length for n in range(4 * SAMPLE_SIZE)]
    server.keyspace.memory.limit = server.keyspace.memory.total - 20_000
    assert server.say("SET", "k", "v") == b"+OK\r\n"
    assert [server.stream(f"s{n}").length for n in range(4 * SAMPLE_SIZE)] == small


def test_work_is_bounded_and_goes_on_with_every_write() -> None:
    server = Limited()
    server.fill("s", 2000)
    server.keyspace.memory.limit = 20_000
    rounds = 0
    while server.keyspace.memory.total > 20_000:
        before = server.engine.write_gate.eviction.evicted_entries
        assert server.say("SET", "k", "v") == b"+OK\r\n"
        assert server.engine.write_gate.eviction.evicted_entries - before <= EVICTED_NODES_MAX * NODE
        rounds += 1
    assert 5 < rounds < 50


def test_a_large_request_evicts_more() -> None:
    server = Limited()
    server.fill("s", 3000)
    server.keyspace.memory.limit = server.keyspace.memory.total
    value = b"x" * 20_000
    for n in range(10):
        assert server.say("SET", f"k{n}", value) == b"+OK\r\n"
        assert (
            server.keyspace.memory.total
            <= server.keyspace.memory.limit + string_memory_bytes(len(value)) + 100
        )


def test_writes_are_rejected_when_nothing_can_be_evicted() -> None:
    server = Limited(most=5000)
    server.say("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    server.fill("s", NODE)
    server.say("SET", "k", b"x" * 5000)
    assert server.say("XADD", "s", "*", "f", "v") == OOM
    assert server.stream("s").length == NODE and server.stream("s").group_count == 1
    server.say("DEL", "k")
    server.fill("s", 1)


def write_until_rejected(server: Limited, key: str, most: int = 400) -> int:
    """Add entries until memory is full and nothing can be evicted; return how many were added."""
    for n in range(most):
        server.now += 1
        reply = server.say("XADD", key, "*", "f", b"x" * 200)
        if reply == OOM:
            return n
        assert reply.startswith(b"$"), reply
    return most


@pytest.mark.parametrize(
    "rules",
    [
        "KEEP-UNACKED 1",
        "KEEP-UNARCHIVED 1",
        "DROP-ACKED 1",
        "MAX-LEN 1000000 DISCARD NEW",
        "MAX-LEN 1000000 KEEP-UNACKED 1 DISCARD NEW",
    ],
)
def test_entries_that_a_rule_keeps_are_not_evicted(rules: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Limited(most=40_000)
    server.say("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    assert server.say("XCFGSET", "s", *rules.split()) == b"+OK\r\n"
    server.fill("s", 5 * NODE)
    server.say("XREADGROUP", "GROUP", "g", "ann", "COUNT", "20", "STREAMS", "s", ">")
    added = write_until_rejected(server, "s")
    assert 0 < added < 400
    assert server.stream("s").length == 5 * NODE + added
    assert server.engine.write_gate.eviction.evicted_entries == 0
    assert server.say("XADD", "s", "*", "f", "v") == OOM
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 and "rules keep the entries of streams, for example of s" in lines[0]


def test_what_the_rules_do_not_keep_is_evicted_up_to_the_first_kept_entry() -> None:
    server = Limited(most=40_000)
    server.say("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    server.say("XCFGSET", "s", "KEEP-UNACKED", "1", "KEEP-UNARCHIVED", "1")
    server.fill("s", 5 * NODE)
    kept = server.now - 2 * NODE  # of the entries so far, the first that is pending
    server.say("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">")
    acknowledged = [str(ms) for ms in range(server.now - 5 * NODE + 1, kept)]
    assert server.say("XACK", "s", "g", *acknowledged) == b":%d\r\n" % len(acknowledged)
    assert 0 < write_until_rejected(server, "s") < 400
    assert server.engine.write_gate.eviction.evicted_entries == 0, "nothing is archived"
    assert server.say("SET", "{s}:archived", "1-0") == OOM
    assert server.say("SET", "{s}:headrace:archived", b"x" * 1000) == OOM
    assert server.say("SET", "{s}:headrace:archived", b"x\n" * 2000) == OOM
    lake = [f"{server.now - n}-0 76ac4bd1-0f6a-41b5-98a9-{n:012} s3://lake/orders/{n}" for n in range(1, 6)]
    for words in (["MULTI"], ["SET", "{s}:headrace:archived", "\n".join(lake)], ["EXEC"]):
        assert not server.say(*words).startswith(b"-"), "full memory does not reject a watermark"
    write_until_rejected(server, "s")
    assert server.engine.write_gate.eviction.evicted_entries == len(acknowledged) // NODE * NODE
    assert 0 < server.stream("s").first_ms <= kept


def test_scheduled_entries_and_dead_letters_are_not_evicted() -> None:
    server = Limited()
    server.say("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    server.say("XGROUP", "CFGSET", "s", "g", "LEASE", "1000", "MAX-DELIVERIES", "2", "DEAD-LETTER", "graves")
    for _ in range(5 * NODE):
        server.say("XADD", "later", "DELAY", "1000000", "*", "f", b"x" * 50)
    server.fill("graves", 5 * NODE)
    server.fill("{s}:dead", 5 * NODE)  # not the dead letters of a group: its rule names another stream
    server.keyspace.memory.limit = server.keyspace.memory.total
    assert OOM in [server.say("SET", f"k{n}", b"v" * 500) for n in range(20)]
    assert server.stream("{later}:scheduled").length == server.stream("graves").length == 5 * NODE
    assert server.stream("{s}:dead").length <= NODE
    server.say("XGROUP", "CFGSET", "s", "g", "DEAD-LETTER", "-")
    assert OOM in [server.say("SET", f"l{n}", b"v" * 500) for n in range(20)]
    assert server.stream("graves").length <= NODE


def test_other_streams_are_evicted_beside_many_that_rules_keep() -> None:
    server = Limited()
    for n in range(LOOKED_AT_MAX + 10):
        server.fill(f"s{n}", 2 * NODE)
        server.say("XCFGSET", f"s{n}", "DROP-ACKED", "1")
    server.fill("plain", 20 * NODE)
    server.keyspace.memory.limit = server.keyspace.memory.total - 1
    replies = [server.say("SET", "k", b"v" * 100) for _ in range(3)]
    assert replies.count(OOM) <= 1, "a search is bounded; the next one continues it"
    assert server.stream("plain").length < 20 * NODE
    assert all(server.stream(f"s{n}").length == 2 * NODE for n in range(LOOKED_AT_MAX + 10))


def test_an_eviction_is_recorded_and_published_and_invalidates_watches() -> None:
    server = Limited()
    server.keyspace.settings.notify_keyspace_events = 0x7FFFFFFF
    listener = server.engine.create_session()
    server.engine.execute(listener, [b"PSUBSCRIBE", b"__key*"], server.now)
    server.say("SELECT", "3")
    server.fill("s", 100)
    listener.reply.take()
    watching = server.engine.create_session()
    for words in ([b"SELECT", b"3"], [b"WATCH", b"s"], [b"MULTI"], [b"PING"]):
        server.engine.execute(watching, words, server.now)
    watching.reply.take()
    server.keyspace.memory.limit = server.keyspace.memory.total - 1000
    server.say("SET", "k", "v")
    assert b"__keyspace@3__:s\r\n$5\r\nxtrim\r\n" in listener.reply.take()
    server.engine.execute(watching, [b"EXEC"], server.now)
    assert watching.reply.take() == b"*-1\r\n"
    database, words = server.engine.effects.items[-2]
    assert (database, words[:4]) == (3, [b"XTRIM", b"s", b"MINID", b"="])
    assert server.engine.effects.items[-1] == (3, [b"SET", b"k", b"v"])


def test_the_lag_of_groups_is_right_after_an_eviction() -> None:
    server = Limited()
    server.say("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    server.fill("s", 100)
    server.say("XREADGROUP", "GROUP", "g", "ann", "COUNT", "35", "STREAMS", "s", ">")
    server.keyspace.memory.limit = server.keyspace.memory.total - 1500
    server.say("SET", "k", "v")
    stream = server.stream("s")
    gone = 100 - stream.length
    assert 0 < gone < 35
    assert (stream.entries_added, stream.max_deleted_ms) == (100, 0)
    group = stream.group(b"g")
    assert (group.entries_read, group.pending.count) == (35, 35), "what is pending stays so"
    info = server.say("XINFO", "GROUPS", "s").split(b"\r\n")
    assert info[info.index(b"lag") + 1] == b":65"


def test_swapped_and_renamed_streams_are_found() -> None:
    server = Limited()
    server.fill("s", 100)
    server.say("SWAPDB", "0", "5")
    server.say("SELECT", "5")
    server.say("RENAME", "s", "t")
    server.keyspace.memory.limit = server.keyspace.memory.total - 1000
    server.say("SET", "k", "v")
    assert server.stream("t").length < 100
    database, words = server.engine.effects.items[-2]
    assert (database, words[:2]) == (5, [b"XTRIM", b"t"])


@pytest.mark.parametrize("seed", range(6))
def test_under_any_load_memory_stays_below_the_limit_and_the_newest_entries_stay(seed: int) -> None:
    rng = random.Random(seed)
    server = Limited()
    keys = [f"s{n}" for n in range(rng.choice([1, 5, 40]))]
    newest: dict[str, list[bytes]] = {key: [] for key in keys}
    largest = rng.choice([20, 300, 3000])
    for key in keys:
        server.say("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")
    entries = 800
    room = entries * (largest // 2 + 20) * rng.choice([2, 4, 8]) // 16
    server.keyspace.memory.limit = server.keyspace.memory.total + room
    for _ in range(entries):
        key = rng.choice(keys) if rng.random() < 0.7 else keys[0]
        server.now += rng.randrange(3)
        size = rng.randrange(largest)
        answer = server.say("XADD", key, "*", "f", b"x" * size)
        if answer == OOM:  # what is left cannot go
            assert all(len(server.stream(key).nodes) <= 1 for key in keys)
            continue
        newest[key].append(answer.split(b"\r\n")[1])
        assert server.keyspace.memory.total <= server.keyspace.memory.limit + 2 * largest + 3000
        if rng.random() < 0.1:
            server.say("XREADGROUP", "GROUP", "g", "ann", "COUNT", "5", "STREAMS", key, ">")
        if rng.random() < 0.05 and newest[key]:
            server.say("XACK", key, "g", rng.choice(newest[key]))
    assert server.keyspace.memory.total == weighed(server.keyspace)
    assert server.engine.write_gate.eviction.evicted_entries > 0
    for key in keys:
        stream = server.stream(key)
        assert stream.group_count == 1
        left = server.say("XRANGE", key, "-", "+")
        kept = newest[key][-stream.length :] if stream.length else []
        assert all(entry in left for entry in kept) and len(kept) == stream.length
        assert stream.length > 0 or not newest[key]
    assert differences(look(server.keyspace, server.now), look(server.replayed(), server.now)) == []


def test_a_log_of_everything_gives_the_same_data_again() -> None:
    assert sum(evicted_in_a_history(seed) for seed in range(4)) > 0


def evicted_in_a_history(seed: int) -> int:
    """Run random commands with too little memory, compare the data with the replayed log; count evictions."""
    history = History(seed)
    engine = history.engine
    engine.write_gate.eviction.policy = "stream-oldest"
    for _ in range(8):
        history.run(100)
        engine.keyspace.memory.limit = max(engine.keyspace.memory.total * 3 // 4, 10_000)
    server = Limited()
    server.engine, server.keyspace, server.now = engine, engine.keyspace, history.now
    again = server.replayed()
    moment = history.latest + 1
    assert differences(look(engine.keyspace, moment), look(again, moment)) == []
    return int(engine.write_gate.eviction.evicted_entries)


def look(keyspace: Keyspace, now: int) -> object:
    return alive(portrait(keyspace, times=False), now)
