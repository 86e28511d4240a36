"""INFO's fields about the server process, and rates from samples of its counters."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections import deque
from collections.abc import Callable

from headrace.commands.server_interface import InfoFields
from headrace.engine.engine import Engine
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.disk import cold_tasks, persistence_info
from headrace.server.disk.cold_tasks import ColdTasks
from headrace.server.disk.saving import SaveManager
from headrace.server.disk.startup import Startup
from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.listeners import Listeners
from headrace.server.observe import memory_limit
from headrace.server.observe.client_buffers import ClientBuffers
from headrace.server.replication.server_replication import ServerReplication

SAMPLES_KEPT = 16  # of the counters: rates are between the first and the last sample
SAMPLE_STALE_MS = 2000  # if the last sample is older, the rates are zero


class ProcessInfo:
    """The fields of INFO that the engine does not have."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        loop: EventLoop,
        listeners: Listeners,
        startup: Startup,
        durability: Durability,
        saving: SaveManager,
        replication: ServerReplication,
        cold: ColdTasks,
    ) -> None:
        self.config = config
        self.engine = engine
        self.loop = loop
        self.listeners = listeners
        self.startup = startup
        self.durability = durability
        self.saving = saving
        self.replication = replication
        self.cold = cold
        self.started = time.monotonic()
        self.rss_at_start = memory_limit.resident_bytes()
        self.run_id = os.urandom(20).hex()
        self.samples: deque[tuple[int, int, int, int]] = deque(maxlen=SAMPLES_KEPT)

    def reset(self) -> None:
        """Reset the counters of the process (CONFIG RESETSTAT)."""
        self.listeners.rejected_client_count = 0
        self.loop.received_bytes = 0
        self.loop.sent_bytes = 0
        self.loop.query_limit_disconnections = 0
        self.loop.output_monitor.disconnections = 0
        self.samples.clear()

    def sample(self, now: int) -> bool:
        """Sample the counters for the rates; return whether they have changed."""
        loop, engine = self.loop, self.engine
        counters = (engine.stats.command_count, loop.received_bytes, loop.sent_bytes)
        memory_limit.update_memory_peak(engine)
        changed = not self.samples or self.samples[-1][1:] != counters
        self.samples.append((now, *counters))
        return changed

    def fields(self, section: str) -> InfoFields:
        """Return the fields of one section of INFO; none if all of them are the engine's."""
        sections: dict[str, Callable[[], InfoFields]] = {
            "server": self._server,
            "clients": self._clients,
            "memory": self._memory,
            "persistence": self._persistence,
            "stats": self._stats,
            "cpu": self._cpu,
        }
        return sections[section]() if section in sections else []

    def _server(self) -> InfoFields:
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

    def _clients(self) -> InfoFields:
        """Return the limit of clients, and the biggest buffers at the moment."""
        buffers = ClientBuffers.measure(self.engine, self.engine.server)
        return [
            ("maxclients", self.config.number("maxclients")),
            ("client_recent_max_input_buffer", buffers.largest_input_bytes),
            ("client_recent_max_output_buffer", buffers.largest_output_bytes),
        ]

    def _memory(self) -> InfoFields:
        """Return the memory used by the data and by the process."""
        backlog = dict(self.replication.info())["repl_backlog_histlen"]
        replicas = ClientBuffers.measure(self.engine, self.engine.server, replicas=True).total_bytes
        log = self.durability.log
        return [
            *memory_limit.info_fields(self.config, self.engine, self.rss_at_start),
            ("mem_replication_backlog", backlog),
            ("mem_total_replication_buffers", backlog),
            ("mem_clients_slaves", replicas),
            ("mem_clients_normal", ClientBuffers.measure(self.engine, self.engine.server).total_bytes),
            ("mem_aof_buffer", 0 if log is None else log.unwritten_bytes),
            *cold_tasks.info_fields(self.cold),
        ]

    def _persistence(self) -> InfoFields:
        return persistence_info.info_fields(
            self.saving,
            self.durability,
            self.startup,
            self.saving.running_job or self.replication.snapshot_job(),
            self.engine.keyspace.now,
        )

    def _stats(self) -> InfoFields:
        rates = self._rates()
        return [
            ("instantaneous_ops_per_sec", round(rates[0])),
            ("total_net_input_bytes", self.loop.received_bytes),
            ("total_net_output_bytes", self.loop.sent_bytes),
            ("instantaneous_input_kbps", f"{rates[1] / 1024:.2f}"),
            ("instantaneous_output_kbps", f"{rates[2] / 1024:.2f}"),
            ("rejected_connections", self.listeners.rejected_client_count),
            ("client_query_buffer_limit_disconnections", self.loop.query_limit_disconnections),
            ("client_output_buffer_limit_disconnections", self.loop.output_monitor.disconnections),
        ]

    def _rates(self) -> tuple[float, float, float]:
        """Return recent commands, bytes received and bytes sent per second; zeros without recent samples."""
        if len(self.samples) < 2 or time.time() * 1000 - self.samples[-1][0] > SAMPLE_STALE_MS:
            return 0.0, 0.0, 0.0
        first, last = self.samples[0], self.samples[-1]
        seconds = max(last[0] - first[0], 1) / 1000
        return (last[1] - first[1]) / seconds, (last[2] - first[2]) / seconds, (last[3] - first[3]) / seconds

    def _cpu(self) -> InfoFields:
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
