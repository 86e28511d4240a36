"""The arguments of every request of a consumer, for one stream, group and consumer name.

XCLAIM without JUSTID counts as a delivery; with JUSTID it only renews the lease. Redis 6.2 supports all of
these except XREADGROUP with CLAIM and XGROUP CFGSET, which are sent only if the server redelivers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Argv = Sequence[bytes]
FIRST_ID = b"0-0"
CLAIM_NOTHING_IDLE_MS = b"%d" % ((1 << 63) - 1)  # milliseconds


class ConsumerRequestBuilder:
    """Builds the requests of one consumer: methods return the arguments of a request, and send nothing."""

    __slots__ = (
        "_consumer_key",
        "_group_key",
        "_read_options",
        "_read_prefix",
        "consumer",
        "group",
        "stream",
    )

    def __init__(self, stream: bytes, group: bytes, consumer: bytes, server_redelivers: bool = False) -> None:
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self._group_key = (stream, group)
        self._consumer_key = (stream, group, consumer)
        self._read_prefix = (b"XREADGROUP", b"GROUP", group, consumer, b"COUNT")
        # With CLAIM, replies contain delivery counts; nothing has been idle for so long.
        self._read_options = (b"CLAIM", CLAIM_NOTHING_IDLE_MS) if server_redelivers else ()

    def read_new(self, count: int) -> Argv:
        """Read new entries."""
        return (*self._read_prefix, b"%d" % count, *self._read_options, b"STREAMS", self.stream, b">")

    def stream_and_groups_info(self) -> list[Argv]:
        """Read the state of the stream and of its groups."""
        return [(b"XINFO", b"STREAM", self.stream), (b"XINFO", b"GROUPS", self.stream)]

    def own_pending(self, after: bytes, count: int) -> Argv:
        """List the entries pending with this consumer after an ID."""
        return (b"XPENDING", *self._group_key, b"(" + after, b"+", b"%d" % count, self.consumer)

    def claim_idle(self, idle_ms: int, start: bytes, count: int) -> Argv:
        """Claim entries that have been idle for `idle_ms`, from an ID on.

        This is not counted as a delivery.
        """
        return (
            b"XAUTOCLAIM",
            *self._consumer_key,
            b"%d" % idle_ms,
            start,
            b"COUNT",
            b"%d" % count,
            b"JUSTID",
        )

    def redeliver(self, id: bytes) -> list[Argv]:
        """Deliver a pending entry again, and read its delivery count."""
        return [(b"XCLAIM", *self._consumer_key, b"0", id), self.pending_entry(id)]

    def pending_entry(self, id: bytes) -> Argv:
        """Read an entry's consumer, idle time and delivery count."""
        return (b"XPENDING", *self._group_key, id, id, b"1")

    def renew(self, ids: Iterable[bytes]) -> Argv:
        """Renew the leases of these entries."""
        return (b"XCLAIM", *self._consumer_key, b"0", *ids, b"JUSTID")

    def release(self, id: bytes, idle_ms: int, deliveries: int | None) -> Argv:
        """Leave an entry pending with an idle time of idle_ms.

        With an idle time of a full lease, other consumers can claim the entry at once.
        deliveries: the count to restore for an entry that was not begun; None keeps the count.
        """
        count = () if deliveries is None else (b"RETRYCOUNT", b"%d" % deliveries)
        return (b"XCLAIM", *self._consumer_key, b"0", id, b"IDLE", b"%d" % idle_ms, *count, b"JUSTID")

    def make_pending_again(self, id: bytes, deliveries: int) -> Argv:
        """Make an entry pending again, with this number of deliveries."""
        return (
            b"XCLAIM",
            *self._consumer_key,
            b"0",
            id,
            b"RETRYCOUNT",
            b"%d" % deliveries,
            b"FORCE",
            b"JUSTID",
        )

    def acknowledge(self, ids: Iterable[bytes]) -> Argv:
        """Acknowledge these entries."""
        return (b"XACK", *self._group_key, *ids)

    def move_to_dead_letters(self, dead_letters: bytes, id: bytes, fields: Iterable[bytes]) -> list[Argv]:
        """Add a dead letter and acknowledge the entry; execute both as a transaction."""
        return [(b"XADD", dead_letters, b"*", *fields), self.acknowledge((id,))]

    def set_rules(self, words: Iterable[bytes]) -> Argv:
        """Set rules of the group."""
        return (b"XGROUP", b"CFGSET", *self._group_key, *words)

    def create_group(self, start: bytes) -> Argv:
        """Create the group, and its stream if there is none."""
        return (b"XGROUP", b"CREATE", *self._group_key, start, b"MKSTREAM")

    def __str__(self) -> str:
        return " ".join(word.decode(errors="replace") for word in self._consumer_key)
