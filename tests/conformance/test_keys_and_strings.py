"""Keys and strings answer a real redis-server's bytes: fixed conversations, and random ones by seed.

Moments are given as such (EXAT, PEXPIREAT) and far away, so that no answer depends on when it is asked for.
"""

from __future__ import annotations

import pathlib
import random
import shlex

import pytest
import seeds
from peer import conversations

from headrace.engine.engine import Engine

HERE = pathlib.Path(__file__).parent
I64_MAX, I64_MIN = "9223372036854775807", "-9223372036854775808"
ODD_NUMBERS = ["", "x", "-0", "+1", "01", "1.5", " 1", "1 ", "1x", "0x1", "-", I64_MAX, I64_MIN]
ODD_NUMBERS += ["9223372036854775808", "-9223372036854775809", "18446744073709551615", "99999999999999999999"]
LATER = 4_102_444_800  # seconds: the year 2100
SETUP = ["FLUSHALL", "SET k value", "SET n 10", f"SET e v EXAT {LATER}", "XADD st 1-1 f v"]


CONVERSATIONS = {
    heading: [line for line in text.splitlines() if line]
    for name in ("strings.txt", "keys.txt")
    for heading, text in conversations(HERE / name).items()
}


@pytest.fixture(params=[2, 3])
def ask(peer, request):
    """Sends the words of a request to both servers, which must answer the same."""
    both = peer.both(request.param)
    yield lambda words: both.say("A", [w if isinstance(w, bytes) else w.encode() for w in words])
    both.close()


def words(line: str) -> list[bytes]:
    """The words of a line, its \\x escapes resolved."""
    return [word.encode().decode("unicode_escape").encode("latin-1") for word in shlex.split(line)]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_the_same(ask, name):
    for line in SETUP + CONVERSATIONS[name]:
        ask(words(line))


WANT_A_NUMBER = """
    INCRBY n ?
    DECRBY n ?
    GETRANGE k ? 3
    GETRANGE k 0 ?
    SETRANGE st ? v
    SET none v XX PX ?
    SET none v XX EX ?
    EXPIRE none ?
    PEXPIRE none ?
    EXPIREAT none ?
    PEXPIREAT none ?
    COPY k k DB ?
    SCAN 0 TYPE nothing COUNT ?
    MOVE none ?
    SWAPDB ? 99
    SWAPDB 99 ?
"""


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_odd_numbers_are_read_or_refused_the_same(ask, text):
    for line in SETUP:
        ask(words(line))
    ask(["SET", "n", text])
    ask(["INCR", "n"])
    ask(["SET", "n", "0"])
    for line in WANT_A_NUMBER.strip().splitlines():
        ask([text if word == "?" else word for word in line.split()])


NUMBERS = """
    0 1 -1 0.1 0.2 -0.3 3.0e3 1e17 1e18 12345678901234567890 1e-17 1e-18 3.14159265358979323846 9999999.99
    0.30000000000000004 1e300 -1e4000 1e-4000 1.5e-5 0x10 0x.8p1 -0X1P-3 5. .5 +5 -0 -0.0 0e99999999999 1e4932
    1.2e4932 1e-4951 1e-4940 1e5000 1e-5000 1e999999999999 inf -Infinity nan . e5 1e 1e+ 0x 1_0 1,5 ++1 1e5x
    18446744073709551615.5 36893488147419103233 0.000000000000000005
"""
ODD_TEXTS = ["", " 1", "1 ", "1\0", "9" * 4400, "0." + "1" * 200, "9" * 5119, "9" * 5120]


@pytest.mark.parametrize("number", NUMBERS.split() + ODD_TEXTS, ids=lambda number: repr(number[:24]))
def test_sums_with_fractions_have_the_same_digits(ask, number):
    for other in ["0", "1", "-1", "0.1", "1e-17", "3.3e20", "-9007199254740993.25", number]:
        ask(["SET", "x", other])
        ask(["INCRBYFLOAT", "x", number])
        ask(["GET", "x"])


ARRIVALS = {
    "rename": "RENAME s new",
    "renamenx": "RENAMENX s new",
    "copy": "COPY s new",
    "copy over a string": "SET new x / COPY s new REPLACE",
    "rename over a string": "SET new x / RENAME s new",
    "from another database": "SELECT 1 / XADD new 1-1 f v / MOVE new 0",
    "copy from another database": "SELECT 1 / XADD s 1-1 f v / COPY s new DB 0",
    "swap": "SELECT 1 / XADD new 1-1 f v / SWAPDB 0 1",
    "nothing": "RENAME s other / SET new x / DEL new / EXPIRE s 0 / FLUSHDB / XADD new 1-1 f v",
    "in a transaction": "MULTI / RENAME s new / DEL new / EXEC / XADD new 2-2 f v",
}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", ARRIVALS)
def test_a_blocked_reader_is_served_when_a_stream_is_moved_to_its_key(peer, name, protocol):
    both = peer.both(protocol)
    both.say("A", [b"XADD", b"s", b"1-1", b"f", b"v"])
    both.say("B", b"XREAD BLOCK 0 STREAMS new 0".split())
    for line in ARRIVALS[name].split("/"):
        both.say("A", line.encode().split())
    both.say("B", [b"PING"])
    both.close()


class Chatter:
    """Random commands on a few keys in two databases, with small values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def key(self) -> str:
        return self.random.choice("abcdefgh")

    def value(self) -> str:
        r = self.random
        if r.random() < 0.5:
            return str(r.randrange(-20, 20))
        return r.choice(
            ["", "x", "yes", "2.5", "-1e3", "é", "\0\r\n", I64_MAX, I64_MIN, "z" * r.randrange(60)]
        )

    def number(self) -> str:
        r = self.random
        return r.choice(ODD_NUMBERS) if r.random() < 0.05 else str(r.randrange(-12, 12))

    def moment(self) -> list[str]:
        r = self.random
        return r.choice(
            [["EXAT", str(LATER + r.randrange(5))], ["PXAT", str(LATER * 1000 + r.randrange(3000))]]
        )

    def some(self, *options: list[str]) -> list[str]:
        """Some of the options; seldom too many of them."""
        r = self.random
        chosen = r.sample(options, min(len(options), r.choice([0, 0, 1, 1, 1, 2, 3])))
        return [word for option in chosen for word in option]

    def words(self) -> list[str]:
        kinds = [self.store] * 6 + [self.read] * 4 + [self.count] * 3 + [self.part] * 3 + [self.expire] * 4
        return self.random.choice([*kinds, self.move, self.move, self.remove, self.several, self.whole])()

    def store(self) -> list[str]:
        r = self.random
        key, value = self.key(), self.value()
        options = self.some(["NX"], ["XX"], ["GET"], ["KEEPTTL"], self.moment(), self.moment())
        return r.choice(
            [
                ["SET", key, value],
                ["SET", key, value, *options],
                ["SET", key, value, *options],
                ["SETNX", key, value],
                ["GETSET", key, value],
                ["GETEX", key, *self.some(["PERSIST"], self.moment(), self.moment())],
                ["GETDEL", key],
                ["XADD", key, f"{r.randrange(1, 50)}-1", "f", value],
            ]
        )

    def read(self) -> list[str]:
        kinds = [["GET"], ["TYPE"], ["STRLEN"], ["PEXPIRETIME"], ["EXPIRETIME"], ["EXISTS"]]
        kinds += [["OBJECT", "ENCODING"], ["XLEN"]]  # REFCOUNT: a copied integer is not shared in Redis
        return [*self.random.choice(kinds), self.key()]

    def count(self) -> list[str]:
        r = self.random
        name = r.choice(["INCR", "DECR", "INCRBY", "DECRBY"])
        return [name, self.key()] if name in ("INCR", "DECR") else [name, self.key(), self.number()]

    def part(self) -> list[str]:
        name = self.random.choice(["APPEND", "GETRANGE", "GETRANGE", "SETRANGE"])
        if name == "APPEND":
            return [name, self.key(), self.value()]
        offset = self.number() if name == "GETRANGE" else str(self.random.randrange(-1, 30))
        return [name, self.key(), offset, self.number()]

    def expire(self) -> list[str]:
        r = self.random
        if r.random() < 0.3:
            return ["PERSIST", self.key()]
        moment = str(LATER * 1000 + r.randrange(5000)) if r.random() < 0.95 else self.number()
        return ["PEXPIREAT", self.key(), moment, *self.some(["NX"], ["XX"], ["GT"], ["LT"])]

    def move(self) -> list[str]:
        r = self.random
        key, other = self.key(), self.key()
        database = str(r.randrange(2))
        return r.choice(
            [
                ["RENAME", key, other],
                ["RENAMENX", key, other],
                ["COPY", key, other, *self.some(["REPLACE"], ["DB", database])],
                ["COPY", key, other, *self.some(["REPLACE"], ["DB", database])],
                ["MOVE", key, database],
                ["SELECT", database],
            ]
        )

    def remove(self) -> list[str]:
        name = self.random.choice(["DEL", "UNLINK", "EXISTS", "TOUCH"])
        return [name, *[self.key() for _ in range(self.random.randrange(1, 4))]]

    def several(self) -> list[str]:
        r = self.random
        name = r.choice(["MSET", "MSETNX", "MGET"])
        keys = [self.key() for _ in range(r.randrange(1, 4))]
        return [name, *keys] if name == "MGET" else [name, *[w for key in keys for w in (key, self.value())]]

    def whole(self) -> list[str]:
        r = self.random
        return ["DBSIZE"] if r.random() < 0.9 else r.choice([["FLUSHDB"], ["SWAPDB", "0", "1"]])


SEEDS, TURNS = seeds.chosen(compiled=(6, 4000), interpreted=(3, 1500))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_are_answered_the_same(ask, seed):
    chatter = Chatter(seed)
    for _ in range(TURNS):
        ask(chatter.words())
    for database in "01":
        ask(["SELECT", database])
        for key in "abcdefgh":
            ask(["TYPE", key])
            ask(["GET", key])
            ask(["PEXPIRETIME", key])


def contents(engine: Engine) -> list[bytes]:
    """What the keys of the first two databases hold, and until when."""
    session = engine.session()
    for database in (b"0", b"1"):
        engine.execute(session, [b"SELECT", database], 0)
        for key in b"abcdefgh":
            for request in (b"TYPE %c", b"GET %c", b"PEXPIRETIME %c", b"XRANGE %c - +"):
                engine.execute(session, (request % key).split(), 0)
    return session.reply.take().splitlines()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_of_random_commands_does_again_what_they_did(seed):
    chatter = Chatter(seed)
    engine, again = Engine(), Engine()
    engine.record_effects(True)
    speaker, reader = engine.session(), again.session()
    now = 1_700_000_000_000
    for turn in range(TURNS):
        engine.execute(speaker, [word.encode() for word in chatter.words()], now + turn)
    for database, argv in engine.effects.take():
        again.execute(reader, [b"SELECT", b"%d" % database], now)
        assert reader.reply.take() == b"+OK\r\n"
        again.execute(reader, argv, now)
        assert not reader.reply.take().startswith(b"-"), argv
    assert contents(again) == contents(engine)


PATTERNS = r"""
    * ? a* *a *a*b* ** *?* [abc]* [^a]* [a-c]? [c-a]? [a-b-c] [^a-c]? [a-]* [-a]* [z-] ?[*]? a[]] []a] *[
    [ [] [^] [^ [a a[ [\ [\a [\]]* \ \* \a a\ *\ h[ae]llo h[^e]llo h?llo h*llo
"""
NAMES = r"""
    a b c ab aab ba * [ ] [] a[ \ a\ - hello hallo x*y ^ z
"""


@pytest.mark.parametrize("pattern", ["", *PATTERNS.split()])
def test_a_pattern_describes_the_same_keys(ask, pattern):
    for name in NAMES.split():  # one at a time: the order of keys in an answer is nobody's promise
        ask(["SET", name, "v"])
        ask(["KEYS", pattern])
        ask(["SCAN", "0", "MATCH", pattern, "COUNT", "100"])
        ask(["DEL", name])
