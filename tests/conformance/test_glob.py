"""Glob patterns describe the keys that a real redis-server says they do: random patterns, by seed."""

import itertools
import random

from headrace.keyspace import scan
from headrace.resp.replies import ReplyParser

PIECES = [b"a", b"b", b"-", b"*", b"?", b"[", b"]", b"^", b"\\", b"[ab]", b"[^a]", b"[a-b]", b"[b-a]", b"\\]"]
LETTERS = [b"a", b"b", b"-", b"]", b"[", b"^", b"\\", b"*"]
# The empty key is left out: `**` does not find it in Redis, which looks at no pattern when there is no text.
KEYS = [b"".join(word) for n in range(1, 4) for word in itertools.product(LETTERS, repeat=n)]


def test_random_patterns_find_the_same_keys(peer):
    chance = random.Random(7)
    words = [word for key in KEYS for word in (key, b"")]
    peer.control.send([b"FLUSHALL"])
    peer.control.reply()
    peer.control.send([b"MSET", *words])
    assert peer.control.reply() == b"+OK\r\n"
    for _ in range(300):
        pattern = b"".join(chance.choices(PIECES, k=chance.randint(0, 5)))
        peer.control.send([b"KEYS", pattern])
        parser = ReplyParser()
        parser.feed(peer.control.reply())
        ours = {key for key in KEYS if scan.matches(pattern, key)}
        assert ours == set(parser.next()), pattern
