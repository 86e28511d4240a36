"""The composition root: builds the rooms around an engine, runs the turns, stops.

config → host → engine → turn → durability, saving, startup → listeners, timers
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

import headrace
from headrace.engine.clock import RealClock
from headrace.engine.engine import Engine
from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.persistence.data_directory import DiskFiles
from headrace.server.config import user_file
from headrace.server.config.config import Config, set_failed
from headrace.server.config.directives import DIRECTIVES
from headrace.server.config.print_config import printed
from headrace.server.disk.group_commit import Durability
from headrace.server.disk.saving import Saving
from headrace.server.disk.startup import Startup, Stopped, plain_words
from headrace.server.host import ServerHost
from headrace.server.loop.client_limits import Buffers
from headrace.server.loop.event_loop import Turn
from headrace.server.loop.listeners import Listeners
from headrace.server.loop.timers import Timers
from headrace.server.observe import heap, memory_limit
from headrace.server.observe.logs import apply_log, reopen_log, start_log
from headrace.server.observe.metrics import Metrics
from headrace.server.observe.notify import notify

DESCRIPTORS_KEPT = 64  # for what is no client: listeners, files, libraries
TOO_MANY_CLIENTS = "The operating system is not able to handle the specified number of clients"
# The collector looks for cycles in what some turns have made, never at what is old: with a million keys that
# took half a second. Nothing that goes is in a cycle: tests/server/test_collector.py.
COLLECTOR = (3_000, 3, 1 << 30)
PRINT = "--print-config"
USAGE = """\
Usage: headrace serve [FILE] [--directive value ...]

Runs a server for any Redis client. FILE is like redis.conf (- for standard input); HEADRACE_DIRECTIVE=value
in the environment wins over it, and directives given here win over both. --print-config shows what they
come to, and does not start.

Example: headrace serve --port 7777 --stream-node-max-entries 200

Directives (default):
"""


def serve(arguments: list[str]) -> int:
    """Run a server until SIGTERM, SIGINT or SHUTDOWN; the exit code. HeadraceError when it cannot start."""
    if arguments in (["--help"], ["-h"]):
        print(usage(), end="")
        return 0
    config = Config()
    config.read_arguments([word for word in arguments if word != PRINT], os.environ)
    if PRINT in arguments:
        for warning in config.warnings:
            print(f"headrace: {warning}", file=sys.stderr)
        print(printed(config), end="")
        return 0
    if config.flag("disable-thp"):
        heap.refuse_large_pages()
    else:
        heap.use_large_pages()
    server = Server(config)
    with heeding_signals(server):
        server.open()
        if not server.stopping:
            where = ", ".join(server.names)
            with suppress(OSError):  # nobody has to read it
                print(f"headrace {headrace.__version__} ready on {where} (pid {os.getpid()})", flush=True)
            notify(f"READY=1\nSTATUS=Ready on {where}")
        server.run()
    return 0


def usage() -> str:
    """The help text, with every directive."""
    lines = [f"  --{d.name:<28} {d.about} ({d.default or 'none'})\n" for d in DIRECTIVES]
    return USAGE + "".join(lines)


class Server:
    """One server: open(), then run() until end() or stop() is called, by whichever thread."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock = RealClock()
        self.stopping = False
        self.asked_to_end = False
        self.refused_to_end = False
        self.asked_to_reopen = False
        self.host = ServerHost(config, self.stop)
        self.engine = Engine(self.host.settings, self.host)
        self.turn = Turn(self.engine, self.clock)
        self.host.turn = self.turn
        self.host.apply = self.apply
        self.listeners = Listeners(config, self.host, self.turn)
        self.metrics = Metrics(config, self.turn, self.wake)
        self.disk = DiskFiles(config.text("dir"))
        self.startup = Startup(config, self.engine, self.turn, self.disk, self.is_ending)
        self.durability = Durability(config, self.engine, self.turn, self.disk, self.wake)
        self.saving = Saving(config, self.engine, self.disk, self.durability, self.clock.now_ms())
        self.host.startup, self.host.durability, self.host.saving = self.startup, self.durability, self.saving
        self.timers = Timers(config, self.host, self.turn, self.durability, self.saving)
        self.saving.hurry = self.turn.hurry
        self.waker, self.woken = socket.socketpair()
        self.waker.setblocking(False)
        self.woken.setblocking(False)
        self.running_log = False  # appendonly, as it was acted on
        self.files: list[str] = []  # to be removed at the end

    @property
    def names(self) -> list[str]:
        """The addresses listened on, as a person would write them."""
        return self.listeners.names

    def open(self) -> None:
        """Listen, and write the files that say so; raises HeadraceError, and then all is closed again."""
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
        user_file.begin(self.config, self.engine.auth.users)
        if not self.config.text("aclfile"):
            self.config.repeated["user"] = partial(user_file.said, self.config, self.engine.auth.users)
        self.turn.listen(self.woken.fileno(), self._hear_wake)
        self.listeners.open()
        self.metrics.open()
        try:
            self._recover()
        except Stopped:
            self.stop()
            return
        self._write("pidfile", str(os.getpid()))
        self._write("port-file", str(self.host.port))

    def _recover(self) -> None:
        """What is on the disk is in memory, and the log goes on behind it. UsageError; Stopped."""
        self.disk.holder = ", ".join(self.names)
        self.startup.lock()
        if self.disk.lock_descriptor >= 0:
            with plain_words():
                self.saving.remove_leftovers()
        self.running_log = self.config.flag("appendonly")
        found = self.startup.load(self.clock.now_ms())
        self.saving.saved_changes = self.engine.keyspace.changes
        with plain_words():
            if self.running_log:
                self.saving.open_log(found.manifest, self.clock.now_ms())
            self.turn.commit = self.durability.commit
            self.apply()  # what CONFIG SET has changed while it was loading

    def run(self) -> None:
        """Turns, until told to stop; then everything is closed."""
        gc.freeze()  # what is there now stays: the collector need not look at it again
        thresholds = gc.get_threshold()
        gc.set_threshold(*COLLECTOR)
        try:
            while not self.stopping:
                self.turn.run(self.timers.run)
                if self.asked_to_reopen:
                    self.asked_to_reopen = False
                    reopen_log()
                if self.asked_to_end:
                    self._shut_down()
        finally:
            gc.set_threshold(*thresholds)
            self.close()

    def end(self) -> None:
        """As SHUTDOWN, after the turn run() is in. From any thread, and from a signal handler."""
        self.asked_to_end = True
        self.turn.interrupt()
        self.wake()

    def reopen(self) -> None:
        """Open the log anew, after the turn run() is in. From any thread, as end()."""
        self.asked_to_reopen = True
        self.turn.interrupt()
        self.wake()

    def is_ending(self) -> bool:
        """Whether run() is about to end."""
        return self.stopping or self.asked_to_end

    def _shut_down(self) -> None:
        """As SHUTDOWN; who asks again after a refusal means it."""
        self.asked_to_end = False
        notify("STOPPING=1")
        try:
            self.host.shutdown(None, force=self.refused_to_end)
        except CommandError:
            self.refused_to_end = True
            logging.getLogger("headrace").error("still running: the next signal ends the server regardless")

    def stop(self) -> None:
        """End run() after the turn it is in, without a snapshot. From any thread, as end()."""
        self.stopping = True
        self.turn.interrupt()
        self.wake()

    def wake(self) -> None:
        """End the wait of the turn. May be called from any thread and from a signal handler."""
        with suppress(OSError):  # it is awake already, or gone
            self.waker.send(b".")

    def close(self) -> None:
        """End the child, sync the log, close the sockets and remove the files."""
        self.saving.kill()
        self.durability.close()
        self.listeners.close()
        self.turn.close()
        self.metrics.close()
        self.waker.close()
        self.woken.close()
        self.disk.unlock()
        for path in self.files:
            Path(path).unlink(missing_ok=True)
        self.files.clear()

    def apply(self) -> None:
        """Act on what the configuration says now."""
        config, turn = self.config, self.turn
        tls = self.listeners.tls
        context = tls.renewed() if tls is not None else None  # first of all: it may be refused,
        self._follow_ports()  # and so may this
        self.host.apply_settings()
        self.engine.auth.log.set_max_entries(config.number("acllog-max-len"))
        self.engine.timing.refresh()
        self._make_room_for_clients()
        unsent = config.values["client-output-buffer-limit"]
        assert isinstance(unsent, Buffers)
        turn.unread.apply(unsent)
        memory_limit.apply(config, self.engine)
        turn.query_max = config.number("client-query-buffer-limit")
        turn.bulk_max = config.number("proto-max-bulk-len")
        for connection in turn.connections.values():
            connection.parser.bulk_max = turn.bulk_max
            connection.session.reply.limit = turn.unread.reply_limit
        apply_log(config)
        self.durability.apply()
        self.saving.look()
        if self.turn.commit is not None and self.running_log != config.flag("appendonly"):
            self._switch_log(config.flag("appendonly"))
        if tls is not None and context is not None:
            tls.context = context

    def _follow_ports(self) -> None:
        """Listen where CONFIG SET says; CommandError when that cannot be."""
        if not self.listeners.follow():
            return
        try:
            self.disk.sign(", ".join(self.names))
            if self.config.text("port-file") in self.files:
                self._write("port-file", str(self.host.port))
        except (OSError, HeadraceError) as wrong:
            logging.getLogger("headrace").error("telling of the new port: %s", wrong)

    def _switch_log(self, on: bool) -> None:
        if on:
            try:
                self.durability.begin()
            except (OSError, HeadraceError) as wrong:
                self.config.values["appendonly"] = False
                raise CommandError(f"ERR CONFIG SET failed: no log can be kept: {wrong}") from None
        else:
            self.saving.forget_log()
            self.durability.stop(self.engine.keyspace.now)
        self.running_log = on

    def _hear_wake(self) -> None:
        self.woken.recv(4096)
        self.metrics.let_in()

    def _make_room_for_clients(self) -> None:
        """Ask the system for a descriptor per client; if it refuses, fewer clients are let in.

        CommandError when CONFIG SET has just asked for so many.
        """
        wanted = self.config.number("maxclients") + DESCRIPTORS_KEPT
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            clients = max(most - DESCRIPTORS_KEPT, 1)
            if "maxclients" in self.config.named:
                raise set_failed("maxclients", f"{TOO_MANY_CLIENTS}, try with {clients}")
            self.config.adjust("maxclients", clients)
            logging.getLogger("headrace").warning(
                "maxclients is %d: the system allows no more than %d descriptors (ulimit -n)",
                clients,
                most,
            )

    def _write(self, directive: str, text: str) -> None:
        """Write a line to the file that the directive names, whole or not at all: somebody waits for it."""
        path = self.config.text(directive)
        if not path:
            return
        try:
            Path(f"{path}.new").write_text(f"{text}\n")
            os.replace(f"{path}.new", path)
        except OSError as wrong:
            raise HeadraceError(f"cannot write {directive} {path}: {wrong.strerror}") from None
        if path not in self.files:
            self.files.append(path)


def check_directory(path: str) -> None:
    """Raise UsageError unless path leads to a directory."""
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise UsageError(f"dir {path}: it is not a directory")
    except FileNotFoundError:
        raise UsageError(f"dir {path}: no such directory") from None
    except OSError as error:
        raise UsageError(f"dir {path}: {error.strerror}; the server must be able to write there") from None


@contextmanager
def heeding_signals(server: Server) -> Iterator[None]:
    """While inside, SIGTERM and SIGINT end the server and SIGHUP opens its log anew; in the main thread.

    A signal that comes after the turn has looked for signals and before it waits would only be heard of when
    the wait ends: the system itself wakes the turn, by a byte into its socket.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    doing = {signal.SIGTERM: server.end, signal.SIGINT: server.end, signal.SIGHUP: server.reopen}

    def handle(number: int, frame: FrameType | None) -> None:
        doing[signal.Signals(number)]()

    before = {number: signal.signal(number, handle) for number in doing}
    # Whoever has started us may have ignored the ends of children: then none of ours could be waited for.
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waker = os.dup(server.waker.fileno())  # the server closes its own
    woken_before = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken_before)
        os.close(waker)
        for number, handler in before.items():
            signal.signal(number, handler)
