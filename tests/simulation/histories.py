"""Random requests for the simulation: streams with groups and producers, strings, expiry, transactions.

Few keys, few entries, few names: what is done meets what was done before. Everything comes from one Random.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

KEYS = b"s t".split()
STRINGS = b"a b a b a b s".split()
GROUPS = b"g h".split()
CONSUMERS = b"ann bob cid".split()
POLICIES = b"KEEPREF DELREF ACKED".split()
BIG = [
    b"v" * 30,
    b"x" * 16_378,
    b"long " * 1000,
    b"12345",
    b"-7",
    b"",
    b"\r\n*1\r\n$4\r\nEXEC\r\n",
    bytes(range(256)),
]

Request = list[bytes]


class Chatter:
    """What a client says next. It knows the time, and which entries there are: see told()."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.now = 0
        self.known: list[bytes] = []
        self.to_begin_with = [[b"XGROUP", b"CREATE", KEYS[0], group, b"0", b"MKSTREAM"] for group in GROUPS]
        one_key = self.stream_requests()
        self.kinds: list[Callable[[], Request]] = [kind for kind, often in one_key for _ in range(often)]
        self.kinds += [self.string] * 6 + [self.expiry] * 2 + [self.whole_key] * 2

    def stream_requests(self) -> list[tuple[Callable[[], Request], int]]:
        """What is done to streams, and how often."""
        return [
            (self.append, 16),
            (self.idempotent, 4),
            (self.read, 10),
            (self.claim, 4),
            (self.autoclaim, 2),
            (self.give_back, 5),
            (self.acknowledge, 4),
            (self.delete, 3),
            (self.trim, 2),
            (self.group, 4),
            (self.counters, 2),
        ]

    def told(self, known: list[bytes]) -> None:
        """IDs of entries that are there, or pending; the newest last."""
        self.known = known
        self.to_begin_with = []

    def loop(self, now_ms: int) -> list[Request]:
        """A few requests that arrive together."""
        self.now = now_ms
        requests = [self.request() for _ in range(self.chance.choice((1, 1, 2, 3, 5)))]
        if self.to_begin_with:
            requests = [*self.to_begin_with, *(self.append() for _ in range(4)), self.read(), *requests]
        if self.chance.random() < 0.2:
            requests = [[b"MULTI"], *requests, [b"EXEC"]]
        if self.chance.random() < 0.15:
            requests.insert(0, [b"SELECT", self.one("0 0 0 1 1 15")])
        return requests

    def request(self) -> Request:
        """One request; it may fail."""
        return self.chance.choice(self.kinds)()

    # ---- words

    def one(self, words: str) -> bytes:
        return self.chance.choice(words.split()).encode()

    def words(self, choices: str) -> list[bytes]:
        """One of the choices, which blanks part; `_` is a blank inside of one, and alone it is nothing."""
        return self.one(choices).replace(b"_", b" ").split()

    def key(self) -> bytes:
        return KEYS[0] if self.chance.random() < 0.8 else KEYS[1]

    def value(self) -> bytes:
        return self.chance.choice(BIG) if self.chance.random() < 0.1 else b"%d" % self.chance.randrange(1000)

    def some_id(self) -> bytes:
        if self.known and self.chance.random() < 0.9:
            return self.known[-1 - min(int(self.chance.expovariate(1 / 4)), len(self.known) - 1)]
        return b"%d-%d" % (self.now, self.chance.randrange(3))

    def ids(self) -> list[bytes]:
        return [self.some_id() for _ in range(self.chance.randrange(1, 4))]

    def counted_ids(self) -> list[bytes]:
        ids = self.ids()
        return [b"IDS", b"%d" % len(ids), *ids]

    def member(self) -> list[bytes]:
        return [self.key(), self.chance.choice(GROUPS), self.chance.choice(CONSUMERS)]

    def pairs(self) -> list[bytes]:
        names = (b"f", b"g") if self.chance.random() < 0.7 else (b"other",)
        return [word for name in names for word in (name, self.value())]

    # ---- streams

    def append(self) -> Request:
        trim = self.words(
            "_ _ _ _ MAXLEN_7 MAXLEN_~_9 NOMKSTREAM MAXLEN_=_5_DELREF ACKED_MAXLEN_~_6 MINID_~_5"
        )
        now = b"%d" % self.now
        chosen = self.chance.choice((b"*", b"*", b"*", now + b"-*", now + b"-3", now))
        return [b"XADD", self.key(), *trim, chosen, *self.pairs()]

    def idempotent(self) -> Request:
        if self.chance.random() < 0.15:
            return [b"XCFGSET", self.key(), *self.words("IDMP-MAXSIZE_2 IDMP-MAXSIZE_100 IDMP-DURATION_2")]
        auto = self.chance.random() < 0.3
        producer = [b"IDMPAUTO", self.one("p q")] if auto else [b"IDMP", self.one("p q"), self.one("i j k l")]
        return [b"XADD", self.key(), *producer, b"*", b"f", self.one("1 2 3")]

    def read(self) -> Request:
        key, group, consumer = self.member()
        options = self.words("COUNT_2 COUNT_1 COUNT_3_NOACK CLAIM_30 CLAIM_0_COUNT_2 NOACK_CLAIM_10 BLOCK_0")
        after = b">" if self.chance.random() < 0.9 else b"0"
        return [b"XREADGROUP", b"GROUP", group, consumer, *options, b"STREAMS", key, after]

    def claim(self) -> Request:
        options = self.words("FORCE JUSTID IDLE_20 TIME_5 RETRYCOUNT_4 FORCE_JUSTID LASTID_7-0 _")
        return [b"XCLAIM", *self.member(), self.one("0 20"), *self.ids(), *options]

    def autoclaim(self) -> Request:
        return [b"XAUTOCLAIM", *self.member(), self.one("0 20"), b"-", b"COUNT", self.one("1 2 9")]

    def give_back(self) -> Request:
        more = self.words("_ FORCE RETRYCOUNT_3")
        return [b"XNACK", *self.member()[:2], self.one("SILENT FAIL FATAL"), *self.counted_ids(), *more]

    def acknowledge(self) -> Request:
        key, group, _ = self.member()
        if self.chance.random() < 0.7:
            return [b"XACK", key, group, *self.ids()[:2]]
        return [b"XACKDEL", key, group, self.chance.choice(POLICIES), *self.counted_ids()]

    def delete(self) -> Request:
        if self.chance.random() < 0.5:
            return [b"XDEL", self.key(), *self.ids()]
        return [b"XDELEX", self.key(), self.chance.choice(POLICIES), *self.counted_ids()]

    def trim(self) -> Request:
        if self.chance.random() < 0.3:
            return [b"XTRIM", self.key(), b"MINID", self.one("~ ="), self.some_id()]
        return [
            b"XTRIM",
            self.key(),
            b"MAXLEN",
            self.one("~ ="),
            self.one("0 4 8 8 12"),
            self.chance.choice(POLICIES),
        ]

    def group(self) -> Request:
        key, group, consumer = self.member()
        what = self.one(
            "CREATE CREATE CREATE CREATE CREATE CREATE DESTROY SETID SETID CREATECONSUMER DELCONSUMER"
        )
        if what == b"CREATE":
            return [b"XGROUP", what, key, group, self.one("0 $"), b"MKSTREAM", *self.words("_ ENTRIESREAD_2")]
        if what == b"SETID":
            return [b"XGROUP", what, key, group, self.some_id(), *self.words("_ ENTRIESREAD_1")]
        return [b"XGROUP", what, key, group] + ([] if what == b"DESTROY" else [consumer])

    def counters(self) -> Request:
        last = b"%d-%d" % (self.now, self.chance.randrange(9))
        more = self.words("_ ENTRIESADDED_99_MAXDELETEDID_1-0 ENTRIESADDED_50_MAXDELETEDID_0-0")
        return [b"XSETID", self.key(), last, *more]

    # ---- keys and strings

    def string(self) -> Request:
        key = self.chance.choice(STRINGS)
        what = self.one("SET SET SET INCR APPEND SETRANGE GETSET MSET GETDEL")
        if what == b"SET":
            return [what, key, self.value(), *self.words("_ _ EX_3 PX_400 NX KEEPTTL")]
        if what == b"MSET":
            return [what, *(word for name in (b"a", b"b") for word in (name, self.value()))]
        more = {b"APPEND": [self.value()], b"GETSET": [self.value()], b"SETRANGE": [b"3", self.value()]}
        return [what, key, *more.get(what, [])]

    def expiry(self) -> Request:
        what = self.one("PEXPIRE PEXPIRE EXPIRE PERSIST GETEX")
        amount = {b"PEXPIRE": [self.one("50 900 9000")], b"EXPIRE": [self.one("1 0 -1 20")]}
        more = amount.get(what, [b"PX", b"700"] if what == b"GETEX" else [])
        return [what, self.chance.choice([*KEYS, *STRINGS]), *more]

    def whole_key(self) -> Request:
        key, other = self.chance.choice([*KEYS, *STRINGS]), self.chance.choice([*KEYS, *STRINGS])
        return self.chance.choice(
            [
                [b"DEL", key],
                [b"UNLINK", key, other],
                [b"RENAME", key, other],
                [b"RENAMENX", key, other],
                [b"COPY", key, other, *self.words("_ REPLACE DB_1 DB_1_REPLACE")],
                [b"MOVE", key, self.one("0 1")],
                [b"SWAPDB", b"0", b"1"],
                [b"FLUSHDB"] if self.chance.random() < 0.2 else [b"EXISTS", key],
                [b"FLUSHALL"] if self.chance.random() < 0.2 else [b"TYPE", key],
            ]
        )
