"""The Lua interpreter, LuaJIT: compiles and runs scripts and functions, in a sandbox.

    Python                       Lua                        script
    run(...)         ──keys──▶   calls the script   ────▶   redis.call(...)
    ScriptHost.call  ◀──argv──   redis.call         ◀────
                     ──reply──▶  decode()  ──value──▶

The module `lua` passes the calls. Compiled, it calls LuaJIT in C: see lua.pxd. Interpreted, it uses the
classes of lupa and the functions in sandbox/, such as guarded() in api.lua.

Only strings, numbers, booleans and None pass between the languages, so a script can never reach an object of
Python. Replies are passed as bytes of the protocol (RESP) in both directions.

Two limits apply to the memory of Lua. Lua calls a hook after every so many instructions. The hook ends a
script that uses more than SCRIPT_MEMORY_BYTES_MAX. An allocation fails if it would exceed this limit by more
than SCRIPT_MEMORY_MARGIN_BYTES.
"""

from __future__ import annotations

import hashlib
import pkgutil
import weakref
from collections.abc import Callable
from typing import Any

import cython

from headrace import limits
from headrace.errors import CommandError
from headrace.resp.writer import ReplyWriter
from headrace.scripting import lua, lua_json, lua_numbers
from headrace.scripting.dialect import Untranslatable, to_luajit
from headrace.scripting.host import ScriptHost
from headrace.scripting.tail_calls import without_tail_calls
from headrace.visibility import Public

SANDBOX_FILES = ("sandbox", "patterns", "replies", "cjson", "cmsgpack", "struct", "bit", "api")
# Read now: when the package is upgraded later, the new files would not fit this module.
SANDBOX_SOURCES = {
    file: pkgutil.get_data("headrace.scripting", f"sandbox/{file}.lua") or b"" for file in SANDBOX_FILES
}
CROWDED_BYTES = limits.SCRIPT_MEMORY_BYTES_MAX // 2
NOT_ENOUGH_MEMORY = b"not enough memory"
COLON, DOLLAR, MINUS = b":$-"
FAILURE_TUPLE_LENGTH = 4  # text, source, line, whether it is counted
FIRST_CHECK_S = 0.01  # time until the first check_interrupt() of a run


class LuaMissing(CommandError):
    text = "ERR scripts need the package lupa: pip install lupa"


class ScriptFailed(Exception):
    """A script has raised an error: its text without the name of the script, and where it was raised."""

    def __init__(self, text: bytes, source: bytes, line: int, is_counted: bool = False) -> None:
        super().__init__(text, source, line, is_counted)
        self.text = text
        self.source = source
        self.line = line
        self.is_counted = is_counted  # it is the error of a command that the script has called


def decode_if_simple(reply: bytes) -> bytes | int | tuple[None, bytes]:
    """Return the value of a string or integer reply; any other reply as (None, reply), for Lua to decode."""
    kind = reply[0]
    if kind == DOLLAR and reply[1] != MINUS:
        return reply[reply.index(b"\n") + 1 : -2]
    if kind == COLON:
        return int(reply[1:-2])
    return None, reply


@cython.final
@cython.cclass
class Interpreter:
    """One Lua state. Not thread-safe, not reentrant."""

    __weakref__: object
    host: ScriptHost
    broken: Public[cython.bint]  # an error came from outside of a script: nothing can be said about the state
    _state: Any  # of the module `lua`

    def __init__(self, host: ScriptHost, version: str) -> None:
        try:
            from lupa import luajit21
        except ImportError:
            raise LuaMissing() from None
        self.host = host
        self.broken = False
        path = luajit21.__file__.encode()
        limit = limits.SCRIPT_MEMORY_BYTES_MAX + limits.SCRIPT_MEMORY_MARGIN_BYTES
        self._state = lua.open_state(path, self._callbacks(), limit)
        lua.execute(self._state, b"jit.off() jit.flush()", b"=jit")  # compiled loops would not call the hook
        lua_json.add_json(self._state)
        lua_numbers.add_numbers(self._state)
        lua.set_number(self._state, b"chunk_bytes_max", limits.SCRIPT_BYTES_MAX)
        lua.set_number(self._state, b"memory_max", limits.SCRIPT_MEMORY_BYTES_MAX / 1024)
        lua.set_number(self._state, b"first_check", FIRST_CHECK_S)
        for file, text in SANDBOX_SOURCES.items():
            name = b"@headrace_run" if file == "api" else b"@headrace"
            wrong = lua.execute(self._state, text, name)
            assert isinstance(wrong, tuple), wrong
        major, minor, patch = (int(part) for part in version.split("."))
        lua.call(self._state, b"finish", (version.encode(), major << 16 | minor << 8 | patch))
        lua.finish_setup(self._state, limits.SCRIPT_MEMORY_BYTES_MAX, FIRST_CHECK_S)

    # Calls from Lua. None of them raises: an exception would become an object of Python in Lua.

    def _callbacks(self) -> dict[bytes, Callable[..., Any]]:
        """Return the functions that Lua may call, by name.

        They hold only a weak reference to self: Python's garbage collector does not see what Lua refers to.
        """
        this = weakref.ref(self)

        def me() -> Any:  # Cython would convert the return type Interpreter wrongly
            interpreter = this()
            assert interpreter is not None
            return interpreter

        def call(words: list[Any]) -> bytes | int | tuple[None, bytes] | tuple[bool, bytes]:
            protocol = int(words.pop())
            interpreter = me()
            host = interpreter.host
            host.command_reply.mark_sent(host.command_reply.pending_bytes())
            host.call(words, protocol)
            reply = host.command_reply.take()
            if not interpreter._has_room(len(reply)):
                return False, NOT_ENOUGH_MEMORY
            return decode_if_simple(reply)

        def find_plain(words: list[Any]) -> int | None:
            text, part, start = words
            at = text.find(part, int(start) - 1)
            return None if at < 0 else at + 1

        def translate(words: list[Any]) -> bytes | tuple[bytes, bytes, int]:
            try:
                return to_luajit(words[0])
            except Untranslatable as wrong:
                return b"", wrong.text, wrong.line

        def register(words: list[Any]) -> None:
            name, flags, description = words
            me().host.register_function(name, int(flags), description)

        return {
            b"call": call,
            b"check": lambda words: me().host.check_interrupt(),
            b"acl_check": lambda words: me().host.may_run(words),
            b"log": lambda words: me().host.log(int(words[0]), words[1]),
            b"set_repl": lambda words: me().host.set_replication(int(words[0])),
            b"on_register": register,
            b"sha1hex": lambda words: hashlib.sha1(words[0]).hexdigest().encode(),
            b"find_plain": find_plain,
            b"to_luajit": translate,
            b"without_tail_calls": lambda words: without_tail_calls(words[0]),
        }

    def _has_room(self, size: int) -> bool:
        """Return whether Lua may use `size` bytes more, after collecting its garbage if necessary."""
        if self.memory + size <= limits.SCRIPT_MEMORY_BYTES_MAX:
            return True
        lua.collect(self._state)
        return self.memory + size <= limits.SCRIPT_MEMORY_BYTES_MAX

    @cython.ccall
    def is_short_of_memory(self) -> cython.bint:
        """Return whether what remains in Lua between scripts leaves too little memory for the next one."""
        if lua.memory(self._state) <= CROWDED_BYTES:
            return False
        lua.collect(self._state)
        return lua.memory(self._state) > CROWDED_BYTES

    @property
    def memory(self) -> int:
        """Bytes that Lua uses."""
        return lua.memory(self._state)

    @property
    def hook_interval_instructions(self) -> int:
        """Instructions between two calls of the hook in the last script, at its end."""
        return int(lua.call(self._state, b"hook_interval", ())[0])

    # Calls into Lua.

    def _call_lua(self, name: bytes, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            results: tuple[Any, ...] | bytes = lua.call(self._state, name, arguments)
        except BaseException:
            self.broken = True
            raise
        if isinstance(results, bytes):
            self.broken = True
            raise ScriptFailed(b"ERR " + results, b"", 0)
        return results

    def load_script(self, name: bytes, body: bytes) -> bytes | None:
        """Compile a script; return the error's text, or None."""
        return self._text(self._call_lua(b"load_script", (name, body)))

    def drop_script(self, name: bytes) -> None:
        """Unload a script."""
        self._call_lua(b"drop_script", (name,))

    def load_library(self, name: bytes, body: bytes) -> bytes | None:
        """Load a library, which registers its functions; return the error's text, or None."""
        return self._text(self._call_lua(b"load_library", (name, body)))

    def drop_library(self, name: bytes) -> None:
        """Unload a library and its functions."""
        self._call_lua(b"drop_library", (name,))

    @cython.ccall
    def run(
        self,
        library: bytes | None,
        name: bytes,
        argv: list[bytes],
        keys: cython.Py_ssize_t,
        protocol: cython.int,
        out: ReplyWriter,
    ) -> object:
        """Run a script, or a function of a library, and write its reply.

        Args:
            library: None for a script.
            name: of the function, or of the script as load_script() got it.
            argv: a request: from its fourth element on, keys, then arguments.
            keys: the number of keys.
            protocol: of the reply, 2 or 3.
            out: gets the reply.

        Returns:
            None; for an error reply a tuple: its text, and whether the error was counted already, because a
            command of the script failed.

        Raises:
            ScriptFailed: if the script has raised an error.
        """
        try:
            result = lua.run(self._state, self.host, library, name, argv, keys, protocol, out)
        except BaseException:
            self.broken = True
            raise
        if result is not None and len(result) == FAILURE_TUPLE_LENGTH:
            text, source, line, is_counted = result
            raise ScriptFailed(text, source, int(line), is_counted)
        return result

    def _text(self, results: tuple[Any, ...]) -> bytes | None:
        """Return the first result, an error's text; None if there are no results."""
        return results[0] if results else None
