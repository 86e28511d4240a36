"""A database in this process that follows a server: a local, read-only copy of its streams.

    connect ─▶ handshake ─┬─────────────────────────────────────────────▶ stream ─▶ (lost) ─▶ connect
       ▲                  └▶ snapshot into a file ─▶ load ─▶ replace ────┘
       └── after a pause, which grows while the attempts fail

One thread does all of it. It holds the engine's lock only while it applies a piece of the stream, and while a
loaded snapshot replaces the old data, which are served until then. After that the database's own log is
rewritten, before the first change of the stream is applied. So the log always describes one state of the
primary. When the database is closed, the log gets the position of the data. When the database is opened
again, the copy continues there.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import redis

from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.topology import topology_of_url
from headrace.client.url import parse_server_url, without_password
from headrace.errors import DatabaseClosed, HeadraceError, NotOnDisk, UsageError
from headrace.replication.divergent_tail import DivergentTail
from headrace.replication.replica_link import CONNECTED, LinkError, LinkSettings, ReplicaLink
from headrace.replication.snapshot_loading import load_snapshot, selected_database
from headrace.replication.stored_position import decode_comment, encode_comment, encode_position
from headrace.replication.stream_applier import StreamApplier
from headrace.replication.stream_dialect import set_dialect

if TYPE_CHECKING:
    from headrace.api.local.local_engine import LocalEngine

LOG = logging.getLogger("headrace")
POLL_S = 0.2  # how long stop() waits at most for a silent connection
KEEPALIVE_S = 1.0
RETRY_S, RETRY_MAX_S = 0.2, 30.0
RECEIVE_BYTES = 64 * 1024  # applied with the lock held once
CONNECT_STATE = "connect"
SKIP_FOREIGN_ADVICE = "open it with skip_foreign_types=True to skip keys of other types"


@dataclass(frozen=True)
class ReplicaStatus:
    """The state of a replica in this process, and of its connection to the server.

    Attributes:
        primary: the URL of the server, without its password.
        state: `"connect"`, `"handshake"`, `"sync"` (a snapshot is received or loaded) or `"connected"`.
        offset: the position of the data in the primary's stream of changes, in bytes.
        received_offset: up to which offset the stream was received.
        snapshot_bytes: the size of the snapshot that is being received; 0 if unknown.
        snapshot_received: bytes of it that have arrived.
        skipped_keys: keys of the last snapshot that Headrace has no type for, by the name of their type.
        skipped_commands: commands for such keys, and how often they came, by name.
        failed_commands: commands that failed here, and how often, by name. It should be empty.
        error: why the last connection was lost; empty while it is up.
    """

    primary: str
    state: str
    offset: int
    received_offset: int
    snapshot_bytes: int
    snapshot_received: int
    skipped_keys: dict[str, int]
    skipped_commands: dict[str, int]
    failed_commands: dict[str, int]
    error: str


class Replica:
    """Follows a server for a database of this process, from start() to stop()."""

    def __init__(self, local_engine: LocalEngine, url: str, skip_foreign_types: bool = False) -> None:
        self.local_engine = local_engine
        self.skip_foreign_types = skip_foreign_types
        parsed, self.display_url = parse_server_url(url), without_password(url)
        if parsed.kind == "cluster":
            raise UsageError(
                f"{self.display_url}: a copy follows one server, not a cluster; name one of its nodes"
            )
        self._topology = topology_of_url(parsed, self.display_url)
        self._applier = StreamApplier(local_engine.engine, skip_foreign_types)
        storage = local_engine.storage
        # What the database has got since it was promoted: saved before it follows a server again.
        self._tail = None if storage is None else DivergentTail(storage.files, local_engine.engine.keyspace)
        self._history: str | None = None  # of the data; None: a snapshot is needed
        self._offset = 0
        self._link: ReplicaLink | None = None
        self._error = ""
        self._skipped_keys: dict[str, int] = {}
        self._file: IO[bytes] | None = None
        self._snapshot_position: tuple[str, int] = (
            "",
            0,
        )  # history and offset of the snapshot that is received
        self._promoted = False
        self._stopped = threading.Event()
        self._online = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-replica", daemon=True)

    def start(self) -> None:
        """Reject writes from now on, and follow the server."""
        engine = self.local_engine.engine
        storage = self.local_engine.storage
        position = None if storage is None else decode_comment(storage.loaded_last_comment)

        if self._tail is not None:
            self._tail.load_marker()

        def prepare() -> None:
            if position is not None and not engine.has_left_out_removals():
                self._history, self._offset = position.replication_id, position.offset
                self._applier.select(position.database)
            engine.write_gate.set_read_only(True)
            engine.keyspace.hide_expired = True

        self.local_engine.run_locked(prepare)
        self._thread.start()

    def stop(self) -> None:
        """Stop following; the data stay. A second call does nothing."""
        self._stopped.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        if self.local_engine.storage is not None:
            self.local_engine.storage.closing_comment = b"" if self._promoted else self._log_comment()

    def _log_comment(self) -> bytes:
        """Return the position of the data, as the last line of the log; empty if there is none."""
        engine = self.local_engine.engine
        if self._history is None or self._applier.is_torn or engine.has_left_out_removals():
            return b""
        return encode_comment(encode_position(self._applier.database, self._history, self._offset))

    def promote(self) -> None:
        """Stop following, and accept writes: the database keeps the data that it has."""
        self._promoted = True
        self.stop()
        if self._tail is not None:
            self._tail.mark_possible()
        engine = self.local_engine.engine

        def allow() -> None:
            self._applier.discard_transaction()
            engine.write_gate.set_read_only(False)
            engine.keyspace.hide_expired = False
            engine.rule_runner.reapply_all_next_time()

        self.local_engine.run_locked(allow)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the copy is complete and follows the server.

        Args:
            timeout: the longest wait in seconds; None: no limit.

        Returns:
            True; False after a timeout.
        """
        return self._online.wait(timeout)

    def status(self) -> ReplicaStatus:
        """Return the state of the connection, and what was skipped."""
        link = self._link
        return ReplicaStatus(
            self.display_url,
            CONNECT_STATE if link is None else link.state,
            self._offset,
            self._offset if link is None else max(link.received_offset, self._offset),
            0 if link is None else link.snapshot_size,
            0 if link is None else link.snapshot_received,
            dict(self._skipped_keys),
            dict(self._applier.skipped_commands),
            dict(self._applier.failed_commands),
            self._error,
        )

    # The thread.

    def _run(self) -> None:
        pause = RETRY_S
        while not self._stopped.is_set():
            try:
                self._follow()
            except DatabaseClosed:
                return
            except (HeadraceError, redis.RedisError, OSError, *CONNECTION_ERRORS) as error:
                if str(error) != self._error:
                    LOG.warning("no copy of %s at the moment: %s", self.display_url, error)
                self._error = str(error) or type(error).__name__
            pause = RETRY_S if self._online.is_set() else min(2 * pause, RETRY_MAX_S)
            self._online.clear()
            self._link = None
            self._applier.discard_transaction()
            if self._applier.is_torn:
                self._history = None
            self._stopped.wait(pause)

    def _follow(self) -> None:
        """Follow the server over one connection. Raises the error that ends it."""
        self._topology.refresh()
        pool = self._topology.pool_for_key(None)
        connection: Any = pool.get_connection()
        try:
            connection._sock.settimeout(POLL_S)
            link = self._link = ReplicaLink(LinkSettings(0), self, self._history, self._offset, self._now())
            while not self._stopped.is_set():
                self._send(connection, link)
                self._receive(connection, link)
                if link.is_loading:
                    self._load(connection, link)
                if link.state == CONNECTED:
                    self._apply(link)
                    if not self._online.is_set():
                        self._error = ""
                        self._online.set()
                link.tick(self._now())
        finally:
            self._close_file()
            connection.disconnect()
            pool.release(connection)

    def _send(self, connection: Any, link: ReplicaLink) -> None:
        if link.outgoing:
            connection._sock.sendall(link.outgoing)
            link.outgoing.clear()

    def _receive(self, connection: Any, link: ReplicaLink) -> None:
        try:
            data = connection._sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            return
        if not data:
            raise LinkError("the server closed the connection")
        link.receive(data, self._now())

    def _apply(self, link: ReplicaLink) -> None:
        """Apply the complete commands that were received."""

        def apply() -> int:
            try:
                self._applier.apply(link.command_reader(), self._now())
            finally:
                self._offset = link.offset
            return self.local_engine.engine.effects.log_offset

        batch = self.local_engine.run_locked(apply)
        link.take_applied_bytes()
        with suppress(NotOnDisk):  # it is retried, and reported where the database is used
            self.local_engine.commit_and_wake(batch)

    def _now(self) -> int:
        return self.local_engine.now()

    # What the link tells.

    def on_continue(self, history: str) -> None:
        """Record the replication history that the data continue."""
        assert self._link is not None
        self._history = history
        if self._tail is not None:
            self._tail.mark_impossible()
        set_dialect(self._applier, self._link.replication_dialect, None)

    def on_snapshot_begins(self, history: str, offset: int) -> None:
        """Open a file for the snapshot."""
        LOG.info("receiving a snapshot of %s", self.display_url)
        self._snapshot_position = history, offset
        self._file = tempfile.TemporaryFile()  # noqa: SIM115

    def on_snapshot_bytes(self, data: bytes) -> None:
        """Write a piece of the snapshot."""
        assert self._file is not None
        self._file.write(data)

    def on_snapshot_complete(self) -> None:
        """Do nothing: _follow() loads the snapshot."""

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # Loading.

    def _load(self, connection: Any, link: ReplicaLink) -> None:
        """Load the snapshot, and let it replace the data."""
        assert self._file is not None
        self._file.seek(0)
        last = time.monotonic()

        def show_progress(done: int) -> None:
            nonlocal last
            if self._stopped.is_set():
                raise DatabaseClosed("the copy was stopped")
            if time.monotonic() - last >= KEEPALIVE_S:
                last = time.monotonic()
                link.keepalive()
                self._send(connection, link)

        engine = self.local_engine.engine
        keyspace, loaded = load_snapshot(
            self._file,
            engine.keyspace.settings,
            now_ms=self._now(),
            skip_foreign_types=self.skip_foreign_types,
            advice=SKIP_FOREIGN_ADVICE,
            progress=show_progress,
            cold=engine.cold_storage,
        )

        def replace() -> None:
            engine.keyspace.replace_databases(keyspace)
            self._history, self._offset = self._snapshot_position[0] or None, self._snapshot_position[1]
            self._applier.is_torn = False
            set_dialect(self._applier, link.replication_dialect, loaded)
            self._applier.select(selected_database(loaded))
            engine.after_nonclient_change()

        self._close_file()
        if self._tail is not None:
            self._tail.save(keyspace)
        self.local_engine.run_locked(replace)
        if self._tail is not None:
            self._tail.mark_impossible()
        with suppress(NotOnDisk):
            self.local_engine.commit_and_wake(-1)
        if self.local_engine.storage is not None:
            self.local_engine.storage.rewrite_outdated_log()
        self._skipped_keys = dict(loaded.skipped_key_counts)
        LOG.info("loaded %d keys of %s", loaded.key_count, self.display_url)
        link.on_snapshot_loaded(self._now())
