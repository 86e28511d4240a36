"""Random histories of all commands that change something, told to an engine that records their effects."""

from __future__ import annotations

import random

from headrace.engine.engine import Engine

START_MS = 1_700_000_000_000


class History:
    """An engine, some clients of it, and what they say; the same seed says the same.

    Streams live longer, and so have more that is pending, where the seed is even. Every fourth one restores.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calm = seed % 2 == 0
        self.restoring = seed % 4 == 3
        self.now = START_MS
        self.latest = START_MS  # the clock is set back now and then
        self.engine = Engine()
        self.engine.record_effects(True)
        self.sessions = [self.engine.session() for _ in range(4)]
        self.ids = ["1-1", "1-2"]
        self.say(0, "CONFIG SET stream-node-max-entries 4")
        for key, group in ("sg", "sh", "tg", "th", "ug"):
            self.say(0, f"XGROUP CREATE {key} {group} 0 MKSTREAM")

    def say(self, client: int, line: str) -> None:
        """One request of a client's; a blocked one is left alone."""
        session = self.sessions[client]
        if session.waiting is not None:
            return
        words = [word.encode() for word in line.split()]
        if words[0] == b"RESTORE":
            words[3] = self.payload(words[3])
        self.engine.execute(session, words, self.now)
        answer = session.reply.take()
        assert b"internal error" not in answer, line
        if line.startswith("XADD") and answer.startswith(b"$"):
            self.ids.append(answer.split(b"\r\n")[1].decode())

    def payload(self, key: bytes) -> bytes:
        """What DUMP says of the key."""
        session = self.engine.session()
        self.engine.execute(session, [b"DUMP", key], self.now)
        return session.reply.take().partition(b"\r\n")[2][:-2]

    def run(self, turns: int) -> None:
        """Say so many requests, and let time pass."""
        for _ in range(turns):
            r = self.random
            self.now += r.choice([0] * 8 + [1, 1, 7, 15, 40, -20] + ([] if self.calm else [300, 1500]))
            self.latest = max(self.latest, self.now)
            if r.random() < 0.2:
                self.engine.tick(self.now)
            self.say(r.choice([0, 0, 0, 1, 2, 3]), self.request())
            for session in self.sessions:
                session.reply.take()
            self.engine.woken.clear()
        for session in self.sessions:
            self.engine.unblock(session)
            if session.queue is not None:
                self.engine.execute(session, [b"DISCARD"], self.now)

    # ---- requests

    def request(self) -> str:
        """Any request; the commonest first."""
        append, read, pending = self.append, self.read, self.pending_entries
        kinds = [append] * 12 + [read] * 5 + [pending] * 7 + [self.group, self.remove, self.producer] * 2
        others = [self.string, self.expiry] * 2 + [self.key_space, self.transaction, self.set_id]
        if self.calm and self.random.random() < 0.7:
            others = []
        return self.random.choice(kinds + others)()

    def one_of(self, words: str) -> str:
        """One of the words; blanks within one are written `_`."""
        return self.random.choice(words.split()).replace("_", " ")

    def key(self) -> str:
        return self.random.choices(("s", "t", "u", "k"), (80, 50, 20, 2))[0]

    def id(self) -> str:
        if self.random.random() < 0.05:
            return self.one_of("0 1-1 5 99999-0 1700000000500-3 18446744073709551615-18446744073709551615")
        return self.ids[-1 - int(self.random.expovariate(1 / 8)) % len(self.ids)]

    def some_ids(self) -> str:
        return " ".join(self.id() for _ in range(self.random.randrange(1, 5)))

    def counted_ids(self) -> str:
        ids = self.some_ids()
        return f"IDS {len(ids.split())} {ids}"

    def member(self) -> str:
        return f"{self.key()} {self.one_of('g g h')} {self.one_of('ann bob cid')}"

    def policy(self) -> str:
        return self.one_of("_ _ KEEPREF DELREF ACKED")

    def cut(self) -> str:
        """How to trim."""
        r = self.random
        threshold = r.choice([f"MAXLEN {{}} {r.randrange(20)}", f"MINID {{}} {self.id()}"])
        sign = self.one_of("~ ~ = _")
        return threshold.format(sign) + (self.one_of("_ _ _LIMIT_3 _LIMIT_0") if sign == "~" else "")

    def append(self) -> str:
        r = self.random
        options = [self.one_of("NOMKSTREAM _ _ _ _")]
        if r.random() < 0.2:
            options += [self.policy(), self.cut()]
        which = self.one_of("* * * 1700000000000-* x")
        if which == "x":
            which = f"{START_MS + len(self.ids)}-{r.randrange(3)}"
        return f"XADD {self.key()} {' '.join(options)} {which} f {r.randrange(100)}"

    def producer(self) -> str:
        r = self.random
        key = self.key()
        return r.choice(
            [
                f"XADD {key} IDMP {self.one_of('p q')} {self.one_of('a b c d')} * f v",
                f"XADD {key} IDMPAUTO p {self.one_of('_ MAXLEN_~_5')} * f {r.randrange(4)}",
                f"XCFGSET {key} IDMP-MAXSIZE {self.one_of('2 3 100')} IDMP-DURATION {self.one_of('1 1 100')}",
                f"XIDMPRECORD {key} {self.one_of('p q')} {self.one_of('a e')} {self.id()}",
            ]
        )

    def read(self) -> str:
        r = self.random
        options = self.one_of(
            "_ COUNT_1 COUNT_3_NOACK CLAIM_30 CLAIM_0_COUNT_2 NOACK_CLAIM_10_MAXCOUNT_2 BLOCK_40 BLOCK_9"
        )
        keys = [self.key() for _ in range(r.choice([1, 1, 2]))]
        after = [r.choice([">", ">", ">", "0", self.id()]) for _ in keys]
        group = f"GROUP {self.one_of('g g h')} {self.one_of('ann bob cid')}"
        return f"XREADGROUP {group} {options} STREAMS {' '.join(keys)} {' '.join(after)}"

    def pending_entries(self) -> str:
        r = self.random
        idle = self.one_of("0 0 20")
        options = self.one_of("_ FORCE FORCE JUSTID IDLE_20 TIME_5 TIME_0 RETRYCOUNT_4 FORCE_JUSTID LASTID_x")
        more = self.one_of("_ _ FORCE RETRYCOUNT_3 RETRYCOUNT_0")
        key, group, _ = self.member().split()
        return r.choice(
            [
                f"XCLAIM {self.member()} {idle} {self.some_ids()} {options.replace('x', self.id())}",
                f"XAUTOCLAIM {self.member()} {idle} {self.one_of('- 0')} COUNT {self.one_of('1 2 9')} "
                + self.one_of("_ JUSTID"),
                f"XNACK {key} {group} {self.one_of('SILENT FAIL FATAL')} {self.counted_ids()} {more}",
                f"XACK {key} {group} {self.some_ids()}",
                f"XACKDEL {key} {group} {self.policy()} {self.counted_ids()}",
            ]
        )

    def remove(self) -> str:
        return self.random.choice(
            [
                f"XDEL {self.key()} {self.some_ids()}",
                f"XDELEX {self.key()} {self.policy()} {self.counted_ids()}",
                f"XTRIM {self.key()} {self.cut()} {self.policy()}",
            ]
        )

    def group(self) -> str:
        key, group, consumer = self.member().split()
        after = self.random.choice(["0", "$", self.id()])
        read = self.one_of("_ _ ENTRIESREAD_3 ENTRIESREAD_-1 ENTRIESREAD_1000")
        return self.random.choice(
            [
                f"XGROUP CREATE {key} {group} {after} MKSTREAM {read}",
                f"XGROUP CREATE {key} {group} 0 MKSTREAM",
                f"XGROUP CREATE {key} {group} {after} {read}",
                f"XGROUP SETID {key} {group} {after} {read}",
                f"XGROUP CREATECONSUMER {key} {group} {consumer}",
                f"XGROUP DELCONSUMER {key} {group} {consumer}",
                self.one_of(f"XGROUP_DESTROY_{key}_{group} PING PING"),
            ]
        )

    def set_id(self) -> str:
        more = self.one_of("_ ENTRIESADDED_5 ENTRIESADDED_50_MAXDELETEDID_1-1 ENTRIESADDED_100")
        return f"XSETID {self.key()} {self.one_of(chr(32).join(self.ids[-9:]))} {more}"

    def string(self) -> str:
        key = self.one_of("k k l l k l k l u v")
        return self.random.choice(
            [
                f"SET {key} {self.random.randrange(50)} " + self.one_of("_ _ NX XX KEEPTTL PX_30 EX_1 GET"),
                f"SET {key} 1 PXAT {self.now + self.random.randrange(-20, 40)}",
                f"SETEX {key} 1 7",
                f"PSETEX {key} 20 7",
                f"GETEX {key} " + self.one_of("PERSIST PX_20 EXAT_1"),
                self.one_of(f"GETDEL_{key} GETSET_{key}_5 SETNX_{key}_1 MSET_k_1_l_2 MSETNX_k_1_v_2"),
                self.one_of(f"INCR_{key} DECRBY_{key}_3 INCRBYFLOAT_{key}_0.1 INCRBY_{key}_2"),
                f"APPEND {key} 1",
                f"SETRANGE {key} 3 ab",
            ]
        )

    def expiry(self) -> str:
        key = self.one_of("s t u u k l k l")
        if self.calm and key in "st" and self.random.random() < 0.9:
            return f"PEXPIRE {key} 99999"
        return self.random.choice(
            [
                f"PEXPIRE {key} {self.random.randrange(-5, 60)} " + self.one_of("_ NX XX GT LT"),
                f"PEXPIREAT {key} {self.now + self.random.randrange(-9, 90)}",
                f"EXPIRE {key} {self.one_of('0 1 2')}",
                f"EXPIREAT {key} {self.now // 1000 + 1}",
                f"PERSIST {key}",
                f"GET {key}",
            ]
        )

    def key_space(self) -> str:
        key, other = self.one_of("s t u v k"), self.one_of("u v k l s")
        if self.restoring and self.random.random() < 0.4:
            return f"RESTORE {other} {self.one_of('0 0 30 2000')} {key} REPLACE"
        return self.random.choice(
            [
                f"RENAME {key} {other}",
                f"RENAMENX {key} {other}",
                f"COPY {key} {other} " + self.one_of("_ REPLACE DB_1 DB_2_REPLACE"),
                f"MOVE {key} {self.one_of('0 1 2')}",
                f"SELECT {self.one_of('0 0 0 0 0 1 2')}",
                f"SWAPDB {self.one_of('0 1')} {self.one_of('1 2')}",
                self.one_of("DEL_k_v UNLINK_u FLUSHDB PING_PING PING PING PING FLUSHALL DBSIZE KEYS_*"),
            ]
        )

    def transaction(self) -> str:
        return self.one_of("MULTI EXEC EXEC EXEC DISCARD WATCH_s")


class Follower:
    """An engine that repeats effects, as one that reads a log does: long after; nothing dies meanwhile."""

    def __init__(self, now_ms: int) -> None:
        self.engine = Engine()
        self.engine.keyspace.keep_expired = True
        self.engine.record_effects(True)
        self.session = self.engine.session()
        self.session.replayed = True
        self.database = 0
        self.now = now_ms
        self.say([b"CONFIG", b"SET", b"stream-node-max-entries", b"3"])

    def say(self, words: list[bytes]) -> bytes:
        """Carry it out; the answer."""
        self.engine.execute(self.session, words, self.now)
        return self.session.reply.take()

    def repeat(self, effects: list[tuple[int, list[bytes]]]) -> None:
        """Carry effects out; none may fail."""
        for database, words in effects:
            if database != self.database:
                self.database = database
                self.say([b"SELECT", b"%d" % database])
            answer = self.say(words)
            assert b"-ERR" not in answer and b"-NOGROUP" not in answer, (words, answer)
