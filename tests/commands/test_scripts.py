"""Scripts in Lua: replies, errors with Redis's texts, effects, limits, and the sandbox."""

import hashlib
import logging

import pytest

from headrace import limits
from headrace.engine.clock import SettableClock

pytest.importorskip("lupa.luajit21")


def where(script, line=1):
    return f" script: {hashlib.sha1(script.encode()).hexdigest()}, on @user_script:{line}."


def evaluate(talk, script, *words):
    return talk.words("EVAL", script, *(words or ("0",)))


REPLIES = [
    ("return 1", 1),
    ("return 3.99", 3),
    ("return -3.99", -3),
    ("return 'x'", "x"),
    ("return true", 1),
    ("return false", None),
    ("return nil", None),
    ("return {1,2,nil,4}", [1, 2]),
    ("return {1,{2,{3}},'x',true,false}", [1, [2, [3]], "x", 1, None]),
    ("return {ok='fine'}", "fine"),
    ("return {err='MY error'}", "-MY error"),
    ("return redis.error_reply('x')", "-ERR x"),
    ("return redis.error_reply('-x y')", "-x y"),
    ("return redis.error_reply('MY x')", "-MY x"),
    ("return redis.status_reply('x')", "x"),
    ("return 1e19", -(2**63)),
    ("return {double=3.5}", "3.5"),
    ("return redis.sha1hex('a')", "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"),
    ("return redis.call('get','nokey') == false", 1),
    ("redis.setresp(3) return redis.call('get','nokey') == nil", 1),
    ("redis.call('set','k',3.1) return redis.call('get','k')", "3.1"),
    ("redis.call('set','k',12345678901234567) return redis.call('get','k')", "12345678901234568"),
    ("return {pcall(redis.call,'nosuch')}", [None, "ERR Unknown Redis command called from script"]),
    ("return redis.pcall('nosuch').err", "ERR Unknown Redis command called from script"),
    ("return redis.call('xread','block','0','streams','s','$')", None),
    ("return {KEYS[1], ARGV[1], ARGV[2]}", []),
]


@pytest.mark.parametrize(("script", "reply"), REPLIES)
def test_values_become_replies(talk, script, reply):
    assert evaluate(talk, script) == reply


ERRORS = [
    ("return foo", "ERR user_script:1: Script attempted to access nonexistent global variable 'foo'"),
    ("foo = 1", "ERR user_script:1: Attempt to modify a readonly table"),
    ("string.foo = 1", "ERR user_script:1: Attempt to modify a readonly table"),
    ("rawset(_G, 'x', 1)", "ERR Attempt to modify a readonly table"),
    ("setmetatable(_G, {})", "ERR Attempt to modify a readonly table"),
    ("table.insert(_G, 1)", "ERR Attempt to modify a readonly table"),
    ("error('x')", "ERR user_script:1: x"),
    ("error({err='MY x'})", "MY x"),
    ("error({})", "ERR unknown error"),
    ("error(nil)", "ERR nil"),
    ("return redis.call('nosuch')", "ERR Unknown Redis command called from script"),
    ("return redis.call('get')", "ERR Wrong number of args calling Redis command from script"),
    ("return redis.call()", "ERR Please specify at least one argument for this redis lib call"),
    ("return redis.call({})", "ERR Lua redis lib command arguments must be strings or integers"),
    ("return redis.call('eval','return 1','0')", "ERR This Redis command is not allowed from script"),
    ("return redis.call('multi')", "ERR This Redis command is not allowed from script"),
    (
        "return string.find(nil,'x')",
        "ERR user_script:1: bad argument #1 to 'find' (string expected, got nil)",
    ),
    ("local a; return a.b", "ERR user_script:1: attempt to index local 'a' (a nil value)"),
    ("return redis.setresp(4)", "ERR RESP version must be 2 or 3."),
    ("local function f() return f() + 1 end return f()", "ERR user_script:1: stack overflow"),
    (
        "#!lua flags=no-writes\nreturn redis.call('set','k','v')",
        "ERR Write commands are not allowed from read-only scripts.",
    ),
]


@pytest.mark.parametrize(("script", "error"), ERRORS)
def test_errors_name_the_script_and_the_line(talk, script, error):
    assert evaluate(talk, script) == "-" + error + where(script, script.count("\n") + 1)


REJECTED = [
    ("return (", "ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'"),
    ("#!lua flags=bad\nreturn 1", "ERR Unexpected flag in script shebang: bad"),
    ("#!lua x=y\nreturn 1", "ERR Unknown lua shebang option: x=y"),
    ("#!js\nreturn 1", "ERR Unexpected engine in script shebang: #!js"),
    ("#!lua", "ERR Invalid script shebang"),
]


@pytest.mark.parametrize(("script", "error"), REJECTED)
def test_a_script_that_cannot_be_compiled_is_rejected(talk, script, error):
    assert evaluate(talk, script) == "-" + error


def test_keys_and_arguments_are_tables(talk):
    assert evaluate(talk, "return {KEYS[2], ARGV[1], #KEYS, #ARGV}", "2", "a", "b", "c") == ["b", "c", 2, 1]
    assert evaluate(talk, "return #ARGV", "0", *"x" * 20000) == 20000


def test_a_monitor_sees_the_commands_of_a_script_as_those_of_lua(talk):
    assert talk("MONITOR", client="m") == "OK"
    evaluate(talk, "return redis.call('set', KEYS[1], 'v')", "1", "k")
    shown = talk.clients["m"].reply.take()
    assert shown.index(b'"EVAL"') < shown.index(b' [0 lua] "set" "k" "v"\r\n')
    assert shown.count(b"\r\n") == 2


def test_the_effects_of_a_script_are_one_transaction(talk):
    evaluate(talk, "redis.call('set','a',1) redis.call('set','b',2) return redis.call('get','a')")
    assert talk.effects() == ["MULTI", "set a 1", "set b 2", "EXEC"]
    evaluate(talk, "redis.call('set','a',1) error('late')")
    assert talk.effects() == ["set a 1"]
    for line in ("MULTI", "SET x 1"):
        talk(line)
    talk.words("EVAL", "redis.call('set','a',1) redis.call('set','b',2)", "0")
    talk("EXEC")
    assert talk.effects() == ["MULTI", "SET x 1", "set a 1", "set b 2", "EXEC"]


def test_effects_are_not_recorded_after_set_repl_none(talk):
    script = "redis.set_repl(redis.REPL_NONE) redis.call('set','a',1) redis.set_repl(redis.REPL_ALL)"
    evaluate(talk, script + " redis.call('set','b',1)")
    assert talk.effects() == ["set b 1"]


def test_a_selected_database_is_forgotten(talk):
    evaluate(talk, "redis.call('select','1') redis.call('set','k','1')")
    assert talk("GET k") is None
    talk("SELECT 1")
    assert talk("GET k") == "1"


def test_blocked_clients_are_served_after_the_script(talk):
    talk("XREAD BLOCK 0 STREAMS s $", client="b")
    evaluate(talk, "redis.call('xadd','s','1-1','a','b') redis.call('xadd','s','1-2','a','b')")
    assert talk.heard("b") == [["s", [["1-1", ["a", "b"]], ["1-2", ["a", "b"]]]]]


def test_read_only_forms_reject_writes(talk):
    script = "return redis.call('set','k','v')"
    assert talk.words(
        "EVAL_RO", script, "0"
    ) == "-ERR Write commands are not allowed from read-only scripts." + where(script)
    assert talk.words("EVAL_RO", "return 1", "0") == 1
    declared = "#!lua\nreturn 1"
    assert (
        talk.words("EVAL_RO", declared, "0")
        == "-ERR Can not execute a script with write flag using *_ro command."
    )


def test_loaded_scripts_run_by_their_digest(talk):
    digest = talk.words("SCRIPT", "LOAD", "return ARGV[1]")
    assert talk.words("EVALSHA", digest.upper(), "0", "x") == "x"
    assert talk.words("EVALSHA_RO", digest, "0", "y") == "y"
    assert talk.words("SCRIPT", "EXISTS", digest, "f" * 40) == [1, 0]
    assert talk.words("SCRIPT", "FLUSH") == "OK"
    assert talk.words("EVALSHA", digest, "0", "x") == "-NOSCRIPT No matching script. Please use EVAL."
    assert talk.words("SCRIPT", "KILL") == "-NOTBUSY No scripts in execution right now."


FAILURES = [
    ("return redis.call('incr','k')", 1, 1),
    ("return redis.pcall('incr','k')", 1, 1),
    ("redis.pcall('incr','k')", 1, 0),
    ("error('x')", 1, 1),
    ("return redis.error_reply('ERR x')", 1, 1),
    ("error({err='ERR x'})", 1, 1),
    ("return 1", 0, 0),
]


@pytest.mark.parametrize(("script", "errors", "failures"), FAILURES)
def test_an_error_of_a_script_is_counted_once(talk, script, errors, failures):
    talk("SET k v")
    evaluate(talk, script)
    assert talk.engine.stats.errors_by_code.get(b"ERR", 0) == talk.engine.stats.error_reply_count == errors
    assert talk.engine.rows_by_full_name[b"eval"].failed_calls == failures


def test_the_time_of_a_script_is_not_that_of_its_commands(talk, monkeypatch):
    clock = SettableClock(1000)
    talk.engine.timing.use_clock(clock)
    talk.engine.keyspace.settings.latency_tracking = True
    talk.engine.timing.refresh()
    monkeypatch.setattr(logging.getLogger("headrace"), "log", lambda *record: clock.advance(5))
    evaluate(talk, "redis.log(2, 'takes 5 ms') return redis.call('get', 'k')")
    assert talk.engine.rows_by_full_name[b"get"].total_ns == 0
    assert talk.engine.rows_by_full_name[b"eval"].total_ns == 5_000_000


def test_a_script_writes_a_kilobyte_to_the_log_at_most(talk, caplog):
    evaluate(talk, "redis.log(redis.LOG_WARNING, string.rep('x', 3000000))")
    assert caplog.messages == ["x" * 1024]


def test_each_call_has_the_permissions_of_the_user(talk):
    talk.engine.auth.begin_session(talk.engine.create_session())
    talk("ACL SETUSER bob on nopass ~a* +eval +get +set")
    talk("PING", client="bob")
    talk.engine.auth.begin_session(talk.clients["bob"])
    talk("AUTH bob x", client="bob")
    script = "return redis.call('set', KEYS[1], 'v')"
    assert talk.words("EVAL", script, "1", "a1", client="bob") == "OK"
    hidden = "return redis.call('set', 'b', 'v')"
    assert talk.words("EVAL", hidden, "0", client="bob").startswith("-ERR ACL failure in script: ")
    assert talk.words("EVAL", "return redis.acl_check_cmd('set','b','v')", "0", client="bob") is None
    assert talk.words("EVAL", "return redis.call('del', 'a1')", "0", client="bob").startswith(
        "-ERR ACL failure"
    )
    assert talk("EXISTS a1 b") == 1


def test_a_client_tracks_the_keys_that_its_script_reads(talk):
    talk("HELLO 3", client="b")
    talk("CLIENT TRACKING ON", client="b")
    talk.words("EVAL", "return redis.call('get','k')", "1", "k", client="b")
    talk("SET k v")
    assert b"invalidate" in talk.clients["b"].reply.take()


def test_a_script_that_only_reads_has_only_the_keys_of_its_commands_tracked(talk):
    talk("HELLO 3", client="b")
    talk("CLIENT TRACKING ON", client="b")
    talk.words("EVAL_RO", "return redis.call('get',KEYS[1])", "2", "k", "unread", client="b")
    talk("SET unread v")
    assert b"invalidate" not in talk.clients["b"].reply.take()
    talk("SET k v")
    assert b"invalidate" in talk.clients["b"].reply.take()


# The sandbox.

MISSING = """
    debug io package require module dofile loadfile newproxy getfenv setfenv print python string.dump os.time
    os.execute
"""


@pytest.mark.parametrize("name", MISSING.split())
def test_what_could_leave_the_sandbox_is_missing(talk, name):
    root, _, field = name.partition(".")
    check = (
        f"return type({root}.{field})" if field else f"return select(2, pcall(function() return {root} end))"
    )
    assert evaluate(talk, check) in (
        "nil",
        f"user_script:1: Script attempted to access nonexistent global variable '{name}'",
    )


ESCAPES = [
    "return loadstring(string.char(27) .. 'Lua')",
    "local n = 0 return load(function() n = n + 1 return ({string.char(27), 'Lua'})[n] end)",
    "return pcall(function() getmetatable('').__index.upper = 1 end)",
    "return pcall(function() getmetatable(_G).__index.redis = 1 end)",
    "return pcall(setmetatable, string, {})",
    "return pcall(table.sort, redis)",
    "return pcall(function() getmetatable(_G).x = 1 end)",
    "return pcall(function() getmetatable(redis).x = 1 end)",
    "return pcall(rawset, getmetatable(string), 'x', 1)",
]


@pytest.mark.parametrize("script", ESCAPES)
def test_an_attempt_to_leave_the_sandbox_fails(talk, script):
    assert evaluate(talk, script) is None
    assert evaluate(talk, "return ('x'):upper() .. type(redis.call)") == "Xfunction"


NOT_A_NUMBER = [
    "return {pcall(redis.log, 0/0, 'x')}",
    "return {pcall(redis.set_repl, 0/0)}",
    "return {pcall(string.find, ('a'):rep(20000), ('b'):rep(2000), 0/0, true)}",
    "return {pcall(string.find, ('a'):rep(20000), ('b'):rep(2000), 1/0, true)}",
]


@pytest.mark.parametrize("script", NOT_A_NUMBER)
def test_an_argument_that_is_no_number_raises_no_error_of_python(talk, script):
    assert "cannot convert" not in str(evaluate(talk, script))


ENDLESS = [
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "return coroutine.wrap(function() while true do end end)()",
    "while true do local t = coroutine.create(function() while true do end end) coroutine.resume(t) end",
    "return xpcall(function() while true do end end, function() while true do end end)",
    "return string.find(string.rep('a', 5000), string.rep('.-', 6) .. 'b')",
    "return (string.gsub(string.rep('a', 50000), '.-b', ''))",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end})"
    " while true do pcall(function() return t[1] end) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end",
    "return load(function() return ' ' end)",
    "return string.find(('a'):rep(16), ('.-'):rep(31) .. 'x')",
    "for _ in string.gmatch(('^'):rep(1e6), '^.*x') do end",
    "table.insert({}, -1e15, 1)",
]


@pytest.mark.parametrize("script", ENDLESS)
def test_a_script_without_end_is_ended(talk, script):
    talk.engine.keyspace.settings.busy_reply_threshold = 50
    reply = evaluate(talk, script)
    assert reply.startswith("-ERR the script was ended after ") or "not enough memory" in reply
    assert evaluate(talk, "return 1") == 1


GREEDY = [
    "return string.rep('x', 1e9)",
    "local t = {} for i = 1, 1e9 do t[i] = {} end",
    "local s = 'x' while true do s = s .. s end",
    "local s = string.rep('x', 1e7) local t = {} while true do t[#t + 1] = s .. #t end",
    "local t = {} while true do pcall(function() while true do t[#t + 1] = ('x'):rep(1e5) .. #t end end) end",
    "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
    "local t = {} for i = 1, 1e7 do t[i] = 'v' .. i end return redis.call('set', 'k', table.concat(t))",
]


@pytest.mark.parametrize("script", GREEDY)
def test_a_script_that_takes_too_much_memory_is_ended(talk, script, monkeypatch):
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_BYTES_MAX", 16 << 20)
    monkeypatch.setattr(limits, "SCRIPT_MEMORY_MARGIN_BYTES", 16 << 20)
    talk.engine.keyspace.settings.busy_reply_threshold = 0
    assert "not enough memory" in evaluate(talk, script)
    assert evaluate(talk, "return 1") == 1


def test_pattern_functions_agree_with_those_of_lua_when_they_are_interruptible(talk):
    """A long subject takes the slow matcher, a short one the library's."""
    script = """
    local pad = string.rep(' ', 4000)
    local out = {}
    local patterns = {'(%w+)=(%w+)', 'x(.-)y', '%b()', '%f[%w]%w+', '()b()', '[a-c]+', '(a*)b?', '^%s*a'}
    for _, p in ipairs(patterns) do
        for _, s in ipairs({'key=value', 'xaaay', '(a(b)c)', 'one two', 'aab', 'zabcz', 'aaab', 'a'}) do
            local short = {string.find(s, p)}
            local long = {string.find(s .. pad, p .. string.rep('Z?', 4))}
            for i, v in ipairs(short) do
                if long[i] ~= v then out[#out + 1] = {p, s, tostring(v), tostring(long[i])} end
            end
        end
    end
    return out
    """
    assert evaluate(talk, script) == []


SLOW_PATTERNS = [
    ("select(2, pcall(string.gsub, s, '(k)(Z?Z?Z?)', '%3'))", "user_script:1: invalid capture index"),
    ("s:find('$Z?Z?Z?Z?', 1e6)", None),
    ("s:find('$', 1e6)", 4004),
    ("s:match('.-.-.-$', 1e6)", ""),
    ("s:gmatch('^.-.-.-k')()", "^k"),
]


@pytest.mark.parametrize(("call", "result"), SLOW_PATTERNS)
def test_the_slow_pattern_functions_have_the_limits_of_those_of_lua(talk, call, result):
    prepare = "local s = '^k' .. (' '):rep(4000) .. 'x' "
    assert evaluate(talk, prepare + "return " + call) == result


def test_the_files_of_the_package_are_not_read_again(talk, monkeypatch):
    """An upgrade replaces them under a running server, and the new ones do not fit its modules."""

    def read(*_):
        raise OSError("the package is being upgraded")

    assert talk.words("EVAL", "return redis.call('INCR', 'k')", "0") == 1
    monkeypatch.setattr("pkgutil.get_data", read)
    monkeypatch.setattr("pathlib.Path.read_bytes", read)
    talk("SCRIPT FLUSH")
    assert talk.words("EVAL", "return redis.call('INCR', 'k')", "0") == 2


JSON_TEXTS = [
    '{"a": 1, "b\\n": [1, 2.5, -0.1, 1e3, -0, 123456789012345678], "c": {}, "d": [], "e": null}',
    "[null, true, false]",
    ' [ "\\u00e9\\ud83d\\ude00\\/", "a\\tb", "\x01", "" ] ',
    "[[[[[[[[[[1]]]]]]]]]]",
    "[" * 150 + "]" * 150,
    '{"a":1,"a":2}',
    "[1,2,]",
    "[01]",
    "[1.]",
    "[-]",
    "[0x10]",
    "[nan, -Infinity]",
    '{"a" 1}',
    "{1:2}",
    '["\\ud800"]',
    '["\\x"]',
    '["open',
    "[1] 2",
    "tru",
    "",
    "[0." + "1" * 30 + ", 1e308, 5e-324, 999999999999999, 9999999999999999]",
]


@pytest.mark.parametrize("text", JSON_TEXTS)
def test_json_in_c_is_the_same_as_in_lua(talk, text):
    in_c, in_lua = (
        f"""{setting} local ok, value = pcall(cjson.decode, ARGV[1])
        if not ok then return value end
        return {{pcall(cjson.encode, value)}}"""
        for setting in ("", "cjson.encode_max_depth(1000)")  # after a setting, Lua does all
    )
    assert evaluate(talk, in_c, "0", text) == evaluate(talk, in_lua, "0", text)


JSON_VALUES = [
    "{1, 2, nil, 4}",
    "{[1] = 1, [12] = 2}",
    "{[1] = 1, [1000] = 2}",
    "{[1.5] = 1}",
    "{[true] = 1}",
    "{[-1] = 'x'}",
    "{a = 0/0}",
    "{1/0}",
    "function() end",
    "setmetatable({}, {__index = function(t, i) return i end})",
    "redis",
    "cjson.null",
    "{-0, 0.1, 1e14, 1e15, 123456.789, 1e-7, 100000000000000}",
    "'\\0\\31\\127\\200/'",
]


@pytest.mark.parametrize("value", JSON_VALUES)
def test_values_are_the_same_in_json_of_c_and_of_lua(talk, value):
    in_c, in_lua = (
        f"{setting} return {{pcall(cjson.encode, {value})}}"
        for setting in ("", "cjson.encode_max_depth(1000)")
    )
    assert evaluate(talk, in_c) == evaluate(talk, in_lua)
