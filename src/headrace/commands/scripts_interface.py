"""The interface for commands to load and run scripts: engine.script_runner.ScriptRunner implements it.

ScriptRunner imports the checks of the engine, which commands cannot import: see engine_interface.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import cython

from headrace import system
from headrace.commands.session import Session
from headrace.scripting.host import ScriptHost
from headrace.scripting.interpreter import Interpreter
from headrace.scripting.script import Script
from headrace.visibility import Public

if TYPE_CHECKING:
    from headrace.commands.call import Call

KILLED_TEXT = b"Script killed by user with SCRIPT KILL..."


@cython.final
@cython.cclass
class RunningScript:
    """A script or function that is running."""

    name: Public[bytes]  # the digest, or the function's name
    flags: Public[cython.longlong]  # see scripting/script.py
    argv: Public[list[bytes]]
    is_function: Public[cython.bint]
    session: Public[Session | None]  # of the client
    started_ns: Public[cython.longlong]
    wrote: Public[cython.bint]  # it has called a command that writes
    began_out_of_memory: Public[cython.bint]  # memory was full when it began
    records_effects: Public[cython.bint]  # effects are recorded
    recorded_bytes: Public[cython.longlong]  # of the requests whose effects are, which are kept until it ends
    is_loading: Public[cython.bint]  # a library is being loaded
    is_busy: Public[cython.bint]
    end_reason: Public[bytes | None]  # the text of the error that ends it

    def __init__(self, name: bytes, flags: int, argv: list[bytes], is_function: bool = False) -> None:
        self.name, self.flags, self.argv, self.is_function = name, flags, argv, is_function
        self.session = self.end_reason = None
        self.started_ns = self.recorded_bytes = 0
        self.wrote = self.began_out_of_memory = self.is_loading = self.is_busy = False
        self.records_effects = True


@cython.ccall
def new_running_script(
    name: bytes, flags: cython.longlong, argv: list[bytes], is_function: cython.bint, caller: Session
) -> RunningScript:
    """Return the RunningScript of a script or function that the client `caller` starts now."""
    made: RunningScript = RunningScript.__new__(RunningScript)  # without a call through Python
    made.name, made.flags, made.argv, made.is_function = name, flags, argv, is_function
    made.session = caller
    made.end_reason = None
    made.started_ns = system.monotonic_ns()
    made.recorded_bytes = 0
    made.wrote = made.began_out_of_memory = made.is_loading = made.is_busy = False
    made.records_effects = True
    return made


class Function(NamedTuple):
    """A function of a library."""

    library: bytes
    name: bytes
    flags: int  # see scripting/script.py
    description: bytes | None


@cython.cclass
class ScriptsInterface(ScriptHost):
    """The scripts of one engine. It is a compiled class, not a protocol, so that calls stay in C."""

    scripts: dict[bytes, Script]  # by digest
    running: RunningScript | None
    text_bytes: cython.Py_ssize_t
    evicted_count: cython.Py_ssize_t  # the number of scripts that made room for others

    @property
    def lua_bytes(self) -> int:
        """Bytes that the interpreter uses; 0 before its first use."""
        raise NotImplementedError

    def interpreter(self) -> Interpreter:
        """Return the interpreter; create it at first use. Raises LuaMissing."""
        raise NotImplementedError

    def add(self, script: Script) -> None:
        """Add a script. Raises CommandError if there is no space for it."""
        raise NotImplementedError

    def never_evict(self, script: Script) -> None:
        """Never drop the script to make room for others."""
        raise NotImplementedError

    def flush(self) -> None:
        """Unload all scripts."""
        raise NotImplementedError

    @cython.ccall
    def compile(self, script: Script) -> cython.void:
        """Compile the script unless it is compiled already. Raises CommandError."""
        raise NotImplementedError

    def load_libraries(self, texts: dict[bytes, bytes]) -> None:
        """Load libraries, given as name -> text, to check that they are valid. Raises CommandError."""
        raise NotImplementedError

    def function(self, name: bytes) -> Function | None:
        """Return the function of that name, ignoring case; None if there is none.

        Raises CommandError if the function is not found and a library that may contain it cannot be loaded.
        """
        raise NotImplementedError

    def functions(self) -> list[Function]:
        """Return all functions. Raises CommandError."""
        raise NotImplementedError

    def function_count(self) -> int:
        """Return the number of functions; while a script runs, only of loaded ones. 0 if loading fails."""
        raise NotImplementedError

    def check_shutdown_allowed(self, no_save: bool) -> None:
        """Raise the running script's BUSY error unless a shutdown with NOSAVE is requested."""
        raise NotImplementedError

    def abandon(self) -> None:
        """End the running script without its effects; the server must be shutting down."""
        raise NotImplementedError

    def elapsed_ms(self) -> int:
        """Return how long the script has been running, in milliseconds."""
        raise NotImplementedError

    @cython.ccall
    def send_to_monitors(self, call: Call) -> cython.void:
        """Send the request that runs a script to all MONITOR clients, as it begins."""
        raise NotImplementedError

    @cython.ccall
    def check_may_run(self, session: Session) -> cython.void:
        """Raise CommandError if no script may run now."""
        raise NotImplementedError

    @cython.ccall
    def run_script(
        self, call: Call, script: Script, flags: cython.longlong, keys: cython.Py_ssize_t
    ) -> cython.void:
        """Run a script with the arguments of the request, the first `keys` of them as keys; write its reply.

        Raises CommandError if the script fails.
        """
        raise NotImplementedError

    @cython.ccall
    def run_function(
        self, call: Call, function: Function, flags: cython.longlong, keys: cython.Py_ssize_t
    ) -> cython.void:
        """Run a function; arguments and errors are those of run_script()."""
        raise NotImplementedError
