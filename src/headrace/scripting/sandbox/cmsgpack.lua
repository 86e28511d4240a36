-- The library `cmsgpack`: values of Lua as MessagePack (see msgpack.org), and back.

local H = ...
local type, error, select, next, floor, pairs = type, error, select, next, math.floor, pairs
local byte, char, sub, concat, format = string.byte, string.char, string.sub, table.concat, string.format
local pack_number, unpack_number = H.pack_number, H.unpack_number

local DEPTH_MAX = 16 -- of tables; deeper ones are packed as nil

local encode

local function head(n, small, small_max, codes)
    if n <= small_max then return char(small + n) end
    if codes[1] and n <= 0xFF then return char(codes[1], n) end
    if n <= 0xFFFF then return char(codes[2]) .. pack_number('>H', n) end
    return char(codes[3]) .. pack_number('>I', n)
end

local STRING_CODES, ARRAY_CODES, MAP_CODES = {0xD9, 0xDA, 0xDB}, {nil, 0xDC, 0xDD}, {nil, 0xDE, 0xDF}

local function integer(n)
    if n >= 0 then
        if n <= 0x7F then return char(n) end
        if n <= 0xFF then return char(0xCC, n) end
        if n <= 0xFFFF then return '\205' .. pack_number('>H', n) end
        if n <= 0xFFFFFFFF then return '\206' .. pack_number('>I', n) end
        return '\207' .. pack_number('>Q', n)
    end
    if n >= -32 then return char(256 + n) end
    if n >= -128 then return char(0xD0, 256 + n) end
    if n >= -32768 then return '\209' .. pack_number('>h', n) end
    if n >= -2147483648 then return '\210' .. pack_number('>i', n) end
    return '\211' .. pack_number('>q', n)
end

local function number(n)
    if n == floor(n) and n >= -9223372036854775808 and n < 9223372036854775808 then return integer(n) end
    local short = pack_number('>f', n)
    if unpack_number('>f', short) == n then return '\202' .. short end
    return '\203' .. pack_number('>d', n)
end

-- Return the length of a table that is an array, else nil.
local function array_length(t)
    local count, most = 0, 0
    for key in pairs(t) do
        if type(key) ~= 'number' or key <= 0 or key ~= floor(key) then return nil end
        if key > most then most = key end
        count = count + 1
    end
    return most == count and count or nil
end

local function encode_table(t, out, depth)
    local n = array_length(t)
    if n then
        out[#out + 1] = head(n, 0x90, 15, ARRAY_CODES)
        for i = 1, n do encode(t[i], out, depth + 1) end
        return
    end
    local at = #out + 1
    out[at] = ''
    n = 0
    for key, value in next, t do
        encode(key, out, depth + 1)
        encode(value, out, depth + 1)
        n = n + 1
    end
    out[at] = head(n, 0x80, 15, MAP_CODES)
end

function encode(v, out, depth)
    local kind = type(v)
    if kind == 'string' then
        out[#out + 1] = head(#v, 0xA0, 31, STRING_CODES)
        out[#out + 1] = v
    elseif kind == 'number' then
        out[#out + 1] = number(v)
    elseif kind == 'boolean' then
        out[#out + 1] = v and '\195' or '\194'
    elseif kind == 'table' and depth < DEPTH_MAX then
        encode_table(v, out, depth)
    else
        out[#out + 1] = '\192'
    end
end

local function missing() error('Missing bytes in input.') end

local function take(s, at, n)
    if at + n - 1 > #s then missing() end
    return sub(s, at, at + n - 1), at + n
end

local NUMBERS = {
    [0xCA] = {'>f', 4}, [0xCB] = {'>d', 8}, [0xCC] = {'>B', 1}, [0xCD] = {'>H', 2}, [0xCE] = {'>I', 4},
    [0xCF] = {'>Q', 8}, [0xD0] = {'>b', 1}, [0xD1] = {'>h', 2}, [0xD2] = {'>i', 4}, [0xD3] = {'>q', 8},
}
local LENGTHS = {
    [0xC4] = {'>B', 1}, [0xC5] = {'>H', 2}, [0xC6] = {'>I', 4}, [0xD9] = {'>B', 1}, [0xDA] = {'>H', 2},
    [0xDB] = {'>I', 4}, [0xDC] = {'>H', 2}, [0xDD] = {'>I', 4}, [0xDE] = {'>H', 2}, [0xDF] = {'>I', 4},
}
local NESTED_MAX = 10000

local decode

local function array(s, at, n, depth)
    local items = {}
    for i = 1, n do items[i], at = decode(s, at, depth + 1) end
    return items, at
end

local function map(s, at, n, depth)
    local items, key, value = {}, nil, nil
    for _ = 1, n do
        key, at = decode(s, at, depth + 1)
        value, at = decode(s, at, depth + 1)
        if key ~= nil and key == key then items[key] = value end
    end
    return items, at
end

function decode(s, at, depth)
    if depth > NESTED_MAX then error('Bad data format in input.') end
    local c = byte(s, at)
    if not c then missing() end
    at = at + 1
    if c <= 0x7F then return c, at end
    if c >= 0xE0 then return c - 256, at end
    if c <= 0x8F then return map(s, at, c - 0x80, depth) end
    if c <= 0x9F then return array(s, at, c - 0x90, depth) end
    if c <= 0xBF then return take(s, at, c - 0xA0) end
    if c == 0xC0 then return nil, at end
    if c == 0xC2 or c == 0xC3 then return c == 0xC3, at end
    local form, bytes = NUMBERS[c], nil
    if form then
        bytes, at = take(s, at, form[2])
        return unpack_number(form[1], bytes), at
    end
    form = LENGTHS[c]
    if not form then error('Bad data format in input.') end
    bytes, at = take(s, at, form[2])
    local n = unpack_number(form[1], bytes)
    if c >= 0xDE then return map(s, at, n, depth) end
    if c >= 0xDC then return array(s, at, n, depth) end
    return take(s, at, n)
end

local cmsgpack = {_NAME = 'cmsgpack', _VERSION = 'lua-cmsgpack 0.4.0'}

function cmsgpack.pack(...)
    local n = select('#', ...)
    if n == 0 then error("bad argument #0 to 'pack' (MessagePack pack needs input.)", 2) end
    local out = {}
    for i = 1, n do encode((select(i, ...)), out, 0) end
    return concat(out)
end

local function unpack_from(s, limit, offset)
    local values, n, at = {}, 0, offset + 1
    while at <= #s and (limit == 0 or n < limit) do
        n = n + 1
        values[n], at = decode(s, at, 0)
    end
    return values, n, at > #s and -1 or at - 1
end

local function text(s, name)
    if type(s) ~= 'string' then
        error("bad argument #1 to '" .. name .. "' (string expected, got " .. (s == nil and 'no value' or type(s)) .. ')', 3)
    end
end

function cmsgpack.unpack(s)
    text(s, 'unpack')
    local values, n = unpack_from(s, 0, 0)
    return unpack(values, 1, n)
end

local function check_range(s, limit, offset)
    if not (offset >= 0 and limit >= 0) then
        error(format('Invalid request to unpack with offset of %d and limit of %d.', offset, #s), 3)
    end
    if offset > #s then error(format('Start offset %d greater than input length %d.', offset, #s), 3) end
end

local function limited(s, limit, offset)
    local values, n, at = unpack_from(s, limit, offset)
    return at, unpack(values, 1, n)
end

function cmsgpack.unpack_one(s, offset)
    text(s, 'unpack_one')
    offset = offset or 0
    check_range(s, 1, offset)
    return limited(s, 1, offset)
end

function cmsgpack.unpack_limit(s, limit, offset)
    text(s, 'unpack_limit')
    offset = offset or 0
    check_range(s, limit, offset)
    return limited(s, limit, offset)
end

H.globals.cmsgpack = H.lock(cmsgpack)
