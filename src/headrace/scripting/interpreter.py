"""The Lua interpreter, LuaJIT: compiles and runs scripts and functions, in a sandbox.

    Python                       Lua (the files in lua/)                     script
    run_script(...)  ──bytes──▶  api.lua: guarded()  ────────────────────▶   redis.call(...)
    ScriptHost.call  ◀──bytes──  redis.call  ◀───────────────────────────
                     ──reply──▶  replies.lua: decode()  ──value──────────▶

Only strings, numbers, booleans and None pass between the languages, so a script can never reach an object of
Python. Replies are bytes of the protocol in both directions.

Memory. Lua may use SCRIPT_MEMORY_BYTES_MAX: the hook ends a script that has more, and a larger allocation
fails. What lupa itself allocates must not fail, because that would abort the process: so each call from Lua
ensures HEADROOM_BYTES for its result, and raises the limit if necessary. The next hook then ends the script.
"""

from __future__ import annotations

import hashlib
import pkgutil
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import cython

from headrace import limits
from headrace.errors import CommandError
from headrace.scripting import numbers
from headrace.scripting.dialect import MalformedNumber, to_luajit
from headrace.scripting.tail_calls import without_tail_calls

FILES = ("sandbox", "patterns", "replies", "cjson", "cmsgpack", "struct", "bit", "api")
# Read now: when the package is upgraded later, the new files would not fit this module.
SOURCES = {file: pkgutil.get_data("headrace.scripting", f"lua/{file}.lua") for file in FILES}
HEADROOM_BYTES = 1 << 20
LUA_BYTES_MAX = limits.SCRIPT_MEMORY_BYTES_MAX + limits.SCRIPT_MEMORY_MARGIN_BYTES
CROWDED_BYTES = limits.SCRIPT_MEMORY_BYTES_MAX // 2
NOT_ENOUGH_MEMORY = b"not enough memory"
COLON, DOLLAR, MINUS = b":$-"
FIRST_CHECK_S = 0.01  # CPU time until the first check() of a run


class LuaMissing(CommandError):
    text = "ERR scripts need Lua: pip install 'headrace[lua]'"


class ScriptReply(NamedTuple):
    """What a script has returned, as bytes of the protocol."""

    data: bytes
    is_counted: bool  # it is the error of a command that the script has called


class ScriptFailed(Exception):
    """A script has raised an error: its text without the name of the script, and where it was raised."""

    def __init__(self, text: bytes, source: bytes, line: int, is_counted: bool = False) -> None:
        super().__init__(text, source, line, is_counted)
        self.text = text
        self.source = source
        self.line = line
        self.is_counted = is_counted  # it is the error of a command that the script has called


class ScriptHost(Protocol):
    """What a running script asks for."""

    def call(self, argv: list[bytes], protocol: int) -> bytes:
        """Run a command; return the bytes of its reply, an error included."""

    def check(self) -> tuple[bytes | None, float]:
        """Return the error that ends the script now, if any, and the seconds until the next check."""

    def may_run(self, argv: list[bytes]) -> bool | None:
        """Return whether the user may run the command; None if it does not exist."""

    def log(self, level: int, text: bytes) -> None:
        """Write a line to the server's log."""

    def set_replication(self, flags: int) -> None:
        """Set where the following effects go: 0 for nowhere."""

    def register(self, name: bytes, flags: int, description: bytes | None) -> None:
        """Register a function of the library being loaded."""


def _no_attributes(_object: object, _name: object, _setting: bool) -> str:
    raise AttributeError("not available")


def short_form(reply: bytes) -> bytes | int | tuple[None, bytes]:
    """Return a string or an integer as it is, and any other reply for decode() in Lua, which is slower."""
    kind = reply[0]
    if kind == DOLLAR and reply[1] != MINUS:
        return reply[reply.index(b"\n") + 1 : -2]
    if kind == COLON:
        return int(reply[1:-2])
    return None, reply


class Interpreter:
    """One Lua state. Not thread-safe, not reentrant."""

    def __init__(self, host: ScriptHost, version: str) -> None:
        try:
            from lupa import luajit21
        except ImportError:
            raise LuaMissing() from None
        self.host = host
        self.broken = False  # an error came from outside of a script: nothing can be said about the state
        self._error = luajit21.LuaError
        self._limit = LUA_BYTES_MAX
        self._lua = luajit21.LuaRuntime(
            encoding=None,
            source_encoding="latin-1",
            attribute_filter=_no_attributes,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            max_memory=self._limit,
        )
        self._lua.execute(b"jit.off() jit.flush()")  # compiled loops would not call the hook
        h = self._lua.table()
        for name, function in self._callbacks().items():
            h[name] = function
        h[b"chunk_bytes_max"] = limits.SCRIPT_BYTES_MAX
        h[b"memory_max"] = limits.SCRIPT_MEMORY_BYTES_MAX / 1024
        h[b"first_check"] = FIRST_CHECK_S
        for file, text in SOURCES.items():
            name = b"@headrace_run" if file == "api" else b"@headrace"
            self._lua.execute(text, h, name=name)
        major, minor, patch = (int(part) for part in version.split("."))
        h[b"finish"](version.encode(), major << 16 | minor << 8 | patch)
        names = ("load_script", "drop_script", "run_script", "load_library", "drop_library", "run_function")
        self._functions = {name: h[name.encode()] for name in names}

    # Calls from Lua. None of them raises: an exception would become an object of Python in Lua.

    def _callbacks(self) -> dict[bytes, Callable[..., Any]]:
        """Return what Lua may call. Python's collector does not see what Lua has: no reference to self."""
        this = weakref.ref(self)

        def me() -> Interpreter:
            interpreter = this()
            assert interpreter is not None
            return interpreter

        def call(protocol: int, *argv: bytes) -> bytes | int | tuple[None, bytes] | tuple[bool, bytes]:
            interpreter = me()
            reply = interpreter.host.call(list(argv), int(protocol))
            if not interpreter._has_room(len(reply)):
                return False, NOT_ENOUGH_MEMORY
            interpreter._ensure_headroom(len(reply))
            return short_form(reply)

        def check() -> tuple[bytes | None, float]:
            interpreter = me()
            text, seconds = interpreter.host.check()
            interpreter._ensure_headroom(0)
            return text, seconds

        def find_plain(text: bytes, part: bytes, start: float) -> int | None:
            at = text.find(part, int(start) - 1)
            return None if at < 0 else at + 1

        def translate(text: bytes) -> bytes | tuple[bytes, bytes, int]:
            try:
                text = to_luajit(text)
            except MalformedNumber as wrong:
                return b"", wrong.text, wrong.line
            me()._ensure_headroom(len(text))
            return text

        def ordinary_calls(chunk: bytes) -> bytes:
            chunk = without_tail_calls(chunk)
            me()._ensure_headroom(len(chunk))
            return chunk

        return {
            b"call": call,
            b"check": check,
            b"acl_check": lambda *argv: me().host.may_run(list(argv)),
            b"log": lambda level, text: me().host.log(int(level), text),
            b"set_repl": lambda flags: me().host.set_replication(int(flags)),
            b"on_register": lambda name, flags, text: me().host.register(name, int(flags), text),
            b"sha1hex": lambda text: hashlib.sha1(text).hexdigest().encode(),
            b"find_plain": find_plain,
            b"to_luajit": translate,
            b"without_tail_calls": ordinary_calls,
            b"pack_number": numbers.pack,
            b"unpack_number": numbers.unpack,
        }

    def _has_room(self, size: int) -> bool:
        """Return whether Lua may have so many bytes more, if need be after a collection of its garbage."""
        if self._lua.get_memory_used() + size > limits.SCRIPT_MEMORY_BYTES_MAX:
            self._lua.gccollect()
        return bool(self._lua.get_memory_used() + size <= limits.SCRIPT_MEMORY_BYTES_MAX)

    def is_crowded(self) -> bool:
        """Return whether what remains in Lua between scripts leaves too little memory for the next one."""
        if self._lua.get_memory_used() <= CROWDED_BYTES:
            return False
        self._lua.gccollect()
        return bool(self._lua.get_memory_used() > CROWDED_BYTES)

    def _ensure_headroom(self, size: int) -> None:
        """Allow lupa to pass a string of that size to Lua."""
        needed = self._lua.get_memory_used() + size + HEADROOM_BYTES
        if needed > self._limit:
            self._limit = needed
            self._lua.set_max_memory(needed)

    @property
    def memory(self) -> int:
        """Bytes that Lua uses."""
        return int(self._lua.get_memory_used(total=True))

    # Calls into Lua.

    def _enter(self, name: str, *arguments: object) -> Any:
        needed = self._lua.get_memory_used() + HEADROOM_BYTES
        for argument in arguments:
            if isinstance(argument, bytes):
                needed += len(argument)
        limit = max(LUA_BYTES_MAX, needed)
        if limit != self._limit:
            self._limit = limit
            self._lua.set_max_memory(limit)
        try:
            return self._functions[name](*arguments)
        except BaseException as error:
            self.broken = True
            if isinstance(error, self._error):
                raise ScriptFailed(b"ERR " + str(error).encode("latin-1", "replace"), b"", 0) from None
            raise

    def load_script(self, name: bytes, body: bytes) -> bytes | None:
        """Compile a script; return the error's text, or None."""
        text: bytes | None = self._enter("load_script", name, body)
        return text

    def drop_script(self, name: bytes) -> None:
        """Forget a script."""
        self._enter("drop_script", name)

    def load_library(self, name: bytes, body: bytes) -> bytes | None:
        """Load a library, which registers its functions; return the error's text, or None."""
        text: bytes | None = self._enter("load_library", name, body)
        return text

    def drop_library(self, name: bytes) -> None:
        """Forget a library."""
        self._enter("drop_library", name)

    def run_script(self, name: bytes, keys: bytes, args: bytes, protocol: int) -> ScriptReply:
        """Run a script; return its reply. keys, args: arrays of the protocol.

        Raises ScriptFailed.
        """
        return self._reply(self._enter("run_script", protocol, name, keys, args))

    def run_function(
        self, library: bytes, name: bytes, keys: bytes, args: bytes, protocol: int
    ) -> ScriptReply:
        """Run a function, as run_script()."""
        return self._reply(self._enter("run_function", protocol, library, name, keys, args))

    def _reply(self, result: Any) -> ScriptReply:
        text, *more = result
        if text is None:
            return ScriptReply(*more)
        source, line, is_counted = more
        raise ScriptFailed(text, source, int(line), is_counted)
