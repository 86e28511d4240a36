"""The server program, `headrace serve`: read the configuration, create a server, run and close it.

parts.py says what a server consists of.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

import headrace
from headrace.engine.clock import RealClock
from headrace.engine.script_runner import ScriptAbandoned
from headrace.errors import UsageError
from headrace.persistence.data_directory import DiskDirectory
from headrace.server.config import user_file
from headrace.server.config.config import Config
from headrace.server.config.directives import DIRECTIVES
from headrace.server.config.log_levels import NOTICE
from headrace.server.config.rewrite import format_config
from headrace.server.disk.startup import LoadInterrupted, as_usage_errors
from headrace.server.observe import heap
from headrace.server.observe.logs import json_line, reopen_message_log, start_message_log
from headrace.server.observe.notify import notify_supervisor
from headrace.server.parts import create_parts
from headrace.server.run_control import RunControl

# The garbage collector checks only young objects: with a million keys a full collection took half a second.
# No object that is dropped is part of a cycle: tests/server/test_collector.py and test_census.py. If one is,
# observe/collector.py has old objects collected when unaccounted memory has grown.
GC_THRESHOLDS = (3_000, 3, 1 << 30)
PRINT_CONFIG_OPTION = "--print-config"
SWITCH_INTERVAL_S = (
    0.0005  # how long a thread waits for the interpreter's lock before the event loop must yield it
)
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
    config.read_arguments([word for word in arguments if word != PRINT_CONFIG_OPTION], os.environ)
    if PRINT_CONFIG_OPTION in arguments:
        for warning in config.warnings:
            print(f"headrace: {warning}", file=sys.stderr)
        print(format_config(config), end="")
        return 0
    if config.flag("disable-thp"):
        heap.disable_large_pages()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    server = Server(config)
    with installed_signal_handlers(server.parts.control):
        server.open()
        if not server.parts.control.stopping:
            announce_ready(config, ", ".join(server.parts.listeners.addresses))
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
    notify_supervisor(f"READY=1\nSTATUS=Ready on {where}")


def usage() -> str:
    """Return the help text, with every directive."""
    lines = [f"  --{d.name:<28} {d.about} ({d.default or 'none'})\n" for d in DIRECTIVES]
    return USAGE + "".join(lines)


class Server:
    """One server: open(), then run() until parts.control is asked to stop it, from any thread."""

    def __init__(
        self, config: Config, clock: RealClock | None = None, disk: DiskDirectory | None = None
    ) -> None:
        """Create the parts of the server; clock and disk are the real ones unless they are given."""
        self.parts = create_parts(config, clock or RealClock(), disk or DiskDirectory(config.text("dir")))

    def open(self) -> None:
        """Listen, load the data, and write pidfile and port-file. If it raises, everything is closed.

        A stop during the load ends it without an error; run() then only closes everything.

        Raises:
            HeadraceError: if the server cannot start.
        """
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        parts, config = self.parts, self.parts.config
        start_message_log(config)
        check_directory(config.text("dir"))
        for warning in config.warnings:
            logging.getLogger("headrace").warning("%s", warning)
        parts.config_applier.apply()
        users = parts.engine.auth.users
        user_file.load_initial_users(config, users)
        if not config.text("aclfile"):
            config.repeated_line_functions["user"] = partial(user_file.user_lines, config, users)
        parts.loop.add_reader(parts.control.wake_receiver, self._on_wake)
        parts.listeners.open()
        parts.metrics.open()
        try:
            self.recover()
        except LoadInterrupted:
            parts.control.stop()
            return
        parts.status_files.write("pidfile", str(os.getpid()))
        parts.status_files.write("port-file", str(parts.listeners.announced_port))

    def recover(self) -> None:
        """Load the data from the disk and continue the log. Raises UsageError, LoadInterrupted."""
        parts = self.parts
        parts.disk.holder = ", ".join(parts.listeners.addresses)
        parts.startup.lock()
        if parts.disk.lock_descriptor >= 0:
            with as_usage_errors():
                parts.saving.remove_leftovers()
                parts.cold.prepare_for_loading()
        appendonly = parts.config.flag("appendonly")
        found = parts.startup.load(parts.clock.now_ms())
        parts.saving.changes_at_last_save = parts.engine.keyspace.changes
        with as_usage_errors():
            parts.log_switch.open(appendonly, found.manifest, parts.clock.now_ms())
            parts.loop.commit = parts.durability.commit
            parts.cold.begin_after_loading(parts.durability.log is not None)
            parts.replication.begin_configured_role(found.aux, found.last_comment)
            parts.config_applier.apply()  # what CONFIG SET changed during the load

    def run(self) -> None:
        """Run turns of the event loop until the server is stopped; then close everything."""
        parts, control = self.parts, self.parts.control
        parts.cold.set_event_loop_thread()
        gc.freeze()  # objects that exist now stay: the collector skips them
        thresholds = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            while not control.stopping:
                with suppress(ScriptAbandoned):  # stopping is set, and nothing may run any more
                    parts.loop.run()
                if control.log_reopen_requested:
                    control.log_reopen_requested = False
                    reopen_message_log()
                if control.shutdown_requested:
                    parts.shutdown.run_requested_shutdown()
        finally:
            gc.set_threshold(*thresholds)
            self.close()

    def stop(self) -> None:
        """End run() after the current turn, without a snapshot. Thread-safe."""
        self.parts.control.stop()

    def close(self) -> None:
        """Cancel snapshots, sync the log, close the sockets, and remove pidfile and port-file."""
        parts = self.parts
        position = parts.replication.log_comment()
        parts.replication.close()
        parts.saving.kill()
        parts.cold.close()
        parts.durability.close(position)
        parts.listeners.close()
        parts.loop.close()
        parts.metrics.close()
        parts.control.close()
        parts.disk.unlock()
        parts.status_files.remove()

    def _on_wake(self) -> None:
        self.parts.control.drain()
        self.parts.loop.run_timer_now()  # a thread may have ended a snapshot
        self.parts.cold.apply_thread_results()
        self.parts.metrics.accept_pending()


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
def installed_signal_handlers(control: RunControl) -> Iterator[None]:
    """Let SIGTERM and SIGINT shut the server down and SIGHUP reopen its message log; main thread only.

    A signal that arrives after the event loop has checked for signals, and before it waits, would only be
    handled when the wait ends. So the system itself wakes the loop by a byte into its socket.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    doing: dict[int, Callable[[], None]] = {
        signal.SIGTERM: partial(control.request_shutdown, "SIGTERM"),
        signal.SIGINT: partial(control.request_shutdown, "SIGINT"),
        signal.SIGHUP: control.request_log_reopen,
    }

    def handle(number: int, frame: FrameType | None) -> None:
        doing[signal.Signals(number)]()

    before = {number: signal.signal(number, handle) for number in doing}
    # The parent process may have ignored SIGCHLD: then children could not be waited for.
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wake_sender = os.dup(control.wake_sender)  # the server closes its own descriptor
    woken_before = signal.set_wakeup_fd(wake_sender, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken_before)
        os.close(wake_sender)
        for number, handler in before.items():
            signal.signal(number, handler)
