"""Keys and strings answer a real redis-server's bytes: fixed conversations, and random ones by seed.

Moments are given as such (EXAT, PEXPIREAT) and far away, so that no answer depends on when it is asked for.
"""

from __future__ import annotations

import pathlib
import random
import shlex

import pytest

from conformance import seeds
from conformance.peer import conversations
from headrace.engine.engine import Engine
from support.command_generator import CommandGenerator, alternatives, read_grammar

HERE = pathlib.Path(__file__).parent
ODD_NUMBERS = [word.decode() for word in alternatives(read_grammar("keys")["odd-number"])]
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
    yield lambda words, compared=True: both.say(
        "A", [w if isinstance(w, bytes) else w.encode() for w in words], compared
    )
    both.close()


def words(line: str) -> list[bytes]:
    """The words of a line, its \\x escapes resolved."""
    return [word.encode().decode("unicode_escape").encode("latin-1") for word in shlex.split(line)]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_the_same(peer, ask, name):
    for line in SETUP + CONVERSATIONS[name]:
        request, _, below = line.partition(" #<")  # the reply is compared with servers below this version
        ask(words(request), not below or peer.version < tuple(map(int, below.split("."))))


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


@pytest.mark.parametrize("letters", ["a", "ab", "abcd", "abcdefghijklmnop"])
def test_subsequences_of_random_strings_are_the_same(ask, letters):
    """Several have the same length: both servers choose the same one."""
    pick = random.Random(letters)
    for _ in range(25):
        for key in "ab":
            ask(["SET", key, "".join(pick.choices(letters, k=pick.randint(0, 40)))])
        ask(["LCS", "a", "b"])
        ask(["LCS", "a", "b", "LEN"])
        ask(["LCS", "a", "b", "IDX", "WITHMATCHLEN", "MINMATCHLEN", str(pick.randint(0, 4))])


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


SEEDS, TURNS = seeds.chosen(compiled=(6, 4000), interpreted=(3, 1500))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_are_answered_the_same(ask, seed):
    for argv in CommandGenerator("keys", seed).commands(TURNS):
        ask(argv)
    for database in "01":
        ask(["SELECT", database])
        for key in "abcdefgh":
            ask(["TYPE", key])
            ask(["GET", key])
            ask(["PEXPIRETIME", key])


def contents(engine: Engine) -> list[bytes]:
    """What the keys of the first two databases hold, and until when."""
    session = engine.create_session()
    for database in (b"0", b"1"):
        engine.execute(session, [b"SELECT", database], 0)
        for key in b"abcdefgh":
            for request in (b"TYPE %c", b"GET %c", b"PEXPIRETIME %c", b"XRANGE %c - +"):
                engine.execute(session, (request % key).split(), 0)
    return session.reply.take().splitlines()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_of_random_commands_does_again_what_they_did(seed):
    engine, again = Engine(), Engine()
    engine.set_effect_recording(True)
    speaker, reader = engine.create_session(), again.create_session()
    now = 1_700_000_000_000
    for turn, argv in enumerate(CommandGenerator("keys", seed).commands(TURNS)):
        engine.execute(speaker, argv, now + turn)
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
