"""Scripts in Lua answer a real redis-server's bytes: fixed ones, those of libraries, random ones."""

from __future__ import annotations

import random

import pytest
from redis.lock import Lock

from conformance import seeds

pytest.importorskip("lupa.luajit21")

SETUP = [
    "FLUSHALL",
    "SCRIPT FLUSH",
    "FUNCTION FLUSH",
    "XADD s 1-1 f v",
    "XADD s 2-1 f w",
    "XGROUP CREATE s g 0",
    "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
    "SET k v",
]
STATE = [
    "XRANGE s - +",
    "XPENDING s g",
    "XINFO CONSUMERS s none",
    "GET k",
    "XRANGE t - +",
    "DUMP k",  # but not of s, whose consumers have times
    "DUMP t",
]  # lags differ from 7.0


@pytest.fixture(params=[2, 3])
def ask(peer, request):
    """Sends the words of a request to both servers, which must answer the same."""
    both = peer.both(request.param)
    yield lambda *words: both.say("A", [w if isinstance(w, bytes) else str(w).encode() for w in words])
    both.close()


def prepare(ask):
    for line in SETUP:
        ask(*line.split())


def compare_state(ask):
    for line in STATE:
        ask(*line.split())


SCRIPTS = """
return KEYS
return ARGV[1]
KEYS[1]='z' return KEYS
KEYS=1
return foo
foo=1
_G.foo=1
string.foo=1
redis.foo=1
rawset(_G,'foo',1)
setmetatable(_G,{})
table.insert(_G,1)
getmetatable('').__index=1
return {1,2,nil,4}
return {1,{2,{3}},'x',true,false}
return {err='My'}
return {ok='fine'}
return {double=3.5}
return {big_number='123'}
return {map={a=1}}
return {set={a=true}}
return {verbatim_string={format='txt',string='abc'}}
return 3.99
return -3.99
return 2^53
return 1e19
return -1e19
return 0/0
return function() end
return redis
return unpack({1,2,3})
return '\\q\\.\\x41\\z \\
b'
local function f(a,...) return {arg.n, arg[1]} end return f(1,2,3)
local function f(...) local function g() return arg[2] end return g() end return f(1,2,3)
local function f(...) if true then return select('#',...) end end return f(arg1, 2, 3)
return math.mod(7,3)
return math.log(8,2) == math.log(8)
return table.getn({1,2})
return table.setn({},1)
local r='' for k in string.gfind('abc','%w') do r=r..k end return r
return 42LL
return {loadstring('return 3i')}
return 0x10 + 1e1 + .5
return ('x'):rep('3')
return string.rep('x',-1)
local t={1,2,3} table.insert(t,'2',9) return t
local t={1,2,3} return table.remove(t,'1')
local t={3,'a',2} table.sort(t) return t
local t={3,1,2} table.sort(t,5) return t
return string.format('%d','x')
return string.gsub('abc','%w',function(a) return a..a end)
return bit.tohex(255,-4)
return bit.band('x',3)
return bit.tobit(2^32+5)
local function f() local function g() error('in g') end
return g() end
return f()
return select('#')
return redis.error_reply('x')
return redis.error_reply('ERR x y')
return redis.error_reply('-x y')
return redis.error_reply('')
return redis.error_reply(1,2)
return redis.status_reply('x')
return redis.status_reply({})
return redis.sha1hex('a')
return redis.sha1hex(1)
return redis.sha1hex()
return redis.log(1)
return redis.log('x','y')
return redis.setresp(4)
return redis.setresp()
return redis.set_repl(77)
return redis.replicate_commands()
return redis.breakpoint()
return redis.acl_check_cmd('get','x')
return redis.acl_check_cmd('nosuch','x')
return redis.acl_check_cmd()
return redis.register_function('f',function() end)
return redis.call('nosuch')
return redis.call('get')
return redis.call()
return redis.call({})
return redis.call('get',nil)
return redis.pcall('nosuch')
return redis.call('eval','return 1',0)
return redis.call('multi')
return redis.call('subscribe','x')
return redis.call('xadd','k','*','a','b')
return redis.pcall('xadd','k','*','a','b')
return redis.pcall('xadd','k','*','a','b').err
return {pcall(redis.call,'xadd','k','*','a','b')}
return {pcall(redis.call,'nosuch')}
return {pcall(error,'x')}
return {pcall(function() return foo end)}
return {pcall(function() local a=nil; return a.b end)}
return {xpcall(function() error('x') end, function(e) return 'H'..e end)}
return {coroutine.resume(coroutine.create(function() error('x') end))}
return {coroutine.resume(coroutine.create(function(a) local b = coroutine.yield(a) return b end), 1)}
error('boom')
error('boom',0)
error('boom',2)
error({err='MY boom'})
error(nil)
error(12)
local a = nil; return a.b
return 1+{}
return #nil
return nil..'x'
syntax error here
return (
return string.find(nil,'x')
return ('x'):find('[a')
return ('aaa'):gsub('a', 'b', 'c')
return string.format('%d', 'x')
return string.rep('ab', 3)
return table.concat({1,{}})
return pairs(nil)
return setmetatable(1,2)
return tonumber('0x10')
return tostring(1e15)
return {math.floor(3.7), math.max(1,5,3), tostring(math.pi)}
return loadstring('return 5')()
return loadstring('return (')
local function f() return f() + 1 end return f()
redis.setresp(3) return redis.call('get','nokey')==nil
redis.setresp(3) return redis.call('get','nokey')
return redis.call('get','nokey')==false
redis.setresp(3) return type(redis.call('xread','streams','s','0').map)
return redis.call('xread','streams','s','0')
return redis.call('PING').ok
redis.call('select','1') redis.call('set','dbk','1') return redis.call('get','dbk')
return redis.call('get','dbk')
redis.call('set','k',12345678901234567) return redis.call('get','k')
redis.call('set','k',10) return redis.call('incrby','k',-3)
return {bit.band(0xff,0x0f),bit.tohex(255),bit.bnot(0),bit.rol(1,33),bit.bswap(1),bit.tohex(-1,4)}
return {bit.tohex(255,-4), bit.arshift(-256, 4), bit.ror(1, 1), bit.bxor(1,3,7), bit.tobit(2^32+5)}
return bit.band('x')
return cjson.encode({1,2,{a=1.5},'x',cjson.null,true})
return cjson.encode({[1]=1,[5]=2})
return cjson.encode({[1]=1,[50]=2})
return {cjson.encode({}), cjson.encode(1/3), cjson.encode(1e15), cjson.encode('a/b"\\\\\\n\\1')}
return cjson.encode(function() end)
return cjson.encode(0/0)
return cjson.decode('{')
return cjson.decode('[1,2')
return cjson.decode('[1,{"a":[true,false,"\\\\u00e9x"]},-2.5e3]')
return cjson.decode('nope')
return cjson.decode('[1] x')
return cjson.encode(cjson.decode('{"a":{"b":[1,2,{"c":null}]}}'))
return cmsgpack.pack(1,-1,300,70000,1.5,'x',{1,2},{a=1},true,nil)
return {cmsgpack.unpack(cmsgpack.pack(1,-1,-200,300,70000,5000000000,'x',{1,2,{3}},true,false))}
return cmsgpack.unpack(string.char(0xd9))
return cmsgpack.pack({[1]=1,[2]=2,[3]={}}, string.rep('x', 40))
return struct.pack('>I2i4hbs', 1,2,3,4,'x')
return struct.pack('<I2 !4 i4 d', 1,2,3)
return {struct.unpack('>I2i4hbs', struct.pack('>I2i4hbs', 1,-2,-3,4,'x'))}
return struct.unpack('>I2', 'a')
return {struct.size('>I2i4hb'), struct.size('!8 b d')}
return struct.pack('q')
""".strip().splitlines()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_answers_the_same(ask, script):
    prepare(ask)
    ask("EVAL", script, 1, "key1", "arg1")
    compare_state(ask)


def test_a_declared_script_answers_the_same(ask):
    prepare(ask)
    for text in (
        "#!lua\nreturn 1",
        "#!lua flags=no-writes\nreturn redis.call('set','k','w')",
        "#!lua flags=no-writes,allow-stale,allow-oom\nreturn redis.call('get','k')",
        "#!lua flags=\nreturn 1",
        "#!lua flags=bad\nreturn 1",
        "#!lua foo=bar\nreturn 1",
        "#!js\nreturn 1",
        "#!lua",
        "#!lua\n\n\nerror('line 4')",
    ):
        ask("EVAL", text, 0)
        ask("EVAL_RO", text, 0)
        ask("SCRIPT", "LOAD", text)


def test_scripts_of_libraries_answer_the_same(ask):
    """redis-py's Lock, and scripts that take a lock and add, or acknowledge and delete."""
    prepare(ask)
    ask("SET", "lock", "token", "PX", 10**9)
    for text, keys, args in (
        (Lock.LUA_RELEASE_SCRIPT, ["lock"], ["other"]),
        (Lock.LUA_EXTEND_SCRIPT, ["lock"], ["token", 10, 0]),
        (Lock.LUA_REACQUIRE_SCRIPT, ["lock"], ["token", 10**9]),
        (Lock.LUA_RELEASE_SCRIPT, ["lock"], ["token"]),
        (Lock.LUA_RELEASE_SCRIPT, ["k"], []),
        (ADD_ONCE, ["s", "once"], ["9-1", "id"]),
        (ADD_ONCE, ["s", "once"], ["9-2", "id"]),
        (ACK_AND_DELETE, ["s"], ["g", "1-1", "9-9"]),
        (ACK_AND_DELETE, ["s"], ["g", "1-1"]),
        (ACK_AND_DELETE, ["s"], ["none", "9-1"]),
    ):
        ask("EVAL", text, len(keys), *keys, *args)
        compare_state(ask)


ADD_ONCE = """
if redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', 1000000) then
    return redis.call('XADD', KEYS[1], ARGV[1], 'job', ARGV[2])
end
return false
"""
ACK_AND_DELETE = """
local ids = {unpack(ARGV, 2)}
local acked = redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
if acked > 0 then redis.call('XDEL', KEYS[1], unpack(ids)) end
return {acked, redis.call('XLEN', KEYS[1])}
"""

LIBRARY = """#!lua name=mylib
local n = 0
redis.register_function('inc', function(keys, args) n = n + 1 return {n, keys, args} end)
redis.register_function{function_name='ro', callback=function(keys, args)
    return redis.call('get', keys[1]) end, flags={'no-writes'}, description='reads'}
redis.register_function{function_name='bad', callback=function(keys, args)
    return redis.call('set', keys[1], 1) end, flags={'no-writes', 'allow-stale'}}
redis.register_function('wr', function(keys, args) return redis.call('xadd', keys[1], args[1], 'a', 'b') end)
redis.register_function('er', function(keys, args) return foo end)
redis.register_function('er2', function(keys, args) x = 1 end)
redis.register_function('er3', function(keys, args) return KEYS end)
redis.register_function('er4', function(keys, args)
    return redis.call('nosuch') end)
"""
REGISTER = """
redis.register_function()
redis.register_function('f')
redis.register_function('f',1)
redis.register_function('f-x',function() end)
redis.register_function('f',function() end) redis.register_function('f',function() end)
redis.register_function{}
redis.register_function{function_name='f'}
redis.register_function{function_name='f',callback=1}
redis.register_function{function_name='f',callback=function() end,flags={'bad'}}
redis.register_function{function_name='f',callback=function() end,flags='x'}
redis.register_function{function_name='f',callback=function() end,zz=1}
x = 1
return foo
error('x')
redis.call('ping')
return 1
x =
""".strip().splitlines()


def test_libraries_are_loaded_with_the_same_replies(ask):
    prepare(ask)
    for first in (
        "return 1",
        "#!lua\nx",
        "#!lua name=\nx",
        "#!js name=x\nx",
        "#!lua name=a-b\nx",
        "#!lua name=x",
    ):
        ask("FUNCTION", "LOAD", first)
    ask("FUNCTION", "LOAD", "#!lua name=x a=1\nx")
    ask("FUNCTION", "LOAD", "#!lua name=x name=y\nx")
    for body in REGISTER:
        ask("FUNCTION", "LOAD", "#!lua name=mylib\n" + body)
        ask("FUNCTION", "LIST")


def test_functions_answer_the_same(ask):
    prepare(ask)
    for words in (["LOAD", LIBRARY], ["LOAD", LIBRARY], ["LOAD", "REPLACE", LIBRARY], ["LOAD", "X", LIBRARY]):
        ask("FUNCTION", *words)
    ask("FUNCTION", "LOAD", "#!lua name=other\nredis.register_function('INC', function() end)")
    ask("FUNCTION", "STATS")
    for command in ("FCALL", "FCALL_RO"):
        for name in ("inc", "INC", "ro", "bad", "er", "er2", "er3", "er4", "nosuch"):
            ask(command, name, 1, "k", "a", "b")
        ask(command, "wr", 1, "s", "7-1" if command == "FCALL" else "8-1")
        for count in ("x", 3, -1):
            ask(command, "inc", count, "a")
    compare_state(ask)
    for words in (
        ["LIST", "LIBRARYNAME", "x*"],
        ["LIST", "foo"],
        ["DELETE", "none"],
        ["KILL"],
        ["FLUSH", "X"],
    ):
        ask("FUNCTION", *words)
    ask("FUNCTION", "RESTORE", "x")
    ask("FUNCTION", "DELETE", "mylib")
    ask("FCALL", "inc", 0)


def statement(pick: random.Random) -> str:
    """A call of a command, by call or pcall, whose reply is kept."""
    entry = f"{pick.randint(1, 6)}-{pick.randint(1, 2)}"
    words = pick.choice(
        [
            ["xadd", pick.choice("stk"), entry, "f", pick.choice(["v", 7, "x" * 40])],
            ["xadd", "s", "MAXLEN", 2, entry, "f", "v"],
            ["set", "k", pick.randint(0, 99), *pick.choice([[], ["NX"], ["XX"], ["GET"]])],
            ["incrby", "k", pick.randint(-5, 5)],
            ["get", pick.choice("kst")],
            ["xack", "s", "g", entry],
            ["xdel", "s", entry],
            ["xlen", pick.choice("stk")],
            ["xrange", "s", "-", "+"],
            ["xreadgroup", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">"],
            ["xpending", "s", "g"],
            ["xgroup", "CREATE", pick.choice("st"), "g", "0", *pick.choice([[], ["MKSTREAM"]])],
            ["xtrim", "s", "MAXLEN", pick.randint(0, 3)],
            ["del", pick.choice("kt")],
            ["exists", "k", "s", "t"],
            ["type", pick.choice("kst")],
            ["nosuch", 1],
            ["xadd", "s"],
        ]
    )
    arguments = ",".join(repr(word) if isinstance(word, str) else str(word) for word in words)
    return f"out[#out+1] = redis.{pick.choice(['call', 'pcall', 'pcall'])}({arguments})"


def program(pick: random.Random) -> str:
    """A script of some statements, in conditions, loops and pcall."""
    lines = ["local out = {}"]
    for _ in range(pick.randint(1, 6)):
        line = statement(pick)
        shape = pick.randrange(5)
        if shape == 0:
            line = f"if redis.call('exists', 'k') == {pick.randint(0, 1)} then {line} end"
        elif shape == 1:
            line = f"for i = 1, {pick.randint(0, 2)} do {line} end"
        elif shape == 2:
            line = f"local ok, e = pcall(function() {line} end) if not ok then out[#out+1] = e end"
        lines.append(line)
    lines.append(pick.choice(["return out", "return #out", "return cjson.encode(#out)", "error(#out)", ""]))
    return "\n".join(lines)


SEEDS, PROGRAMS = seeds.chosen((8, 40), (6, 15))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_scripts_answer_the_same(ask, seed):
    pick = random.Random(seed)
    prepare(ask)
    for _ in range(PROGRAMS):
        ask(pick.choice(["EVAL", "EVAL", "EVAL", "EVAL_RO"]), program(pick), 0)
        compare_state(ask)
