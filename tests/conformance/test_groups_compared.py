"""Consumer groups answer as a real redis-server does: fixed conversations, and random ones by seed.

Times differ between two servers: what holds one is compared as "just now" or "long ago". Left to
tests/commands and tests/replay, for the engine follows Redis 8 where 7.0 differs: the lag of a group that
is before the first entry or of an empty stream, the counter of reads once entries were deleted, a consumer
made by an XCLAIM that claims nothing, the error of a blocked reader whose key is gone.
"""

from __future__ import annotations

import pathlib
import random
import re
import time
from typing import Any

import pytest
import seeds
from follower import Follower
from peer import Connection, conversations, differ, words

from headrace.engine.engine import Engine

LONG_MS = 600_000
REWORDED = (b"-ERR Unbalanced", b"-ERR The + ID is meaningless")  # since 7.2 and 7.4


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# ---- replies as values


def value(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The reply at `at`, a map as a list of pairs, and where it ends."""
    line_end = data.index(b"\r\n", at)
    kind, text, at = data[at : at + 1], data[at + 1 : line_end], line_end + 2
    if kind == b":":
        return int(text), at
    if kind in b"+-_" or text == b"-1":
        return kind + text, at
    if kind == b"$":
        return data[at : at + int(text)], at + int(text) + 2
    items = []
    for _ in range(int(text) * (2 if kind == b"%" else 1)):
        item, at = value(data, at)
        items.append(item)
    return items, at


def fields(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def ago(ms: int) -> str:
    return "long ago" if ms > LONG_MS else "just now"


def of_time(ms: int) -> str:
    return ago(now_ms() - ms)


def known_to_7_0(argv: list[bytes], reply: Any) -> Any:
    """A reply with what 7.0 has of it, and times as words."""
    if not isinstance(reply, list):
        return reply
    name, sub = argv[0].upper(), argv[1].upper()
    if name == b"XPENDING" and len(argv) > 3:
        return [[row[0], row[1], ago(row[2]), row[3]] for row in reply]
    if name == b"XINFO" and sub == b"CONSUMERS":
        return [
            {k: ago(v) if k == b"idle" else v for k, v in c.items() if k != b"inactive"}
            for c in map(fields, reply)
        ]
    if name == b"XINFO" and sub == b"GROUPS":
        return [fields(group) for group in reply]
    if name == b"XINFO" and sub == b"STREAM":
        stream = {k: v for k, v in fields(reply).items() if not re.match(b"idmp|pids|iids", k)}
        if isinstance(stream[b"groups"], list):
            stream[b"groups"] = [known_group(fields(group)) for group in stream[b"groups"]]
        return stream
    return reply


def known_group(group: dict[bytes, Any]) -> dict[bytes, Any]:
    group.pop(b"nacked-count", None)
    group[b"pending"] = [[row[0], row[1], of_time(row[2]), row[3]] for row in group[b"pending"]]
    group[b"consumers"] = [fields(consumer) for consumer in group[b"consumers"]]
    for consumer in group[b"consumers"]:
        consumer.pop(b"active-time", None)
        consumer[b"seen-time"] = of_time(consumer[b"seen-time"])
        consumer[b"pending"] = [[row[0], of_time(row[1]), row[2]] for row in consumer[b"pending"]]
    return group


def holds_times(argv: list[bytes]) -> bool:
    name, sub = argv[0].upper(), argv[1].upper() if len(argv) > 1 else b""
    return (name == b"XPENDING" and len(argv) > 3) or (name == b"XINFO" and sub in (b"STREAM", b"CONSUMERS"))


class Pair:
    """One client of the engine and one of the real server, which send the same requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.engine = Engine()
        self.session = self.engine.session()
        self.connection = Connection(port, 2)
        for line in ("FLUSHALL", "CONFIG SET stream-node-max-entries 100 stream-node-max-bytes 4096"):
            self.both(words(line))

    def both(self, argv: list[bytes], compare: bool = True) -> None:
        """Say words to both; their answers must agree."""
        self.engine.execute(self.session, argv, now_ms())
        ours = self.session.reply.take()
        self.connection.send(argv)
        theirs = self.connection.reply()
        if not compare:
            return
        if ours.startswith(REWORDED):
            assert theirs.startswith((b"-ERR Unbalanced", b"-ERR Invalid stream ID"))
        elif ours != theirs and (holds_times(argv) or argv[0] == b"XINFO"):
            self.compare(argv, known_to_7_0(argv, value(ours)[0]), known_to_7_0(argv, value(theirs)[0]))
        else:
            differ("A", argv, ours, theirs)

    def compare(self, argv: list[bytes], ours: Any, theirs: Any) -> None:
        for groups in map(groups_of, (ours, theirs)):
            for group in groups:
                if self.counts_unlike_7_0(argv[2], group[b"name"]):
                    group[b"lag"] = group[b"entries-read"] = "unlike 7.0"
        assert ours == theirs, argv

    def counts_unlike_7_0(self, key: bytes, name: bytes) -> bool:
        """Whether 8 counts what the group has read by other rules."""
        stream = self.engine.keyspace.databases[0].stream(key)
        group = stream.group(name)
        before_first = (group.last_ms, group.last_seq) < (stream.first_ms, stream.first_seq)
        return before_first or stream.length < stream.entries_added


def groups_of(info: Any) -> list[dict[bytes, Any]]:
    """The groups in a reply that known_to_7_0 gave."""
    if isinstance(info, dict):
        return info[b"groups"] if isinstance(info[b"groups"], list) else []
    return [row for row in info if b"entries-read" in row] if isinstance(info, list) else []


@pytest.fixture
def pair(peer):
    pair = Pair(peer.port)
    yield pair
    pair.connection.close()


CONVERSATIONS = {  # each request, and whether its answers are compared
    heading: [(words(line.partition("#!")[0]), "#!" not in line) for line in text.splitlines() if line]
    for heading, text in conversations(pathlib.Path(__file__).with_name("groups.txt")).items()
}
BEFORE = CONVERSATIONS.pop("before")


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_about_groups_is_the_same(pair, name, protocol):
    pair.both([b"HELLO", b"%d" % protocol], compare=False)
    for argv, compare in BEFORE + CONVERSATIONS[name]:
        pair.both(argv, compare)


class Chatter:
    """Random requests about a few groups of two streams; their IDs stay close enough to meet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = 0

    def words(self) -> list[str]:
        kinds = [self.append] * 8 + [self.read] * 9 + [self.acknowledge, self.claim, self.autoclaim] * 3
        kinds += [self.pending, self.info] * 3 + [
            self.delete,
            self.trim,
            self.group,
            self.consumer,
            self.rest,
        ]
        return self.random.choice(kinds)()

    def one_of(self, words: str, weights: list[int] | None = None) -> str:
        return self.random.choices(words.split(), weights)[0]

    def key(self) -> str:
        return self.one_of("s t none string", [50, 30, 1, 1])

    def group_name(self) -> str:
        return self.one_of("g h nobody", [40, 20, 1])

    def consumer_name(self) -> str:
        return self.one_of("ann Bob c")

    def id(self) -> str:
        r = self.random
        if r.random() < 0.02:
            return r.choice(["x", "-", "+", "$", ">", "", "1-2-3"])
        return f"{max(0, self.clock - int(r.expovariate(1 / 12)))}-0"

    def bound(self) -> str:
        r = self.random
        return r.choice(["-", "+"]) if r.random() < 0.4 else r.choice(["", "", "("]) + self.id()

    def ids(self) -> list[str]:
        return [self.id() for _ in range(self.random.randrange(1, 5))]

    def number(self, mean: int = 4) -> str:
        r = self.random
        return (
            r.choice(["x", "-1", "0", "", "1.5"]) if r.random() < 0.03 else str(int(r.expovariate(1 / mean)))
        )

    def idle(self) -> str:
        return self.one_of("0 0 1000000 -3 x", [20, 20, 20, 2, 1])

    def append(self) -> list[str]:
        self.clock += 1
        return ["XADD", self.one_of("s t"), f"{self.clock}-0", "f", str(self.clock)]

    def delete(self) -> list[str]:
        return ["XDEL", self.key(), *self.ids()]

    def trim(self) -> list[str]:
        return ["XTRIM", self.key(), "MAXLEN", self.number(15)]

    def read(self) -> list[str]:
        r = self.random
        words = ["GROUP", self.group_name(), self.consumer_name()]
        if r.random() < 0.7:
            words = r.choice([words + ["COUNT", self.number()], ["COUNT", self.number(), *words]])
        words += r.choice([[], [], [], ["NOACK"], ["BLOCK", "x"]]) if r.random() < 0.3 else []
        keys = [self.key() for _ in range(r.choice([1, 1, 2]))]
        return [
            "XREADGROUP",
            *words,
            "STREAMS",
            *keys,
            *[r.choice([">", ">", ">", "0", self.id()]) for _ in keys],
        ]

    def acknowledge(self) -> list[str]:
        return ["XACK", self.key(), self.group_name(), *self.ids()]

    def claim(self) -> list[str]:
        r = self.random
        words = ["XCLAIM", self.key(), self.group_name(), self.consumer_name(), self.idle(), *self.ids()]
        for option in r.sample(["FORCE", "JUSTID", "IDLE", "TIME", "RETRYCOUNT", "LASTID"], r.randrange(4)):
            words.append(option)
            if option == "IDLE":
                words.append(r.choice(["0", "5000000", "-1"]))
            elif option == "TIME":
                words.append(r.choice(["1000", "99999999999999", "-5"]))
            elif option not in ("FORCE", "JUSTID"):
                words.append(self.number() if option == "RETRYCOUNT" else self.id())
        return words

    def autoclaim(self) -> list[str]:
        words = ["XAUTOCLAIM", self.key(), self.group_name(), self.consumer_name(), self.idle(), self.bound()]
        if self.random.random() < 0.7:
            words += ["COUNT", self.number()]
        return words + self.random.choice([[], [], ["JUSTID"]])

    def pending(self) -> list[str]:
        r = self.random
        words = ["XPENDING", self.key(), self.group_name()]
        if r.random() < 0.3:
            return words
        words += ["IDLE", self.idle()] if r.random() < 0.3 else []
        words += [self.bound(), self.bound(), self.number()]
        return words + ([self.consumer_name()] if r.random() < 0.4 else [])

    def info(self) -> list[str]:
        key, group = self.key(), self.group_name()
        return self.random.choice(
            [
                ["XINFO", "GROUPS", key],
                ["XINFO", "CONSUMERS", key, group],
                ["XINFO", "STREAM", key, "FULL", "COUNT", self.number()],
            ]
        )

    def group(self) -> list[str]:
        r = self.random
        key, name = self.key(), self.group_name()
        if r.random() < 0.2:
            return ["XGROUP", "DESTROY", key, name]
        words = [
            "XGROUP",
            r.choice(["CREATE", "CREATE", "SETID"]),
            key,
            name,
            r.choice(["$", "0", self.id()]),
        ]
        return words + (["MKSTREAM"] if r.random() < 0.6 and key != "none" else [])

    def consumer(self) -> list[str]:
        sub = self.one_of("CREATECONSUMER DELCONSUMER")
        return ["XGROUP", sub, self.key(), self.group_name(), self.consumer_name()]

    def rest(self) -> list[str]:
        if self.random.random() < 0.9:
            return ["XLEN", self.key()]
        return ["DEL", self.one_of("s t")] if self.random.random() < 0.5 else ["SET", "string", "x"]


START = """
    DEL s t none string
    SET string x
    CONFIG SET stream-node-max-entries 3
    XGROUP CREATE s g 0 MKSTREAM
    XGROUP CREATE s h 0
    XGROUP CREATE t g 0 MKSTREAM
"""
SEEDS, TURNS = seeds.chosen(compiled=(6, 2500), interpreted=(2, 500))


def told(chatter: Chatter, turns: int) -> list[list[bytes]]:
    """Requests, the consumers of each group made first: 7.0 makes them only when they get something."""
    requests = []
    started = [words(line) for line in START.strip().splitlines()]
    for argv in started + [[word.encode() for word in chatter.words()] for _ in range(turns)]:
        requests.append(argv)
        if argv[0] == b"XGROUP" and argv[1] in (b"CREATE", b"DELCONSUMER"):
            names = [b"ann", b"Bob", b"c"]
            requests += [[b"XGROUP", b"CREATECONSUMER", argv[2], argv[3], name] for name in names]
    return requests


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_on_groups_are_answered_the_same(pair, seed, protocol):
    pair.both([b"HELLO", b"%d" % protocol], compare=False)
    for argv in told(Chatter(1000 * protocol + seed), TURNS):
        pair.both(argv)
    for key in (b"s", b"t"):
        pair.both([b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"])


def without_times(argv: list[bytes]) -> list[bytes]:
    """An effect, but for what 8 says in it that 7.0 does not."""
    argv = list(argv)
    for word, at in ((b"TIME", 7), (b"LASTID", 13), (b"ENTRIESREAD", 6)):
        if word in argv[6:]:
            at = argv.index(word, 5) + 1
            argv[at] = of_time(int(argv[at])).encode() if word == b"TIME" else b"..."
    return argv


def in_7_0(argv: list[bytes]) -> bool:
    """Whether 7.0 says this: it leaves the group's position to XCLAIM, and so needs no transaction.

    It does not tell of history that was read, which changes delivery counts and times.
    """
    history = argv[0] == b"XCLAIM" and b"LASTID" not in argv
    return argv[0] not in (b"MULTI", b"EXEC") and b"ENTRIESREAD" not in argv and not history


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_on_groups_have_the_same_effects(pair, seed):
    follower = Follower(pair.port)
    try:
        pair.engine.record_effects(True)
        for argv in told(Chatter(seed), TURNS):
            pair.both(argv)
        pair.both([b"SET", b"that", b"is all"])
        theirs = [
            without_times(argv) for argv in follower.until([b"SET", b"that", b"is all"]) if in_7_0(argv)
        ]
    finally:
        follower.close()
    ours = [without_times(argv) for _, argv in pair.engine.effects.take() if in_7_0(argv)][:-1]
    theirs = theirs[-len(ours) :]  # it heard of what came before, too
    for i in range(max(len(ours), len(theirs))):
        assert ours[i : i + 1] == theirs[i : i + 1], f"effect {i}, after {theirs[max(0, i - 3) : i]}"


@pytest.mark.parametrize("protocol", [2, 3])
def test_those_who_wait_for_a_group_are_answered_the_same(peer, protocol):
    peer.compare(
        """
        XGROUP CREATE s g $ MKSTREAM
        XGROUP CREATE s h $
        XGROUP CREATE t g $ MKSTREAM
        B> XREADGROUP GROUP g b BLOCK 0 STREAMS s >
        C> XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS s >
        D> XREADGROUP GROUP h d BLOCK 0 STREAMS s >
        E> XREAD BLOCK 0 STREAMS s $
        XADD s 1-0 n 1
        XADD s 2-0 n 2
        B> XREADGROUP GROUP g b BLOCK 0 STREAMS s >
        C> XREADGROUP GROUP g c BLOCK 0 NOACK STREAMS t s > >
        MULTI
        XADD s 3-0 n 3
        XADD t 1-0 n 1
        XREADGROUP GROUP h a BLOCK 0 STREAMS t >
        EXEC
        XADD s 4-0 n 4
        B> XREADGROUP GROUP g b BLOCK 0 STREAMS s 0
        B> XREADGROUP GROUP g b BLOCK 500 STREAMS s >
        sleep 900
        B> XREADGROUP GROUP g b BLOCK 0 STREAMS s >
        XGROUP SETID s g 3
        XADD s 5-0 n 5
        XPENDING s g
        """,
        protocol,
    )
