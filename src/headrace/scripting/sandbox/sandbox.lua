-- What a script may reach: its globals, the copies of the standard functions, and how errors get their text.
--
--     script ── reads globals of ──▶ env (a locked proxy) ──▶ globals ──▶ error: no such global
--     string, table, redis … are locked proxies, too: assigning to them is an error
--
-- `H` is shared by the files of this folder; scripts never see it. Nothing of Python is ever passed to a
-- script but strings, numbers, booleans and nil.

local H = ...

local debug, string, table, coroutine = debug, string, table, coroutine
local getinfo, sethook = debug.getinfo, debug.sethook
local error, xpcall, type, tostring, select, unpack = error, xpcall, type, tostring, select, unpack
local rawget, rawset, setmetatable, getmetatable, setfenv = rawget, rawset, setmetatable, getmetatable, setfenv
local ipairs, loadstring, collectgarbage, dump, tonumber = ipairs, loadstring, collectgarbage, string.dump, tonumber
local floor, max, min = math.floor, math.max, math.min
local find, sub, byte, match = string.find, string.sub, string.byte, string.match

-- The files of this folder are compiled as @headrace, api.lua as @headrace_run.
local SOURCE = '@headrace'
local function is_ours(info) return sub(info.source, 1, 9) == SOURCE end
local READONLY = 'Attempt to modify a readonly table'
local CHUNK_BYTES_MAX = H.chunk_bytes_max

H.locked = setmetatable({}, {__mode = 'k'}) -- the proxies
H.names = {} -- of the functions here that stand in for standard ones, for their error messages

local function refuse_write() error(READONLY, 2) end

-- What scripts see as the metatable of a locked table: it is empty, and they cannot change it.
local shown_metatable = setmetatable({}, {__newindex = refuse_write, __metatable = false})
H.locked[shown_metatable] = true

-- Return a table that reads from `t` and that no script can change.
function H.lock(t)
    local proxy = {}
    H.locked[proxy] = true
    return setmetatable(proxy, {__index = t, __newindex = refuse_write, __metatable = shown_metatable})
end

local function refuse_locked(t)
    if H.locked[t] then error(READONLY, 0) end
end

-- Errors.

-- Return "source:line:" of the innermost function of the script, and both parts; the stack begins at `level`.
function H.position(level)
    local info = getinfo(level, 'Sl')
    while info do
        if info.currentline > 0 and not is_ours(info) then
            return info.short_src .. ':' .. info.currentline .. ': ', info.source, info.currentline
        end
        level = level + 1
        info = getinfo(level, 'Sl')
    end
    return ''
end

-- Message handler: an error of a function of this folder gets the position of the script that called it.
local closure_line -- of the function by which pcall() passes arguments: it has no position

local function translate(e)
    if e == 'stack overflow' then return H.position(2) .. e end -- raised when the function has no line yet
    if type(e) ~= 'string' or sub(e, 1, 8) ~= 'headrace' then return e end
    if sub(e, 9, 13) == '_run:' then return match(e, '^headrace_run:%d+: (.*)$') or e end -- called by no script
    local line, text = match(e, '^headrace:(%d+): (.*)$')
    if not line then return e end
    local caller = getinfo(3, 'S')
    if caller and is_ours(caller) and caller.linedefined == closure_line then return text end
    local level, info = 2, nil
    repeat
        info = getinfo(level, 'Slfn')
        level = level + 1
    until not info or is_ours(info) and H.names[info.func] or info.currentline > 0 and not is_ours(info)
    local name = info and H.names[info.func]
    if name then
        text = string.gsub(text, "^bad argument #(%d+) to '[^']*'", function(n)
            if info.namewhat == 'method' then n = n - 1 end -- self does not count
            if n == 0 then return "calling '" .. name .. "' on bad self" end
            return 'bad argument #' .. n .. " to '" .. name .. "'"
        end)
    end
    return H.position(3) .. text
end

-- Functions of the library that call a function of the script, and coroutines that resume others, take space on
-- the C stack, which LuaJIT does not limit: each such call is counted here.

local DEPTH_MAX = 190 -- Lua 5.1 has 200
local DEPTH_ERROR = 'C stack overflow'
local depth = 0

local function leave(before, ...)
    depth = before
    return ...
end

-- Return a function that calls `f`, known to scripts by a name, unless too many such calls are active.
function H.nesting(name, f)
    local function counted(...)
        local before = depth
        if before >= DEPTH_MAX then error(DEPTH_ERROR, 2) end
        depth = before + 1
        return leave(before, f(...))
    end
    H.names[counted] = name
    return counted
end

-- Once a script is killed, every further instruction of it raises an error: pcall cannot stop that.
H.killed = nil -- the text

local function pass(before, ok, ...)
    depth = before
    if H.killed then error(H.killed, 0) end
    if not ok then
        local e = ...
        if type(e) == 'table' and type(rawget(e, 'err')) == 'string' then return false, e.err end
    end
    return ok, ...
end

local function pass_xpcall(before, ...)
    depth = before
    if H.killed then error(H.killed, 0) end
    return ...
end

local function closure(f, ...)
    local n = select('#', ...)
    if n == 0 then return f end
    local args = {...}
    return function() return f(unpack(args, 1, n)) end
end
closure_line = getinfo(closure(error, 1), 'S').linedefined

local function safe_pcall(...)
    if select('#', ...) == 0 then error("bad argument #1 to 'pcall' (value expected)", 2) end
    return pass(depth, xpcall(closure(...), translate))
end

local function safe_xpcall(...)
    local f, handler = ...
    if select('#', ...) < 2 then error("bad argument #2 to 'xpcall' (value expected)", 2) end
    return pass_xpcall(depth, xpcall(f, function(e)
        if H.killed then return e end -- in the hook: it would not be called again before the handler ends
        return handler(translate(e))
    end))
end

-- The hook: called after some instructions. Compiled code has its own, in C: see lua.pxd.

local running = false
local INSTRUCTIONS = 500 -- a single one may take 10 ms: the comparison of two strings of 64 MB
local FIRST_INSTRUCTIONS = 100 -- until the second call, which may find that they are slow
local SLOW_S = 0.02 -- if that many instructions take longer, the hook is called more often
local QUICK_S, QUICK_CALLS = 0.002, 64 -- so many calls in a row that each come sooner: less often again
local clock = os.clock
local count, last, quick = INSTRUCTIONS, nil, 0
H.due = 0 -- when check() is to be called next, by os.clock(); memory_max is in KiB

local hook

-- Set the interval by the time since the last check: slow instructions may come again, or not.
local function adapt(elapsed, in_hook)
    local before = count
    if elapsed > QUICK_S then quick = 0 else quick = quick + (in_hook and 1 or 0) end
    if elapsed > SLOW_S then
        count = max(1, floor(count / 10))
    elseif count == FIRST_INSTRUCTIONS then
        count = INSTRUCTIONS
    elseif quick >= QUICK_CALLS then
        quick, count = 0, min(2 * count, INSTRUCTIONS)
    end
    if count ~= before then sethook(hook, '', count) end
end

local function check(in_hook)
    if running then
        if not H.killed then
            if collectgarbage('count') > H.memory_max then
                collectgarbage()
                if collectgarbage('count') > H.memory_max then H.killed = 'not enough memory' end
            end
            local now = clock()
            if not last then -- the first call: most scripts end before it, so that they need no clock
                H.due = now + H.first_check
            else
                adapt(now - last, in_hook)
            end
            last = now
            if now >= H.due then
                local text, wait = H.check()
                if text then H.killed = text end
                H.due = now + wait
            end
        end
        if H.killed then
            if in_hook then sethook(hook, '', 1) end -- elsewhere it would interrupt the message handler
            error(H.killed, 0)
        end
    end
end

function hook() check(true) end

local function kill(text)
    H.killed = text
    error(text, 0)
end

local function begin_run()
    count, last, quick, running = FIRST_INSTRUCTIONS, nil, 0, true
    sethook(hook, '', count)
end

local function end_run()
    running = false
    sethook()
end

-- End the running script; let the hook end what runs from now on; let it do nothing any more.
H.kill, H.begin_run, H.end_run = H.kill or kill, H.begin_run or begin_run, H.end_run or end_run

-- Call the hook: for functions that may take as long as many instructions.
H.poll = H.poll or check

-- Return the instructions between two calls of the hook.
H.hook_interval = H.hook_interval or function() return count end

-- Note that reset() must be called before the next run, for compiled code: otherwise it always is.
H.note_change = H.note_change or function() end

H.resets = {function() H.killed, depth = nil, 0 end}

-- Undo what a run may leave behind.
function H.reset()
    for _, reset in ipairs(H.resets) do reset() end
end

-- Coroutines. The hook is called in all of them.

local create, resume = coroutine.create, coroutine.resume

local function resumed(before, ok, ...)
    depth = before
    if H.killed then error(H.killed, 0) end
    if not ok then
        local e = ...
        if type(e) == 'string' and sub(e, 1, 9) == 'headrace:' then
            return false, (match(e, '^headrace:%d+: (.*)$'))
        end
    end
    return ok, ...
end

local function resume_counted(thread, ...)
    local before = depth
    if before >= DEPTH_MAX then return false, DEPTH_ERROR end
    depth = before + 1
    return resumed(before, resume(thread, ...))
end

local function raise_unless(ok, ...)
    if not ok then error((...), 0) end
    return ...
end

local threads = {
    create = function(f)
        if type(f) ~= 'function' then error("bad argument #1 to 'create' (Lua function expected)", 2) end
        return create(f)
    end,
    resume = resume_counted,
    running = coroutine.running,
    status = coroutine.status,
    wrap = function(f)
        if type(f) ~= 'function' then error("bad argument #1 to 'wrap' (Lua function expected)", 2) end
        local thread = create(f)
        return function(...) return raise_unless(resume_counted(thread, ...)) end
    end,
    yield = coroutine.yield,
}

-- Compiling. Binary chunks could corrupt memory, so they are rejected. LuaJIT skips a byte order mark and a first
-- line that begins with #, and takes a binary chunk after them, even in mode 't'; after a space it does not.

local ESCAPE, HASH, MARK = 27, 35, 239

-- Return the name of a chunk as in error messages.
local function shown_name(name)
    return match(select(2, loadstring('?', name)), '^(.-):1:')
end

local function compile(text, name, env)
    local first = byte(text, 1)
    if first == ESCAPE then return nil, 'attempt to load a binary chunk' end
    if first == HASH or first == MARK then text = ' ' .. text end
    H.poll()
    if #text > CHUNK_BYTES_MAX then return nil, 'chunk has more than ' .. CHUNK_BYTES_MAX .. ' bytes' end
    local problem, line
    text, problem, line = H.to_luajit(text)
    if problem then return nil, shown_name(name) .. ':' .. line .. ': ' .. problem end
    local f, wrong = loadstring(text, name)
    if f then
        f = loadstring(H.without_tail_calls(dump(f)), name)
        setfenv(f, env)
    end
    return f, wrong
end
H.compile = compile

local function safe_loadstring(text, name)
    if type(text) == 'number' then text = tostring(text) end
    if type(text) ~= 'string' then
        error("bad argument #1 to 'loadstring' (string expected, got " .. (text == nil and 'no value' or type(text)) .. ')', 2)
    end
    return compile(text, name == nil and text or tostring(name), H.env)
end

local function safe_load(reader, name)
    if type(reader) ~= 'function' then
        error("bad argument #1 to 'load' (function expected, got " .. (reader == nil and 'no value' or type(reader)) .. ')', 2)
    end
    local pieces, size = {}, 0
    while true do
        local piece = reader()
        if piece == nil or piece == '' then break end
        if type(piece) ~= 'string' then return nil, 'reader function must return a string' end
        size = size + #piece
        if size > CHUNK_BYTES_MAX then return nil, 'not enough memory' end
        pieces[#pieces + 1] = piece
    end
    return compile(table.concat(pieces), name == nil and '=(load)' or tostring(name), H.env)
end

-- Standard functions that could change a locked table, or run long without a call of the hook.

local tables = {
    concat = table.concat, foreach = table.foreach, foreachi = table.foreachi, getn = table.getn,
    setn = function() error("'setn' is obsolete", 2) end,
}
function tables.maxn(...)
    H.poll()
    return table.maxn(...)
end

local LARGE = 4096
local SORT_BYTES_MAX = 64 * 1024 * 1024
local INT_MAX = 2147483647 -- the library's positions: others wrap around

-- A number may be given as a string.
function tables.insert(t, ...)
    refuse_locked(t)
    local n = select('#', ...)
    if type(t) == 'table' and n == 2 then
        local at, value = ...
        at = tonumber(at)
        if at and not (#t - at <= LARGE and at <= INT_MAX) then
            at = floor(at)
            for i = max(#t, at - 1), at, -1 do t[i + 1] = t[i] end
            t[at] = value
            return
        end
    end
    return table.insert(t, ...)
end

function tables.remove(t, at, ...)
    refuse_locked(t)
    local from = tonumber(at)
    if type(t) == 'table' and from and #t > LARGE and from >= 1 and from <= #t then
        from = floor(from)
        local value, n = t[from], #t
        for i = from, n - 1 do t[i] = t[i + 1] end
        t[n] = nil
        return value
    end
    if at == nil then return table.remove(t) end
    return table.remove(t, at, ...)
end

local function less(a, b) return a < b end

-- Return whether the library sorts without a call of the hook, but soon: few elements, no long strings.
local function is_short(t)
    local n, bytes = #t, 0
    if n > LARGE then return false end
    for i = 1, n do
        local v = rawget(t, i)
        if type(v) == 'string' then bytes = bytes + #v end
    end
    return bytes * (n < 64 and 6 or 12) <= SORT_BYTES_MAX -- an element is compared about log2(n) times
end

local sort = H.nesting('sort', table.sort)

function tables.sort(t, before)
    refuse_locked(t)
    H.poll()
    if before == nil and type(t) == 'table' and not is_short(t) then before = less end
    return sort(t, before)
end

local function safe_rawset(t, ...)
    refuse_locked(t)
    return rawset(t, ...)
end

local function safe_setmetatable(t, ...)
    refuse_locked(t)
    return setmetatable(t, ...)
end

local function safe_collectgarbage(what, n)
    H.poll()
    if what == nil or what == 'collect' or what == 'count' or what == 'step' then return collectgarbage(what, n) end
    return 0
end

H.names[tables.insert], H.names[tables.remove], H.names[tables.sort] = 'insert', 'remove', 'sort'
H.names[tables.maxn] = 'maxn'
H.names[safe_rawset], H.names[safe_setmetatable] = 'rawset', 'setmetatable'

-- Random numbers: the 48-bit generator of drand48(3), so that they are the same everywhere.

local random_high, random_low = 0x1234ABCD, 0x330E -- the upper 32 and the lower 16 bits

local function next_random()
    local low = random_low * 0xE66D + 0xB
    local carry = math.floor(low / 65536)
    local m_high, m_mid = 0x5, 0xDEEC -- the multiplier 0x5DEECE66D is 0x5DEEC * 2^16 + 0xE66D
    local mid = (random_high % 65536) * 0xE66D + random_low * m_mid + carry
    local top = math.floor(random_high / 65536) * 0xE66D + (random_high % 65536) * m_mid
        + random_low * m_high + math.floor(mid / 65536)
    random_low = low % 65536
    random_high = (top % 65536) * 65536 + mid % 65536
    return math.floor(random_high / 2) -- 31 bits
end

local maths = {mod = math.fmod}
for name, f in pairs(math) do maths[name] = f end

local log = math.log

function maths.log(x) return log(x) end -- LuaJIT's takes a base, too
H.names[maths.log] = 'log'

function maths.random(...)
    local r = (next_random() % 2147483647) / 2147483647
    local n = select('#', ...)
    if n == 0 then return r end
    local low, high = ...
    if n == 1 then
        low, high = 1, low
    elseif n > 2 then
        error('wrong number of arguments', 2)
    end
    if type(high) ~= 'number' or type(low) ~= 'number' then
        error("bad argument #1 to 'random' (number expected, got " .. type(...) .. ')', 2)
    end
    if low > high then error("bad argument #" .. n .. " to 'random' (interval is empty)", 2) end
    return math.floor(r * (high - low + 1)) + low
end

function maths.randomseed(seed)
    if type(seed) ~= 'number' then
        error("bad argument #1 to 'randomseed' (number expected, got " .. type(seed) .. ')', 2)
    end
    random_high, random_low = math.floor(seed) % 4294967296, 0x330E
end

-- The globals.

local strings = {}
for _, name in ipairs {'byte', 'char', 'len', 'lower', 'reverse', 'sub', 'upper'} do
    strings[name] = string[name]
end
strings.format = H.nesting('format', string.format) -- it calls __tostring
H.strings = strings -- patterns.lua adds the rest

local globals = {
    _VERSION = _VERSION, assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs,
    next = next, pairs = pairs, rawequal = rawequal, rawget = rawget, select = select, tonumber = tonumber,
    tostring = tostring, type = type, unpack = unpack, gcinfo = gcinfo,
    collectgarbage = safe_collectgarbage, load = safe_load, loadstring = safe_loadstring, pcall = safe_pcall,
    rawset = safe_rawset, setmetatable = safe_setmetatable, xpcall = safe_xpcall,
    coroutine = H.lock(threads), math = H.lock(maths), os = H.lock {clock = clock}, string = H.lock(strings),
    table = H.lock(tables),
}
H.globals = globals

local function no_such_global(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

-- Return a locked proxy of a table of globals, whose missing names raise an error.
function H.environment(t)
    setmetatable(t, {__index = no_such_global})
    local env = H.lock(t)
    return env
end

H.env = H.environment(globals)
globals._G = H.env
H.translate = translate

local meta = getmetatable('')
meta.__index = strings
meta.__metatable = H.lock {__index = globals.string}
