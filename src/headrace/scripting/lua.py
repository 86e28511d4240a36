"""LuaJIT for the interpreter, by the classes of lupa; lua.pxd has the same functions in C.

This module is never compiled. Values are bytes, int, float, bool and None in both directions. A function that
Lua may call gets a list of its arguments, and returns one value or a tuple.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from headrace.resp.request import request
from headrace.resp.writer import ReplyWriter
from headrace.scripting.host import ScriptHost

HEADROOM_BYTES = 1 << 20  # what lupa itself allocates must not fail: that would end the process


class State:
    """A state of Lua, and the table that its programs share with this package."""

    def __init__(self, functions: dict[bytes, Callable[[list[Any]], Any]], limit: int) -> None:
        from lupa import luajit21

        self.minimum = self.limit = limit
        self.error = luajit21.LuaError
        self.runtime = luajit21.LuaRuntime(
            encoding=None,
            source_encoding="latin-1",
            attribute_filter=_no_attributes,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            max_memory=limit,
        )
        self.table = self.runtime.table()
        for name, function in functions.items():
            self.add_function(name, function)

    def add_function(self, name: bytes, function: Callable[[list[Any]], Any]) -> None:
        """Add a function to the shared table."""
        self.table[name] = self._callable(function)

    def _callable(self, function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
        raise_limit = _LimitRaiser(self)

        def call(*arguments: Any) -> Any:
            result = function(list(arguments))
            raise_limit(result if isinstance(result, tuple) else (result,))
            return result

        return call

    def run(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a function of Lua; return a tuple of its results, or the error's text."""
        self.set_limit(max(self.minimum, self.memory_limit_for(arguments)))
        try:
            result = function(*arguments)
        except self.error as error:
            return str(error).encode("latin-1", "replace")
        return result if isinstance(result, tuple) else (result,)

    def memory_limit_for(self, values: tuple[Any, ...]) -> int:
        """Return the memory limit, in bytes, under which lupa can pass the values to Lua."""
        size = sum(len(value) for value in values if isinstance(value, bytes))
        return int(self.runtime.get_memory_used()) + size + HEADROOM_BYTES

    def set_limit(self, limit: int) -> None:
        """Set the limit of Lua's memory, in bytes."""
        if limit != self.limit:
            self.limit = limit
            self.runtime.set_max_memory(limit)


class _LimitRaiser:
    """Raises the memory limit of a state if values need that.

    It holds only a weak reference to the state: Python's garbage collector does not see what Lua refers to.
    """

    def __init__(self, state: State) -> None:
        self.state = weakref.ref(state)

    def __call__(self, values: tuple[Any, ...]) -> None:
        state = self.state()
        assert state is not None
        state.set_limit(max(state.limit, state.memory_limit_for(values)))


def _no_attributes(_object: object, _name: object, _setting: bool) -> str:
    raise AttributeError("not available")


def open_state(path: bytes, functions: dict[bytes, Callable[[list[Any]], Any]], limit: int) -> State:
    """Return a new state that may have `limit` bytes; `path` is the module that contains LuaJIT."""
    return State(functions, limit)


def execute(state: State, text: bytes, name: bytes) -> Any:
    """Run a program with the shared table as argument; return (). Raises LuaError (lua.pxd returns it)."""
    state.runtime.execute(text, state.table, name=name)
    return ()


def call(state: State, name: bytes, arguments: tuple[Any, ...]) -> Any:
    """Call a function of the shared table; return a tuple of its results, or the error's text."""
    return state.run(state.table[name], arguments)


def finish_setup(state: State, memory_max: int, first_check_s: float) -> None:
    """Finish the state after all files of the sandbox were executed: nothing to do here, see lua.pxd."""


def run(
    state: State,
    host: ScriptHost,
    library: bytes | None,
    name: bytes,
    argv: list[bytes],
    keys: int,
    protocol: int,
    out: ReplyWriter,
) -> Any:
    """Run a script, or a function of a library; write its reply.

    Returns:
        None after a reply that is not an error. For an error reply (text, whether it is counted). For an
        error that the script raised (text, source, line, whether it is counted).
    """
    words = request(*argv[3 : 3 + keys]), request(*argv[3 + keys :])
    if library is None:
        result = call(state, b"run_script", (protocol, name, *words))
    else:
        result = call(state, b"run_function", (protocol, library, name, *words))
    if isinstance(result, bytes):
        return b"ERR " + result, b"", 0, False
    if result[0] is not None:
        return result
    _, reply, is_counted = result
    out.raw(reply)
    return (reply[1:-2], is_counted) if reply.startswith(b"-") else None


def set_number(state: State, name: bytes, number: float) -> None:
    """Put a number into the shared table."""
    state.table[name] = number


def memory(state: State) -> int:
    """Return the bytes that Lua uses."""
    return int(state.runtime.get_memory_used(total=True))


def collect(state: State) -> None:
    """Collect Lua's garbage."""
    state.runtime.gccollect()
