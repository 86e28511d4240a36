"""Scripts of one engine: those that are loaded, the one that runs, and the commands that it calls.

    EVAL ─▶ commands/server/scripts.py ─▶ run() ─▶ scripting/interpreter.py ─▶ the script
                                                        call() ◀─ redis.call() ──┘
       RowRunner ◀─ the checks of a request of the client ─┘

Each command that a script calls is checked like a request of its client. The effects of a script are one
transaction. A script that runs longer than busy-reply-threshold is `busy`: the server then rejects all
requests except those that can end it. In a program that embeds the engine, such a script is ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import cython

from headrace import limits, system
from headrace.commands.call import Call
from headrace.commands.scripts_interface import Function, RunningScript, ScriptsInterface, new_running_script
from headrace.commands.server_interface import ServerInterface
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.commands.stats import CommandRow
from headrace.engine.authorization import Authorization
from headrace.engine.error_replies import command_error, wire_text
from headrace.engine.timing import Timing
from headrace.engine.write_gate import WriteGate
from headrace.errors import CommandError, ServerOutOfMemory, log_text, to_text
from headrace.keyspace.effects import Effects
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.library_header import parse_library
from headrace.resp.writer import ReplyWriter
from headrace.scripting.interpreter import Interpreter, ScriptFailed
from headrace.scripting.script import ALLOW_OOM, NO_WRITES, Script
from headrace.streams.memory_account import MemoryAccount

NO_WRITES_FLAG = cython.declare(cython.longlong, NO_WRITES)
LOG_LEVELS = (logging.DEBUG, logging.INFO, logging.INFO + 5, logging.WARNING)
LOG_BYTES_MAX = 1024  # of a line of redis.log
CHECK_INTERVAL_S = 0.05  # CPU time between two checks of a slow script
NS_PER_MS = 1_000_000  # nanoseconds
LIBRARY_LOAD_MS_MAX = 500  # of a library
ALL_LIBRARIES_LOAD_MS_MAX = 2000  # of the libraries that one command loads
ENDED_TEXT = "the script was ended after %d ms (busy-reply-threshold); its changes so far remain"
REPLICATED_NON_WRITES = frozenset({b"publish", b"spublish"})  # not written, but sent to replicas
ABANDONED_TEXT = b"the script was ended without its changes: the server shuts down"
LIMIT_AT_SHUTDOWN_MS = 5000  # from when a script is slow although busy-reply-threshold is 0
BUSY_TEXT = "BUSY Redis is busy running a script. You can only call %s KILL or SHUTDOWN NOSAVE."


class UnloadableLibrary(NamedTuple):
    """A library of the keyspace that cannot be loaded, for example one from a file of redis-server."""

    text: bytes
    reason: str


class Deadline:
    """A limit of the time that one command spends loading libraries."""

    def __init__(self, ms: int) -> None:
        self.end_ns = system.monotonic_ns() + ms * NS_PER_MS

    def is_over(self) -> bool:
        """Return whether the time is used up."""
        return system.monotonic_ns() >= self.end_ns


class LoadedLibraries:
    """The libraries that are loaded into the interpreter, and their functions."""

    def __init__(self) -> None:
        self.texts: dict[bytes, bytes] = {}  # by name
        self.functions: dict[bytes, Function] = {}  # by lower-case name
        self._names: dict[bytes, list[bytes]] = {}  # of the functions, in lower case, by library
        self._bytes = 0  # of the texts

    def bytes_without(self, name: bytes) -> int:
        """Return the size in bytes of the texts of all libraries but that one."""
        return self._bytes - len(self.texts.get(name, b""))

    def add_or_error(
        self, name: bytes, text: bytes, registered: list[tuple[bytes, int, bytes | None]]
    ) -> bytes | None:
        """Add a library, in place of one with the same name; return the text of an error, or None."""
        if not registered:
            return b"ERR No functions registered"
        found: dict[bytes, Function] = {}
        for function, flags, description in registered:
            lower = function.lower()
            other = self.functions.get(lower)
            if other is not None and other.library != name:
                return b"ERR Function " + function + b" already exists"
            found[lower] = Function(name, function, flags, description)
        self.remove(name)
        self.functions.update(found)
        self._names[name] = list(found)
        self.texts[name] = text
        self._bytes += len(text)
        return None

    def remove(self, name: bytes) -> None:
        """Remove a library, if there is one of that name."""
        self._bytes -= len(self.texts.pop(name, b""))
        for lower in self._names.pop(name, ()):
            del self.functions[lower]


class ScriptAbandoned(BaseException):
    """The running script was ended without its effects; the data in memory must not be used any more.

    No request may see what the script has changed, so this exception ends the event loop.
    """


class ScriptWritesTooMuch(CommandError):
    """A script's changes, which are kept in memory until it ends, are too large."""

    text = "OOM the changes of a script may have at most 1 GiB; those before this one remain"


@cython.cclass
class RowRunner:
    """The part of the engine that ScriptRunner calls. A C class: each command of a script calls it."""

    @cython.ccall
    def run_script_call(self, call: Call, row: CommandRow) -> cython.void:
        """Run a command of a script that has passed the checks; write its reply to the call's writer."""
        raise NotImplementedError


@cython.final
@cython.cclass
class ScriptRunner(ScriptsInterface):
    """Loads and runs scripts. It is the ScriptHost of its interpreter."""

    call_object: Call  # for the commands of scripts
    keyspace: Keyspace
    effects: Effects
    server: ServerInterface
    auth: Authorization
    write_gate: WriteGate
    session: Session  # whose commands those of scripts are
    never_evicted_bytes: cython.Py_ssize_t  # of those that SCRIPT LOAD has brought
    evictable_count: cython.Py_ssize_t  # the number of the others
    registered_functions: list[tuple[bytes, int, bytes | None]]  # functions of the library being loaded
    _rows: dict[bytes, CommandRow]
    _rows_by_full_name: dict[bytes, CommandRow]
    _row_runner: RowRunner
    _timing: Timing
    _run_nested: Callable[[Callable[[], None]], None]
    _libraries: LoadedLibraries  # that the interpreter has
    _unloadable_libraries: dict[bytes, UnloadableLibrary]  # the others that the keyspace has, by name
    _interpreter: Interpreter | None
    _interrupt: BaseException | None

    def __init__(
        self,
        call: Call,
        auth: Authorization,
        write_gate: WriteGate,
        rows: dict[bytes, CommandRow],
        rows_by_full_name: dict[bytes, CommandRow],
        row_runner: RowRunner,
        timing: Timing,
        run_nested: Callable[[Callable[[], None]], None],
    ) -> None:
        """Create a runner.

        Args:
            call: for the commands of scripts; no other code uses it.
            rows: by the first argument of a request.
            rows_by_full_name: subcommands too, as "config|get".
            row_runner: runs the command of a call.
            timing: has the clients that monitor requests.
            run_nested: runs a function that executes requests of other clients meanwhile.
        """
        self.call_object = call
        self.keyspace = call.keyspace
        self.effects = call.effects
        self.server = call.server
        self.auth, self.write_gate = auth, write_gate
        self._rows, self._rows_by_full_name = rows, rows_by_full_name
        self._row_runner, self._run_nested = row_runner, run_nested
        self.session = Session(0)
        self.session.is_script = True
        call.session = self.session
        self._use_writer(self.session.reply)
        self.scripts, self.registered_functions = {}, []
        self.text_bytes = self.never_evicted_bytes = self.evictable_count = self.evicted_count = 0
        self.running = self._interpreter = self._interrupt = None
        self._timing = timing
        self._libraries, self._unloadable_libraries = LoadedLibraries(), {}

    def _use_writer(self, writer: ReplyWriter) -> None:
        """Have the commands of scripts reply to this writer."""
        writer.limit = limits.SCRIPT_REPLY_BYTES_MAX
        self.session.reply = self.call_object.reply = self.command_reply = writer

    # The interpreter.

    def interpreter(self) -> Interpreter:
        """Return the interpreter; create it at first use. Raises LuaMissing."""
        if self._interpreter is None or self._interpreter.broken:
            self._discard_interpreter()
            self._interpreter = Interpreter(self, self.server.redis_version)
        return self._interpreter

    def _discard_interpreter(self) -> None:
        """Free what Lua has. Scripts are compiled and libraries loaded again when they are used."""
        self._interpreter = None
        for script in self.scripts.values():
            script.is_compiled = False
        self._libraries = LoadedLibraries()

    @cython.ccall
    def discard_crowded_interpreter(self) -> cython.void:
        """Discard the interpreter if other scripts have left too little of Lua's memory for the next one."""
        if (
            self._interpreter is not None
            and not self._interpreter.broken
            and self._interpreter.is_short_of_memory()
        ):
            self._discard_interpreter()

    @property
    def lua_bytes(self) -> int:
        """Bytes that the interpreter uses; 0 before its first use."""
        return self._interpreter.memory if self._interpreter is not None else 0

    # Loaded scripts.

    def add(self, script: Script) -> None:
        """Add a script; if there are too many, drop the oldest of those that EVAL has added.

        Raises CommandError: if the scripts of SCRIPT LOAD leave no space for it.
        """
        size = len(script.text)
        if self.never_evicted_bytes + size > limits.ALL_SCRIPTS_BYTES_MAX:
            raise CommandError("OOM too many bytes of loaded scripts: use SCRIPT FLUSH")
        mortal = iter(
            [one for one in self.scripts.values() if not one.never_evicted] if self._is_full(size) else ()
        )
        while self._is_full(size):
            self.drop(next(mortal))
            self.evicted_count += 1
        self.scripts[script.digest] = script
        self.text_bytes += size
        self.evictable_count += 1

    def _is_full(self, size: int) -> bool:
        """Return whether a script of that size needs others to be dropped."""
        return self.evictable_count >= limits.EVAL_SCRIPTS_MAX or (
            self.text_bytes + size > limits.ALL_SCRIPTS_BYTES_MAX and self.evictable_count > 0
        )

    def never_evict(self, script: Script) -> None:
        """Never drop the script to make room for others."""
        if not script.never_evicted:
            script.never_evicted = True
            self.never_evicted_bytes += len(script.text)
            self.evictable_count -= 1

    def drop(self, script: Script) -> None:
        """Forget a script."""
        del self.scripts[script.digest]
        self.text_bytes -= len(script.text)
        if script.never_evicted:
            self.never_evicted_bytes -= len(script.text)
        else:
            self.evictable_count -= 1
        if script.is_compiled and self._interpreter is not None and not self._interpreter.broken:
            self._interpreter.drop_script(script.digest)

    def flush(self) -> None:
        """Forget all scripts, and the interpreter; libraries are loaded again when they are used."""
        self.scripts.clear()
        self.text_bytes = self.never_evicted_bytes = self.evictable_count = 0
        self._discard_interpreter()
        self._unloadable_libraries = {}

    @cython.ccall
    def compile(self, script: Script) -> cython.void:
        """Compile the script if it is not compiled yet. Raises CommandError."""
        self.discard_crowded_interpreter()
        interpreter = self.interpreter()
        if not script.is_compiled:
            wrong = interpreter.load_script(script.digest, script.body)
            if wrong is not None:
                text = b"ERR Error compiling script (new function): " + wrong
                raise CommandError(text.decode("utf-8", "surrogateescape"))
            script.is_compiled = True

    # Functions.

    def load_libraries(self, texts: dict[bytes, bytes]) -> None:
        """Load libraries by name, in place of those with the same names.

        Raises CommandError if one cannot be loaded; the libraries of the keyspace stay as they are.
        """
        self.discard_crowded_interpreter()
        self._sync_libraries()
        deadline = Deadline(ALL_LIBRARIES_LOAD_MS_MAX)
        for name, text in texts.items():
            if deadline.is_over():
                raise CommandError(f"ERR the libraries take more than {ALL_LIBRARIES_LOAD_MS_MAX} ms to load")
            self._load_library(name, text)

    def _load_library(self, name: bytes, text: bytes) -> None:
        _, body = parse_library(text)
        if self._libraries.bytes_without(name) + len(text) > limits.ALL_SCRIPTS_BYTES_MAX:
            raise CommandError("OOM too many bytes of libraries: use FUNCTION DELETE")
        self.registered_functions = []
        interpreter = self.interpreter()
        self.running = RunningScript(name, NO_WRITES, [], True)
        self.running.started_ns = system.monotonic_ns()
        self.running.is_loading = True
        try:
            wrong = interpreter.load_library(name, body)
        except ScriptFailed as failed:
            wrong = failed.text
        finally:
            self.running = None
        if wrong is None:
            wrong = self._libraries.add_or_error(name, text, self.registered_functions)
        if wrong is not None:
            self._unload(name)
            old = self.keyspace.libraries.get(name)
            if old is not None and old is not text:
                self._try_library(name, old)
            raise CommandError(wrong.decode("utf-8", "surrogateescape"))
        self._unloadable_libraries.pop(name, None)

    def _unload(self, name: bytes) -> None:
        self._libraries.remove(name)
        if self._interpreter is not None and not self._interpreter.broken:
            self._interpreter.drop_library(name)

    def _sync_libraries(self) -> None:
        """Load the libraries of the keyspace that are not loaded; unload those that it no longer has.

        Stops after ALL_LIBRARIES_LOAD_MS_MAX milliseconds; the next call continues.
        """
        libraries = self.keyspace.libraries
        for name in [
            name for name, one in self._unloadable_libraries.items() if libraries.get(name) is not one.text
        ]:
            del self._unloadable_libraries[name]
        if self._interpreter is None or self._interpreter.broken:
            if not libraries:
                return
            self.interpreter()
        loaded = self._libraries.texts
        for name in [name for name, text in loaded.items() if libraries.get(name) is not text]:
            self._unload(name)
        deadline = Deadline(ALL_LIBRARIES_LOAD_MS_MAX)
        while missing := self._missing_libraries():
            for name in missing:  # one that breaks the interpreter unloads those before it
                self._try_library(name, libraries[name])
                if deadline.is_over():
                    return

    def _missing_libraries(self) -> list[bytes]:
        """Return the names of the libraries that are not loaded yet."""
        loaded = self._libraries.texts
        if len(loaded) + len(self._unloadable_libraries) == len(self.keyspace.libraries):
            return []
        return [
            one
            for one in self.keyspace.libraries
            if one not in loaded and one not in self._unloadable_libraries
        ]

    def _try_library(self, name: bytes, text: bytes) -> None:
        """Load a library of the keyspace, or note why it cannot be loaded: the others work nevertheless."""
        try:
            self._load_library(name, text)
        except CommandError as error:
            if name not in self._unloadable_libraries:
                logging.getLogger("headrace").warning(
                    "library %s cannot be loaded: %s", log_text(name), error
                )
            self._unloadable_libraries[name] = UnloadableLibrary(text, str(error))

    def function(self, name: bytes) -> Function | None:
        """Return the function of that name, ignoring case; None if there is none.

        Raises CommandError: if the function was not found, and a library that may have it cannot be loaded,
        also not by another attempt.
        """
        self.discard_crowded_interpreter()
        found = self._loaded_function(name)
        if found is not None:
            return found
        self._sync_libraries()
        found = self._libraries.functions.get(name.lower())
        if found is None and self._unloadable_libraries:
            deadline = Deadline(LIBRARY_LOAD_MS_MAX)
            for library, unloadable in list(self._unloadable_libraries.items()):
                self._try_library(library, unloadable.text)
                if deadline.is_over():
                    break
            self._sync_libraries()
            found = self._libraries.functions.get(name.lower())
            if found is None and self._unloadable_libraries:
                reasons = [
                    f"library {to_text(library)}: {unloadable.reason}"
                    for library, unloadable in self._unloadable_libraries.items()
                ]
                raise CommandError(f"ERR Function not found, but not all are loaded. {'; '.join(reasons)}")
        if found is None:
            self._check_libraries_loaded()
        return found

    def _loaded_function(self, name: bytes) -> Function | None:
        """Return a function whose library is loaded and has not been changed since."""
        loaded = self._libraries
        found = loaded.functions.get(name) or loaded.functions.get(name.lower())
        if found is None or self._interpreter is None or self._interpreter.broken:
            return None
        return found if self.keyspace.libraries.get(found.library) is loaded.texts[found.library] else None

    def _check_libraries_loaded(self) -> None:
        missing = self._missing_libraries()
        if missing:
            raise CommandError(f"LOADING {len(missing)} libraries are not loaded yet: repeat the command")

    def functions(self) -> list[Function]:
        """Return all functions except those of libraries that cannot be loaded.

        Raises CommandError: if not all libraries are loaded yet (LOADING), or Lua is missing (LuaMissing).
        """
        self._sync_libraries()
        self._check_libraries_loaded()
        return list(self._libraries.functions.values())

    def function_count(self) -> int:
        """Return how many functions there are; 0 if they cannot be loaded.

        A running script may ask (INFO): Lua cannot load a library then, so only loaded ones count.
        """
        if self.running is not None:
            return len(self._libraries.functions)
        try:
            return len(self.functions())
        except CommandError:
            return 0

    def check_shutdown_allowed(self, no_save: bool) -> None:
        """Raise the running script's BUSY error unless a shutdown with NOSAVE is requested."""
        if not no_save:
            raise CommandError(self._busy_text())

    def abandon(self) -> None:
        """End the running script without its effects; the server must be shutting down.

        The request that runs it then raises ScriptAbandoned.
        """
        assert self.running is not None
        self.running.end_reason = ABANDONED_TEXT
        self.running.records_effects = False
        self.effects.drop_transaction()
        self._interrupt = ScriptAbandoned()

    def _busy_text(self) -> str:
        assert self.running is not None
        return BUSY_TEXT % ("FUNCTION" if self.running.is_function else "SCRIPT")

    def elapsed_ms(self) -> int:
        """Return for how many milliseconds the script has been running; 0 if none runs."""
        return (
            (system.monotonic_ns() - self.running.started_ns) // NS_PER_MS if self.running is not None else 0
        )

    # Running.

    @cython.ccall
    def send_to_monitors(self, call: Call) -> cython.void:
        """Send the request that runs a script to all MONITOR clients, as it begins."""
        if self._timing.has_monitors:
            self._timing.send_to_monitors(call)

    @cython.ccall
    def check_may_run(self, session: Session) -> cython.void:
        """Raise CommandError if no script may run now."""
        if self.write_gate.stale:
            self.write_gate.check_script(session)

    @cython.ccall
    def run_script(
        self, call: Call, script: Script, flags: cython.longlong, keys: cython.Py_ssize_t
    ) -> cython.void:
        """Run a script with the keys and arguments of the request; write its reply. Raises CommandError."""
        self.compile(script)
        self._run(call, None, new_running_script(script.digest, flags, call.argv, False, call.session), keys)

    @cython.ccall
    def run_function(
        self, call: Call, function: Function, flags: cython.longlong, keys: cython.Py_ssize_t
    ) -> cython.void:
        """Run a function of a library, like run_script()."""
        running: RunningScript = new_running_script(function.name, flags, call.argv, True, call.session)
        self._run(call, function.library, running, keys)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _run(
        self, call: Call, library: bytes | None, running: RunningScript, keys: cython.Py_ssize_t
    ) -> cython.int:
        interpreter: Interpreter = self.interpreter()
        outermost: cython.bint = not self.effects.in_transaction()
        mark: cython.Py_ssize_t = call.reply.mark()
        self._begin(call, running)
        if outermost:
            self.effects.begin_transaction()
        error: Any = None
        try:
            error = interpreter.run(library, running.name, call.argv, keys, call.reply.protocol, call.reply)
        except ScriptFailed as failed:
            text = wire_text(CommandError(script_error_text(failed, running.name)))
            call.reply.error(text)
            error = text, failed.is_counted
        finally:
            if outermost:
                self.effects.end_transaction()
            self.running = None
            if running.is_busy:
                self.write_gate.set_busy(None)
            if self._interrupt is not None:
                call.reply.rewind(mark)
                interrupt, self._interrupt = self._interrupt, None
                raise interrupt
        if error is not None:
            self._count_error(call, *error)
        return 0

    def _count_error(self, call: Call, text: bytes, is_counted: bool) -> None:
        """Count an error as a failure of the script; unless `is_counted`, count it as an error reply, too."""
        self._rows_by_full_name[call.command.name].failed_calls += 1
        if not is_counted:
            call.engine.stats.count_error(text)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _begin(self, call: Call, running: RunningScript) -> cython.int:
        session: Session = self.session
        caller: Session = call.session
        memory: MemoryAccount = self.write_gate.memory
        session.database = caller.database
        session.name, session.address = caller.name, caller.address
        session.user_name, session.user = caller.user_name, caller.user
        session.restricted_user = caller.restricted_user
        session.must_authenticate = caller.must_authenticate
        session.replayed = caller.replayed
        self.call_object.now = call.now
        running.began_out_of_memory = not self.write_gate.ignores_memory and memory.total > memory.limit
        self.running = running
        self._interrupt = None
        return 0

    # The host of the interpreter.

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def call(self, argv: list[bytes], protocol: cython.int) -> cython.int:
        """Run a command of the script; write its reply. It returns 0 and raises nothing."""
        try:
            self._call(argv, protocol)
        except CommandError as error:
            text = wire_text(error)
            self.call_object.engine.stats.count_error(text)
            self._write_error(text)
        except Exception as error:
            self._write_error(wire_text(command_error(error, self.call_object.command)))
        except BaseException as error:  # KeyboardInterrupt: ends the script at the next check
            self._interrupt = error
            self._write_error(b"ERR interrupted")
        return 0

    def _write_error(self, text: bytes) -> None:
        self.command_reply.rewind(0)
        self.command_reply.error(text)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _call(self, argv: list[bytes], protocol: cython.int) -> cython.int:
        running: RunningScript | None = self.running
        assert running is not None
        row: CommandRow | None = self._find_row(argv)
        if row is None:
            raise CommandError("ERR Unknown Redis command called from script")
        self._check_call(running, row, argv)
        call: Call = self.call_object
        position: cython.Py_ssize_t = len(call.effect_items)
        self.command_reply.protocol = protocol
        call.argv = argv
        self._row_runner.run_script_call(call, row)
        if not running.records_effects:
            del self.effects.items[position:]
        elif len(call.effect_items) != position:
            running.recorded_bytes += sum(map(len, argv))
        if self.command_reply.overflowed:
            self._use_writer(ReplyWriter())
            raise CommandError("ERR the reply is too large for a script")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _check_call(self, running: RunningScript, row: CommandRow, argv: list[bytes]) -> cython.int:
        """Raise CommandError if the script may not call the command, and count that."""
        command: Command = row.command
        try:
            if not command.accepts_argument_count(len(argv)):
                raise CommandError("ERR Wrong number of args calling Redis command from script")
            if command.noscript:
                raise CommandError("ERR This Redis command is not allowed from script")
            if self.session.restricted_user is not None:
                self._check_permission(row, argv)
            if (
                self.write_gate.may_reject
                or command.write
                or running.began_out_of_memory
                or running.flags & NO_WRITES_FLAG
            ):
                self._check_state(running, row)
        except CommandError:
            row.rejected_calls += 1
            raise
        return 0

    @cython.cfunc
    def _find_row(self, argv: list[bytes]) -> CommandRow | None:
        row: CommandRow | None = self._rows.get(argv[0])
        if row is None:
            row = self._rows.get(argv[0].lower())
        if row is None or row.has_no_subcommands or len(argv) == 1:
            return row
        sub = row.command.subcommand(argv[1])
        return None if sub is None else self._rows_by_full_name[sub.name]

    def _check_permission(self, row: CommandRow, argv: list[bytes]) -> None:
        running = self.running
        session = running.session if running is not None and running.session is not None else self.session
        error = self.auth.script_permission_error(session, row.command, argv, self.call_object.now)
        if error is not None:
            raise error

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _check_state(self, running: RunningScript, row: CommandRow) -> cython.int:
        """Raise CommandError if the command may not run now."""
        gate: WriteGate = self.write_gate
        command: Command = row.command
        if running.session is not None and running.session.replayed:
            return 0
        if gate.stale and "stale" not in command.flags:
            raise CommandError("ERR Can not execute the command on a stale replica")
        if running.flags & NO_WRITES_FLAG and (command.write or command.name in REPLICATED_NON_WRITES):
            raise CommandError("ERR Write commands are not allowed from read-only scripts.")
        error: CommandError | None = gate.error_for_write() if command.write and gate.may_reject else None
        if error is not None:
            raise error
        if command.write and running.recorded_bytes > limits.SCRIPT_RECORDED_BYTES_MAX:
            raise ScriptWritesTooMuch()
        if (
            running.began_out_of_memory
            and command.denyoom
            and not running.flags & ALLOW_OOM
            and not running.wrote
            and not gate.eviction.make_room(0)
        ):
            raise ServerOutOfMemory()
        if command.write:
            running.wrote = True
        return 0

    def check_interrupt(self) -> tuple[bytes | None, float]:
        """Serve other clients if the script is slow.

        Returns:
            The error that ends the script now, or None; and the seconds of CPU time until the next check.
        """
        try:
            time.sleep(0)  # lets other threads of Python run, and receive signals: Lua does not
            system.run_signal_handlers()
            return self._check_time_limit()
        except BaseException as error:
            self._interrupt = error
            return b"interrupted", CHECK_INTERVAL_S

    def _check_time_limit(self) -> tuple[bytes | None, float]:
        running = self.running
        if self._interrupt is not None:
            return b"interrupted", CHECK_INTERVAL_S
        assert running is not None
        limit_ms = self.keyspace.settings.busy_reply_threshold
        elapsed_ms = self.elapsed_ms()
        if running.is_loading:
            return (b"FUNCTION LOAD timeout" if elapsed_ms > LIBRARY_LOAD_MS_MAX else None), CHECK_INTERVAL_S
        if limit_ms <= 0 and self.server.is_stopping():
            limit_ms = LIMIT_AT_SHUTDOWN_MS
        if limit_ms <= 0 or elapsed_ms < limit_ms:
            return None, CHECK_INTERVAL_S
        if not running.is_busy and self.server.serves_while_busy():
            logging.getLogger("headrace").warning(
                "a slow script was detected: it still runs after %d ms", elapsed_ms
            )
        if not self.server.serves_while_busy():
            return (ENDED_TEXT % elapsed_ms).encode(), CHECK_INTERVAL_S
        running.is_busy = True
        self.write_gate.set_busy(self._busy_text().encode())
        assert running.session is not None
        session = running.session
        self._run_nested(lambda: self.server.serve_while_busy(session))
        return running.end_reason, CHECK_INTERVAL_S

    def may_run(self, argv: list[bytes]) -> bool | None:
        """Return whether the user may run a command; None if it is unknown or its argument count is wrong."""
        row = self._find_row(argv)
        if row is None or not row.command.accepts_argument_count(len(argv)):
            return None
        if self.session.restricted_user is None:
            return True
        return self.auth.may_run(self.session, row.command, argv)

    def log(self, level: int, text: bytes) -> None:
        """Write a line of a script to the log, cut to as many bytes as redis-server writes."""
        line = text[:LOG_BYTES_MAX].decode("utf-8", "replace")
        logging.getLogger("headrace").log(LOG_LEVELS[level], "%s", line)

    def set_replication(self, flags: int) -> None:
        """Record the following effects unless flags is 0; any other value is for log and replicas alike."""
        if self.running is not None:
            self.running.records_effects = flags != 0 and self.running.end_reason is None

    def register_function(self, name: bytes, flags: int, description: bytes | None) -> None:
        """Register a function of the library being loaded."""
        self.registered_functions.append((name, flags, description))


def script_error_text(failed: ScriptFailed, name: bytes) -> str:
    """Return the text of the error reply: what was raised, by which script, and where."""
    text = failed.text + b" script: " + name
    if failed.source:
        text += b", on @%s:%d." % (failed.source, failed.line)
    return text.decode("utf-8", "surrogateescape")
