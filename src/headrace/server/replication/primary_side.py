"""Replicas of this server: their requests, the snapshots they need, and what they are sent.

PSYNC ─▶ can continue? ── yes ─▶ +CONTINUE ─────────────────────────────────────▶ online
             no ─▶ wait_bgsave ─▶ +FULLRESYNC, snapshot: send_bulk ─▶ (first ACK) ─▶ online
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.errors import CommandError, to_text
from headrace.keyspace.keyspace_image import KeyspaceImage
from headrace.persistence.aof.log_buffer import DatabaseRequest
from headrace.persistence.rdb import versions
from headrace.persistence.rdb.encoder_thread import EncoderThread
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.writer import rdb_steps
from headrace.replication.primary import GETACK, ONLINE, PING, RECEIVES, WAITS, Primary, Replica
from headrace.replication.stored_position import encode_position
from headrace.replication.translation import first_unsupported_command
from headrace.server.commit import Durability
from headrace.server.config.buffer_limits import OutputBufferLimits
from headrace.server.config.config import Config
from headrace.server.config.log_levels import NOTICE
from headrace.server.disk.snapshot_job import SnapshotJob
from headrace.server.loop.event_loop import EventLoop
from headrace.server.replication.full_sync import FullSync

UNREAD_BYTES_MAX = 256 * 1024  # of the stream, which one replica has not read yet; more stay in the backlog
KEEPALIVE_MS = 1000
PSYNC2, EOF = "psync2", "eof"
LOG = logging.getLogger("headrace")


class SyncWithPendingOutput(CommandError):
    text = "ERR SYNC and PSYNC are invalid with pending output"


class ReplicationStreamSender:
    """Sends the stream to one online replica: fill_output_buffer() puts the next part into its buffer."""

    def __init__(self, primary: Primary, replica: Replica) -> None:
        self.primary = primary
        self.replica = replica

    def fill_output_buffer(self) -> None:
        """Put the next bytes of the stream into the replica's buffer."""
        replica, backlog = self.replica, self.primary.backlog
        if backlog is None or replica.waits_for_ack:
            return
        room = UNREAD_BYTES_MAX - replica.session.reply.pending_bytes()
        if room > 0 and replica.position < backlog.end:
            data = backlog.read(replica.position, room)
            replica.session.reply.raw(data)
            replica.position += len(data)

    def on_connection_closed(self) -> None:
        """Do nothing: PrimarySide.tick() forgets the replica."""


class PrimarySide:
    """The primary's side of replication: synchronises replicas and sends them the stream of changes."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        loop: EventLoop,
        durability: Durability,
        temporary_path: Callable[[], str],
        wake: Callable[[], None],
        *,
        stream_database: Callable[[], int],
        is_translated: Callable[[], bool],
    ) -> None:
        """Serve replicas.

        Args:
            temporary_path: returns where a snapshot for replicas may be written.
            wake: makes the event loop run a turn; called from other threads.
            stream_database: returns the database that the stream has selected.
            is_translated: returns, on a replica, whether the stream of its primary has only commands of Redis
                7.0, as far as is known.
        """
        self.config = config
        self.engine = engine
        self.loop = loop
        self.durability = durability
        self.temporary_path = temporary_path
        self.wake = wake
        self.primary = Primary(engine.keyspace, durability.encoded_effects)
        self.known_replicas: dict[Session, Replica] = {}  # by session: those that have sent REPLCONF
        self.full_sync: FullSync | None = None
        self.full_syncs = self.partial_syncs = self.refused_partial_syncs = 0
        self.stream_database = stream_database
        self.is_translated = is_translated
        self.writes_stream = True  # False on a replica: the stream is its primary's
        self.sends_pings = True  # False during a failover: the offset must stand still
        self._waiting_since_ms = 0
        self._ping_ms = 0
        self._keepalive_ms = 0
        self._alone_since_ms = 0
        self._ack_requested = False
        self.always_request_acknowledgements = False  # after each turn with changes
        self.changes_end = 0  # the end of the stream at the last commit, without a request to acknowledge
        self._requested_end = 0  # the end of the stream, with it
        self._messages: list[list[bytes]] = []  # published in this turn

    # Requests of replicas.

    def get_or_create_replica(self, session: Session) -> Replica:
        """Return the Replica of a session; create it if the session has none."""
        found = self.known_replicas.get(session)
        if found is None:
            host = to_text(session.address).rpartition(":")[0]
            found = self.known_replicas[session] = Replica(session, session.transport, host)
        return found

    def synchronise(self, session: Session, history: bytes, offset: int, legacy: bool) -> None:
        """Serve PSYNC, or SYNC if legacy: the session becomes a replica. Does nothing if it is one already.

        Args:
            history: the replication ID that the session knows; b"?" for none.
            offset: the next byte that the session wants, counted from 1; -1 for none.

        Raises:
            CommandError: if replies to the session are unsent.
        """
        replica = self.get_or_create_replica(session)
        if replica.state:
            return
        if session.reply.pending_bytes():
            raise SyncWithPendingOutput()
        now = self.engine.keyspace.now
        replica.used_legacy_sync = legacy
        replica.acknowledged_ms = now
        session.set_reply_off()
        session.is_replica = True
        position, asked = offset - 1, to_text(history)
        self.primary.add(replica, now)
        self.update_translation()
        if not legacy and self.primary.can_continue(replica, asked, position):
            self._continue(replica, position)
            return
        if not legacy and asked != "?":
            self.refused_partial_syncs += 1
        self.full_syncs += 1
        replica.state = WAITS
        replica.position = self.primary.end_offset
        self._waiting_since_ms = self._waiting_since_ms or now
        LOG.log(NOTICE, "the replica %s needs a full synchronisation", address_of(replica))
        self.loop.run_timer_now()

    def _continue(self, replica: Replica, position: int) -> None:
        """Reply that the replica can continue, and send it the stream from its position."""
        self.partial_syncs += 1
        known = PSYNC2 in replica.capabilities
        replica.session.force_reply = True  # replies are off by now
        replica.session.reply.raw(
            b"+CONTINUE %s\r\n" % self.primary.history.id.encode() if known else b"+CONTINUE\r\n"
        )
        replica.position = replica.acknowledged_offset = position
        self._go_online(replica)
        LOG.log(NOTICE, "the replica %s continues at offset %d", address_of(replica), position)

    def _go_online(self, replica: Replica) -> None:
        replica.state = ONLINE
        replica.connection.output_source = ReplicationStreamSender(self.primary, replica)
        self.loop.schedule_flush(replica.connection)
        self._alone_since_ms = 0

    def on_acknowledgement(self, session: Session, offset: int, synced: int) -> None:
        """Handle REPLCONF ACK; the first one after a snapshot shows that it is loaded.

        Args:
            offset: up to where the replica has applied the stream.
            synced: up to where its log is synced.
        """
        replica = self.known_replicas.get(session)
        if replica is None or not replica.state:
            return
        now = self.engine.keyspace.now
        replica.acknowledged_ms = now
        sent = self.primary.end_offset  # no replica has more
        replica.acknowledged_offset = max(replica.acknowledged_offset, min(offset, sent))
        replica.synced_offset = max(replica.synced_offset, min(synced, sent))
        if replica.state == ONLINE and replica.waits_for_ack:
            replica.waits_for_ack = False
            self.loop.schedule_flush(replica.connection)

    def request_acknowledgements(self) -> None:
        """Ask all replicas, at the end of this turn, to acknowledge."""
        self._ack_requested = True
        self.loop.commit_required = True

    # Replicas that know the commands of Redis 7.0 only.

    def update_translation(self) -> None:
        """Have commands record older forms of their effects, if and only if the stream is translated here."""
        self.primary.update_translation(self.engine.keyspace.now)
        effects = self.engine.effects
        on = self.writes_stream and self.primary.translates
        if effects.needs_redis7_equivalents != on:
            effects.needs_redis7_equivalents = on
            effects.clear_redis7_equivalents()

    def set_translation_wanted(self, replica: Replica, on: bool) -> None:
        """Record whether a Headrace replica needs the translated stream, for replicas of its own.

        If it does and this server writes the stream, mark in the stream where the translation begins.
        """
        replica.wants_translation = on
        self.update_translation()
        if on and self.writes_stream and self.sends_pings and self.primary.backlog is not None:
            self.primary.feed_translation_mark()
            self.schedule_sending()

    def pass_on_stream_bytes(self, data: bytes) -> str:
        """Append a part of the stream of this server's own primary, and schedule its sending to the replicas.

        Replicas that know only the commands of Redis 7.0 are closed if `data` has a newer one.

        Args:
            data: whole commands that were applied here.

        Returns:
            The name of the newer command; empty if all replicas know all of them.
        """
        newer = first_unsupported_command(data) if self.primary.translates else ""
        if newer:
            for replica in self.primary.replicas:
                if replica.knows_redis7_only and replica.state in (RECEIVES, ONLINE):
                    reason = f"the primary of this server has sent {newer}, which Redis 7.0 does not know"
                    self._close(replica, reason)
        self.primary.feed_raw(data)
        if newer:
            self.primary.note_newer_command()
        self.schedule_sending()
        return newer

    # The stream.

    def feed(self, items: list[DatabaseRequest]) -> None:
        """Send the effects of this turn to the replicas.

        Called by the commit, when the effects are encoded and before the log gets them.
        """
        primary = self.primary
        messages, self._messages = self._messages, []
        ack_requested, self._ack_requested = self._ack_requested, False
        if not self.writes_stream:
            return
        changed = self._feed(items)
        for words in messages:
            primary.feed_command(words)
        # A replica acknowledges what comes before the request: effects may have been fed before, for WAIT.
        self.changes_end = primary.end_offset
        grown = primary.end_offset > self._requested_end
        ack_requested = ack_requested or (self.always_request_acknowledgements and grown)
        if ack_requested:
            primary.feed_raw(GETACK)
        self._requested_end = primary.end_offset
        if changed or messages or ack_requested:
            self.schedule_sending()

    def schedule_sending(self) -> None:
        """Schedule sending: the replicas get new bytes of the stream at the end of this turn."""
        for replica in self.primary.replicas:
            if replica.state == ONLINE and not replica.connection.closed:
                self.loop.schedule_flush(replica.connection)

    def publish_to_replicas(self, words: list[bytes]) -> None:
        """Send a (S)PUBLISH at the end of this turn, after its effects: a transaction must not be split."""
        if self.writes_stream and self.primary.replicas:
            self._messages.append(words)
            self.loop.commit_required = True

    def open_backlog(self) -> None:
        """Begin to keep the stream, and to record effects for it; do nothing if that has begun."""
        if self.primary.backlog is None:
            self.primary.open_backlog()
            self.start_feeding()

    def start_feeding(self) -> None:
        """Begin to feed effects into the replication stream; those recorded before are left out."""
        encoded = self.durability.encoded_effects
        encoded.encode(self.engine.effects.items)
        encoded.mark_fed()
        self.durability.feed_replicas = self.feed
        self.durability.set_replicating(True)

    def stop_feeding(self) -> None:
        """Stop feeding effects into the stream, and recording them for it."""
        self.durability.feed_replicas = None
        self.durability.set_replicating(False)

    def feed_now(self) -> bool:
        """Feed the effects recorded so far in this turn into the stream, so that its end includes them.

        Returns True if some could not be fed: those of a transaction that is running.
        """
        effects = self.engine.effects
        if not self.writes_stream or self.primary.backlog is None:
            return False
        if effects.in_transaction():
            return len(effects.items) > 0
        self.durability.encoded_effects.encode(effects.items)
        if self._feed(effects.items):
            self.schedule_sending()
        return False

    def _feed(self, items: list[DatabaseRequest]) -> bool:
        """Append effects to the stream; return whether there are new bytes.

        If there is no memory for them, the stream ends, because it must not have a gap. The replicas connect
        again and get a snapshot.
        """
        effects = self.engine.effects
        try:
            changed = self.primary.feed(items, effects.redis7_equivalent)
        except MemoryError:
            LOG.error("out of memory: the replication stream ends here, and replicas need a new snapshot")
            self.primary.close_backlog()
            self.stop_feeding()
            self.disconnect_replicas()
            return False
        finally:
            effects.clear_redis7_equivalents()
        return changed

    # Time.

    def tick(self, now: int) -> int:
        """Do what is due; return in how many milliseconds there is more to do, -1 for never."""
        primary = self.primary
        primary.backlog_max_bytes = self.config.number("repl-backlog-size")
        self._forget_closed()
        if self.full_sync is not None:
            self.full_sync.tick()
            if self.full_sync.done:
                self.full_sync = None
        translated = self.writes_stream or self.is_translated()
        waiting = [
            r for r in primary.replicas if r.state == WAITS and (translated or not r.knows_redis7_only)
        ]
        if self.full_sync is None and waiting and self._is_snapshot_due(waiting, now):
            self._start_sync(waiting, now)
        if primary.replicas:
            self._ping(now)
            self._keep_alive(now)
            self._close_stalled(now)
        self._expire_backlog(now)
        if self.full_sync is not None:
            return 10
        return 100 if primary.replicas else 1000 if self._alone_since_ms else -1

    def _forget_closed(self) -> None:
        gone = [replica for replica in self.known_replicas.values() if replica.connection.closed]
        for replica in gone:
            del self.known_replicas[replica.session]
            if replica.state:
                self.primary.remove(replica, self.loop.clock.now_ms())
                self.engine.on_replicas_acknowledged(self.loop.clock.now_ms())
                LOG.log(NOTICE, "the replica %s has left", address_of(replica))
        self.update_translation()

    def _is_snapshot_due(self, waiting: list[Replica], now: int) -> bool:
        """Return whether to make a snapshot now; False: wait for another snapshot or for more replicas."""
        if self.engine.keyspace.image is not None:
            return False  # another snapshot is being written
        if not self.config.flag("repl-diskless-sync"):
            return True
        most = self.config.number("repl-diskless-sync-max-replicas")
        delay = 1000 * self.config.number("repl-diskless-sync-delay")
        return now - self._waiting_since_ms >= delay or 0 < most <= len(waiting)

    def _start_sync(self, waiting: list[Replica], now: int) -> None:
        """Make a snapshot of this moment for the waiting replicas. Called between two turns."""
        self._waiting_since_ms = 0
        self.open_backlog()
        primary = self.primary
        diskless = self.config.flag("repl-diskless-sync")
        if diskless:
            able = [replica for replica in waiting if EOF in replica.capabilities]
            waiting, diskless = (able, True) if able else (waiting, False)
        position = primary.end_offset
        if self.writes_stream:
            primary.force_select()
        for replica in waiting:
            replica.position = position
            if not replica.used_legacy_sync:
                text = b"+FULLRESYNC %s %d\r\n" % (primary.history.id.encode(), position)
                replica.session.reply.raw(text)
                self.loop.schedule_flush(replica.connection)
        fields = encode_position(self.stream_database(), primary.history.id, position)
        without_keys = waiting[0].without_keys
        try:
            self.full_sync = FullSync(
                self.loop,
                waiting,
                lambda thread: self._start_snapshot(thread, now, fields, without_keys),
                "" if diskless else self.temporary_path(),
                self._on_snapshot_sent,
                self.wake,
            )
        except OSError as error:
            LOG.error("no snapshot for replicas: %s", error)
            for replica in waiting:
                self.loop.drop(replica.connection)

    def _start_snapshot(
        self, thread: EncoderThread, now: int, fields: dict[bytes, bytes], without_keys: bool
    ) -> SnapshotJob:
        """Start a snapshot of this moment, which the thread writes."""
        keyspace, config = self.engine.keyspace, self.config
        out = RdbOutput(thread.put, config.flag("rdbcompression"), deferred=True)
        now = keyspace.latest_ms_without_expired_keys(now)

        def steps(image: KeyspaceImage) -> Iterator[int]:
            version = versions.by_name("compatible")
            data = image.without_keys() if without_keys else image
            yield from rdb_steps(data, out, version=version, aux=fields)
            out.write_trailer(config.flag("rdbchecksum"))

        effort = config.number("snapshot-effort")
        return SnapshotJob(
            self.loop, self.engine, effort, thread, steps, sync=lambda: None, publish=lambda: None, now=now
        )

    def _on_snapshot_sent(self, replica: Replica) -> None:
        """Begin to send the stream; after a snapshot without a size only when the replica acknowledges it.

        A replica that wants only the snapshot is closed instead.
        """
        replica.acknowledged_ms = self.loop.clock.now_ms()  # the engine's time is that of the last request
        if replica.rdb_only:
            replica.session.closing = True
            replica.connection.output_source = None
            self.loop.schedule_flush(replica.connection)
            return
        replica.waits_for_ack = replica.connection.output_source is self.full_sync
        self._go_online(replica)

    def _ping(self, now: int) -> None:
        """Send PING from time to time, so that replicas notice a broken link."""
        if (
            self.writes_stream
            and self.sends_pings
            and now - self._ping_ms >= 1000 * self.config.number("repl-ping-replica-period")
        ):
            self._ping_ms = now
            self.primary.feed_raw(PING)
            self.schedule_sending()

    def _keep_alive(self, now: int) -> None:
        """Send line feeds to replicas that wait for a snapshot."""
        if now - self._keepalive_ms >= KEEPALIVE_MS:
            self._keepalive_ms = now
            for replica in self.primary.replicas:
                if replica.state == WAITS and not replica.connection.closed:
                    replica.session.reply.raw(b"\n")
                    self.loop.schedule_flush(replica.connection)

    def _close_stalled(self, now: int) -> None:
        """Close replicas that have been silent for too long, or are too far behind."""
        timeout = 1000 * self.config.number("repl-timeout")
        buffers = self.config.values["client-output-buffer-limit"]
        assert isinstance(buffers, OutputBufferLimits)
        limit = buffers.slave
        for replica in list(self.primary.replicas):
            if replica.state == RECEIVES and self._has_stopped_reading(replica, now - timeout, now):
                self._close(replica, "it has read nothing of its snapshot for repl-timeout seconds")
                continue
            if (
                replica.state == ONLINE
                and not replica.used_legacy_sync
                and now - replica.last_seen_ms() > timeout
            ):
                self._close(replica, "it has acknowledged nothing for repl-timeout seconds")
                continue
            behind = self.primary.end_offset - replica.position
            hard = max(limit.hard, self.primary.backlog_max_bytes) if limit.hard else 0
            soft = max(limit.soft, self.primary.backlog_max_bytes) if limit.soft else 0
            if not soft or behind <= soft:
                replica.over_soft_limit_since_ms = 0
            elif not replica.over_soft_limit_since_ms:
                replica.over_soft_limit_since_ms = now
            since = replica.over_soft_limit_since_ms
            too_long = since and now - since > 1000 * limit.seconds
            if (hard and behind > hard) or too_long:
                self._close(replica, f"it is {behind} bytes behind (client-output-buffer-limit replica)")

    def _has_stopped_reading(self, replica: Replica, since: int, now: int) -> bool:
        """Return whether the replica has read nothing of its snapshot since then, although it could."""
        source = replica.connection.output_source
        unread = replica.session.reply.pending_bytes()
        received = replica.snapshot_bytes_taken if source is None else source.sent_bytes - unread
        if received != replica.snapshot_bytes_taken or not unread:
            replica.snapshot_bytes_taken, replica.snapshot_progress_ms = received, now
        return replica.snapshot_progress_ms < since

    def _close(self, replica: Replica, reason: str) -> None:
        if not replica.connection.closed:
            self.loop.drop_with_reason(replica.connection, reason)

    def _expire_backlog(self, now: int) -> None:
        """Close the backlog when there has been no replica for repl-backlog-ttl seconds; 0: never."""
        if self.primary.backlog is None or self.primary.replicas or not self.writes_stream:
            self._alone_since_ms = 0
            return
        self._alone_since_ms = self._alone_since_ms or now
        ttl = 1000 * self.config.number("repl-backlog-ttl")
        if ttl and now - self._alone_since_ms > ttl:
            self._alone_since_ms = 0
            self.primary.close_backlog()
            self.stop_feeding()

    def disconnect_replicas(self) -> None:
        """Close all replicas: the history has changed, and they reconnect to continue in the new one."""
        for replica in list(self.primary.replicas):
            if not replica.connection.closed:
                self.loop.drop(replica.connection)
        self._forget_closed()

    def close(self) -> None:
        """Cancel a running snapshot for replicas."""
        if self.full_sync is not None:
            self.full_sync.cancel()


def address_of(replica: Replica) -> str:
    """Return the replica's address for messages."""
    return f"{replica.host}:{replica.port}"
