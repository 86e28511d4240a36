"""DUMP and RESTORE beside a real redis-server: values move in both directions and stay what they were.

Both servers answer DUMP with the same bytes for a value that one has got from the other, and describe it in
the same words. (The bytes for the same history are compared where the format is tested.)
"""

from __future__ import annotations

import itertools
import random

import pytest

from conformance import seeds
from conformance.peer import Both, fields, now_ms, value, without_losses

ROUNDS, STEPS = seeds.chosen((60, 120), (12, 60))


class Mover:
    """Says things to one side alone."""

    def __init__(self, both: Both) -> None:
        self.both = both

    def here(self, *argv: bytes) -> bytes:
        """The engine's reply."""
        session, _ = self.both.client("A")
        self.both.engine.execute(session, list(argv), now_ms())
        return session.reply.take()

    def there(self, *argv: bytes) -> bytes:
        """The real server's reply."""
        _, connection = self.both.client("A")
        connection.send(list(argv))
        return connection.reply()


@pytest.fixture
def mover(peer):
    both = peer.both()
    yield Mover(both)
    both.close()


def bulk(reply):
    head, _, rest = reply.partition(b"\r\n")
    assert head == b"$%d" % (len(rest) - 2), reply[:200]
    return rest[:-2]


def described(reply):
    """XINFO STREAM FULL with what 7.0 has of it; the lag is worked out, by newer rules here."""
    stream = {k: v for k, v in fields(value(reply)[0]).items() if k[:4] not in (b"idmp", b"pids", b"iids")}
    stream[b"groups"] = [without_losses(group) for group in stream[b"groups"]]
    for group in stream[b"groups"]:
        group.pop(b"nacked-count", None)
        group.pop(b"lag")
        group[b"consumers"] = [fields(consumer) for consumer in group[b"consumers"]]
        for consumer in group[b"consumers"]:
            consumer.pop(b"active-time", None)
    return stream


def look(say, key):
    """All that a client can see of a value, and its payload."""
    kind = say(b"TYPE", key)
    if kind == b"+stream\r\n":
        return described(say(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0")), say(b"DUMP", key)
    return say(b"GET", key), say(b"DUMP", key)


class History:
    """Random changes of one stream, by seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.at = [1, 0]
        self.wide = self.random.random() < 0.3

    def word(self, most=30):
        if self.wide and self.random.random() < 0.2:
            return self.random.randbytes(self.random.randrange(5000))
        return b"%d" % self.random.choice([0, 127, -4096, 2**31, -(2**63)]) * self.random.randrange(2) + (
            b"x" * self.random.randrange(most)
        )

    def some_id(self):
        return b"%d-%d" % (self.random.randint(1, self.at[0]), self.random.randint(0, 3))

    def step(self, now):
        chance, name = self.random.random(), self.random.choice([b"alice", b"bob", b"carol", b"x" * 70])
        group = self.random.choice([b"g", b"h", b"42"])
        if chance < 0.45:
            self.at = [self.at[0] + 1, 0] if self.random.random() < 0.7 else [self.at[0], self.at[1] + 1]
            pairs = [self.word() for _ in range(2 * self.random.randint(1, 3))]
            return [b"XADD", b"s", b"%d-%d" % tuple(self.at), *pairs]
        if chance < 0.55:
            return [b"XDEL", b"s", self.some_id(), self.some_id()]
        if chance < 0.6:
            return [b"XTRIM", b"s", b"MAXLEN", b"%d" % self.random.randint(5, 60)]
        if chance < 0.66:
            return [b"XGROUP", b"CREATE", b"s", group, self.random.choice([b"0", b"$", self.some_id()])]
        if chance < 0.85:
            count = b"%d" % self.random.randint(1, 9)
            return [b"XREADGROUP", b"GROUP", group, name, b"COUNT", count, b"STREAMS", b"s", b">"]
        if chance < 0.9:
            return [b"XACK", b"s", group, self.some_id(), self.some_id()]
        if chance < 0.95:
            time = [b"TIME", b"%d" % (now - self.random.randrange(10**6)), b"RETRYCOUNT", b"3"]
            return [b"XCLAIM", b"s", group, name, b"0", self.some_id(), *time, b"FORCE"]
        return [b"XGROUP", b"CREATECONSUMER", b"s", group, name]


@pytest.mark.parametrize("from_here", [True, False], ids=["from here", "from there"])
@pytest.mark.parametrize("seed", ROUNDS)
def test_random_streams_move_and_come_back(mover, seed, from_here):
    first, second = (mover.here, mover.there) if from_here else (mover.there, mover.here)
    history = History(seed)
    first(b"XADD", b"s", b"1-0", b"f", b"v")
    for _ in range(min(STEPS, 400)):
        first(*history.step(now_ms()))
    payload = bulk(first(b"DUMP", b"s"))
    assert second(b"RESTORE", b"s", b"0", payload) == b"+OK\r\n"
    assert look(second, b"s") == look(first, b"s")
    assert first(b"RESTORE", b"back", b"0", bulk(second(b"DUMP", b"s"))) == b"+OK\r\n"
    assert look(first, b"back") == look(first, b"s")
    for _ in range(20):  # and they go on as one
        words = history.step(now_ms())
        if words[0] in (b"XADD", b"XDEL", b"XTRIM"):
            mover.both.say("A", words)
    mover.both.say("A", [b"XRANGE", b"s", b"-", b"+"])


STRINGS = [
    b"",
    b"v",
    b"0",
    b"-1",
    b"127",
    b"-32768",
    b"2147483647",
    b"-2147483649",
    b"007",
    b" 1",
    b"x" * 20,
    b"x" * 21,
    b"ab" * 5000,
    bytes(range(256)) * 3,
]


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_strings_are_dumped_to_the_same_bytes(mover, text):
    mover.both.say("A", [b"SET", b"k", text])
    mover.both.say("A", [b"DUMP", b"k"])
    payload = bulk(mover.here(b"DUMP", b"k"))
    for request in (
        [b"RESTORE", b"copy", b"0", payload],
        [b"GET", b"copy"],
        [b"OBJECT", b"ENCODING", b"copy"],
        [b"DUMP", b"copy"],
    ):
        mover.both.say("A", request)


TTLS = (b"0", b"-1", b"x", b"1", b"100000", b"4102444800000")
OPTIONS = ([], [b"REPLACE"], [b"ABSTTL", b"replace"], [b"IDLETIME", b"-1"], [b"FREQ", b"1"])


def test_restore_refuses_and_replaces_alike(mover):
    mover.both.say("A", [b"SET", b"k", b"v"])
    good = bulk(mover.here(b"DUMP", b"k"))
    mover.there(b"RPUSH", b"list", b"1")
    foreign = bulk(mover.there(b"DUMP", b"list"))
    wrong_sum = good[:-1] + bytes([good[-1] ^ 1])
    for payload in (good, wrong_sum, b"", good[:9], foreign[:-1], good + b"\0"):
        for key, ttl, options in itertools.product((b"k", b"new"), TTLS, OPTIONS):
            if ttl == b"1" and b"ABSTTL" not in options:
                continue  # that millisecond need not end here when it ends there
            mover.both.say("A", [b"RESTORE", key, ttl, payload, *options])
            mover.both.say("A", [b"EXISTS", key, b"new"])
            if b"ABSTTL" in options:
                mover.both.say("A", [b"PEXPIRETIME", key])
        mover.both.say("A", [b"DEL", b"new"])
        mover.both.say("A", [b"SET", b"k", b"v"])
    assert mover.here(b"RESTORE", b"list", b"0", foreign) == b"-ERR Bad data format\r\n"


@pytest.mark.parametrize(
    "options",
    [
        "FOO",
        "IDLETIME",
        "IDLETIME x",
        "IDLETIME 1 IDLETIME 2",
        "IDLETIME 9223372036854775807",
        "IDLETIME 1 FREQ 1",
        "FREQ",
        "FREQ x",
        "FREQ -1",
        "FREQ 255",
        "FREQ 256",
        "FREQ 1 FREQ 2 REPLACE",
        "FREQ 1 IDLETIME 1",
        "REPLACE REPLACE ABSTTL ABSTTL",
    ],
)
def test_options(mover, options):
    mover.both.say("A", [b"SET", b"k", b"v"])
    good = bulk(mover.here(b"DUMP", b"k"))
    for key in (b"k", b"new"):
        for payload in (good, b"junk"):
            mover.both.say("A", [b"RESTORE", key, b"0", payload, *options.encode().split()])


def test_watchers_listeners_and_readers_hear_of_it_alike(mover):
    say = mover.both.say
    say("A", [b"XADD", b"s", b"5-5", b"f", b"v"])
    say("A", [b"SET", b"k", b"v"])
    stream, text = bulk(mover.here(b"DUMP", b"s")), bulk(mover.here(b"DUMP", b"k"))
    say("A", [b"CONFIG", b"SET", b"notify-keyspace-events", b"Eg"])
    say("L", [b"PSUBSCRIBE", b"__keyevent@0__:*"])
    say("W", [b"WATCH", b"new"])
    say("B", [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"new", b"5-4"])
    say("A", [b"RESTORE", b"new", b"0", stream])
    say("W", [b"MULTI"])
    say("W", [b"EXEC"])
    say("A", [b"RESTORE", b"new", b"0", text, b"REPLACE"])
    say("A", [b"RESTORE", b"new", b"1", text, b"REPLACE", b"ABSTTL"])
    say("A", [b"RESTORE", b"new", b"1", text, b"ABSTTL"])
    say("A", [b"DUMP", b"new"])
    say("A", [b"EXISTS", b"new"])


def test_save_and_debug_refuse_alike(mover):
    for line in (
        "SAVE now",
        "LASTSAVE now",
        "BGSAVE now",
        "BGSAVE SCHEDULE now",
        "BGREWRITEAOF now",
        "DEBUG",
        "DEBUG HELP",
        "DEBUG nonsense",
        "DUMP",
        "RESTORE k 0",
        "MULTI",
        "SAVE",
        "DISCARD",
    ):
        mover.both.say("A", line.encode().split())
