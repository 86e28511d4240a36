-- Replies as values of Lua, and values of Lua as replies. Both are bytes of the protocol here.

local H = ...

local byte, find, sub, format, concat = string.byte, string.find, string.sub, string.format, table.concat
local tonumber, type, rawget, tostring, next, floor = tonumber, type, rawget, tostring, next, math.floor

local DEPTH_MAX = 500
local PLUS, MINUS, COLON, DOLLAR, STAR = 43, 45, 58, 36, 42

-- Return the value of the reply at `at`, and the position after it.
local function decode(s, at)
    local kind = byte(s, at)
    local e = find(s, '\r\n', at, true)
    if kind == DOLLAR then
        local n = tonumber(sub(s, at + 1, e - 1))
        if n < 0 then return false, e + 2 end
        return sub(s, e + 2, e + 1 + n), e + 4 + n
    elseif kind == COLON then
        return tonumber(sub(s, at + 1, e - 1)), e + 2
    elseif kind == STAR or kind == 62 then
        local n = tonumber(sub(s, at + 1, e - 1))
        if n < 0 then return false, e + 2 end
        local items = {}
        at = e + 2
        for i = 1, n do items[i], at = decode(s, at) end
        return items, at
    elseif kind == PLUS then
        return {ok = sub(s, at + 1, e - 1)}, e + 2
    elseif kind == MINUS then
        return {err = sub(s, at + 1, e - 1)}, e + 2
    elseif kind == 95 then -- _
        return nil, e + 2
    elseif kind == 35 then -- #
        return byte(s, at + 1) == 116, e + 2
    elseif kind == 44 then -- ,
        local text = sub(s, at + 1, e - 1)
        local n = text == 'inf' and 1 / 0 or text == '-inf' and -1 / 0 or tonumber(text) or 0 / 0
        return {double = n}, e + 2
    elseif kind == 61 then -- =
        local n = tonumber(sub(s, at + 1, e - 1))
        local text = {format = sub(s, e + 2, e + 4), string = sub(s, e + 6, e + 1 + n)}
        return {verbatim_string = text}, e + 4 + n
    elseif kind == 37 or kind == 126 then -- % ~
        local n = tonumber(sub(s, at + 1, e - 1))
        local items, key = {}, nil
        at = e + 2
        for _ = 1, n do
            key, at = decode(s, at)
            local value = true
            if kind == 37 then value, at = decode(s, at) end
            if key ~= nil then items[key] = value end
        end
        return {[kind == 37 and 'map' or 'set'] = items}, at
    end
    return {big_number = sub(s, at + 1, e - 1)}, e + 2
end
H.decode = decode

-- The digits of a number as an argument or in a reply: as few as identify it.
local function digits(n)
    if n == floor(n) and n > -1e17 and n < 1e17 then return format('%.0f', n) end
    if n ~= n then return 'nan' end
    if n == 1 / 0 then return 'inf' end
    if n == -1 / 0 then return '-inf' end
    for places = 15, 17 do
        local text = format('%.' .. places .. 'g', n)
        if tonumber(text) == n then return (text:gsub('e([+-])0', 'e%1')) end
    end
end
H.digits = digits

local function one_line(text) return (text:gsub('[\r\n]', ' ')) end

local function integer(n)
    if n ~= n or n >= 9223372036854775808 or n < -9223372036854775808 then return ':-9223372036854775808\r\n' end
    return format(':%d\r\n', n)
end

local encode

local function encode_table(t, protocol, out, depth)
    local v = rawget(t, 'err')
    if type(v) == 'string' then
        out[#out + 1] = '-' .. one_line(v) .. '\r\n'
        return
    end
    v = rawget(t, 'ok')
    if type(v) == 'string' then
        out[#out + 1] = '+' .. one_line(v) .. '\r\n'
        return
    end
    v = rawget(t, 'double')
    if type(v) == 'number' then
        local text = digits(v)
        out[#out + 1] = protocol == 2 and format('$%d\r\n%s\r\n', #text, text) or ',' .. text .. '\r\n'
        return
    end
    v = rawget(t, 'map')
    local is_map = type(v) == 'table'
    if not is_map then v = rawget(t, 'set') end
    if type(v) == 'table' then
        local at, n = #out + 1, 0
        out[at] = ''
        for key, value in next, v do
            n = n + 1
            encode(key, protocol, out, depth + 1)
            if is_map then encode(value, protocol, out, depth + 1) end
        end
        if protocol == 2 then
            out[at] = format('*%d\r\n', is_map and 2 * n or n)
        else
            out[at] = format('%s%d\r\n', is_map and '%' or '~', n)
        end
        return
    end
    v = rawget(t, 'big_number')
    if type(v) == 'string' then
        v = one_line(v)
        out[#out + 1] = protocol == 2 and format('$%d\r\n', #v) .. v .. '\r\n' or '(' .. v .. '\r\n'
        return
    end
    v = rawget(t, 'verbatim_string')
    if type(v) == 'table' and type(rawget(v, 'format')) == 'string' and type(rawget(v, 'string')) == 'string' then
        local text = v.string
        if protocol ~= 2 then text = sub(v.format .. '   ', 1, 3) .. ':' .. text end
        out[#out + 1] = (protocol == 2 and '$' or '=') .. #text .. '\r\n' .. text .. '\r\n'
        return
    end
    local at, n = #out + 1, 0
    out[at] = ''
    v = rawget(t, 1)
    while v ~= nil do
        n = n + 1
        encode(v, protocol, out, depth + 1)
        v = rawget(t, n + 1)
    end
    out[at] = format('*%d\r\n', n)
end

function encode(v, protocol, out, depth)
    local kind = type(v)
    if kind == 'string' then
        out[#out + 1] = format('$%d\r\n', #v)
        out[#out + 1] = v
        out[#out + 1] = '\r\n'
    elseif kind == 'number' then
        out[#out + 1] = integer(v)
    elseif kind == 'boolean' then
        if H.protocol == 2 or protocol == 2 then
            out[#out + 1] = v and ':1\r\n' or (protocol == 2 and '$-1\r\n' or '_\r\n')
        else
            out[#out + 1] = v and '#t\r\n' or '#f\r\n'
        end
    elseif kind == 'table' and depth < DEPTH_MAX then
        encode_table(v, protocol, out, depth)
    elseif kind == 'table' then
        out[#out + 1] = '-ERR reached lua stack limit\r\n'
    else
        out[#out + 1] = protocol == 2 and '$-1\r\n' or '_\r\n'
    end
end

-- Return the reply's bytes for a client of that protocol.
function H.encode(v, protocol)
    local kind = type(v)
    if kind == 'string' then return format('$%d\r\n', #v) .. v .. '\r\n' end
    if kind == 'number' then return integer(v) end
    local out = {}
    encode(v, protocol, out, 0)
    return concat(out)
end
