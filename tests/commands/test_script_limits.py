"""What a script cannot do: end the process, stop the others for long, fill memory, or leave the sandbox."""

import ctypes
import gc
import hashlib
import importlib
import logging
import pathlib
import re
import time
import weakref

import pytest

from headrace import limits
from headrace.engine import script_runner
from headrace.persistence.functions_dump import dump_libraries
from headrace.persistence.rdb import versions

pytest.importorskip("lupa.luajit21")

PARAMETERS = ", ".join(f"p{i}" for i in range(1, 51))


def evaluate(talk, script, *words):
    return talk.words("EVAL", script, *(words or ("0",)))


ENDED_THE_PROCESS = [
    ("return unpack({}, -2^31, 0)", "too many results to unpack"),
    ("local function f() return coroutine.wrap(f)() end return f()", "C stack overflow"),
    ("local c = coroutine local function f() return c.resume(c.create(f)) end return {f()}", "C stack"),
    ("local function f() return (('x'):gsub('x', f)) end return f()", "C stack overflow"),
    ("local function f() table.sort({1, 2}, f) end return f()", "C stack overflow"),
    (
        "local t t = setmetatable({}, {__lt = function() table.sort({t, t}) end}) table.sort({t, t})",
        "C stack",
    ),
    (
        "local t t = setmetatable({}, {__tostring = function() return ('%s'):format(t) end})"
        " return ('%s'):format(t)",
        "C stack overflow",
    ),
    ("local function f(" + PARAMETERS + ", ...) return 1 + f(...) end return f()", "stack overflow"),
]


@pytest.mark.parametrize(("script", "error"), ENDED_THE_PROCESS)
def test_what_could_corrupt_the_process_is_an_error_of_the_script(talk, script, error):
    assert error in str(evaluate(talk, script))
    assert evaluate(talk, "return {pcall(function() return ('x'):gsub('x', function() end) end)}") == [
        1,
        "x",
        1,
    ]


def test_a_script_may_nest_calls_again_after_errors_in_nested_ones(talk):
    script = """
    local function deep(n)
        return (('x'):gsub('x', function() if n == 0 then error('end') end deep(n - 1) end))
    end
    for _ = 1, 30 do
        pcall(deep, 100)
        coroutine.resume(coroutine.create(function() deep(100) end))
    end
    return coroutine.wrap(function() return ('x'):gsub('x', 'y') end)()
    """
    assert evaluate(talk, script) == "y"


BYTECODE = """
local text = '%sLJ\\2' .. ARGV[1]
local f, wrong = loadstring(text)
return {f == nil and 1, wrong}
"""


@pytest.mark.parametrize("before", [r"\27", r"#\n\27", r"\239\187\191\27", r"# x\r\n\27"])
def test_bytecode_is_rejected_also_after_what_the_compiler_skips(talk, before):
    found, wrong = evaluate(talk, BYTECODE % before, "0", "x")
    assert found == 1
    assert "binary chunk" in wrong or ":1: " in wrong
    assert talk.words("EVAL", b"#\n\x1bLJ\x02", "0").startswith("-ERR Error compiling script")


@pytest.mark.parametrize("name", ["ffi", "jit", "debug", "io", "package", "require", "newproxy", "dofile"])
def test_a_script_finds_nothing_that_reaches_outside(talk, name):
    assert f"nonexistent global variable '{name}'" in evaluate(talk, f"return {name}")
    assert evaluate(talk, "return {string.dump == nil, string.buffer == nil, table.new == nil}") == [1, 1, 1]
    assert evaluate(talk, "local n = 0 for k in pairs(getmetatable(os) or {}) do n = n + 1 end return n") == 0


@pytest.mark.parametrize("literal", ["42LL", "0x1FuLL", "3i", "1.5I"])
def test_numbers_of_the_ffi_are_malformed(talk, literal):
    error = f"-ERR Error compiling script (new function): user_script:2: malformed number near '{literal}'"
    assert evaluate(talk, f"local x = '2i'\nreturn {literal}") == error
    error = f"part:1: malformed number near '{literal}'"
    assert evaluate(talk, f"return select(2, loadstring('return {literal}', '@part'))") == error


SLOW_CALLS = [
    "string.rep('', '2147483647')",
    "table.insert({}, '-2147483648', 1)",
    "table.remove(setmetatable({}, {}), '-2147483648')",
    "local t = {} for i = 1, 5000 do t[i] = i end for i = 1, 1e9 do table.insert(t, '1', 0) end",
    "local s = ('a'):rep(4e7) local t = {} for i = 1, 300 do t[i] = s end table.sort(t)",
    "local s = ('a'):rep(2e7) coroutine.wrap(function() while true do s:lower() end end)()",
    "coroutine.wrap(function() while true do end end)()",
    "while true do pcall(coroutine.wrap(function() while true do end end)) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
]


@pytest.mark.parametrize("call", SLOW_CALLS)
def test_no_single_call_keeps_a_script_from_being_ended(talk, call):
    talk.engine.keyspace.settings.busy_reply_threshold = 100
    reply = evaluate(talk, call + " return 1")
    assert reply == 1 or "was ended after" in reply
    assert evaluate(talk, "return 7") == 7


class Slowness(logging.Handler):
    """Every line of the log takes longer than the instructions between two calls of the hook should."""

    def emit(self, record: logging.LogRecord) -> None:
        end, end_of_cpu = time.monotonic() + 0.05, time.process_time() + 0.05
        while time.monotonic() < end or time.process_time() < end_of_cpu:
            pass


def test_the_hook_is_called_rarely_again_after_slow_instructions(talk, caplog):
    steps = "for _ = 1, {} do end "
    log = logging.getLogger("headrace")
    caplog.set_level(logging.WARNING, "headrace")
    slowness = Slowness()
    log.addHandler(slowness)
    try:
        intervals = []
        for after in (0, 1_000, 100_000):
            slow = "redis.log(redis.LOG_WARNING, 'slow') " if after else ""
            evaluate(talk, steps.format(5_000) + slow + steps.format(after))
            intervals.append(talk.engine.scripts.interpreter().hook_interval_instructions)
    finally:
        log.removeHandler(slowness)
    assert intervals[0] == intervals[2] > intervals[1]


FILLING = [
    "local t = {} for i = 1, 1e9 do t[i] = {} end",
    "local s = 'x' while true do s = s .. s end",
    "local k = {} while true do k[#k + 1] = coroutine.wrap(function()"
    " local t = {} for i = 1, 1e6 do t[i] = i end coroutine.yield(t) end) k[#k]() end",
    "local k = {} local function f() pcall(function() while true do k[#k + 1] = ('x'):rep(1e6) .. #k end end)"
    " return coroutine.wrap(f)() end while true do pcall(f) end",
]


@pytest.mark.parametrize("script", FILLING)
def test_memory_is_limited_in_coroutines_too_and_freed(talk, script, monkeypatch):
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_BYTES_MAX", 16 << 20)
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_MARGIN_BYTES", 16 << 20)
    talk.engine.keyspace.settings.busy_reply_threshold = 0
    assert "not enough memory" in evaluate(talk, script)
    assert evaluate(talk, "for _ = 1, 9 do collectgarbage() end return collectgarbage('count') < 4096") == 1


def test_replies_of_commands_count_as_memory_of_the_script(talk, monkeypatch):
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_BYTES_MAX", 16 << 20)
    talk("SETRANGE k 3000000 x")
    keep = (
        "local t = {} for i = 1, 50 do t[i] = redis.%s('GET', 'k') redis.call('APPEND', 'k', i) end return #t"
    )
    assert "not enough memory" in evaluate(talk, keep % "call")
    assert "not enough memory" in evaluate(talk, keep % "pcall")
    drop = "for i = 1, 50 do redis.call('GET', 'k') redis.call('APPEND', 'k', i) end return 1"
    assert evaluate(talk, drop) == 1


def test_a_discarded_interpreter_is_freed(talk):
    evaluate(talk, "redis.call('SET', 'k', 'v') return 1")
    interpreter = weakref.ref(talk.engine.scripts.interpreter())
    gc.disable()
    try:
        talk("SCRIPT FLUSH")
        assert interpreter() is None
    finally:
        gc.enable()


def test_scripts_that_eval_loaded_make_room_for_others(talk, monkeypatch):
    monkeypatch.setattr(limits, "ALL_SCRIPTS_BYTES_MAX", 10_000)
    kept = talk.words("SCRIPT", "LOAD", "return 'kept' --" + "x" * 4000)
    for i in range(20):
        assert evaluate(talk, f"return {i} --" + "x" * 3000) == i
    assert evaluate(talk, "return 7") == 7
    assert talk("SCRIPT EXISTS " + kept) == [1]
    assert (
        talk.words("SCRIPT", "LOAD", "return 8 --" + "x" * 4000)
        == hashlib.sha1(b"return 8 --" + b"x" * 4000).hexdigest()
    )
    assert talk.words("SCRIPT", "LOAD", "return 9 --" + "x" * 4000).startswith("-OOM too many bytes")
    talk("SCRIPT FLUSH")
    assert (
        talk.words("SCRIPT", "LOAD", "return 9 --" + "x" * 9000)
        == hashlib.sha1(b"return 9 --" + b"x" * 9000).hexdigest()
    )


def test_what_scripts_leave_in_lua_does_not_starve_the_next_one(talk, monkeypatch):
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_BYTES_MAX", 16 << 20)
    monkeypatch.setattr("headrace.scripting.interpreter.CROWDED_BYTES", 8 << 20)
    library = """#!lua name=keeper
    local kept = {}
    redis.register_function('keep', function() kept[#kept + 1] = ('x'):rep(1e6) .. #kept return #kept end)"""
    talk.words("FUNCTION", "LOAD", library)
    kept = [talk("FCALL keep 0") for _ in range(20)]
    assert kept[:3] == [1, 2, 3]
    assert kept.count(1) > 1
    assert evaluate(talk, "return #('x'):rep(4e6)") == 4_000_000


def test_a_text_of_many_megabytes_is_not_compiled(talk):
    text = "return 1 --" + "x" * limits.SCRIPT_BYTES_MAX
    assert "chunk has more than 4194304 bytes" in evaluate(talk, text)
    assert "chunk has more than" in evaluate(talk, "return select(2, loadstring(('x'):rep(5e6)))")


def test_a_text_that_takes_long_to_translate_is_not_compiled(talk):
    text = "function " * 250 + "arg " * 1_000_000
    assert "user_script:1: 'arg' is not allowed in a chunk of more than 524288 bytes" in evaluate(talk, text)
    small = "return (function(...) return arg.n end)(1, 2) --" + "x" * 500_000
    assert evaluate(talk, small) == 2
    assert evaluate(talk, "return 1 --" + "x" * 1_000_000) == 1


def test_a_first_line_of_megabytes_is_not_parsed(talk):
    flags = "#!lua flags=" + "no-writes," * 5_000_000 + "\nreturn 1"
    assert "Invalid script shebang" in evaluate(talk, flags)
    library = "#!lua" + " name=a" * 5_000_000 + "\nreturn 1"
    assert "Invalid library metadata" in talk.words("FUNCTION", "LOAD", library)


@pytest.mark.parametrize("call", ["redis.pcall", "redis.acl_check_cmd"])
def test_one_string_as_many_arguments_is_not_copied_without_limit(talk, call):
    script = """local b, t = string.rep('x', 20000000), {'EXISTS'}
    for i = 2, tonumber(ARGV[1]) do t[i] = b end
    local _, reply = pcall(CALL, unpack(t))
    return type(reply) == 'table' and reply.err or reply"""
    script = script.replace("CALL", call)
    assert "the arguments of one command are longer" in evaluate(talk, script, "0", "40")
    assert evaluate(talk, script, "0", "4") in (0, 1)


@pytest.mark.parametrize("field", ["function_name", "description"])
def test_what_a_library_registers_is_kept_outside_of_lua_and_limited(talk, field):
    words = {"function_name": "'f'", "description": "''", "callback": "function() end"}
    words[field] = "text"
    arguments = ", ".join(f"{name} = {value}" for name, value in words.items())
    library = "#!lua name=l\nlocal text = 'x' for i = 1, 20 do text = text .. text end "
    library += f"redis.register_function{{{arguments}}}"
    assert "of a function is longer than" in talk.words("FUNCTION", "LOAD", library)


def test_a_script_whose_changes_fill_the_memory_gets_an_error(talk, monkeypatch):
    monkeypatch.setattr(limits, "SCRIPT_RECORDED_BYTES_MAX", 5_000_000)
    talk.engine.set_effect_recording(True)
    script = "local s = string.rep('x', 1000000) for i = 1, 100 do redis.call('SET', 'k' .. i, s) end"
    assert "the changes of a script may have at most" in evaluate(talk, script)
    assert talk("DBSIZE") == 5
    assert evaluate(talk, script.replace("100", "3")) is None


def payload(*texts):
    return dump_libraries([text.encode() for text in texts], versions.by_name("compatible"), False)


def library(name, before=""):
    return f"#!lua name={name}\n{before} redis.register_function('{name}', function() return '{name}' end)"


def test_the_libraries_of_one_restore_have_a_limit_together(talk, monkeypatch):
    monkeypatch.setattr(script_runner, "ALL_LIBRARIES_LOAD_MS_MAX", 50)
    slow = [library(f"l{i}", "local i = 0 while i < 1e6 do i = i + 1 end") for i in range(200)]
    assert talk.words("FUNCTION", "RESTORE", payload(*slow)).startswith(
        "-ERR the libraries take more than 50 ms"
    )
    assert talk("FUNCTION LIST") == []
    assert talk.words("FUNCTION", "RESTORE", payload(library("a"), library("b"))) == "OK"
    assert talk("FCALL b 0") == "b"


SLOW_STEPS = [
    "s:find('.-b')",
    "s:gsub('.-b', '')",
    "s:match('a-a-b')",
    "local x = large:find(('a'):rep(20) .. 'b', 1)",
    "local x = large .. 'x'",
    "local x = large:upper()",
    "loadstring('return 1 --' .. large:sub(1, 4e6))",
    "local x = redis.sha1hex(large)",
]


@pytest.mark.parametrize("step", SLOW_STEPS)
def test_a_library_of_few_slow_calls_cannot_run_long_while_it_is_loaded(talk, monkeypatch, step):
    monkeypatch.setattr(script_runner, "LIBRARY_LOAD_MS_MAX", 20)
    steps = []
    monkeypatch.setattr(logging.getLogger("headrace"), "log", lambda *record: steps.append(record))
    before = "local s, large = ('a'):rep(2500), ('a'):rep(3e7) "
    text = library("slow", before + f"do {step} end redis.log(2, 'step') " * 200)
    assert talk.words("FUNCTION", "LOAD", text).startswith("-ERR Error registering functions")
    assert len(steps) < 200
    assert talk.words("FUNCTION", "LOAD", library("fast")) == "fast"


def test_libraries_that_load_slowly_are_loaded_over_several_commands(talk, monkeypatch):
    monkeypatch.setattr(script_runner, "ALL_LIBRARIES_LOAD_MS_MAX", 0)  # one library takes longer
    for i in range(8):
        talk.engine.keyspace.libraries[f"l{i}".encode()] = library(f"l{i}").encode()
    replies = [talk("FCALL l7 0")]
    while replies[-1].startswith("-LOADING"):
        replies.append(talk("FCALL l7 0"))
    assert len(replies) == 8
    assert replies[-1] == "l7"
    assert talk("FCALL nosuch 0") == "-ERR Function not found"


def test_many_libraries_are_listed(talk):
    names = [f"lib{i}" for i in range(300)]
    assert talk.words("FUNCTION", "RESTORE", payload(*map(library, names))) == "OK"
    assert len(talk("FUNCTION LIST")) == 300
    talk("FUNCTION DELETE lib7")
    assert talk("FCALL lib7 0") == "-ERR Function not found"
    assert talk("FCALL lib8 0") == "lib8"


def test_lupa_exports_each_function_that_compiled_code_calls():
    source = pathlib.Path(__file__).parents[2] / "src" / "headrace" / "scripting"
    declarations = (source / "lua.pxd").read_text()
    names = re.findall(r"^        F\([^,]+, (lua\w+), \(", declarations, re.MULTILINE)
    library = ctypes.CDLL(importlib.import_module("lupa.luajit21").__file__)
    assert len(names) > 20
    assert [name for name in names if not hasattr(library, name)] == []
