"""The stream commands answer a real redis-server's bytes: fixed conversations, and random ones by seed.

Left to tests/commands, for the engine follows Redis 8 where 7.0 differs: `+` in XREAD and the text of an
unbalanced XREAD (7.4), a BLOCK beyond all time (7.2), `ms-*` when that millisecond's sequences are used up,
a blocked XREAD whose entry is gone before it is served (7.0 answers an empty list, 8 waits on).
"""

from __future__ import annotations

import pathlib
import re

import pytest

from conformance import seeds
from conformance.follower import Follower
from conformance.peer import Pair, conversations, differ
from support.command_generator import CommandGenerator, alternatives, read_grammar

LAST = "18446744073709551615"

GRAMMAR = read_grammar("streams")
ODD_IDS = [word.decode() for word in alternatives(GRAMMAR["odd-id"])]
ODD_IDS += ["-", "+", "*", "0" * 126 + "9", "0" * 127 + "9", "0" * 124 + "9-9", "9" * 128]
ODD_NUMBERS = [word.decode() for word in alternatives(GRAMMAR["odd-number"])]


# Redis 8 refuses this, 7.0 does not: what 7.0 would do afterwards is not comparable.
NEWER = b"-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id\r\n"
# Reworded in 7.2 and 7.4; the engine has the newest words.
UNBALANCED_7_0 = (
    b"-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.\r\n"
)


# XINFO STREAM: what is said of idempotent producers since 8.6, and the sizes with and without it.
PRODUCERS = re.compile(rb"\$13\r\nidmp-duration\r\n.*?\$15\r\niids-duplicates\r\n:\d+\r\n", re.DOTALL)
SIZES = {b"*32": b"*20", b"*30": b"*18", b"%16": b"%10", b"%15": b"%9"}


def without_producers(reply: bytes) -> bytes:
    """A reply to XINFO STREAM with the fields that 7.0 has."""
    head, _, rest = reply.partition(b"\r\n")
    return b"\r\n".join((SIZES.get(head, head), PRODUCERS.sub(b"", rest)))


class StreamPair(Pair):
    """Replies are equal, but for what is newer than 7.0."""

    def now(self):
        return 1000

    def both(self, argv, compare=True):
        super().both([word.encode() if isinstance(word, str) else word for word in argv], compare)

    def is_rejected_by_newer_servers_only(self, ours):
        return ours == NEWER and self.version < (8,)

    def agree(self, argv, ours, theirs):
        if ours.startswith(b"-ERR Unbalanced") and self.version < (7, 2):
            ours = UNBALANCED_7_0
        if argv[0] == b"XINFO" and self.version < (8, 6):
            ours = without_producers(ours)
        differ("A", argv, ours, theirs)


@pytest.fixture
def pair(peer):
    pair = StreamPair(peer)
    yield pair
    pair.connection.close()


CONVERSATIONS = {
    heading: [line.split() for line in text.replace("LAST", LAST).splitlines()]
    for heading, text in conversations(pathlib.Path(__file__).with_name("streams.txt")).items()
}
BEFORE = CONVERSATIONS.pop("before")
CONVERSATIONS |= {
    "odd ids": [
        words
        for odd in ODD_IDS
        for words in (
            ["XRANGE", "s", odd, "+"],
            ["XRANGE", "s", "-", odd],
            ["XREVRANGE", "s", "+", odd],
            ["XREVRANGE", "s", odd, "-"],
            ["XREAD", "STREAMS", "s", "0" if odd == "+" else odd],
            ["XDEL", "t", odd],
            ["XTRIM", "t", "MINID", odd],
            ["XSETID", "s", odd],
            ["XSETID", "s", "50", "MAXDELETEDID", odd],
            ["DEL", "u"],
            ["XADD", "u", "0" if odd == "*" else odd, "f", "v"],
            ["XADD", "u", "NOMKSTREAM", "0" if odd == "*" else odd, "f", "v"],
            ["XADD", "u", "MAXLEN", "5", "0" if odd == "*" else odd, "f", "v"],
        )
    ],
    "odd numbers": [
        words
        for odd in ODD_NUMBERS
        for words in (
            ["XRANGE", "s", "-", "+", "COUNT", odd],
            ["XREAD", "COUNT", odd, "STREAMS", "s", "0"],
            ["XREAD", "BLOCK", "0" if odd.startswith("9") else odd, "STREAMS", "s", "0"],
            ["XINFO", "STREAM", "s", "FULL", "COUNT", odd],
            ["XSETID", "s", "50", "ENTRIESADDED", odd],
            ["XTRIM", "t", "MAXLEN", "~", "5", "LIMIT", odd],
            ["XTRIM", "t", "MAXLEN", odd],
        )
    ],
}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_the_same(pair, name, protocol):
    pair.both(["HELLO", str(protocol)], compare=False)
    for words in BEFORE + CONVERSATIONS[name]:
        pair.both(words)


SEEDS, TURNS = seeds.chosen(compiled=(6, 2500), interpreted=(2, 400))


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_are_answered_the_same(pair, seed, protocol):
    pair.both(["HELLO", str(protocol)], compare=False)
    pair.both(["DEL", "s", "t", "u", "none", "string"])
    pair.both(["CONFIG", "SET", "stream-node-max-entries", "3"])
    pair.cool_if(seed % 2)
    for argv in CommandGenerator("streams", 1000 * protocol + seed).commands(TURNS):
        pair.both(argv)
    for key in ("s", "t", "u"):
        pair.both(["XINFO", "STREAM", key, "FULL", "COUNT", "0"])
        pair.both(["XREVRANGE", key, "+", "-"])


@pytest.mark.parametrize("seed", SEEDS)
def test_words_in_any_order_are_refused_the_same(pair, seed):
    """Of several mistakes, the reported one shows the order of the checks."""
    generator = CommandGenerator("streams", seed)
    for words in BEFORE:
        pair.both(words)
    for _ in range(TURNS):
        pair.both(generator.command("shuffled"))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_have_the_same_effects(pair, seed):
    pair.both(["CONFIG", "SET", "stream-node-max-entries", "3"])
    pair.both(["DEL", "s", "t", "u", "none", "string"])
    pair.cool_if(seed % 2)
    follower = Follower(pair.port)
    try:
        pair.engine.set_effect_recording(True)
        for argv in CommandGenerator("streams", seed).commands(TURNS):
            pair.both(argv)
        pair.both(["SET", "that", "is all"])
        theirs = follower.until([b"SET", b"that", b"is all"])
    finally:
        follower.close()
    ours = [words for _, words in pair.engine.effects.take()][:-1]
    for i in range(max(len(ours), len(theirs))):
        assert ours[i : i + 1] == theirs[i : i + 1], f"effect {i}, after {theirs[max(0, i - 3) : i]}"


@pytest.mark.parametrize("protocol", [2, 3])
def test_those_who_wait_are_answered_the_same(peer, protocol):
    peer.compare(
        """
        XADD s 5-0 n 1
        B> XREAD BLOCK 0 STREAMS none s $ $
        C> XREAD COUNT 1 BLOCK 0 STREAMS s 5
        XADD s 5-0 n 2
        XADD s 6-0 n 2
        B> XREAD BLOCK 0 STREAMS s 9
        XADD s 7-0 n 3
        DEL s
        SET s string
        DEL s
        XADD s 9-0 n 4
        XSETID s 10-0
        MULTI
        XREAD BLOCK 0 STREAMS s $
        EXEC
        MULTI
        XADD s 12-0 n 6
        XADD s 13-0 n 7
        EXEC
        B> XREAD BLOCK 500 STREAMS s $
        sleep 900
        B> XREAD BLOCK 0 STREAMS s $
        C> XREAD BLOCK 0 STREAMS s 13-0
        XADD s MAXLEN 1 14-0 n 8
        XADD s 15-0 n 9
        """,
        protocol,
    )
