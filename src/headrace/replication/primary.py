"""The primary's stream: effects encoded once a turn into the backlog, and the replicas that read it.

    effects of a turn ── SELECT, XADD ..., MULTI ... EXEC ──▶ backlog ──▶ each online replica

On a replica the stream is that of its own primary, byte for byte: see feed_raw().
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.commands.session import Session
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.log_buffer import Item, LogBuffer
from headrace.replication.backlog import Backlog
from headrace.replication.history import History
from headrace.replication.translation import Translator, is_plain

PING = b"*1\r\n$4\r\nPING\r\n"
GETACK = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n"
NEVER = 1 << 62

HEADRACE = "headrace"  # the capability of a replica that knows all commands

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
    legacy: bool = False  # it used SYNC: it never acknowledges
    state: str = ""
    position: int = 0  # the next byte to send
    acknowledged: int = -1  # what it has applied; -1: it may not have loaded its snapshot yet
    synced: int = -1  # what it has synced to its log
    acknowledged_ms: int = 0
    waits_for_ack: bool = False  # it is loading: nothing is sent until its first acknowledgement
    received: int = -1  # bytes of the snapshot that its socket has taken
    received_ms: int = 0  # when it last took some
    over_soft_limit_ms: int = 0  # since when it has been too far behind; 0: it is not

    @property
    def is_online(self) -> bool:
        """Whether it has the data and follows the stream."""
        return self.state == ONLINE and not self.waits_for_ack

    def last_sign_ms(self) -> int:
        """Return when it last acknowledged, or showed that it is still loading its snapshot."""
        if self.waits_for_ack:
            return max(self.acknowledged_ms, self.session.active_ms)
        return self.acknowledged_ms


class Primary:
    """The stream of one server, and its replicas. Without a backlog nothing is encoded or kept."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.translator = Translator(keyspace)
        self.history = History()
        self.backlog: Backlog | None = None
        self.replicas: list[Replica] = []
        self.backlog_bytes = 1 << 20  # repl-backlog-size
        # Which kinds of replicas have had a part of this backlog: they may come back and continue.
        self._has_headrace = self._has_others = False
        # From here on the backlog has commands of Redis 7.0 only; -1: unknown, as nothing was translated.
        self._plain_from = -1
        self._others_may_return = False  # that were replicas before this server was promoted or restarted
        self._encoder = LogBuffer()
        self._fed = 0  # how many of the engine's effects are in the stream already
        self._position = 0  # of the end of the stream while there is no backlog
        self._trimmed_at = 0

    @property
    def end(self) -> int:
        """The offset: the position after the last byte of the stream."""
        return self._position if self.backlog is None else self.backlog.end

    def open_backlog(self) -> None:
        """Begin to keep the stream, in a new history: what came before was not kept."""
        if self.backlog is None:
            self.history.begin()
            self.set_position(self._position)

    def set_position(self, position: int) -> None:
        """Begin an empty backlog at this position; replicas that are behind it cannot continue."""
        self.backlog = Backlog(position)
        kinds = {HEADRACE in replica.capabilities for replica in self.replicas}
        self._has_headrace, self._has_others = True in kinds, False in kinds
        self._trimmed_at = self._plain_from = position
        self._others_may_return = False
        self._encoder.forget_database()

    def expect_return(self) -> None:
        """Note that replicas of the earlier history may continue here; nothing is known of them."""
        self._others_may_return = True

    def adopt_history(self, position: int, history: str) -> None:
        """Continue in the history of this server's primary, which was promoted at this position.

        The primary may have sent commands that only Headrace knows since then.
        """
        self.history.shift(position, history)
        self._plain_from = -1

    def close_backlog(self) -> None:
        """Stop keeping the stream: no replica has come back for a long time."""
        self._position = self.end
        self.backlog = None
        self.history.begin()

    # Feeding.

    def feed(self, items: list[Item]) -> bool:
        """Encode the effects that are not in the stream yet; return whether there were any.

        Raises:
            WholeDatabase: if a replica that is not Headrace cannot follow them.
        """
        if self.backlog is None or self._fed >= len(items):
            return False
        new = items[self._fed :] if self._fed else items
        self._fed = len(items)
        if self._has_others:
            new = self.translator.translate(new, self._has_headrace)
        elif self._plain_from >= 0 and not self._stays_plain(new):
            self._plain_from = -1
        self._encoder.put_all(new)
        with self._encoder.view() as view:
            self.backlog.append(view)
        self._encoder.clear()
        self._trim()
        return True

    def _stays_plain(self, new: list[Item]) -> bool:
        """Return whether replicas that are not Headrace may still return, and know these effects."""
        assert self.backlog is not None
        self._others_may_return = self._others_may_return and self.history.second_end >= self.backlog.start
        return self._others_may_return and is_plain(new)

    def effects_taken(self, left: int) -> None:
        """Note that the log has taken the effects, of which so many are left in the list."""
        self._fed = left

    def feed_raw(self, data: bytes) -> None:
        """Append bytes that are no effects: PING, GETACK, or the stream of this server's own primary."""
        if self.backlog is not None and data:
            self.backlog.append(memoryview(data))
            self._trim()

    def feed_command(self, words: list[bytes]) -> None:
        """Append a command that is no effect and belongs to no database."""
        self.feed_raw(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def force_select(self) -> None:
        """Write a SELECT before the next effect: a replica that starts here knows no database."""
        self._encoder.forget_database()

    def _trim(self) -> None:
        """Drop blocks that are no longer needed, about every 64 KiB."""
        backlog = self.backlog
        assert backlog is not None
        if backlog.end - self._trimmed_at > 1 << 16:
            self._trimmed_at = backlog.end
            needed = min((replica.position for replica in self.replicas if replica.state), default=NEVER)
            backlog.trim(self.backlog_bytes, needed)

    # Replicas.

    def add(self, replica: Replica) -> None:
        """Note that the replica is connected, and whether it knows all commands."""
        self.replicas.append(replica)
        if HEADRACE in replica.capabilities:
            self._has_headrace = True
            return
        self._has_others = True
        if self._plain_from < 0:
            self._plain_from = self.end

    def can_continue(self, replica: Replica, history: str, position: int) -> bool:
        """Return whether a replica with the data at this position of that history can continue.

        It must have been added before: then it knows all commands that follow.
        """
        return (
            self.backlog is not None
            and self.history.knows(history, position)
            and self.backlog.contains(position)
            and (HEADRACE in replica.capabilities or position >= self._plain_from)
        )

    def online(self) -> list[Replica]:
        """Return the replicas that follow the stream."""
        return [replica for replica in self.replicas if replica.is_online]

    def acknowledged_by(self, offset: int) -> int:
        """Return how many replicas have applied the stream up to the offset."""
        return sum(replica.is_online and replica.acknowledged >= offset for replica in self.replicas)

    def synced_by(self, offset: int) -> int:
        """Return how many replicas have synced the stream up to the offset to their logs."""
        return sum(replica.is_online and replica.synced >= offset for replica in self.replicas)

    def good_replicas(self, now_ms: int, max_lag_s: int) -> int:
        """Return how many replicas have acknowledged within so many seconds."""
        oldest = now_ms - 1000 * max_lag_s - 999
        return sum(replica.is_online and replica.acknowledged_ms >= oldest for replica in self.replicas)
