"""The words of every request that a consumer makes, for one stream, group and consumer.

A claim without JUSTID counts as a delivery; with it, only the lease is renewed. Redis 6.2 understands all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Words = Sequence[bytes]
NONE_YET = b"0-0"


class Requests:
    """What a consumer says to its server."""

    __slots__ = ("_key", "_me", "_start", "consumer", "group", "stream")

    def __init__(self, stream: bytes, group: bytes, consumer: bytes) -> None:
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self._key = (stream, group)
        self._me = (stream, group, consumer)
        self._start = (b"XREADGROUP", b"GROUP", group, consumer, b"COUNT")

    def read(self, count: int) -> Words:
        """New entries."""
        return (*self._start, b"%d" % count, b"STREAMS", self.stream, b">")

    def own(self, after: bytes, count: int) -> Words:
        """What this consumer has pending, behind an ID."""
        return (b"XPENDING", *self._key, b"(" + after, b"+", b"%d" % count, self.consumer)

    def sweep(self, idle_ms: int, start: bytes, count: int) -> Words:
        """Take what has been idle for so long, from an ID on; no delivery yet, so it is not counted."""
        return (b"XAUTOCLAIM", *self._me, b"%d" % idle_ms, start, b"COUNT", b"%d" % count, b"JUSTID")

    def begin(self, id: bytes) -> list[Words]:
        """Deliver a pending entry once more, and tell how often that was."""
        return [(b"XCLAIM", *self._me, b"0", id), self.look(id)]

    def look(self, id: bytes) -> Words:
        """Whose an entry is, for how long, and how often it was delivered."""
        return (b"XPENDING", *self._key, id, id, b"1")

    def renew(self, ids: Iterable[bytes]) -> Words:
        """A sign of life: these are being worked on."""
        return (b"XCLAIM", *self._me, b"0", *ids, b"JUSTID")

    def give_back(self, id: bytes, idle_ms: int, deliveries: int | None) -> Words:
        """Leave an entry pending as if silent for idle_ms: with the lease, others take it at once.

        deliveries: what the count was before, when this one never began.
        """
        count = () if deliveries is None else (b"RETRYCOUNT", b"%d" % deliveries)
        return (b"XCLAIM", *self._me, b"0", id, b"IDLE", b"%d" % idle_ms, *count, b"JUSTID")

    def restore(self, id: bytes, deliveries: int) -> Words:
        """Make an entry pending that no longer is."""
        return (b"XCLAIM", *self._me, b"0", id, b"RETRYCOUNT", b"%d" % deliveries, b"FORCE", b"JUSTID")

    def acknowledge(self, ids: Iterable[bytes]) -> Words:
        """These are done with."""
        return (b"XACK", *self._key, *ids)

    def bury(self, dead_letters: bytes, id: bytes, fields: Iterable[bytes]) -> list[Words]:
        """To the dead letters, and done with: to be executed as one."""
        return [(b"XADD", dead_letters, b"*", *fields), self.acknowledge((id,))]

    def create(self, start: bytes) -> Words:
        """Make the group, and its stream if there is none."""
        return (b"XGROUP", b"CREATE", *self._key, start, b"MKSTREAM")

    def __str__(self) -> str:
        return " ".join(word.decode(errors="replace") for word in self._me)
