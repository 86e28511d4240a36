"""What only Redis 8.6 and later know, beside such a server: HEADRACE_TEST_REDIS=/path/to/redis-server.

How long entries were idle is compared as "just now" or "long ago". The facts themselves are tested without a
server in tests/commands.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.peer import Pair, Peer, differ, value, words

LONG_MS = 600_000
DELIVERED = """
    XADD s 1-0 f v
    XADD s 2-0 f v
    XADD s 3-0 f v
    XADD s 4-0 f v
    XGROUP CREATE s g 0
    XREADGROUP GROUP g ann COUNT 2 STREAMS s >
    XCLAIM s g ann 0 1-0 IDLE 3600000 RETRYCOUNT 5 JUSTID
"""
CONVERSATIONS = {
    "NOACK and CLAIM": DELIVERED
    + """
    XREADGROUP GROUP g bob COUNT 1 CLAIM 600000 NOACK STREAMS s >
    XPENDING s g - + 10
    XREADGROUP GROUP g bob COUNT 1 CLAIM 600000 NOACK STREAMS s >
    XREADGROUP GROUP g bob NOACK CLAIM 600000 STREAMS s >
    XREADGROUP GROUP g bob NOACK CLAIM 0 STREAMS s >
    XREADGROUP GROUP g bob NOACK CLAIM 600000 STREAMS s >
    XREADGROUP GROUP g bob NOACK CLAIM 0 STREAMS s 0
    XPENDING s g - + 10
    XPENDING s g
    """,
    "a delivery count of zero": DELIVERED
    + """
    XCLAIM s g ann 0 1-0 IDLE 3600000 RETRYCOUNT 0 JUSTID
    XCLAIM s g ann 0 2-0 IDLE 0 RETRYCOUNT 0
    XPENDING s g - + 10
    XREADGROUP GROUP g bob COUNT 1 CLAIM 600000 STREAMS s >
    XREADGROUP GROUP g bob COUNT 2 CLAIM 0 STREAMS s >
    XPENDING s g - + 10
    XCLAIM s g ann 0 3-0 4-0 IDLE 3600000 FORCE RETRYCOUNT 0 JUSTID
    XREADGROUP GROUP g bob CLAIM 600000 STREAMS s >
    XPENDING s g - + 10
    """,
    "conditions of SET": """
    XADD s 1-0 f v
    SET k v
    SET k w IFEQ v NX
    SET k w IFEQ v XX
    SET k x IFEQ other IFEQ w
    SET k y IFEQ x IFEQ other
    SET k y GET IFEQ x NX
    SET k y IFEQ x EX 100 XX
    SET k z XX IFEQ y
    SET k z NX IFEQ y
    SET k z IFEQ y XX IFEQ y
    SET k z IFEQ y NX XX
    SET k z IFEQ y IFNE y
    SET k z IFDEQ 0 NX
    SET k z IFDEQ 0 XX
    SET none v IFEQ v NX
    SET none v IFNE v XX
    SET none v IFDNE 0 NX
    SET s v IFEQ v NX
    SET s v IFEQ v XX
    SET s v GET IFEQ v NX
    GET k
    GET none
    """,
}


class NewerPair(Pair):
    """Replies are equal, but for times."""

    def agree(self, argv: list[bytes], ours: bytes, theirs: bytes) -> None:
        if without_times(argv, value(ours)[0]) != without_times(argv, value(theirs)[0]):
            differ("A", argv, ours, theirs)


def without_times(argv: list[bytes], reply: Any) -> Any:
    """The reply with idle times as words."""
    if argv[0] == b"XPENDING" and len(argv) > 3:
        return [[row[0], row[1], row[2] > LONG_MS, row[3]] for row in reply]
    if b"CLAIM" in argv and argv[-1] == b">" and isinstance(reply, list):
        return [[key, [[*row[:2], row[2] > LONG_MS, *row[3:]] for row in rows]] for key, rows in reply]
    return reply


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_with_a_newer_server_is_the_same(peer: Peer, name: str) -> None:
    if peer.version < (8, 6):
        pytest.skip("it knows no CLAIM, or no conditions of SET")
    pair = NewerPair(peer)
    for line in CONVERSATIONS[name].splitlines():
        if line.strip():
            pair.both(words(line))
    pair.close()
