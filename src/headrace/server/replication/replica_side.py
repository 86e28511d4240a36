"""The replica side of a server: it follows a primary, reconnects, loads snapshots, applies the stream.

connect ─▶ connecting ─▶ handshake ─┬──────────────────────────────▶ connected ─▶ (lost) ─▶ connect
   ▲                                └▶ sync: file ─▶ load ─▶ swap ─┘
   └── one second later; after an error that would repeat itself, up to a minute later

The old data are served until the new data are loaded. The load runs between two turns of the event loop, with
a turn and its timers now and then, into a separate keyspace: a snapshot that is damaged changes nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.commands.server_interface import InfoFields
from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.errors import HeadraceError
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.manifest import write_all
from headrace.persistence.data_directory import DataDirectory, File
from headrace.persistence.rdb.reader import LoadedSnapshot
from headrace.replication.replica_link import (
    CONNECTED,
    LinkError,
    LinkSettings,
    ReplicaLink,
)
from headrace.replication.snapshot_loading import load_snapshot, selected_database
from headrace.replication.stream_applier import SKIP_FOREIGN_ADVICE, CannotApply, StreamApplier
from headrace.replication.stream_dialect import set_dialect
from headrace.server.config.config import Config
from headrace.server.loop.event_loop import EventLoop
from headrace.server.replication.primary_connection import PrimaryConnection, describe_error

if TYPE_CHECKING:
    from headrace.server.network.tls import OutgoingTls

LOG = logging.getLogger("headrace")
CONNECT, CONNECTING = "connect", "connecting"
LINK_USER = b"(superuser)"  # as Redis shows it
RETRY_MS = 1000
RETRY_MAX_MS = 60_000
TICK_MS = 1000
BUSY_TICK_INTERVAL_MS = 50  # with unsent bytes, or while the primary waits for a sync of the log
KEEPALIVE_S = 1.0
TURN_INTERVAL_S = 0.02  # between two turns of the event loop during a load
UNSYNCED_POSITIONS_MAX = 1000  # of the log that are remembered until it is synced there


@dataclass(frozen=True)
class ReplicaSettings:
    """The directives of a replica. They are read again for each connection and each report."""

    listening_port: int
    announced_address: str = ""
    user: str = ""
    password: str = ""
    timeout_s: int = 60
    skip_foreign: bool = False
    priority: int = 100
    read_only: bool = True
    announced: bool = True


class _Interrupted(Exception):
    """The load is to end: the server stops, or follows another primary now."""


class ReplicaEvents(Protocol):
    """The callbacks of the replica side to its server."""

    def on_stream_bytes(self, data: bytes) -> None:
        """Pass on bytes of the stream that were applied, to the replicas of this server."""

    def on_message(self, words: list[bytes]) -> None:
        """Handle a PUBLISH or SPUBLISH of a client of the primary."""

    def on_new_history(self, history: str, offset: int) -> None:
        """Continue the stream at that offset. Its history (the replication ID) may be a new one."""

    def before_replacing(self, keyspace: Keyspace) -> None:
        """Save the entries that the new keyspace lacks: it is about to replace the present data.

        Raises HeadraceError if the present data must stay.
        """

    def restart_log(self) -> None:
        """Begin a new log: all data were replaced, and the log on disk still describes the old data."""

    def on_online(self) -> None:
        """Handle that the data are those of the primary now, and the stream is being followed."""

    def on_full_sync(self, history: str, offset: int) -> None:
        """Handle that a snapshot has replaced all data, with the data of that history at that offset."""

    def replicas_need_translation(self) -> bool:
        """Return whether replicas of this server know only the commands of Redis 7.0."""


class ReplicaSide:
    """Follows one primary from start() to stop(). All methods are called in the thread of the event loop."""

    def __init__(
        self,
        engine: Engine,
        loop: EventLoop,
        files: DataDirectory,
        settings: Callable[[], ReplicaSettings],
        events: ReplicaEvents,
        *,
        synced_offset: Callable[[], int] = lambda: -1,
        tls: Callable[[], OutgoingTls | None] = lambda: None,
    ) -> None:
        """Follow nothing yet.

        Args:
            files: where snapshots are stored while they are received.
            settings: returns the present settings.
            events: called when something happens to the link or the data.
            synced_offset: returns up to which value of engine.effects.log_offset the log is synced; -1 if
                there is no log.
            tls: returns what a TLS connection to the primary needs, None for a plain one. May raise
                UsageError.
        """
        self.engine = engine
        self.loop = loop
        self.data_directory = files
        self.settings = settings
        self.log_synced_offset = synced_offset
        self.tls = tls
        self.events = events
        self.applier = StreamApplier(
            engine, False, on_translated=self._on_translated, on_message=events.on_message
        )
        self.host, self.port = "", 0
        self.replication_id: str | None = None  # of the data
        self.connection: PrimaryConnection | None = None
        self.link: ReplicaLink | None = None
        self.link_session: Session | None = None  # stands for the link among the clients while it is online
        self.full_syncs = 0
        self.skipped_keys_by_type: dict[str, int] = {}  # of the last snapshot, by the name of their type
        self._offset = 0
        self._following = False
        # Whether the stream has commands of Redis 7.0 only, as far as the primary has said.
        self.is_translated = False
        self._translation_requested = False
        self._request_at_ms = 0  # when to ask for that again
        self._failover = False
        self.may_have_taken_over = False  # the server asked to take over, when the link was lost
        self._retry_at_ms = 0
        self._failures = 0  # in a row, of a kind that would repeat itself
        self._last_error = ""
        self._down_since_ms = 0
        self._file: File | None = None
        self._coming: tuple[str, int] = ("", 0)  # history and offset of the snapshot being received
        self._load_due = False
        self._loading = False
        self._last_turn_s = self._last_keepalive_s = 0.0
        self._positions: deque[tuple[int, int]] = deque()  # (length of the log, offset of the stream)
        self._synced = -1  # the offset of the stream up to which the log is synced

    # Start and stop.

    def start(self, host: str, port: int, history: str | None, offset: int, failover: bool = False) -> None:
        """Follow the server at host and port.

        Args:
            history: the replication ID of the data; None: a snapshot is needed.
            offset: the position of the data in that history.
            failover: ask that server, a replica until now, to take over.
        """
        self.stop()
        self.host, self.port = host, port
        self.replication_id, self._offset = history, offset
        self._failover = failover
        self._following = True
        self._retry_at_ms = self._failures = self._down_since_ms = 0
        self._last_error = ""
        self.loop.run_timer_now()

    def stop(self) -> None:
        """Stop following; the data stay. No-op if nothing is followed."""
        self._following = False
        self._disconnect()
        self._positions.clear()
        self._synced = -1

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
        if self.link is not None:
            self.link.close()
        self.connection = self.link = None
        if self.link_session is not None:
            self.engine.close(self.link_session)
            self.link_session = None
        self._load_due = self._translation_requested = self.is_translated = False
        self._request_at_ms = 0
        self.applier.discard_transaction()
        self._remove_file()

    def close_link(self) -> None:
        """Close the connection because a client requests it; the next one is scheduled."""
        self._lose("a client has closed it (CLIENT KILL)", repeats=False)

    def request_translation(self, now: int) -> None:
        """Ask a Headrace primary to send only commands of Redis 7.0, and to mark from where on it does.

        Does nothing if the primary is not Headrace, or the stream is not being followed.
        """
        if self.link is not None and self.is_online and self.applier.accepts_rules:
            self._translation_requested = True
            self._request_at_ms = now + RETRY_MS
            self.link.request_translation(True)
            self._send()

    def _update_translation(self, link: ReplicaLink, now: int) -> None:
        """Ask for a translated stream as long as replicas of this server need it."""
        wanted = self.events.replicas_need_translation()
        if wanted and not self.is_translated and not 0 <= self._request_at_ms - now <= RETRY_MS:
            self.request_translation(now)
        elif not wanted and self._translation_requested:
            self._translation_requested = self.is_translated = False
            link.request_translation(False)

    def _on_translated(self) -> None:
        self.is_translated = self._translation_requested

    # State.

    @property
    def failure(self) -> str:
        """Why the last connection was lost; empty if there was none, or the link is up again."""
        return self._last_error

    @property
    def offset(self) -> int:
        """The position of the data in the history."""
        return self._offset

    @property
    def stream_database(self) -> int:
        """The database that the stream has selected, for a snapshot made at this offset."""
        return self.applier.database

    @property
    def is_online(self) -> bool:
        """Whether the stream is being followed."""
        return self.state == CONNECTED

    @property
    def state(self) -> str:
        """The state, as ROLE names it."""
        if self.link is not None:
            return self.link.state
        return CONNECT if self.connection is None else CONNECTING

    # Time.

    def tick(self, now: int) -> int:
        """Do what is due; return in how many milliseconds there is more to do, -1 for never.

        Must be called between two turns of the event loop.
        """
        if not self._following or self._loading:
            return -1
        if self.connection is None:
            if 0 <= self._retry_at_ms - now <= RETRY_MAX_MS:
                return max(self._retry_at_ms - now, 1)
            self._connect(now)
        link = self.link
        if link is None:
            return TICK_MS
        self._report_synced(link, now)
        if self.is_online:
            self._update_translation(link, now)
        try:
            link.tick(now)
        except LinkError as error:
            self._lose(str(error), repeats=False)
            return RETRY_MS
        self._send()
        return BUSY_TICK_INTERVAL_MS if link.outgoing or link.is_sync_awaited else TICK_MS

    def _connect(self, now: int) -> None:
        settings = self.settings()
        self.applier.skip_foreign = settings.skip_foreign
        self._retry_at_ms = now
        try:
            tls = self.tls()
            self.connection = PrimaryConnection(
                self.loop, self, self.host, self.port, settings.timeout_s, tls
            )
        except (HeadraceError, OSError) as error:
            self._lose(str(error), repeats=True)

    def _report_synced(self, link: ReplicaLink, now: int) -> None:
        """Tell the link how much of the stream is in the log, and synced."""
        synced, effects = self.log_synced_offset(), self.engine.effects
        if synced < 0:
            self._positions.clear()
            self._synced = -1
        elif not effects.items and link.state == CONNECTED:
            if not self._positions or self._positions[-1][1] != self._offset:
                if len(self._positions) == UNSYNCED_POSITIONS_MAX:  # the log is not synced for a long time
                    self._positions.pop()
                self._positions.append((effects.log_offset, self._offset))
            while self._positions and self._positions[0][0] <= synced:
                self._synced = self._positions[0][1]
                if len(self._positions) == 1:
                    break
                self._positions.popleft()
        link.report_synced(self._synced, now)

    # The connection.

    def on_open(self) -> None:
        """Begin the handshake."""
        settings = self.settings()
        link = LinkSettings(
            settings.listening_port,
            settings.announced_address,
            settings.user,
            settings.password,
            1000 * settings.timeout_s,
        )
        now = self.loop.clock.now_ms()
        self.link = ReplicaLink(link, self, self.replication_id, self._offset, now, self._failover)
        self._failover = False
        self._send()

    def on_bytes(self, data: bytes) -> None:
        """Pass bytes of the primary to the link, and apply the commands in them."""
        link = self.link
        if link is None:
            return
        now = self.loop.clock.now_ms()
        if self.link_session is not None:
            self.link_session.last_request_ms = now
        try:
            link.receive(data, now)
            self._apply(link, now)
        except OSError as error:
            self._lose(f"its snapshot cannot be stored: {describe_error(error)}", repeats=True)
            return
        except (LinkError, CannotApply) as error:
            self._lose(str(error), repeats=isinstance(error, CannotApply))
            return
        except Exception as error:
            self._lose_after_fault(error)
            return
        self._send()

    def on_lost(self, reason: str) -> None:
        """Schedule the next connection."""
        self._lose(reason, repeats=False)

    def _apply(self, link: ReplicaLink, now: int) -> None:
        """Apply the complete commands, and pass their bytes on. Raises LinkError or CannotApply."""
        if link.state != CONNECTED:
            return
        try:
            if self.applier.apply(link.command_reader(), now):
                self._failures = 0
        finally:
            self._offset = link.offset
            raw = link.take_applied_bytes()
            if raw:
                self.events.on_stream_bytes(raw)

    def _send(self) -> None:
        if self.connection is not None and self.link is not None:
            self.connection.send(self.link.outgoing)

    def _lose_after_fault(self, error: Exception) -> None:
        """Close the connection after an unexpected error, and ask for a snapshot: data here may differ."""
        LOG.error("the primary sent what this server cannot apply", exc_info=error)
        self.applier.is_torn = True
        self._lose(f"{type(error).__name__}: {error}", repeats=True)

    def _lose(self, reason: str, repeats: bool) -> None:
        """Close the connection, and schedule the next one."""
        now = self.loop.clock.now_ms()
        if self.state == CONNECTED or not self._down_since_ms:
            self._down_since_ms = now
        self._failures = self._failures + 1 if repeats else 0
        wait = min(RETRY_MS << min(self._failures, 10), RETRY_MAX_MS) if repeats else RETRY_MS
        if reason != self._last_error:
            LOG.warning("no link to the primary %s:%d: %s", self.host, self.port, reason)
            self._last_error = reason
        if self.applier.is_torn:
            self.replication_id = None  # ask for a snapshot
        self.may_have_taken_over = self.link is not None and self.link.may_have_taken_over
        self._disconnect()
        self._retry_at_ms = now + wait
        self.loop.run_timer_now()

    # What the link tells.

    def on_continue(self, history: str) -> None:
        """Go on where the last connection ended."""
        assert self.link is not None
        self.replication_id = history
        set_dialect(self.applier, self.link.replication_dialect, None)
        self._come_online()
        LOG.info("following %s:%d from offset %d on", self.host, self.port, self._offset)
        self.events.on_new_history(history, self._offset)

    def _come_online(self) -> None:
        self._last_error = ""
        self._down_since_ms = 0
        connection = self.connection
        assert connection is not None and connection.socket is not None
        now = self.loop.clock.now_ms()
        session = self.link_session = self.engine.create_session(
            connection.address, connection.local_address, now
        )
        session.user_name = LINK_USER
        session.file_number = connection.socket.fileno()
        session.replayed = True
        self.events.on_online()

    def on_snapshot_begins(self, history: str, offset: int) -> None:
        """Prepare the file for a snapshot."""
        LOG.info("receiving a snapshot of %s:%d at offset %d", self.host, self.port, offset)
        self._remove_file()
        self._coming = history, offset
        self._file = self.data_directory.create(received_file_name())

    def on_snapshot_bytes(self, data: bytes) -> None:
        """Write a piece of the snapshot to its file."""
        assert self._file is not None
        write_all(self._file, data)

    def on_snapshot_complete(self) -> None:
        """Load the snapshot before the next turn; what follows it stays in the socket until then."""
        assert self.connection is not None
        self.connection.pause_reading()
        self._load_due = True
        self.loop.call_between_turns(self._load)

    def _remove_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            with suppress(OSError):
                self.data_directory.remove(received_file_name())

    # Loading.

    def _load(self) -> None:
        """Load the snapshot, and let it replace the data; no-op if it is not awaited any more."""
        link = self.link
        if link is None or not self._load_due:
            return
        self._load_due = False
        self._loading = True
        try:
            keyspace, loaded = self._read_snapshot(self.loop.clock.now_ms())
            self._before_replacing(keyspace)
        except _Interrupted:
            if self.link is link:  # unless the server ends, the load begins again
                self._load_due = True
                self.loop.call_between_turns(self._load)
            return
        except (HeadraceError, OSError) as error:
            self._lose(f"its snapshot cannot be loaded: {error}", repeats=True)
            return
        finally:
            self._loading = False
        self._replace(link, keyspace, loaded)

    def _before_replacing(self, keyspace: Keyspace) -> None:
        try:
            self.events.before_replacing(keyspace)
        except BaseException:
            keyspace.close()
            raise

    def _read_snapshot(self, now: int) -> tuple[Keyspace, LoadedSnapshot]:
        self._last_turn_s = self._last_keepalive_s = time.monotonic()
        with closing(self.data_directory.open_source(received_file_name())) as source:
            return load_snapshot(
                source,
                self.engine.keyspace.settings,
                now_ms=now,
                skip_foreign_types=self.applier.skip_foreign,
                advice=SKIP_FOREIGN_ADVICE,
                progress=self.on_progress,
                cold=self.engine.cold_storage,
            )

    def on_progress(self, done: int = 0) -> None:
        """Serve clients and run timers during a load, and send the primary a keepalive once a second.

        Raises an exception to end the load if the server stops, or follows another primary now.
        """
        seconds = time.monotonic()
        link = self.link
        if link is not None and seconds - self._last_keepalive_s >= KEEPALIVE_S:
            self._last_keepalive_s = seconds
            link.keepalive()
            self._send()
        if seconds - self._last_turn_s >= TURN_INTERVAL_S:
            self.loop.run_turn_with_timer(0)
            self._last_turn_s = time.monotonic()
        if self.loop.interrupted or link is None or link is not self.link:
            raise _Interrupted

    def _replace(self, link: ReplicaLink, keyspace: Keyspace, loaded: LoadedSnapshot) -> None:
        history, offset = self._coming
        self.replication_id, self._offset = history or None, offset
        self.engine.keyspace.replace_databases(keyspace)
        self._remove_file()
        self.full_syncs += 1
        self._failures = 0
        self._positions.clear()
        self._synced = -1
        self.applier.is_torn = False
        set_dialect(self.applier, link.replication_dialect, loaded)
        LOG.info("loaded %d keys of the primary %s:%d", loaded.key_count, self.host, self.port)
        self.skipped_keys_by_type = loaded.skipped_key_counts
        for name, number in loaded.skipped_key_counts.items():
            LOG.warning("skipped %d keys of the primary: %s", number, name)
        self.events.restart_log()
        self.engine.after_nonclient_change()
        now = self.loop.clock.now_ms()
        try:
            self.applier.select(selected_database(loaded))
            self.events.on_full_sync(history, offset)
            link.on_snapshot_loaded(now)
            self._come_online()
            self._apply(link, now)
        except (LinkError, CannotApply) as error:
            self._lose(str(error), repeats=True)
            return
        except Exception as error:
            self._lose_after_fault(error)
            return
        self._send()
        if self.connection is not None:
            self.connection.resume_reading()

    # Reports.

    def role_reply(self) -> list[object]:
        """Return ROLE's reply."""
        offset = self._offset if self.is_online else -1
        return [b"slave", self.host.encode(), self.port, self.state.encode(), offset]

    def info(self) -> InfoFields:
        """Return the fields of INFO replication about the link to the primary."""
        now, link, settings = self.loop.clock.now_ms(), self.link, self.settings()
        silent = -1 if link is None else max(now - link.last_received_ms, 0) // 1000
        syncing = link is not None and link.state == "sync"
        received = link.received_offset if link is not None and self.is_online else self._offset
        fields: InfoFields = [
            ("master_host", self.host),
            ("master_port", self.port),
            ("master_link_status", "up" if self.is_online else "down"),
            ("master_last_io_seconds_ago", silent if self.is_online else -1),
            ("master_sync_in_progress", int(syncing)),
            ("slave_read_repl_offset", received),
            ("slave_repl_offset", self._offset),
        ]
        if link is not None and syncing:
            total, read = link.snapshot_size, link.snapshot_received
            fields += [
                ("master_sync_total_bytes", total),
                ("master_sync_read_bytes", read),
                ("master_sync_left_bytes", total - read),
                ("master_sync_perc", f"{100 * read / total if total else 0:.2f}"),
                ("master_sync_last_io_seconds_ago", silent),
            ]
        if not self.is_online:
            down = max(now - self._down_since_ms, 0) // 1000 if self._down_since_ms else -1
            fields.append(("master_link_down_since_seconds", down))
        fields += [
            ("slave_priority", settings.priority),
            ("slave_read_only", int(settings.read_only)),
            ("replica_announced", int(settings.announced)),
        ]
        return fields + self._loss_fields()

    def _loss_fields(self) -> InfoFields:
        """Return counters of the primary's data that is missing here, without those that are 0."""
        counted = [
            ("replica_skipped_keys", sum(self.skipped_keys_by_type.values())),
            ("replica_skipped_commands", sum(self.applier.skipped_commands.values())),
            ("replica_failed_commands", sum(self.applier.failed_commands.values())),
        ]
        return [(name, number) for name, number in counted if number]


def settings_of(config: Config, listening_port: int) -> ReplicaSettings:
    """Return the settings that the configuration contains.

    Args:
        listening_port: the port of this server, which replica-announce-port overrides.
    """
    return ReplicaSettings(
        config.number("replica-announce-port") or listening_port,
        config.text("replica-announce-ip"),
        config.text("masteruser"),
        config.text("masterauth"),
        config.number("repl-timeout"),
        config.flag("replica-skip-foreign-types"),
        config.number("replica-priority"),
        config.flag("replica-read-only"),
        config.flag("replica-announced"),
    )


def tls_of(config: Config) -> OutgoingTls | None:
    """Return what a TLS connection to the primary needs; None without tls-replication. Raises UsageError."""
    if not config.flag("tls-replication"):
        return None
    from headrace.server.network.tls import OutgoingTls

    return OutgoingTls(config)


def received_file_name() -> str:
    """Return the name of the file that a snapshot is received into."""
    return f"temp-{os.getpid()}-sync.rdb"
