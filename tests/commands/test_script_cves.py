"""Published holes of Lua 5.1, LuaJIT and Redis's scripts: none is open here. See docs/security-tests.md."""

import importlib
import pathlib
import re

import pytest

pytest.importorskip("lupa.luajit21")

ALIVE = "return {1, 'x', type(redis.call), cjson.encode({1})}"


@pytest.fixture
def run(talk):
    """Return a function that runs a script, then checks that the interpreter still works."""

    def run_script(script, *words):
        reply = talk.words("EVAL", script, *(words or ("0",)))
        assert talk.words("EVAL", ALIVE, "0") == [1, "x", "function", "[1]"]
        return reply

    return run_script


def names(count):
    return ", ".join(f"p{i}" for i in range(count))


def test_cve_2014_5461_many_parameters_and_few_arguments(run):
    script = f"local function f({names(190)}, ...) if not p0 then return f(1) end return 7 end return f()"
    assert run(script) == 7
    assert "stack overflow" in run(f"local function f({names(190)}, ...) return 1 + f(...) end return f()")


BAD_SIZES = ["I2147483648", "i4294967297", "i99999999999999999999", "!99999999999i", "i33", "l0", "c-1"]


@pytest.mark.parametrize("form", BAD_SIZES)
def test_cve_2015_8080_sizes_in_formats_of_struct(run, form):
    assert str(run(f"return struct.pack('{form}', 1)")).startswith("-ERR")
    assert str(run(f"return struct.unpack('{form}', ('x'):rep(64))")).startswith("-ERR")


OFFSETS = ["2147483647", "2^31", "2^32", "2^53", "1e308", "-1", "-2147483648", "0/0"]


@pytest.mark.parametrize("offset", OFFSETS)
def test_cve_2018_11219_offsets_and_sizes_in_struct(run, offset):
    for form in ("I4", "s", "c0", "d", "c2147483647", "xxxxI4"):
        reply = run(f"return {{struct.unpack('{form}', 'abcdefgh', {offset})}}")
        assert isinstance(reply, list) or reply.startswith("-ERR"), (form, reply)
    assert "data string too short" in run("return struct.unpack('I4', 'abcdefgh', 2147483647)")


def test_cve_2018_11218_many_values_in_cmsgpack(run):
    assert "too many results" in run("return #{cmsgpack.unpack(('\\1'):rep(1e6))}").lower()
    assert run("local t = {} for i = 1, 5000 do t[i] = i end return #cmsgpack.pack(unpack(t))") > 5000
    for head in (
        "\\221\\255\\255\\255\\255",
        "\\223\\255\\255\\255\\255",
        "\\219\\255\\255\\255\\255",
        "\\201\\0",
    ):
        assert run(f"return cmsgpack.unpack('{head}')").startswith("-ERR")
    deep = "local s = ('\\145'):rep(1e5) .. '\\1' return type(cmsgpack.unpack(s))"
    assert run(deep) == "table" or run(deep).startswith("-ERR")


def test_cve_2020_24370_and_2019_19391_there_is_no_debug_library(run):
    assert run("return type(rawget(_G, 'debug'))") == "nil"
    assert "nonexistent global variable 'debug'" in run("return debug.getinfo('>', 1)")


def test_cve_2021_32626_values_that_need_a_large_stack(run):
    assert run("local t = {} for i = 1, 7000 do t[i] = 'k' end return redis.call('EXISTS', unpack(t))") == 0
    assert isinstance(run("local t = {} for i = 1, 450 do t = {t} end return t"), list)
    nested = run("local t = {} for i = 1, 20000 do t = {t} end return t")
    assert "reached lua stack limit" in str(nested)
    assert "excessive nesting" in run("local t = {} for i = 1, 20000 do t = {t} end return cjson.encode(t)")
    assert "nested" in run("return cjson.decode(('['):rep(1e5))")
    assert run("local t = {} for i = 1, 20000 do t = {t} end return #cmsgpack.pack(t)") > 0
    loop = "local t = {} t.t, t[1] = t, t return {pcall(cjson.encode, t), #cmsgpack.pack(t)}"
    assert isinstance(run(loop), list)


def test_cve_2022_0543_no_library_can_be_loaded(run):
    for name in (
        "package",
        "require",
        "module",
        "io",
        "os.execute",
        "os.getenv",
        "dofile",
        "loadfile",
        "ffi",
        "jit",
    ):
        assert "-ERR" in run(f"return {name} and 'found' or error('nil')"), name


WRITES = [
    "redis.call = error",
    "redis.sneaky = 1",
    "string.sub = error",
    "cjson.encode = error",
    "bit.band = error",
    "math.floor = error",
    "sneaky = 1",
    "_G.sneaky = 1",
    "_G.redis = nil",
    "rawset(_G, 'redis', 1)",
    "rawset(redis, 'call', 1)",
    "setmetatable(_G, {})",
    "setmetatable(redis, {})",
    "getmetatable(redis).__index = function() return error end",
    "getmetatable(_G).__index = nil",
    "getmetatable('').__index = function() return error end",
    "getmetatable('').__add = function() return 1 end",
    "rawset(getmetatable(''), '__index', nil)",
    "table.insert(redis, 1)",
    "table.sort(redis, function() return true end)",
    "table.remove(_G, 1)",
    "local e = setmetatable({}, getmetatable(_G)) e.x = 1",
]


@pytest.mark.parametrize("write", WRITES)
def test_cve_2022_24735_and_2025_46818_no_script_changes_what_others_find(run, write):
    run(write)  # most are errors; none has an effect on the next script
    check = """return {type(redis.call), ('x'):upper(), cjson.encode({1}), bit.band(3, 1), math.floor(1.5),
        tostring(rawget(_G, 'sneaky')), tostring(rawget(redis, 'sneaky')),
        pcall(function() return 'a' + 1 end)}"""
    reply = run(check)
    assert reply[:7] == ["function", "X", "[1]", 1, 1, "nil", "nil"]
    assert reply[7] is None


@pytest.mark.parametrize(
    "value", ["1", "true", "nil", "print_", "function() end", "coroutine.create(error)", "cjson.null"]
)
def test_cve_2025_46818_basic_types_have_no_metatable_to_change(run, value):
    script = f"local print_ = type local m = getmetatable({value}) return tostring(m)"
    assert run(script) == "nil"


def test_cve_2022_24736_scripts_that_cannot_be_loaded(run, talk):
    for text in ("", " ", "\n", "#", "#!", "#!lua", "\x1bLua", "\x1bLJ\x02", "return", "(", "\x00", "a\x00b"):
        reply = talk.words("SCRIPT", "LOAD", text)
        assert len(reply) == 40 or reply.startswith("-ERR"), text
        run("return loadstring(ARGV[1])", "0", text)
    assert "binary chunk" in run("return select(2, loadstring('\\27Lua'))")


def test_cve_2024_31449_tohex_with_the_smallest_number(run):
    assert run("return bit.tohex(65535, -2147483648)") == "0000FFFF"
    assert run("return bit.tohex(1, 2147483647)") == "00000001"
    assert run("return bit.tohex(43981, -3)") == "BCD"
    assert run("return bit.tohex(43981, 2^32 + 2)") == "cd"
    assert run("return bit.tohex(1, '20')") == "00000001"
    assert "bad argument #1 to 'tohex'" in run("return bit.tohex()")


def test_cve_2024_46981_the_collector_calls_nothing_of_a_script(run, talk):
    script = """local called = 0
    for i = 1, 100 do
        local t = setmetatable({}, {__gc = function() called = called + 1 end, __mode = 'kv'})
        local c = coroutine.create(function() t[1] = c coroutine.yield(t) end) coroutine.resume(c)
    end
    collectgarbage() collectgarbage('stop') collectgarbage('setpause', 0) collectgarbage('step', 1e9)
    return {called, type(rawget(_G, 'newproxy'))}"""
    for _ in range(3):
        assert run(script) == [0, "nil"]
        talk("SCRIPT FLUSH")


UNPACKS = [
    "unpack({}, -2147483648, 2147483647)",
    "unpack({}, 0, 2147483647)",
    "unpack({}, -2147483648, 0)",
    "unpack({}, 1, 1e308)",
    "unpack({}, 2147483647, -2147483648)",
    "unpack({}, 2147483646, 2147483647)",
    "unpack({}, -1/0, 1/0)",
]


@pytest.mark.parametrize("call", UNPACKS)
def test_cve_2025_46817_unpack_of_any_range(run, call):
    reply = run(f"return select('#', {call})")
    assert reply in (0, 1, 2) or "too many results to unpack" in reply


@pytest.mark.parametrize("count", [1, 100, 70_000, 3_000_000])
def test_cve_2025_46819_delimiters_of_long_strings(run, count):
    level = "=" * min(count, 70_000)
    assert run(f"return #[{level}[x]{level}]") == 1
    for text in ("return [{}", "return [{}x", "--[{}", "return [{}[", "return [{}[x]{}"):
        script = "local e = ('='):rep(tonumber(ARGV[1])) return type(loadstring((ARGV[2]:gsub('{}', e))))"
        assert run(script, "0", str(count), text) in ("nil", "function")


def test_cve_2025_49844_names_of_chunks_are_kept_while_they_are_compiled(run):
    script = """local seen = {}
    for i = 1, 300 do
        local items = ('{1, "y" .. 2},'):rep(i)
        local text = 'local a, b = "' .. ('x'):rep(i) .. i .. '", {' .. items .. '} error(a)'
        local f = loadstring(text, '@name' .. i)
        collectgarbage('step')
        local ok, e = pcall(f)
        if not e:find('name' .. i .. ':1:', 1, true) then return e end
    end
    return 'same'"""
    assert run(script) == "same"


ERRORS_IN_HANDLERS = [
    "local function f() error('x') end return {xpcall(f, f)}",
    "local function h() return h() + 1 end return {xpcall(error, h)}",
    "local function f() return f() + 1 end return {xpcall(f, function(e) return f() end)}",
    "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k + 1] end return t[1]",
    "local s = ('x'):rep(100) local function f() return (s:gsub('.', f)) end return {xpcall(f, f)}",
    "return {xpcall(coroutine.wrap(function() error({}) end), coroutine.wrap(function() error('x') end))}",
    "local t = setmetatable({}, {__concat = function(a, b) return a .. b end}) return t .. t",
    "local function f(...) return f(1, ...) end return f()",
]


@pytest.mark.parametrize("script", ERRORS_IN_HANDLERS)
def test_cve_2020_15890_2020_24372_2024_25178_errors_in_handlers_of_errors(run, script):
    assert run(script) is not None


def test_cve_2024_25176_formats_of_numbers(run):
    for form in (
        "%.99f",
        "%99.99f",
        "%.99g",
        "%#.99g",
        "%+099.99e",
        "%.14g",
        "%99.99a",
        "%.0a",
        "%#.0f",
        "%.99E",
    ):
        for number in (
            "1e308",
            "-1e308",
            "5e-324",
            "0",
            "-0",
            "1/0",
            "0/0",
            "123456789.123",
            "2^-1074",
            "0.1",
        ):
            assert 0 < run(f"return #('{form}'):format({number})") < 500, (form, number)
    assert run("return ('%.99f'):format(0.5)") == "0.5" + "0" * 98
    assert run("return ('%.30g'):format(100)") == "100"
    assert run("return ('%#.7g'):format(7.922816251426434e+28)") == "7.922816e+28"


def test_cve_2024_25177_nothing_is_compiled_to_machine_code(run, talk):
    talk.engine.keyspace.settings.busy_reply_threshold = 30
    loop = "local t = setmetatable({}, {}) for i = 1, 1e12 do setmetatable(t, nil) t.x = i end return 1"
    assert "was ended after" in run(loop)  # a compiled loop would never call the hook


def test_luajit_is_newer_than_the_fixes():
    """Its version is the time of its last change: the latest of these fixes is of 2024."""
    text = pathlib.Path(importlib.import_module("lupa.luajit21").__file__).read_bytes()
    assert int(re.findall(rb"LuaJIT 2\.1\.(\d{10})", text)[0]) > 1_735_000_000
