"""Random programs in Lua do not corrupt the process, pass the limit of memory, or leave the sandbox."""

from __future__ import annotations

import os
import random
import re

import pytest

from headrace import limits
from headrace.resp.writer import ReplyWriter
from headrace.scripting import interpreter as module
from headrace.scripting.host import ScriptHost
from headrace.scripting.interpreter import Interpreter, ScriptFailed

pytest.importorskip("lupa.luajit21")

PROGRAMS = 3000
CHECKS_MAX = 3  # after so many the program is ended
REPLIES = [
    b"+OK\r\n",
    b":42\r\n",
    b"$-1\r\n",
    b"$5\r\na\0\r\nb\r\n",
    b"-ERR no\r\n",
    b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
    b"%1\r\n+a\r\n,1.5\r\n",
    b"$100000\r\n" + b"x" * 100_000 + b"\r\n",
]
NUMBERS = [
    "0",
    "1",
    "-1",
    "3.7",
    "-2^31",
    "2^31",
    "2^53",
    "1e308",
    "1/0",
    "0/0",
    "'7'",
    "'-2147483648'",
    "4097",
]
STRINGS = ["''", "'x'", "'a.b'", "'%d+'", "'(a*)*b'", "('x'):rep(100)", "('ab'):rep(20000)", "'%s%99d'"]
NASTY_STRINGS = ["'%f[a]%b()'", r"'\27LJ'", r"'\0'", "'err'", "'>I8z'"]
NAMES = [
    "nil",
    "true",
    "false",
    "{}",
    "{1,2,3}",
    "{err='e'}",
    "{ok='o'}",
    "v",
    "w",
    "_G",
    "redis",
    "cjson.null",
]
VALUES = [
    *NUMBERS,
    *STRINGS,
    *NASTY_STRINGS,
    *NAMES,
    "function(...) return v, ... end",
    "function() error({err='x'}) end",
    "setmetatable({}, {__index = function(t, k) return k end, __lt = function() return w end})",
    "setmetatable({}, {__tostring = function() return 'x' end, __call = function(t, ...) return ... end})",
    "coroutine.create(function(a) while true do a = coroutine.yield(a) end end)",
]
FUNCTIONS = re.findall(
    r"[\w.]+",
    """
    string.byte string.char string.find string.format string.gmatch string.gsub string.len string.lower
    string.match string.rep string.reverse string.sub string.upper table.concat table.insert table.remove
    table.sort table.foreach table.maxn table.getn unpack select tonumber tostring type next rawget rawset
    rawequal setmetatable getmetatable pcall xpcall error assert loadstring load pairs ipairs collectgarbage
    coroutine.create coroutine.resume coroutine.wrap coroutine.yield coroutine.status coroutine.running
    math.floor math.random math.fmod math.ldexp math.max bit.band bit.tohex bit.lshift bit.bswap
    cjson.encode cjson.decode cmsgpack.pack cmsgpack.unpack cmsgpack.unpack_one cmsgpack.unpack_limit
    struct.pack struct.unpack struct.size redis.call redis.pcall redis.error_reply redis.status_reply
    redis.sha1hex redis.log redis.setresp redis.acl_check_cmd redis.set_repl redis.register_function
    """,
)


class Host(ScriptHost):
    """Replies at random, and ends each program soon."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.checks = 0

    def call(self, argv: list[bytes], protocol: int) -> int:
        assert all(type(word) is bytes for word in argv)
        self.command_reply.raw(self.rng.choice(REPLIES))
        return 0

    def check_interrupt(self) -> tuple[bytes | None, float]:
        self.checks += 1
        return (b"too slow" if self.checks >= CHECKS_MAX else None), 0.005

    def may_run(self, argv: list[bytes]) -> bool | None:
        return self.rng.choice([True, False, None])

    def log(self, level: int, text: bytes) -> None:
        assert 0 <= level <= 3

    def set_replication(self, flags: int) -> None:
        assert 0 <= flags <= 3

    def register_function(self, name: bytes, flags: int, description: bytes | None) -> None:
        pass


class Programs:
    """Writes random programs."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def expression(self, depth: int) -> str:
        kind = self.rng.random()
        if depth == 0 or kind < 0.4:
            return self.rng.choice(VALUES)
        if kind < 0.8:
            return f"{self.rng.choice(FUNCTIONS)}({self.arguments(depth - 1)})"
        if kind < 0.9:
            operator = self.rng.choice(["+", "-", "*", "/", "%", "^", "..", "==", "<", "<=", "and", "or"])
            return f"({self.expression(depth - 1)} {operator} {self.expression(depth - 1)})"
        return f"(function(...) {self.block(depth - 1)} return ... end)({self.arguments(depth - 1)})"

    def arguments(self, depth: int) -> str:
        return ", ".join(self.expression(depth) for _ in range(self.rng.randint(0, 4)))

    def block(self, depth: int) -> str:
        return " ".join(self.statement(depth) for _ in range(self.rng.randint(1, 4)))

    def statement(self, depth: int) -> str:
        kind = self.rng.random()
        if depth == 0 or kind < 0.4:
            return f"{self.rng.choice('vw')} = {self.expression(depth)};"
        if kind < 0.7:
            return f"pcall({self.rng.choice(FUNCTIONS)}, {self.arguments(depth - 1) or 'v'});"
        if kind < 0.8:
            return f"for i = 1, {self.rng.choice(['3', '100', '1e9'])} do {self.block(depth - 1)} end"
        if kind < 0.9:
            return f"pcall(coroutine.wrap(function() {self.block(depth - 1)} end));"
        return f"pcall(function(...) {self.block(depth - 1)} end, {self.arguments(depth - 1) or 'v'});"

    def program(self) -> bytes:
        return f"local v, w, print_ {self.block(4)} return {self.expression(3)}".encode()


def test_random_programs_end_and_the_next_one_works(monkeypatch):
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_BYTES_MAX", 8 << 20)
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_MARGIN_BYTES", 8 << 20)
    monkeypatch.setattr(module, "FIRST_CHECK_S", 0.005)
    rng = random.Random(int(os.environ.get("HEADRACE_FUZZ_SEED", "3")))
    host, programs = Host(rng), Programs(rng)
    lua, out = Interpreter(host, "8.0.0"), ReplyWriter()
    replied = failed = 0
    for _ in range(PROGRAMS):
        text, host.checks = programs.program(), 0
        if lua.load_script(b"p", text) is not None:
            continue
        try:
            lua.run(None, b"p", [b"EVAL", b"p", b"1", b"k", b"a", b"b"], 1, rng.choice([2, 3]), out)
            assert out.take().endswith(b"\r\n"), text
            replied += 1
        except ScriptFailed:
            failed += 1
        assert lua.memory < 24 << 20, text
        if lua.broken:
            lua = Interpreter(host, "8.0.0")
        host.checks = -(1 << 30)  # this program ends by itself, however slow the machine is
        assert lua.load_script(b"q", b"return {7, string.rep('x', 3), type(redis.call)}") is None
        lua.run(None, b"q", [b"EVAL", b"q", b"0"], 0, 2, out)
        assert out.take() == b"*3\r\n:7\r\n$3\r\nxxx\r\n$8\r\nfunction\r\n", text
    assert replied > PROGRAMS / 50
    assert failed > PROGRAMS / 50
