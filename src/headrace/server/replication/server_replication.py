"""The replication of a server: primary, replica, or both in a chain.

primary:  effects ─▶ PrimarySide ─▶ replicas
replica:  its primary ─▶ ReplicaSide ─▶ data
                                    └─▶ the same bytes ─▶ PrimarySide ─▶ replicas of this replica

If the primary is not Headrace, and uses commands that a replica of this replica may not know, this server
writes the stream of its replicas itself, in a history of its own (writes_own_stream).

replica:  its primary ─▶ ReplicaSide ─▶ data, effects ─▶ PrimarySide ─▶ replicas of this replica
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from headrace.commands.replication_interface import InfoFields, ReplicationInterface
from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.errors import CommandError, HeadraceError, os_error_text, to_text
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.data_directory import DiskDirectory
from headrace.replication.divergent_tail import DivergentTail
from headrace.replication.history import NO_ID
from headrace.replication.primary import ONLINE
from headrace.replication.replica_link import CAPABILITIES, DIALECT_CAPABILITY
from headrace.replication.stored_position import (
    decode_comment,
    decode_position,
    encode_comment,
    encode_position,
)
from headrace.replication.stream_dialect import HEADRACE, dialect_of
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.config.log_levels import NOTICE
from headrace.server.disk.snapshot_job import SnapshotJob
from headrace.server.loop.event_loop import EventLoop
from headrace.server.replication.delayed_shutdown import DelayedShutdown
from headrace.server.replication.failover import NONE, WAITING, Failover
from headrace.server.replication.primary_side import PrimarySide
from headrace.server.replication.replica_side import ReplicaSide, settings_of, tls_of
from headrace.server.replication.write_quorum import WriteQuorum

LOG = logging.getLogger("headrace")
ROLE_CHANGED_ERROR = (
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
)


class NotConnected(CommandError):
    text = "NOMASTERLINK Can't SYNC while not connected with my master"


class ReplicaofDuringFailover(CommandError):
    text = "ERR REPLICAOF not allowed while failing over."


class ServerReplication(ReplicationInterface):
    """The role of this server, its replicas, and its link to a primary. Commands and timers call it."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        loop: EventLoop,
        disk: DiskDirectory,
        durability: Durability,
        wake: Callable[[], None],
        announced_port: Callable[[], int],
        restart_log: Callable[[], None],
    ) -> None:
        """Be a primary without replicas; begin_configured_role() takes up the role that is configured.

        Args:
            wake: makes the event loop run a turn; called from other threads.
            announced_port: returns the port to announce to other servers, unless the configuration has one.
            restart_log: begins a new log, because the data in memory did not come through the old one.
        """
        self.config = config
        self.engine = engine
        self.primary_address: tuple[str, int] | None = None
        self.writes_own_stream = False  # it is a replica, and writes the stream of its own replicas itself
        self.restart_log = restart_log
        self.divergent_tail = DivergentTail(disk, engine.keyspace)
        self.replica_side = ReplicaSide(
            engine,
            loop,
            disk,
            lambda: settings_of(config, announced_port()),
            self,
            synced_offset=durability.synced_offset,
            tls=lambda: tls_of(config),
        )
        self.primary_side = PrimarySide(
            config,
            engine,
            loop,
            durability,
            lambda: disk.path(f"temp-{os.getpid()}-replicas.rdb"),
            wake,
            stream_database=self.stream_database,
            is_translated=self._is_translated,
        )
        self.primary = self.primary_side.primary
        self.failover = Failover(engine, self.primary_side, self)
        self.delayed_shutdown = DelayedShutdown(config, engine, self.primary_side)
        self.write_quorum = WriteQuorum(config, self.primary_side)

    # The role.

    def is_replica(self) -> bool:
        """Return whether this server is a replica."""
        return self.primary_address is not None

    def follow(self, host: str, port: int, caller: Session | None) -> bytes:
        """Become a replica of that server; return the reply's text. Raises CommandError during a failover."""
        if self.primary_address == (host, port):
            return b"OK Already connected to specified master"
        if self.failover.state != NONE:
            raise ReplicaofDuringFailover()
        self._follow(host, port, failover=False)
        return b"OK"

    def _follow(self, host: str, port: int, failover: bool) -> None:
        was_primary = self.primary_address is None
        self._stop_writing_own_stream()
        history = None if self.replica_side.applier.is_torn else self.primary.history.id
        if was_primary and self.primary_side.feed_now():
            history = None  # the data are ahead of the stream: they need a snapshot
            self.primary_side.disconnect_replicas()
        self.primary_address = (host, port)
        self.config.values["replicaof"] = f"{host} {port}"
        self.primary_side.writes_stream = False
        self.primary_side.update_translation()
        self.primary_side.stop_feeding()
        self.engine.keyspace.hide_expired = True
        if was_primary:
            self.engine.unblock_all(CommandError(ROLE_CHANGED_ERROR))
        self.replica_side.start(host, port, history or None, self.primary.end_offset, failover)
        self.update_write_gate()
        LOG.log(NOTICE, "this server is a replica of %s:%d now", host, port)

    def promote(self) -> None:
        """Become a primary; its history continues that of its former primary. Does nothing on a primary."""
        if self.primary_address is None:
            return
        self.divergent_tail.mark_possible()
        self.primary_address = None
        self.config.values["replicaof"] = ""
        torn = self.replica_side.applier.is_torn
        self.writes_own_stream = False
        self.replica_side.stop()
        primary = self.primary
        if torn:
            LOG.error("this server has a part of a transaction of its primary: it begins a new history")
            primary.history.begin()
            self.replica_side.applier.is_torn = False
        else:
            primary.history.shift(primary.end_offset)
        primary.force_select()
        self.primary_side.writes_stream = True
        self.primary_side.update_translation()
        if primary.backlog is not None:
            self.primary_side.start_feeding()
        self.primary_side.disconnect_replicas()
        self.update_write_gate()
        self.engine.keyspace.hide_expired = False
        self.engine.rule_runner.reapply_all_next_time()
        LOG.log(NOTICE, "this server is a primary now")

    def close_link(self) -> None:
        """Close the link to the primary; a new connection is scheduled."""
        self.replica_side.close_link()

    def begin_configured_role(self, fields: dict[bytes, bytes], log_comment: bytes) -> None:
        """Take up the role that is configured, after the data were loaded.

        If the files name the position of the data in a history, replicas that are exactly there can continue
        without a snapshot. So can this server, if it is a replica.

        Args:
            fields: the auxiliary fields of the snapshot that was loaded, if there is no log.
            log_comment: the last line of the log that was loaded, if it is a comment.
        """
        self.divergent_tail.load_marker()
        position = decode_position(fields) or decode_comment(log_comment)
        if self.engine.has_left_out_removals():  # the data are not those of any position
            position = None
        if position is not None:
            self.primary.history.id = position.replication_id
            self.primary.restart_backlog_at(position.offset)
        configured = self.config.text("replicaof")
        if configured:
            host, port = configured.split()
            if position is not None:
                self.replica_side.applier.select(position.database)
            self._follow(host, int(port), failover=False)
        elif position is not None:
            self.primary.history.shift(position.offset)
            self.primary_side.start_feeding()

    def snapshot_aux_fields(self) -> dict[bytes, bytes]:
        """Return the fields by which a snapshot names its position in the history; empty if it has none."""
        side = self.replica_side
        if side.applier.is_torn or self.engine.has_left_out_removals():
            return {}
        if self.writes_own_stream:
            if side.replication_id is None:
                return {}
            return encode_position(side.stream_database, side.replication_id, side.offset)
        if self.primary.backlog is None or self.primary_side.feed_now():
            return {}
        return encode_position(self.stream_database(), self.primary.history.id, self.primary.end_offset)

    def log_comment(self) -> bytes:
        """Return the last line for a log that ends here: its position in the history; empty if unknown."""
        fields = self.snapshot_aux_fields()
        return encode_comment(fields) if fields else b""

    def stream_database(self) -> int:
        """Return the database selected by the replication stream.

        0 if this server writes the stream itself: it selects one after a snapshot.
        """
        return self.replica_side.stream_database if self.primary_address and not self.writes_own_stream else 0

    # The stream of this server's own primary.

    def on_stream_bytes(self, data: bytes) -> None:
        """Pass bytes of the stream on to the replicas, unless this server writes their stream itself."""
        if self.writes_own_stream:
            return
        newer = self.primary_side.pass_on_stream_bytes(data)
        if newer and self.replica_side.applier.accepts_rules:
            self.replica_side.is_translated = False  # it has not begun to translate yet: ask again
        elif newer:
            self._start_writing_own_stream(newer)

    def _start_writing_own_stream(self, newer: str) -> None:
        """Write the stream of the replicas from here on, from the effects of what the primary sends."""
        LOG.warning(
            "the primary has sent %s, which Redis 7.0 does not know: this server translates it for its"
            " replicas, which must load a new snapshot first",
            newer,
        )
        self.writes_own_stream = self.primary_side.writes_stream = True
        self.primary.history.begin()
        self.primary.restart_backlog_at(self.primary.end_offset)
        self.primary_side.disconnect_replicas()
        self.primary_side.update_translation()
        self.primary_side.start_feeding()

    def _stop_writing_own_stream(self) -> None:
        """End what _start_writing_own_stream() began: the stream is again that of the primary."""
        if not self.writes_own_stream:
            return
        self.writes_own_stream = self.primary_side.writes_stream = False
        self.primary_side.stop_feeding()
        side = self.replica_side
        if side.replication_id is None:
            self.primary.history.begin()
        else:
            self.primary.history.adopt(side.replication_id)
        self.primary.restart_backlog_at(side.offset)
        self.primary_side.disconnect_replicas()

    def on_message(self, words: list[bytes]) -> None:
        """Send a message to the replicas if this server writes their stream itself."""
        if self.writes_own_stream:
            self.primary_side.publish_to_replicas(words)

    def replicas_need_translation(self) -> bool:
        """Return whether replicas, also some that have disconnected, know only the commands of Redis 7.0."""
        return self.primary.translates

    def _is_translated(self) -> bool:
        """Return whether the stream of the primary has only commands of Redis 7.0, as far as is known."""
        return self.replica_side.is_translated or not self.replica_side.applier.accepts_rules

    def before_replacing(self, keyspace: Keyspace) -> None:
        """Save the entries that the new data lacks. Raises HeadraceError if that fails."""
        try:
            self.divergent_tail.save(keyspace, self.replica_side.on_progress)
        except OSError as error:
            raise HeadraceError(
                f"entries that only this server has cannot be saved: {os_error_text(error)}"
            ) from error

    def on_new_history(self, history: str, offset: int) -> None:
        """Adopt the history of the primary, from that offset on."""
        self.divergent_tail.mark_impossible()
        if self.writes_own_stream:
            return
        if history != self.primary.history.id:
            self.primary.history.shift(offset, history)
            self.primary_side.disconnect_replicas()
        if self.primary.backlog is None:
            self.primary.restart_backlog_at(offset)

    def on_online(self) -> None:
        """Update the write gate: clients that must not read stale data may read again."""
        self.update_write_gate()

    def on_full_sync(self, history: str, offset: int) -> None:
        """Adopt the history of the snapshot that has replaced the data."""
        self._stop_writing_own_stream()
        if history:
            self.primary.history.adopt(history)
        else:
            self.primary.history.begin()  # of a primary without IDs
        self.primary.restart_backlog_at(offset)
        self.primary_side.disconnect_replicas()
        self.divergent_tail.mark_impossible()
        for session in self.engine.clients.values():
            session.on_data_replaced()

    def publish_to_replicas(self, words: list[bytes]) -> None:
        """Send a PUBLISH or SPUBLISH to the replicas."""
        self.primary_side.publish_to_replicas(words)

    # Replicas of this server.

    def set_replconf_option(self, session: Session, option: bytes, value: bytes) -> None:
        """Apply one option of REPLCONF; ignore unknown ones."""
        replica = self.primary_side.get_or_create_replica(session)
        text = to_text(value)
        if option == b"listening-port":
            replica.port = int(text)
        elif option == b"ip-address":
            replica.host = text
        elif option == b"capa":
            if text in CAPABILITIES:  # others change nothing, and would be kept
                replica.capabilities.add(text)
        elif option == b"rdb-only":
            replica.rdb_only = value == b"1"
        elif option == b"rdb-filter-only":
            replica.without_keys = bool(value)
        elif option == b"headrace-translation":
            self.primary_side.set_translation_wanted(replica, value == b"1")
            if self.primary_address is not None and value == b"1":
                self.replica_side.request_translation(self.engine.keyspace.now)

    def replication_dialect(self, session: Session) -> str:
        """Return the stream's dialect (see stream_dialect.py); empty unless the replica asked for it."""
        if DIALECT_CAPABILITY not in self.primary_side.get_or_create_replica(session).capabilities:
            return ""
        passed_on = self.primary_address is not None and not self.writes_own_stream
        return dialect_of(self.replica_side.applier) if passed_on else HEADRACE

    def on_acknowledgement(self, session: Session, offset: int, synced: int) -> None:
        """Record that the replica has applied, and synced, the stream up to these offsets."""
        self.primary_side.on_acknowledgement(session, offset, synced)
        self.write_quorum.on_acknowledged()

    def synchronise(self, session: Session, history: bytes, offset: int, *, legacy: bool = False) -> None:
        """Make the session a replica (PSYNC, or SYNC if legacy).

        Raises CommandError if replies to the session are unsent, or this server's own link is down.
        """
        if self.primary_address is not None:
            self._check_link()
        self.primary_side.synchronise(session, history, offset, legacy)
        if self.primary_address is None and not self.primary_side.get_or_create_replica(session).rdb_only:
            self.divergent_tail.mark_possible()

    def _check_link(self) -> None:
        """Raise NotConnected unless the stream of this server's primary is complete."""
        if not self.replica_side.is_online:
            raise NotConnected()

    def written_offset(self) -> int:
        """Return the offset after all effects recorded so far, except those of a running transaction."""
        self.primary_side.feed_now()
        return self.primary.end_offset

    def count_acknowledged_replicas(self, offset: int) -> int:
        """Return how many online replicas have applied the stream up to the offset."""
        return self.primary.count_acknowledged_replicas(offset)

    def count_synced_replicas(self, offset: int) -> int:
        """Return how many online replicas have synced their log up to the offset."""
        return self.primary.count_synced_replicas(offset)

    def request_acknowledgements(self) -> None:
        """Ask all replicas once, after this turn, to acknowledge now."""
        self.primary_side.request_acknowledgements()

    # Failover and shutdown.

    def fail_over(self, host: str | None, port: int, force: bool, timeout_ms: int) -> None:
        """Start a failover to the replica at host:port; host None: to any replica. See Failover.start()."""
        self.failover.start(host, port, force, timeout_ms)

    def abort_failover(self) -> None:
        """Abort a running FAILOVER. Raises CommandError if there is none."""
        self.failover.abort()

    def hand_over(self, host: str, port: int) -> None:
        """Follow the replica at host:port, and ask it to take over."""
        self._follow(host, port, failover=True)

    def delay_shutdown(self, finish: Callable[[], None], session: Session | None) -> bool:
        """Call finish() when the replicas have everything; return False if there is nothing to wait for."""
        return self.delayed_shutdown.begin(finish, session)

    def abort_shutdown(self) -> None:
        """Abort a shutdown that waits for replicas. Raises CommandError if there is none."""
        self.delayed_shutdown.abort()

    # Time.

    def is_busy(self) -> bool:
        """Return whether tick() must run soon: for a snapshot, a failover, or a shutdown."""
        return (
            self.primary_side.full_sync is not None
            or self.failover.state == WAITING
            or self.delayed_shutdown.is_waiting
        )

    def tick(self, now: int) -> int:
        """Do what is due; return in how many milliseconds there is more to do, -1 for never."""
        waits = [self.primary_side.tick(now), self.failover.tick(now), self.delayed_shutdown.tick(now)]
        waits.append(self.write_quorum.tick(now))
        if self.primary_address is not None:
            waits.append(self.replica_side.tick(now))  # it may serve clients: the role may change
            if self.replica_side.is_online:
                self.failover.on_success()
            elif self.replica_side.failure:
                self.failover.on_link_lost(self.replica_side.failure, self.replica_side.may_have_taken_over)
        self.update_write_gate()
        return min((wait for wait in waits if wait >= 0), default=-1)

    def update_write_gate(self) -> None:
        """Update which requests are rejected, by the role, the link, the replicas and the configuration."""
        config, gate, replica = self.config, self.engine.write_gate, self.primary_address is not None
        needed = max(config.number("min-replicas-to-write"), self.write_quorum.size)
        gate.set_read_only(replica and config.flag("replica-read-only"))
        gate.set_stale(
            replica and not self.replica_side.is_online and not config.flag("replica-serve-stale-data")
        )
        gate.set_ignores_memory(replica and config.flag("replica-ignore-maxmemory"))
        good = self._good_replica_count(self.primary_side.loop.clock.now_ms()) if needed else 0
        gate.set_too_few_replicas(not replica and good < needed)
        self.write_quorum.apply_config_and_role(replica)

    def _good_replica_count(self, now: int) -> int:
        return self.primary.good_replica_count(now, self.config.number("min-replicas-max-lag"))

    def close(self) -> None:
        """Close the link to the primary, and cancel a running snapshot for replicas."""
        self.replica_side.stop()
        self.primary_side.close()

    # Reports.

    def role_reply(self) -> list[object]:
        """Return ROLE's reply."""
        if self.primary_address is not None:
            return self.replica_side.role_reply()
        rows = [
            [r.host.encode(), b"%d" % r.port, b"%d" % max(r.acknowledged_offset, 0)]
            for r in self.primary.replicas
            if r.state == ONLINE
        ]
        return [b"master", self.primary.end_offset, rows]

    def info(self) -> InfoFields:
        """Return the fields of INFO replication."""
        now = self.engine.keyspace.now
        fields: InfoFields = [("role", "master" if self.primary_address is None else "slave")]
        if self.primary_address is not None:
            fields += self.replica_side.info()
        fields.append(("connected_slaves", len(self.primary.replicas)))
        if self.config.number("min-replicas-to-write"):
            fields.append(("min_slaves_good_slaves", self._good_replica_count(now)))
        if self.write_quorum.size:
            fields.append(("write_quorum_waiting", len(self.write_quorum.held_clients)))
            fields.append(("write_quorum_timeouts", self.write_quorum.timeouts))
        for number, r in enumerate(self.primary.replicas):
            lag = max(now - r.acknowledged_ms, 0) // 1000 if r.state == ONLINE else 0
            offset = max(r.acknowledged_offset, 0)
            row = f"ip={r.host},port={r.port},state={r.state},offset={offset},lag={lag}"
            fields.append((f"slave{number}", row))
        return fields + self._history_fields()

    def _history_fields(self) -> InfoFields:
        primary, backlog = self.primary, self.primary.backlog
        history = primary.history
        return [
            ("master_failover_state", self.failover.state),
            ("master_replid", history.id),
            ("master_replid2", history.second_id),
            ("master_repl_offset", primary.end_offset),
            ("second_repl_offset", history.second_end + 1 if history.second_id != NO_ID else -1),
            ("repl_backlog_active", int(backlog is not None)),
            ("repl_backlog_size", self.config.number("repl-backlog-size")),
            ("repl_backlog_first_byte_offset", 0 if backlog is None else backlog.start + 1),
            ("repl_backlog_histlen", 0 if backlog is None else backlog.size()),
        ]

    def snapshot_job(self) -> SnapshotJob | None:
        """Return the job that writes a snapshot for replicas; None if there is none."""
        return None if self.primary_side.full_sync is None else self.primary_side.full_sync.job

    def info_stats_fields(self) -> InfoFields:
        """Return the fields of INFO stats about replication."""
        return [
            ("sync_full", self.primary_side.full_syncs),
            ("sync_partial_ok", self.primary_side.partial_syncs),
            ("sync_partial_err", self.primary_side.refused_partial_syncs),
        ]
