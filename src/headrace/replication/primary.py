"""The primary's stream, kept in its backlog, and the replicas that read it.

    effects of a turn ── SELECT, XADD ..., MULTI ... EXEC ──▶ backlog ──▶ each online replica
                         the bytes that the log gets, too

On a replica the stream is that of its own primary, byte for byte: see feed_raw().

All replicas read the same stream, so that positions mean the same everywhere. The stream is translated (see
translation.py) while a replica, or a replica of a replica, knows only the commands of Redis 7.0; and for
TRANSLATION_GRACE_MS after the connection of such a replica was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.commands.session import Session
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.encoded_effects import EncodedEffects
from headrace.persistence.aof.log_buffer import DatabaseRequest, LogBuffer
from headrace.persistence.rule_records import TRANSLATION_START_WORDS, rule_record
from headrace.replication.backlog import Backlog
from headrace.replication.history import History
from headrace.replication.translation import (
    Redis7EquivalentFunction,
    Translator,
    first_unsupported_command,
    no_redis7_equivalent,
)

PING = b"*1\r\n$4\r\nPING\r\n"
GETACK = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n"
POSITION_MAX = 1 << 62
TRANSLATION_GRACE_MS = 60_000  # how long the stream is translated for a replica whose connection was lost
CHECKED_BYTES_MAX = 16 << 20  # bytes of the stream that are searched for newer commands for one replica

HEADRACE_CAPABILITY = "headrace"  # the capability of a replica that knows all commands

# States of a replica, as INFO shows them.
WAITS, RECEIVES, ONLINE = "wait_bgsave", "send_bulk", "online"


@dataclass(eq=False)
class Replica:
    """One connected replica. Positions are bytes of the stream; times are milliseconds since 1970."""

    session: Session
    connection: Any  # the event loop's
    host: str
    port: int = 0  # where it listens, as it announced
    capabilities: set[str] = field(default_factory=set)
    rdb_only: bool = False  # it closes after the snapshot
    without_keys: bool = False  # it wants libraries of functions only
    used_legacy_sync: bool = False  # it used SYNC: it never acknowledges
    wants_translation: bool = False  # it knows all commands, but replicas of its own do not
    state: str = ""
    position: int = 0  # the next byte to send
    acknowledged_offset: int = -1  # what it has applied; -1: it may not have loaded its snapshot yet
    synced_offset: int = -1  # what it has synced to its log
    acknowledged_ms: int = 0
    waits_for_ack: bool = False  # it is loading: nothing is sent until its first acknowledgement
    snapshot_bytes_taken: int = -1  # bytes of the snapshot that its socket has taken
    snapshot_progress_ms: int = 0  # when it last took some
    over_soft_limit_since_ms: int = 0  # since when it has been too far behind; 0: it is not

    @property
    def is_online(self) -> bool:
        """Whether it has the data and follows the stream."""
        return self.state == ONLINE and not self.waits_for_ack

    def last_seen_ms(self) -> int:
        """Return when it last acknowledged, or showed that it is still loading its snapshot."""
        if self.waits_for_ack:
            return max(self.acknowledged_ms, self.session.last_request_ms)
        return self.acknowledged_ms

    @property
    def knows_redis7_only(self) -> bool:
        """Whether it knows only the commands of Redis 7.0; False if it wants only a snapshot."""
        return HEADRACE_CAPABILITY not in self.capabilities and not self.rdb_only

    @property
    def needs_translation(self) -> bool:
        """Whether it, or a replica of its own, knows only the commands of Redis 7.0."""
        return self.knows_redis7_only or self.wants_translation


class Primary:
    """The stream of one server, and its replicas. Without a backlog nothing is encoded or kept."""

    def __init__(self, keyspace: Keyspace, encoded: EncodedEffects) -> None:
        self.translator = Translator(keyspace)
        self.encoded_effects = encoded
        self.history = History()
        self.backlog: Backlog | None = None
        self.replicas: list[Replica] = []
        self.backlog_max_bytes = 1 << 20  # repl-backlog-size
        self.translates = False  # a replica needs it, or one that may come back
        self._translated_from = 0  # while it does: the stream has only commands of Redis 7.0 from here on
        self._returning: list[tuple[int, int]] = []  # position and deadline of replicas that may come back
        self._translated = LogBuffer()
        self._position = 0  # of the end of the stream while there is no backlog
        self._trimmed_at = 0

    @property
    def end_offset(self) -> int:
        """The offset: the position after the last byte of the stream."""
        return self._position if self.backlog is None else self.backlog.end

    def open_backlog(self) -> None:
        """Begin to keep the stream, in a new history: what came before was not kept.

        Does nothing if the stream is kept already.
        """
        if self.backlog is None:
            self.history.begin()
            self.restart_backlog_at(self._position)

    def restart_backlog_at(self, position: int) -> None:
        """Begin an empty backlog at this position; replicas that are behind it cannot continue."""
        self.backlog = Backlog(position)
        self._trimmed_at = self._translated_from = position
        self._returning.clear()
        self.force_select()

    def close_backlog(self) -> None:
        """Stop keeping the stream, and begin a new history: replicas that reconnect need a full sync."""
        self._position = self.end_offset
        self.backlog = None
        self.history.begin()

    # Feeding.

    def feed(
        self, items: list[DatabaseRequest], equivalent_of: Redis7EquivalentFunction = no_redis7_equivalent
    ) -> bool:
        """Append the effects of this turn that are not in the stream yet; return whether any were appended.

        Args:
            items: the effects of this turn, all of which are encoded.
            equivalent_of: returns the equivalent of an effect in commands of Redis 7.0; None if it has none.

        Raises:
            MemoryError: if memory is short; then none of the effects is appended.
        """
        encoded = self.encoded_effects
        if self.backlog is None or not encoded.has_unfed():
            encoded.mark_fed()
            return False
        if self.translates:
            translated = self.translator.translate(items[encoded.fed_count :], equivalent_of)
            self._translated.clear()
            self._translated.put_all(translated)
        with self._translated.view() if self.translates else encoded.unfed_bytes() as view:
            self.backlog.append_effects(view, encoded)
        self._trim()
        return True

    def feed_raw(self, data: bytes) -> None:
        """Append bytes that are not effects: PING, GETACK, or the stream of this server's own primary."""
        if self.backlog is not None and data:
            self.backlog.append(memoryview(data))
            self._trim()

    def feed_command(self, words: list[bytes]) -> None:
        """Append a command that is not an effect and belongs to no database."""
        self.feed_raw(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def force_select(self) -> None:
        """Write a SELECT before the next effect: a replica that starts here has no database selected."""
        self.encoded_effects.forget_database()
        self._translated.forget_database()

    def _trim(self) -> None:
        """Drop blocks that are no longer needed, about every 64 KiB."""
        backlog = self.backlog
        assert backlog is not None
        if backlog.end - self._trimmed_at > 1 << 16:
            self._trimmed_at = backlog.end
            needed = min(
                (replica.position for replica in self.replicas if replica.state), default=POSITION_MAX
            )
            backlog.trim(self.backlog_max_bytes, needed)

    # Replicas.

    def add(self, replica: Replica, now_ms: int) -> None:
        """Add a connected replica; begin to translate the stream if the replica needs a translation."""
        self.replicas.append(replica)
        self.update_translation(now_ms)

    def remove(self, replica: Replica, now_ms: int) -> None:
        """Remove a disconnected replica. For TRANSLATION_GRACE_MS the stream stays translated for it."""
        self.replicas.remove(replica)
        if replica.needs_translation and replica.state == ONLINE and not replica.used_legacy_sync:
            self._returning.append((max(replica.acknowledged_offset, 0), now_ms + TRANSLATION_GRACE_MS))
        self.update_translation(now_ms)

    def update_translation(self, now_ms: int) -> None:
        """Start or stop the translation of the stream, as the replicas require."""
        start = 0 if self.backlog is None else self.backlog.start
        self._returning = [one for one in self._returning if one[0] >= start and one[1] > now_ms]
        needed = any(replica.needs_translation for replica in self.replicas) or bool(self._returning)
        if needed and not self.translates:
            self._translated_from = self.end_offset
        if needed != self.translates:
            self.translates = needed
            self.force_select()  # the stream is encoded by another buffer now

    def feed_translation_mark(self) -> None:
        """Tell replicas that are Headrace that the stream is translated from here on."""
        self.feed_command(rule_record(TRANSLATION_START_WORDS))

    def note_newer_command(self) -> None:
        """Mark that the stream up to its present end has commands that Redis 7.0 does not know."""
        self._translated_from = self.end_offset

    def can_continue(self, replica: Replica, history: str, position: int) -> bool:
        """Return whether a replica that has the data at this position can continue without a full sync.

        Call add() first: it starts the translation of the stream if the replica needs one.
        """
        return (
            self.backlog is not None
            and self.history.knows(history, position)
            and self.backlog.contains(position)
            and (not replica.needs_translation or self._has_only_redis7_commands_from(position))
        )

    def _has_only_redis7_commands_from(self, position: int) -> bool:
        """Return whether Redis 7.0 knows all commands from this position on.

        Returns False if the commands have more than CHECKED_BYTES_MAX bytes, which are not searched.
        """
        assert self.backlog is not None
        size = self._translated_from - position
        if not 0 < size <= CHECKED_BYTES_MAX:
            return size <= 0
        return not first_unsupported_command(self.backlog.read(position, size))

    def online_replicas(self) -> list[Replica]:
        """Return the replicas that follow the stream."""
        return [replica for replica in self.replicas if replica.is_online]

    def count_acknowledged_replicas(self, offset: int) -> int:
        """Return how many online replicas have applied the stream up to the offset."""
        return sum(replica.is_online and replica.acknowledged_offset >= offset for replica in self.replicas)

    def offset_of_quorum(self, size: int) -> int:
        """Return the offset that `size` online replicas have applied; -1 if fewer replicas are online."""
        offsets = sorted((replica.acknowledged_offset for replica in self.online_replicas()), reverse=True)
        return offsets[size - 1] if size <= len(offsets) else -1

    def count_synced_replicas(self, offset: int) -> int:
        """Return how many online replicas have synced the stream up to the offset to their logs."""
        return sum(replica.is_online and replica.synced_offset >= offset for replica in self.replicas)

    def good_replica_count(self, now_ms: int, max_lag_s: int) -> int:
        """Return how many online replicas have acknowledged within the last max_lag_s seconds."""
        oldest = now_ms - 1000 * max_lag_s - 999
        return sum(replica.is_online and replica.acknowledged_ms >= oldest for replica in self.replicas)
