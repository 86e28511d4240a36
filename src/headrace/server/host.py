"""The server process as commands see it: configuration, INFO, saving and shutdown."""

from __future__ import annotations

import logging
import os
import platform
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing

from headrace.commands.server_interface import Section, ServerInterface
from headrace.commands.session import Session
from headrace.engine.error_replies import Loading
from headrace.errors import CommandError, HeadraceError
from headrace.keyspace.settings import Settings
from headrace.persistence.damage import Damaged
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import RdbVersion
from headrace.server.commit import Durability
from headrace.server.config import user_file
from headrace.server.config.config import Config
from headrace.server.config.log_levels import NOTICE
from headrace.server.config.rewrite import rewrite
from headrace.server.disk import persistence_info
from headrace.server.disk.saving import SaveManager
from headrace.server.disk.snapshot_job import SnapshotJob
from headrace.server.disk.startup import Startup
from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.listeners import Listeners
from headrace.server.observe import heap, memory_limit
from headrace.server.observe.client_buffers import ClientBuffers
from headrace.server.script_shutdown import ScriptShutdown

SAMPLES_KEPT = 16  # of the counters: rates are between the first and the last sample
SAMPLE_STALE_MS = 2000  # if the last sample is older, the rates are zero


class NoShutdown(CommandError):
    text = "ERR Errors trying to SHUTDOWN. Check logs."


class ServerHost(ServerInterface):
    """The server interface of an engine that serves sockets. Server sets the attributes declared here."""

    loop: EventLoop
    listeners: Listeners
    startup: Startup
    durability: Durability
    saving: SaveManager
    snapshot_for_replicas: Callable[[], SnapshotJob | None]
    script_shutdown: ScriptShutdown

    def __init__(self, config: Config, stop: Callable[[], None]) -> None:
        super().__init__(Settings())
        self.config = config
        self.stop = stop
        self.apply: Callable[[], None] = self.apply_settings  # called after each CONFIG SET
        self.started = time.monotonic()
        self.rss_at_start = memory_limit.resident_bytes()
        self.run_id = os.urandom(20).hex()
        self.samples: deque[tuple[int, int, int, int]] = deque(maxlen=SAMPLES_KEPT)
        self.apply_settings()

    def apply_settings(self) -> None:
        """Copy the configuration to the keyspace's settings."""
        self.settings.busy_reply_threshold = self.config.number("busy-reply-threshold")
        self.settings.databases = self.config.number("databases")
        self.settings.latency_monitor_threshold = self.config.number("latency-monitor-threshold")
        self.settings.latency_percentiles = self.config.numbers("latency-tracking-info-percentiles")
        self.settings.latency_tracking = self.config.flag("latency-tracking")
        self.settings.notify_keyspace_events = self.config.number("notify-keyspace-events")
        self.settings.slowlog_log_slower_than = self.config.number("slowlog-log-slower-than")
        self.settings.slowlog_max_len = self.config.number("slowlog-max-len")
        self.settings.stream_compact_tombstones = self.config.flag("stream-compact-tombstones")
        self.settings.stream_idmp_duration = self.config.number("stream-idmp-duration")
        self.settings.stream_idmp_maxsize = self.config.number("stream-idmp-maxsize")
        self.settings.stream_node_max_bytes = self.config.number("stream-node-max-bytes")
        self.settings.stream_node_max_entries = self.config.number("stream-node-max-entries")
        self.settings.tracking_table_max_keys = self.config.number("tracking-table-max-keys")

    def config_get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Return every directive whose name matches one of the patterns."""
        return self.config.get(patterns)

    def config_set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Change all of the directives or none, and apply the changes."""
        before, adjusted = dict(self.config.values), dict(self.config.requested)
        self.config.set(pairs)
        try:
            self.apply()
        except CommandError:  # it cannot be applied: restore the earlier values
            self.config.values, self.config.requested = before, adjusted
            self.config.being_set = frozenset()
            self.apply()
            raise
        finally:
            self.config.being_set = frozenset()
        if any(name.lower() == b"requirepass" for name, _ in pairs):
            user_file.set_password(self.config, self.loop.engine.auth)

    def config_resetstat(self) -> None:
        """Reset the counters of the process."""
        self.listeners.rejected = 0
        self.loop.received = 0
        self.loop.sent = 0
        self.loop.query_limit_disconnections = 0
        self.loop.output_monitor.disconnections = 0
        self.samples.clear()

    def config_rewrite(self) -> None:
        """Write the configuration to its file."""
        rewrite(self.config)
        logging.getLogger("headrace").log(NOTICE, "the configuration was written to %s", self.config.file)

    def client_buffers(self, session: Session) -> tuple[int, int]:
        """Return the bytes of requests that wait to be executed, and the bytes free for more."""
        connection = session.transport
        if connection is None:
            return 0, 0
        pending = connection.parser.pending()
        return pending, max(connection.parser.cap - pending, 0)

    def serves_while_busy(self) -> bool:
        """Return True: other clients can end a slow script."""
        return True

    def serve_while_busy(self, session: Session) -> None:
        """Execute what other clients have sent; `session` runs a slow script."""
        self.loop.serve_while_busy(session)
        self.script_shutdown.step()

    def is_stopping(self) -> bool:
        """Return whether a shutdown was requested by a signal and has not been executed yet."""
        return self.script_shutdown.signals > 0

    def shutdown(self, save: bool | None, now: bool = False, force: bool = False) -> None:
        """Stop after this turn, with the log synced and, if requested or configured by `save`, a snapshot.

        Raises CommandError if that fails and force is not set.
        """
        # Nothing has changed, and memory holds only a part of the data.
        if self.loop.engine.write_gate.loading:
            self.stop()
            return
        at = self.loop.engine.keyspace.now
        # A replica gets its data again.
        if self.durability.first_base_pending and not force and not self.replication.is_replica():
            logging.getLogger("headrace").error("not stopping: the first log is still being written")
            raise NoShutdown()
        self.saving.cancel_all()
        if not self.durability.flush(at) and not force:
            logging.getLogger("headrace").error("not stopping: the log cannot be written")
            raise NoShutdown()
        if save or (save is None and self.config.save_rules()):
            try:
                self.saving.save(at)
            except CommandError:
                if not force:
                    raise NoShutdown() from None
        if self.durability.log is not None and not self.durability.failure:
            logging.getLogger("headrace").log(NOTICE, "the log is synced")
        self.stop()

    # Users.

    def read_users(self) -> list[tuple[str, list[bytes]]]:
        """Return the lines of aclfile."""
        return user_file.read(user_file.path_of(self.config))

    def write_users(self, lines: list[bytes]) -> None:
        """Replace aclfile."""
        user_file.write(user_file.path_of(self.config), lines)

    # The disk.

    def save(self, now_ms: int) -> None:
        """Run SAVE."""
        self.saving.save(now_ms)

    def background_save(self, schedule: bool) -> bytes:
        """Run BGSAVE."""
        return self.saving.background_save(schedule)

    def last_save_s(self) -> int:
        """Return when the last snapshot was taken, or the server started, in seconds since 1970."""
        return self.saving.saved_ms // 1000

    def rewrite_log(self) -> bytes:
        """Run BGREWRITEAOF."""
        return self.saving.rewrite_log()

    def log_synced(self) -> int:
        """Return how much of the log is synced, measured as effects.offset is; -1 if there is no log."""
        return self.durability.synced_offset()

    def purge_memory(self) -> None:
        """Run MEMORY PURGE."""
        heap.release_free_memory()

    def flushed_all(self, now_ms: int) -> None:
        """Discard a running snapshot after FLUSHALL; save the empty data if there are save rules."""
        self.saving.on_flushall(now_ms)

    def reload(self, now_ms: int, flush: bool, save: bool, merge: bool) -> None:
        """Run DEBUG RELOAD: save a snapshot and load it."""
        self._refuse_while_loading()
        if save:
            self.saving.save(now_ms)
        if flush:
            self.loop.engine.keyspace.flush_all()
        try:
            with closing(self.saving.files.source(self.config.text("dbfilename"))) as source:
                read_rdb(source, self.loop.engine.keyspace, now_ms=now_ms, merge=merge)
        except (OSError, Damaged) as wrong:
            logging.getLogger("headrace").error("DEBUG RELOAD: %s", wrong)
            raise CommandError("ERR Error trying to load the RDB dump, check server logs.") from None
        finally:
            if self.durability.log is not None and not (save and flush):
                self.saving.queue_rewrite()  # the log does not contain the data loaded now

    def reload_log(self, now_ms: int) -> None:
        """Run DEBUG LOADAOF: replay the log."""
        self._refuse_while_loading()
        if self.durability.log is None or not self.durability.flush(now_ms):
            raise CommandError("ERR Error trying to load the AOF files, check server logs.")
        engine = self.loop.engine
        engine.keyspace.flush_all()
        recording = engine.effects.recording
        engine.record_effects(False)  # they are in the log already
        try:
            self.startup.replay(now_ms)
        except (OSError, HeadraceError) as wrong:
            logging.getLogger("headrace").error("DEBUG LOADAOF: %s", wrong)
            raise CommandError("ERR Error trying to load the AOF files, check server logs.") from None
        finally:
            engine.record_effects(recording)

    def _refuse_while_loading(self) -> None:
        """Reject DEBUG during a load: memory holds a part of the data and must not be saved."""
        if self.loop.engine.write_gate.loading:
            raise Loading()

    def rdb_version(self) -> RdbVersion:
        """Return the RDB version in which values are written."""
        return self.saving.rdb_version()

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

    def microseconds(self) -> int:
        """Return the clock's microseconds within the current millisecond."""
        return time.time_ns() // 1000 % 1000

    # Statistics.

    def sample(self, now: int) -> bool:
        """Sample the counters for the rates; return whether they have changed."""
        loop = self.loop
        counters = (loop.engine.stats.commands, loop.received, loop.sent)
        memory_limit.note_peak(loop.engine)
        changed = not self.samples or self.samples[-1][1:] != counters
        self.samples.append((now, *counters))
        return changed

    def info(self, section: str) -> Section:
        """Return the fields of one section of INFO that only the process knows."""
        sections: dict[str, Callable[[], Section]] = {
            "server": self._server,
            "clients": self._clients,
            "memory": self._memory,
            "persistence": self._persistence,
            "stats": self._stats,
            "cpu": self._cpu,
        }
        return sections[section]() if section in sections else []

    def _server(self) -> Section:
        uptime = int(time.monotonic() - self.started)
        return [
            ("os", f"{platform.system()} {platform.release()} {platform.machine()}"),
            ("arch_bits", 64 if sys.maxsize > 1 << 32 else 32),
            ("python_version", platform.python_version()),
            ("monotonic_clock", "POSIX clock_gettime"),
            ("multiplexing_api", "epoll"),
            ("process_id", os.getpid()),
            ("process_supervised", "systemd" if os.environ.get("NOTIFY_SOCKET") else "no"),
            ("run_id", self.run_id),
            ("tcp_port", self.listeners.announced_port),
            ("uptime_in_seconds", uptime),
            ("uptime_in_days", uptime // 86400),
            ("hz", self.config.number("hz")),
            ("configured_hz", self.config.number("hz")),
            ("executable", sys.executable),
            ("config_file", os.path.abspath(self.config.file) if self.config.file else ""),
            *((f"listener{n}", way) for n, way in enumerate(self.listeners.info())),
        ]

    def _clients(self) -> Section:
        """Return the limit of clients, and the biggest buffers at the moment."""
        buffers = ClientBuffers.of(self.loop.engine, self)
        return [
            ("maxclients", self.config.number("maxclients")),
            ("client_recent_max_input_buffer", buffers.most_input),
            ("client_recent_max_output_buffer", buffers.most_output),
        ]

    def _memory(self) -> Section:
        """Return the memory used by the data and by the process."""
        backlog = dict(self.replication.info())["repl_backlog_histlen"]
        replicas = ClientBuffers.of(self.loop.engine, self, replicas=True).total
        log = self.durability.log
        return [
            *memory_limit.fields(self.config, self.loop.engine, self.rss_at_start),
            ("mem_replication_backlog", backlog),
            ("mem_total_replication_buffers", backlog),
            ("mem_clients_slaves", replicas),
            ("mem_clients_normal", ClientBuffers.of(self.loop.engine, self).total),
            ("mem_aof_buffer", 0 if log is None else log.unwritten_bytes),
        ]

    def _persistence(self) -> Section:
        return persistence_info.fields(
            self.saving,
            self.durability,
            self.startup,
            self.saving.running or self.snapshot_for_replicas(),
            self.loop.engine.keyspace.now,
        )

    def _stats(self) -> Section:
        rates = self._rates()
        return [
            ("instantaneous_ops_per_sec", round(rates[0])),
            ("total_net_input_bytes", self.loop.received),
            ("total_net_output_bytes", self.loop.sent),
            ("instantaneous_input_kbps", f"{rates[1] / 1024:.2f}"),
            ("instantaneous_output_kbps", f"{rates[2] / 1024:.2f}"),
            ("rejected_connections", self.listeners.rejected),
            ("client_query_buffer_limit_disconnections", self.loop.query_limit_disconnections),
            ("client_output_buffer_limit_disconnections", self.loop.output_monitor.disconnections),
        ]

    def _rates(self) -> tuple[float, float, float]:
        """Return commands, bytes received and bytes sent per second, recently."""
        if len(self.samples) < 2 or time.time() * 1000 - self.samples[-1][0] > SAMPLE_STALE_MS:
            return 0.0, 0.0, 0.0
        first, last = self.samples[0], self.samples[-1]
        seconds = max(last[0] - first[0], 1) / 1000
        return (last[1] - first[1]) / seconds, (last[2] - first[2]) / seconds, (last[3] - first[3]) / seconds

    def _cpu(self) -> Section:
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        thread = resource.getrusage(resource.RUSAGE_THREAD)  # INFO runs in the event loop's thread
        return [
            ("used_cpu_sys", f"{own.ru_stime:.6f}"),
            ("used_cpu_user", f"{own.ru_utime:.6f}"),
            ("used_cpu_sys_children", f"{children.ru_stime:.6f}"),
            ("used_cpu_user_children", f"{children.ru_utime:.6f}"),
            ("used_cpu_sys_main_thread", f"{thread.ru_stime:.6f}"),
            ("used_cpu_user_main_thread", f"{thread.ru_utime:.6f}"),
        ]
