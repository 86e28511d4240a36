"""The server program: creates all parts of a server, runs the event loop, shuts down.

config → host → engine → event loop → durability, saving, startup → listeners, timers
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

import headrace
from headrace import limits
from headrace.engine.clock import RealClock
from headrace.engine.engine import Engine
from headrace.engine.script_runner import ScriptAbandoned
from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.persistence.data_directory import DiskDirectory
from headrace.server.commit import Durability
from headrace.server.config import user_file
from headrace.server.config.buffer_limits import OutputBufferLimits
from headrace.server.config.config import Config, set_failed
from headrace.server.config.directives import DIRECTIVES
from headrace.server.config.log_levels import NOTICE
from headrace.server.config.rewrite import format_config
from headrace.server.disk.saving import SaveManager
from headrace.server.disk.startup import LoadInterrupted, Startup, as_usage_errors
from headrace.server.host import ServerHost
from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.listeners import Listeners
from headrace.server.observe import heap, memory_limit
from headrace.server.observe.logs import apply_log, json_line, reopen_log, start_log
from headrace.server.observe.metrics import Metrics
from headrace.server.observe.notify import notify
from headrace.server.replication.primary_side import PrimarySide
from headrace.server.replication.replica_side import ReplicaSide, settings_of, tls_of
from headrace.server.replication.server_replication import ServerReplication
from headrace.server.script_shutdown import ScriptShutdown
from headrace.server.timers import Timers

DESCRIPTORS_KEPT = 64  # for other uses than clients: listeners, files, libraries
TOO_MANY_CLIENTS = "The operating system is not able to handle the specified number of clients"
# The garbage collector checks only young objects: with a million keys a full collection took half a second.
# No object that is dropped is part of a cycle: tests/server/test_collector.py and test_census.py. If one is,
# observe/collector.py has old objects collected when unaccounted memory has grown.
GC_THRESHOLDS = (3_000, 3, 1 << 30)
PRINT = "--print-config"
SWITCH_S = 0.0005  # how long a thread waits for the interpreter's lock before the event loop must yield it
USAGE = """\
Usage: headrace serve [FILE] [--directive value ...]

Runs a server for any Redis client. FILE is like redis.conf (- for standard input); HEADRACE_DIRECTIVE=value
in the environment overrides it, and directives given here override both. --print-config prints the
result and does not start.

Example: headrace serve --port 7777 --stream-node-max-entries 200

Directives (default):
"""


def serve(arguments: list[str]) -> int:
    """Run a server until SIGTERM, SIGINT or SHUTDOWN; return the exit code.

    Raises HeadraceError if it cannot start.
    """
    if arguments in (["--help"], ["-h"]):
        print(usage(), end="")
        return 0
    config = Config()
    config.read_arguments([word for word in arguments if word != PRINT], os.environ)
    if PRINT in arguments:
        for warning in config.warnings:
            print(f"headrace: {warning}", file=sys.stderr)
        print(format_config(config), end="")
        return 0
    if config.flag("disable-thp"):
        heap.disable_large_pages()
    sys.setswitchinterval(SWITCH_S)
    server = Server(config)
    with signal_handlers(server):
        server.open()
        if not server.stopping:
            announce_ready(config, ", ".join(server.addresses))
        server.run()
    logging.getLogger("headrace").log(NOTICE, "stopped")
    return 0


def announce_ready(config: Config, where: str) -> None:
    """Report that clients are served: to the log file, on standard output, and to the service manager."""
    text = f"headrace {headrace.__version__} ready on {where} (pid {os.getpid()})"
    if config.text("logfile"):
        logging.getLogger("headrace").log(NOTICE, "%s", text)
    is_json = config.text("log-format") == "json"
    try:
        print(json_line(NOTICE, text) if is_json else text, flush=True)
    except OSError:  # a full disk or a closed pipe: do not try again at the exit, which then fails
        sys.stdout = None
    notify(f"READY=1\nSTATUS=Ready on {where}")


def usage() -> str:
    """Return the help text, with every directive."""
    lines = [f"  --{d.name:<28} {d.about} ({d.default or 'none'})\n" for d in DIRECTIVES]
    return USAGE + "".join(lines)


class Server:
    """One server: open(), then run() until request_shutdown() or stop() is called, from any thread."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock = RealClock()
        self.stopping = False
        self.shutdown_requested = False
        self.shutdown_reason = ""
        self.shutdown_failed = False
        self.reopen_requested = False
        self.host = ServerHost(config, self.stop)
        self.engine = Engine(self.host.settings, self.host)
        self.loop = EventLoop(self.engine, self.clock)
        self.host.loop = self.loop
        self.host.apply = self.apply
        self.listeners = self.host.listeners = Listeners(config, self.loop)
        self.metrics = Metrics(config, self.loop, self.wake)
        self.disk = DiskDirectory(config.text("dir"))
        self.startup = Startup(config, self.engine, self.loop, self.disk, self.is_ending)
        self.durability = Durability(config, self.engine, self.loop, self.disk, self.wake)
        self.saving = SaveManager(
            config, self.engine, self.loop, self.disk, self.durability, self.wake, self.clock.now_ms()
        )
        self.host.startup, self.host.durability, self.host.saving = self.startup, self.durability, self.saving
        self.replication = self._make_replication()
        self.host.replication = self.replication
        self.host.snapshot_for_replicas = self.replication.snapshot_job
        self.host.script_shutdown = self.script_shutdown = ScriptShutdown(
            config,
            self.engine.scripts,
            self.durability,
            lambda: self.host.shutdown(False, now=True, force=True),
        )
        self.timers = Timers(config, self.host, self.loop, self.durability, self.saving, self.replication)
        self.saving.run_timer_now = self.loop.run_timer_now
        self.wake_sender, self.wake_receiver = socket.socketpair()
        self.wake_sender.setblocking(False)
        self.wake_receiver.setblocking(False)
        self.log_enabled = False  # the value of appendonly that is in effect
        self.files_to_remove: list[str] = []  # pidfile and port-file

    def _make_replication(self) -> ServerReplication:
        replicas = PrimarySide(
            self.config,
            self.engine,
            self.loop,
            self.durability,
            lambda: self.disk.path(f"temp-{os.getpid()}-replicas.rdb"),
            self.wake,
        )
        replica_side = ReplicaSide(
            self.engine,
            self.loop,
            self.disk,
            lambda: settings_of(self.config, self.listeners.announced_port),
            synced_offset=self.durability.synced_offset,
            tls=lambda: tls_of(self.config),
        )
        replica_side.restart_log = self._restart_log
        replication = ServerReplication(self.config, self.engine, replicas, replica_side)
        self.saving.snapshot_fields = replication.snapshot_fields
        return replication

    def _restart_log(self) -> None:
        """Begin a new log: the data in memory did not come through the old one, which stays until then."""
        if self.durability.log is None:
            return
        self.saving.cancel_rewrites()
        self.durability.disable(self.engine.keyspace.now)
        try:
            self.durability.enable(hold_replies=True)
        except (OSError, HeadraceError) as wrong:
            logging.getLogger("headrace").error("there is no log of the primary's data: %s", wrong)
        else:
            self.saving.queue_rewrite()

    @property
    def addresses(self) -> list[str]:
        """The addresses listened on, as text for people."""
        return self.listeners.addresses

    def open(self) -> None:
        """Load the data, listen, and write pidfile and port-file. If it raises, everything is closed."""
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        start_log(self.config)
        check_directory(self.config.text("dir"))
        for warning in self.config.warnings:
            logging.getLogger("headrace").warning("%s", warning)
        self.apply()
        user_file.load_initial_users(self.config, self.engine.auth.users)
        if not self.config.text("aclfile"):
            self.config.repeated_lines["user"] = partial(
                user_file.user_lines, self.config, self.engine.auth.users
            )
        self.loop.add_reader(self.wake_receiver.fileno(), self._on_wake)
        self.listeners.open()
        self.metrics.open()
        try:
            self._recover()
        except LoadInterrupted:
            self.stop()
            return
        self._write("pidfile", str(os.getpid()))
        self._write("port-file", str(self.listeners.announced_port))

    def _recover(self) -> None:
        """Load the data from the disk and continue the log. Raises UsageError, LoadInterrupted."""
        self.disk.holder = ", ".join(self.addresses)
        self.startup.lock()
        if self.disk.lock_descriptor >= 0:
            with as_usage_errors():
                self.saving.remove_leftovers()
        self.log_enabled = self.config.flag("appendonly")
        found = self.startup.load(self.clock.now_ms())
        self.saving.saved_changes = self.engine.keyspace.changes
        with as_usage_errors():
            if self.log_enabled:
                self.saving.open_log(found.manifest, self.clock.now_ms())
            self.loop.commit = self.durability.commit
            self.replication.begin(found.aux, found.ending)
            self.apply()  # apply what CONFIG SET changed during the load

    def run(self) -> None:
        """Run turns of the event loop until the server is stopped; then close everything."""
        gc.freeze()  # objects that exist now stay: the collector skips them
        thresholds = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            while not self.stopping:
                with suppress(ScriptAbandoned):  # stopping is set, and nothing may run any more
                    self.loop.run(self.timers.run)
                if self.reopen_requested:
                    self.reopen_requested = False
                    reopen_log()
                if self.shutdown_requested:
                    self._shut_down()
        finally:
            gc.set_threshold(*thresholds)
            self.close()

    def request_shutdown(self, reason: str = "a request") -> None:
        """Shut down, as SHUTDOWN does, after the current turn. Callable by threads and signal handlers.

        Args:
            reason: for the log: a signal's name.
        """
        self.shutdown_reason = reason
        self.shutdown_requested = True
        self.script_shutdown.signals += 1
        self.loop.interrupt()
        self.wake()

    def request_reopen(self) -> None:
        """Reopen the file of log messages after the current turn, as request_shutdown()."""
        self.reopen_requested = True
        self.loop.interrupt()
        self.wake()

    def is_ending(self) -> bool:
        """Return whether run() is about to end."""
        return self.stopping or self.shutdown_requested

    def _shut_down(self) -> None:
        """Shut down as SHUTDOWN does; a second request does not wait, and is forced if the first failed."""
        self.shutdown_requested = False
        self.script_shutdown.signals = 0
        logging.getLogger("headrace").log(NOTICE, "shutting down: %s", self.shutdown_reason)
        notify("STOPPING=1")
        again = self.shutdown_failed or self.replication.shutdown.is_waiting
        with suppress(CommandError):  # logged
            if again or not self.replication.delay_shutdown(self._end, None):
                self._end()

    def _end(self) -> None:
        """End the server. Raises CommandError if data would be lost, unless that has failed before."""
        try:
            self.host.shutdown(None, force=self.shutdown_failed)
        except CommandError:
            self.shutdown_failed = True
            logging.getLogger("headrace").error(
                "the server is still running; the next signal ends it even if data are lost"
            )
            raise

    def stop(self) -> None:
        """End run() after the current turn, without a snapshot. Thread-safe, as request_shutdown()."""
        self.stopping = True
        self.loop.interrupt()
        self.wake()

    def wake(self) -> None:
        """End the wait of the event loop. Thread-safe; may be called by a signal handler."""
        with suppress(OSError):  # it is already awake, or closed
            self.wake_sender.send(b".")

    def close(self) -> None:
        """Cancel snapshots, sync the log, close the sockets and remove the files."""
        position = self.replication.log_comment()
        self.replication.close()
        self.saving.kill()
        self.durability.close(position)
        self.listeners.close()
        self.loop.close()
        self.metrics.close()
        self.wake_sender.close()
        self.wake_receiver.close()
        self.disk.unlock()
        for path in self.files_to_remove:
            Path(path).unlink(missing_ok=True)
        self.files_to_remove.clear()

    def apply(self) -> None:
        """Apply the current configuration."""
        config, loop = self.config, self.loop
        tls = self.listeners.tls
        # First: the certificate may be invalid, or a port unavailable.
        context = tls.reloaded_context() if tls is not None else None
        self._apply_ports()
        self.host.apply_settings()
        self.engine.auth.log.set_max_entries(config.number("acllog-max-len"))
        self.engine.timing.refresh()
        self._make_room_for_clients()
        unsent = config.values["client-output-buffer-limit"]
        assert isinstance(unsent, OutputBufferLimits)
        loop.output_monitor.apply(unsent)
        self.engine.pubsub.reply_limit = unsent.pubsub.hard or limits.REPLY_BYTES_MAX
        memory_limit.apply(config, self.engine)
        loop.query_max = config.number("client-query-buffer-limit")
        loop.bulk_max = config.number("proto-max-bulk-len")
        for connection in loop.connections.values():
            connection.parser.bulk_max = loop.bulk_max
            connection.session.reply.limit = loop.output_monitor.reply_limit
        apply_log(config)
        self.durability.apply_config()
        self.saving.update_write_gate()
        self.replication.update_write_gate()
        if self.loop.commit is not None and self.log_enabled != config.flag("appendonly"):
            self._switch_log(config.flag("appendonly"))
        if tls is not None and context is not None:
            tls.context = context

    def _apply_ports(self) -> None:
        """Listen on the ports that CONFIG SET has changed. Raises CommandError."""
        if not self.listeners.apply_ports():
            return
        try:
            self.disk.set_holder(", ".join(self.addresses))
            if self.config.text("port-file") in self.files_to_remove:
                self._write("port-file", str(self.listeners.announced_port))
        except (OSError, HeadraceError) as wrong:
            logging.getLogger("headrace").error(
                "cannot write the new port to the lock file or port-file: %s", wrong
            )

    def _switch_log(self, on: bool) -> None:
        if on:
            try:
                self.durability.enable()
                self.saving.queue_rewrite()
            except (OSError, HeadraceError) as wrong:
                self.config.values["appendonly"] = False
                raise CommandError(f"ERR CONFIG SET failed: no log can be kept: {wrong}") from None
        else:
            self.saving.cancel_rewrites()
            self.durability.disable(self.engine.keyspace.now)
        self.log_enabled = on

    def _on_wake(self) -> None:
        self.wake_receiver.recv(4096)
        self.loop.run_timer_now()  # a thread may have ended a snapshot
        self.metrics.accept_pending()

    def _make_room_for_clients(self) -> None:
        """Raise the limit of descriptors for maxclients; if the system refuses, lower maxclients.

        Raises CommandError if the running CONFIG SET requested so many.
        """
        wanted = self.config.number("maxclients") + DESCRIPTORS_KEPT
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            clients = max(most - DESCRIPTORS_KEPT, 1)
            if "maxclients" in self.config.being_set:
                raise set_failed("maxclients", f"{TOO_MANY_CLIENTS}, try with {clients}")
            self.config.override("maxclients", clients)
            logging.getLogger("headrace").warning(
                "maxclients is %d: the system allows no more than %d descriptors (ulimit -n)",
                clients,
                most,
            )

    def _write(self, directive: str, text: str) -> None:
        """Write a line to the file that the directive names, atomically: other programs wait for it."""
        path = self.config.text(directive)
        if not path:
            return
        try:
            Path(f"{path}.new").write_text(f"{text}\n")
            os.replace(f"{path}.new", path)
        except OSError as wrong:
            raise HeadraceError(f"cannot write {directive} {path}: {wrong.strerror}") from None
        if path not in self.files_to_remove:
            self.files_to_remove.append(path)


def check_directory(path: str) -> None:
    """Raise UsageError unless path is a directory."""
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise UsageError(f"dir {path}: it is not a directory")
    except FileNotFoundError:
        raise UsageError(f"dir {path}: no such directory") from None
    except OSError as error:
        raise UsageError(f"dir {path}: {error.strerror}; the server must be able to write there") from None


@contextmanager
def signal_handlers(server: Server) -> Iterator[None]:
    """Let SIGTERM and SIGINT shut the server down and SIGHUP reopen its message log; main thread only.

    A signal that arrives after the event loop has checked for signals, and before it waits, would only be
    handled when the wait ends. So the system itself wakes the loop by a byte into its socket.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    doing: dict[int, Callable[[], None]] = {
        signal.SIGTERM: partial(server.request_shutdown, "SIGTERM"),
        signal.SIGINT: partial(server.request_shutdown, "SIGINT"),
        signal.SIGHUP: server.request_reopen,
    }

    def handle(number: int, frame: FrameType | None) -> None:
        doing[signal.Signals(number)]()

    before = {number: signal.signal(number, handle) for number in doing}
    # The parent process may have ignored SIGCHLD: then children could not be waited for.
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wake_sender = os.dup(server.wake_sender.fileno())  # the server closes its own descriptor
    woken_before = signal.set_wakeup_fd(wake_sender, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken_before)
        os.close(wake_sender)
        for number, handler in before.items():
            signal.signal(number, handler)
