"""The server process as commands see it: the configuration, permissions, and the parts that execute them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from headrace.commands.server_interface import InfoFields, ServerInterface
from headrace.commands.session import Session
from headrace.keyspace.settings import Settings
from headrace.persistence.rdb.versions import RdbVersion
from headrace.server.commit import Durability
from headrace.server.config import user_file
from headrace.server.config.config import Config
from headrace.server.config.log_levels import NOTICE
from headrace.server.config.rewrite import rewrite
from headrace.server.config_applier import ConfigApplier
from headrace.server.disk.reloading import Reloading
from headrace.server.disk.saving import SaveManager
from headrace.server.loop.event_loop import EventLoop
from headrace.server.observe import heap
from headrace.server.process_info import ProcessInfo
from headrace.server.replication.server_replication import ServerReplication
from headrace.server.run_control import RunControl
from headrace.server.script_shutdown import ScriptShutdown
from headrace.server.shutdown import Shutdown


@dataclass(frozen=True)
class Services:
    """The parts of the server that execute what commands request."""

    loop: EventLoop
    durability: Durability
    saving: SaveManager
    reloading: Reloading
    replication: ServerReplication
    config_applier: ConfigApplier
    info: ProcessInfo
    control: RunControl
    shutdown: Shutdown
    script_shutdown: ScriptShutdown


class ServerHost(ServerInterface):
    """The server interface of an engine that serves sockets."""

    def __init__(self, config: Config, settings: Settings, services: Callable[[], Services]) -> None:
        """Create it before the engine, which the services need.

        Args:
            config: that of the server.
            settings: those of the engine.
            services: returns the services; called by the first command that needs one.
        """
        super().__init__(settings)
        self.config = config
        self._services = services

    @cached_property
    def services(self) -> Services:
        """The parts of the server that execute what commands request."""
        return self._services()

    @cached_property
    def replication(self) -> ServerReplication:
        """The replication of the server."""
        return self.services.replication

    # The configuration.

    def config_get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Return every directive whose name matches one of the patterns."""
        return self.config.get(patterns)

    def config_set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Change all of the directives or none, and apply the changes. Raises CommandError."""
        self.services.config_applier.set(pairs)
        if any(name.lower() == b"requirepass" for name, _ in pairs):
            user_file.apply_requirepass(self.config, self.services.loop.engine.auth)

    def config_resetstat(self) -> None:
        """Reset the counters of the process."""
        self.services.info.reset()

    def config_rewrite(self) -> None:
        """Write the configuration to its file. Raises CommandError."""
        rewrite(self.config)
        logging.getLogger("headrace").log(NOTICE, "the configuration was written to %s", self.config.file)

    def read_users(self) -> list[tuple[str, list[bytes]]]:
        """Return the users of aclfile: for each, file and line for errors, and the words after `user`.

        Raises CommandError if there is no such file or it cannot be read, InvalidUserFile if a line is wrong.
        """
        return user_file.read(user_file.aclfile_path(self.config))

    def write_users(self, lines: list[bytes]) -> None:
        """Replace the content of aclfile. Raises CommandError."""
        user_file.write(user_file.aclfile_path(self.config), lines)

    def rdb_compression(self) -> bool:
        """Return whether long strings are compressed."""
        return self.config.flag("rdbcompression")

    def debug_allowed(self, session: Session) -> bool:
        """Return whether the session may use DEBUG."""
        allowed = self.config.text("enable-debug-command")
        if allowed == "local":
            host = session.address.decode(errors="surrogateescape").rpartition(":")[0]
            return host == self.config.text("unixsocket") or host.startswith("127.") or host == "[::1]"
        return allowed == "yes"

    # Clients, and the process.

    def query_buffer_sizes(self, session: Session) -> tuple[int, int]:
        """Return the bytes of requests that wait to be executed, and the bytes free for more."""
        connection = session.transport
        if connection is None:
            return 0, 0
        pending = connection.parser.pending_bytes()
        return pending, max(connection.parser.cap - pending, 0)

    def serves_while_busy(self) -> bool:
        """Return True: other clients can end a slow script."""
        return True

    def serve_while_busy(self, session: Session) -> None:
        """Serve the other clients while `session` runs a slow script, and check for a requested shutdown."""
        self.services.loop.serve_while_busy(session)
        self.services.script_shutdown.end_script_if_requested()

    def is_stopping(self) -> bool:
        """Return whether a shutdown was requested by a signal and has not been executed yet."""
        return self.services.control.shutdown_signals > 0

    def shutdown(self, save: bool | None, now: bool = False, force: bool = False) -> None:
        """Stop after this turn, with the log synced.

        Args:
            save: whether to save a snapshot; None: if there are save rules.
            now: has no effect here: the caller has waited for replicas unless it is set.
            force: stop also if data are lost.

        Raises:
            CommandError: if data would be lost; the server keeps running.
        """
        self.services.shutdown.end(save, force)

    def info(self, section: str) -> InfoFields:
        """Return those fields of an INFO section that only the server process knows."""
        return self.services.info.fields(section)

    def purge_memory(self) -> None:
        """Return free memory of the heap to the system (MEMORY PURGE)."""
        heap.release_free_memory()

    def sub_ms_microseconds(self) -> int:
        """Return the clock's microseconds within the current millisecond."""
        return time.time_ns() // 1000 % 1000

    # The disk.

    def save(self, now_ms: int) -> None:
        """Run SAVE: return when a snapshot is durable. Raises CommandError if that fails."""
        self.services.saving.save(now_ms)

    def background_save(self, schedule: bool) -> bytes:
        """Start a snapshot; with `schedule`, after a rewrite that is running. Return the text of the reply.

        Raises CommandError if it cannot start.
        """
        return self.services.saving.background_save(schedule)

    def last_save_s(self) -> int:
        """Return when the last snapshot was taken, or the server started, in seconds since 1970."""
        return self.services.saving.saved_ms // 1000

    def rewrite_log(self) -> bytes:
        """Run BGREWRITEAOF; return the text of its reply. Raises CommandError."""
        return self.services.saving.rewrite_log()

    def synced_log_offset(self) -> int:
        """Return up to which value of effects.log_offset the log is synced; -1 if there is no log."""
        return self.services.durability.synced_offset()

    def on_flushall(self, now_ms: int) -> None:
        """Discard a running snapshot after FLUSHALL; save the empty data if there are save rules."""
        self.services.saving.on_flushall(now_ms)

    def reload(self, now_ms: int, flush: bool, save: bool, merge: bool) -> None:
        """Run DEBUG RELOAD, see Reloading.reload_snapshot(). Raises CommandError if that fails."""
        self.services.reloading.reload_snapshot(now_ms, flush, save, merge)

    def reload_log(self, now_ms: int) -> None:
        """Run DEBUG LOADAOF: sync the log and replay it. Raises CommandError if that fails."""
        self.services.reloading.reload_log(now_ms)

    def rdb_version(self) -> RdbVersion:
        """Return the RDB version in which values are written."""
        return self.services.saving.rdb_version()
