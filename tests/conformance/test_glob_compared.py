"""Glob patterns describe the keys that a real redis-server says they do: random patterns, by seed."""

import itertools
import random

from headrace.keyspace.glob import Glob
from headrace.resp.reply_parser import ReplyParser

PIECES = [b"a", b"b", b"-", b"*", b"?", b"[", b"]", b"^", b"\\", b"[ab]", b"[^a]", b"[a-b]", b"[b-a]", b"\\]"]
LETTERS = [b"a", b"b", b"-", b"]", b"[", b"^", b"\\", b"*"]
KEYS = [b"".join(word) for n in range(4) for word in itertools.product(LETTERS, repeat=n)]


def store(peer, keys):
    peer.control.send([b"FLUSHALL"])
    peer.control.reply()
    peer.control.send([b"MSET", *(word for key in keys for word in (key, b""))])
    assert peer.control.reply() == b"+OK\r\n"


def found(peer, pattern):
    """The keys that redis-server finds."""
    peer.control.send([b"KEYS", pattern])
    parser = ReplyParser()
    parser.feed(peer.control.reply())
    return set(parser.next())


def test_random_patterns_find_the_same_keys(peer):
    chance = random.Random(7)
    store(peer, KEYS)
    for _ in range(300):
        pattern = b"".join(chance.choices(PIECES, k=chance.randint(0, 5)))
        glob = Glob(pattern)
        ours = set(KEYS) if pattern == b"*" else {key for key in KEYS if glob.matches(key)}
        assert ours == found(peer, pattern), pattern


def test_long_patterns_find_the_same_long_keys(peer):
    """Long enough that going back to the last star is given up."""
    chance = random.Random(11)
    runs = [b"a" * 40, b"ab" * 30, b"a", b"b", b"aab" * 9, b"-" * 3]
    keys = sorted({b"".join(chance.choices(runs, k=chance.randint(1, 8))) for _ in range(300)})
    store(peer, keys)
    pieces = [*runs, b"[ab]" * 20, b"?" * 20, b"a?" * 10, b"[^-]" * 18, b"*", b"*", b"*", b"\\a" * 20, b"[a"]
    for _ in range(400):
        pattern = b"*" + b"".join(chance.choices(pieces, k=chance.randint(1, 6)))
        glob = Glob(pattern)
        assert {key for key in keys if glob.matches(key)} == found(peer, pattern), pattern
