-- The table `redis`, and running scripts and functions.

local H = ...

local error, type, tostring, select, unpack, rawget, xpcall = error, type, tostring, select, unpack, rawget, xpcall
local setfenv, pairs, setmetatable, sub, find, concat = setfenv, pairs, setmetatable, string.sub, string.find, table.concat
local decode, encode, digits, lock = H.decode, H.encode, H.digits, H.lock
local begin_run, end_run, reset = H.begin_run, H.end_run, H.reset

local NOTHING = '$-1\r\n'
local BAD_ARGUMENT = 'ERR Lua redis lib command arguments must be strings or integers'
local NAME_BYTES_MAX, DESCRIPTION_BYTES_MAX = 1024, 16384
local TOO_LONG = 'ERR the arguments of one command are longer than the memory of scripts'
local NO_ARGUMENT = 'ERR Please specify at least one argument for this redis lib call'

H.protocol = 2 -- in which redis.call() replies
H.resets[#H.resets + 1] = function() H.protocol = 2 end

-- Errors of the functions of `redis` are tables, as those of commands are.
local function fail(text) error({err = text}, 0) end

local function arguments(...)
    local n = select('#', ...)
    if n == 0 then return nil, NO_ARGUMENT end
    local words, size = {...}, 0
    for i = 1, n do
        local kind = type(words[i])
        if kind == 'number' then
            words[i] = digits(words[i])
        elseif kind ~= 'string' then
            return nil, BAD_ARGUMENT
        end
        size = size + #words[i]
    end
    -- Each word is copied, also one string that is given many times.
    if size > H.memory_max * 1024 then return nil, TOO_LONG end
    return words, n
end

local function call(...)
    local words, n = arguments(...)
    if not words then return {err = n} end
    H.poll()
    words[n + 1] = H.protocol
    local value, reply = H.call(unpack(words, 1, n + 1))
    if value == false then H.kill(reply) end
    if not reply then return value end
    value = decode(reply, 1)
    if type(value) == 'table' and rawget(value, 'err') then value.ignore_error_stats_update = true end -- it is counted
    return value
end

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
}

function redis.call(...)
    local reply = call(...)
    if type(reply) == 'table' and rawget(reply, 'err') then error(reply, 0) end
    return reply
end

redis.pcall = call

if H.redis_call then redis.call, redis.pcall = H.redis_call, H.redis_pcall end -- compiled code: in C

function redis.error_reply(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then return {err = 'ERR wrong number or type of arguments'} end
    if sub(text, 1, 1) == '-' then return {err = sub(text, 2)} end
    if not find(text, ' ', 1, true) then text = 'ERR ' .. text end
    return {err = text}
end

function redis.status_reply(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then return {err = 'ERR wrong number or type of arguments'} end
    return {ok = text}
end

function redis.sha1hex(...)
    if select('#', ...) ~= 1 then fail('ERR wrong number of arguments') end
    local text = ...
    if type(text) == 'number' then text = digits(text) end
    H.poll()
    return H.sha1hex(type(text) == 'string' and text or '')
end

function redis.log(...)
    local n = select('#', ...)
    if n < 2 then fail('ERR redis.log() requires two arguments or more.') end
    local level = ...
    if type(level) ~= 'number' then fail('ERR First argument must be a number (log level).') end
    if not (level >= 0 and level <= 3) then fail('ERR Invalid log level.') end -- nor NaN
    local words = {}
    for i = 2, n do
        local word = (select(i, ...))
        if type(word) == 'string' or type(word) == 'number' then words[#words + 1] = tostring(word) end
    end
    H.log(level, concat(words, ' '))
end

function redis.setresp(...)
    if select('#', ...) ~= 1 then fail('ERR redis.setresp() requires one argument.') end
    local version = ...
    if version ~= 2 and version ~= 3 then fail('ERR RESP version must be 2 or 3.') end
    H.protocol = version
    H.note_change(version)
end

function redis.set_repl(...)
    if select('#', ...) ~= 1 then fail('ERR redis.set_repl() requires one argument.') end
    local flags = ...
    if type(flags) ~= 'number' or not (flags >= 0 and flags <= 3) then
        fail('ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.')
    end
    H.set_repl(flags)
end

function redis.replicate_commands() return true end
function redis.breakpoint() return false end
function redis.debug() end

function redis.acl_check_cmd(...)
    local words, n = arguments(...)
    if not words then fail(n) end
    local allowed = H.acl_check(unpack(words, 1, n))
    if allowed == nil then fail('ERR Invalid command passed to redis.acl_check_cmd()') end
    return allowed
end

local function no_such_field(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

-- An error of redis.call() or redis.pcall() was counted when its command failed.
local function is_counted(e) return type(e) == 'table' and rawget(e, 'ignore_error_stats_update') == true end

-- Errors of a run: {text, source, line, whether it is counted}.

local function failure(e)
    end_run()
    local _, source, line = H.position(3)
    local text
    if type(e) == 'table' then
        text = rawget(e, 'err')
        if type(text) ~= 'string' then text = 'ERR unknown error' end
    else
        text = 'ERR ' .. tostring(H.translate(e))
    end
    return {text, source and sub(source, 2) or '', source and line or 0, is_counted(e)}
end
H.failure = failure

-- Run f(keys, args); return nil, the reply's bytes and whether an error in it is counted;
-- or the error's text, source and line and whether it is counted.
local running, first, second, client_protocol -- of the current run; no closure, for speed

local function body()
    local value
    if first then value = running(first, second) else value = running() end
    local reply = encode(value, client_protocol)
    return reply, is_counted(value)
end

local function guarded(protocol, f, keys, args)
    running, first, second, client_protocol = f, keys, args, protocol
    reset()
    begin_run()
    local ok, result, counted = xpcall(body, failure)
    end_run()
    if ok then return nil, result, counted end
    if type(result) ~= 'table' then return 'ERR ' .. tostring(result), '', 0, false end -- memory or the stack was full
    return unpack(result)
end

-- Scripts.

local scripts = {}
H.scripts = scripts

-- Compile a script; return the error's text, or nil.
function H.load_script(name, text)
    local f, wrong = H.compile(text, '@user_script', H.env)
    if not f then return wrong end
    scripts[name] = f
end

function H.drop_script(name) scripts[name] = nil end

function H.run_script(protocol, name, keys, args)
    H.globals.KEYS = decode(keys, 1)
    H.globals.ARGV = decode(args, 1)
    return guarded(protocol, scripts[name])
end

-- Libraries of functions. While a library is loaded its functions see nothing but `redis`.

local libraries = {} -- name -> {function name -> callback}
H.libraries = libraries
local loading -- the functions of the library being loaded

local FLAGS = {['no-writes'] = 1, ['allow-oom'] = 2, ['allow-stale'] = 4, ['no-cluster'] = 8, ['allow-cross-slot-keys'] = 16}

local function is_name(name) return find(name, '^[%w_]+$') ~= nil end

local function register(name, callback, flags, description)
    if not is_name(name) then
        fail('ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long')
    end
    if loading[name] then fail('ERR Function already exists in the library') end
    -- They are kept outside of Lua.
    if #name > NAME_BYTES_MAX then fail('ERR the name of a function is longer than ' .. NAME_BYTES_MAX .. ' bytes') end
    if description and #description > DESCRIPTION_BYTES_MAX then
        fail('ERR the description of a function is longer than ' .. DESCRIPTION_BYTES_MAX .. ' bytes')
    end
    loading[name] = callback
    H.on_register(name, flags, description)
end

local function flags_of(list)
    if type(list) ~= 'table' then
        fail('ERR flags argument to redis.register_function must be a table representing function flags')
    end
    local sum, seen, i = 0, {}, 1
    while rawget(list, i) ~= nil do
        local flag = rawget(list, i)
        local value = FLAGS[flag]
        if not value then fail('ERR unknown flag given') end
        if not seen[flag] then sum, seen[flag] = sum + value, true end
        i = i + 1
    end
    return sum
end

local function register_named(t)
    local name, callback, flags, description
    for key, value in pairs(t) do
        if key == 'function_name' then
            if type(value) ~= 'string' and type(value) ~= 'number' then
                fail('ERR function_name argument given to redis.register_function must be a string')
            end
            name = tostring(value)
        elseif key == 'description' then
            if type(value) ~= 'string' and type(value) ~= 'number' then
                fail('ERR description argument given to redis.register_function must be a string')
            end
            description = tostring(value)
        elseif key == 'callback' then
            if type(value) ~= 'function' then
                fail('ERR callback argument given to redis.register_function must be a function')
            end
            callback = value
        elseif key == 'flags' then
            flags = flags_of(value)
        else
            fail('ERR unknown argument given to redis.register_function')
        end
    end
    if not name then fail('ERR redis.register_function must get a function name argument') end
    if not callback then fail('ERR redis.register_function must get a callback argument') end
    register(name, callback, flags or 0, description)
end

local function register_function(...)
    local n = select('#', ...)
    local name, callback = ...
    if n < 1 or n > 2 then fail('ERR wrong number of arguments to redis.register_function') end
    if n == 1 then
        if type(name) ~= 'table' then
            fail('ERR calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).')
        end
        return register_named(name)
    end
    if type(name) ~= 'string' and type(name) ~= 'number' then
        fail('ERR first argument to redis.register_function must be a string')
    end
    if type(callback) ~= 'function' then fail('ERR second argument to redis.register_function must be a function') end
    register(tostring(name), callback, 0, nil)
end

-- The environment of a library: `redis` alone while it is loaded, all but KEYS and ARGV afterwards.
local function library_environment()
    local load_redis = {register_function = register_function}
    for name, value in pairs(redis) do
        if name ~= 'call' and name ~= 'pcall' then load_redis[name] = value end
    end
    setmetatable(load_redis, {__index = no_such_field})
    local visible = {redis = lock(load_redis)}
    local env = H.environment(visible)
    return env, visible
end

-- Load a library; return the error's text, or nil.
function H.load_library(name, text)
    local env, visible = library_environment()
    local f, wrong = H.compile(text, '@user_function', env)
    if not f then return 'ERR Error compiling function: ' .. wrong end
    loading = {}
    local functions = loading
    local e = guarded(2, f)
    loading = nil
    if e then return 'ERR Error registering functions: ' .. e end
    for key, value in pairs(H.globals) do
        if key ~= 'KEYS' and key ~= 'ARGV' then visible[key] = value end
    end
    visible._G = env
    libraries[name] = functions
end

function H.drop_library(name) libraries[name] = nil end

function H.run_function(protocol, library, name, keys, args)
    return guarded(protocol, libraries[library][name], decode(keys, 1), decode(args, 1))
end

function H.finish(version, version_number)
    redis.REDIS_VERSION, redis.REDIS_VERSION_NUM = version, version_number
    H.globals.redis = lock(redis)
    H.globals.KEYS, H.globals.ARGV = {}, {}
    local _G = _G
    for _, name in ipairs {'debug', 'io', 'os', 'package', 'python', 'require', 'module', 'dofile', 'loadfile', 'newproxy', 'getfenv', 'print',
        'ffi', 'jit'} do
        _G[name] = nil
    end
end
