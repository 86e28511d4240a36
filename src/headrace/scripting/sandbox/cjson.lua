-- The library `cjson`: values of Lua as JSON, and back.

local H = ...
local type, error, tostring, tonumber, next, pairs, floor, select, pcall = type, error, tostring, tonumber, next, pairs, math.floor, select, pcall
local byte, char, sub, find, gsub, format, concat, match = string.byte, string.char, string.sub, string.find, string.gsub, string.format, table.concat, string.match

-- null is a value of its own, which is neither a table nor a function: a locked coroutine that never runs
-- would be reachable by coroutine.resume, so it is a userdata without a metatable.
local null = newproxy(false)

local SPARSE_RATIO, SPARSE_SAFE = 2, 10

local function settings()
    return {encode_depth = 1000, decode_depth = 1000, precision = 14, sparse_convert = false,
        sparse_ratio = SPARSE_RATIO, sparse_safe = SPARSE_SAFE, encode_invalid = false, decode_invalid = true}
end

local ESCAPES = {['"'] = '\\"', ['\\'] = '\\\\', ['/'] = '\\/', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t', ['\127'] = '\\u007f'}
for i = 0, 31 do
    local c = char(i)
    ESCAPES[c] = ESCAPES[c] or format('\\u%04x', i)
end

local function quoted(s) return '"' .. gsub(s, '[%c"\\/\127]', ESCAPES) .. '"' end

local function refuse(what, why) error('Cannot serialise ' .. what .. ': ' .. why, 0) end

local encode

local function number(n, set)
    if n ~= n or n == 1 / 0 or n == -1 / 0 then
        if not set.encode_invalid then refuse('number', 'must not be NaN or Inf') end
        return set.encode_invalid == 'null' and 'null' or tostring(n)
    end
    return format('%.' .. set.precision .. 'g', n)
end

-- Return the length of a table that is to be an array, or nil for an object.
local function array_length(t, set)
    local count, most = 0, 0
    for key in next, t do
        if type(key) ~= 'number' or key < 1 or key ~= floor(key) then return nil end
        count = count + 1
        if key > most then most = key end
    end
    if count == 0 then return nil end
    if set.sparse_ratio > 0 and most > count * set.sparse_ratio and most > set.sparse_safe then
        if not set.sparse_convert then refuse('table', 'excessively sparse array') end
        return nil
    end
    return most
end

local function encode_table(t, set, out, depth)
    if depth > set.encode_depth then refuse('table', 'excessive nesting') end
    local n = array_length(t, set)
    if n then
        out[#out + 1] = '['
        for i = 1, n do
            if i > 1 then out[#out + 1] = ',' end
            encode(t[i], set, out, depth)
        end
        out[#out + 1] = ']'
        return
    end
    out[#out + 1] = '{'
    local first = true
    for key, value in next, t do
        if not first then out[#out + 1] = ',' end
        first = false
        if type(key) == 'number' then
            out[#out + 1] = '"' .. number(key, set) .. '":'
        elseif type(key) == 'string' then
            out[#out + 1] = quoted(key) .. ':'
        else
            refuse(type(key), 'table key must be a number or string')
        end
        encode(value, set, out, depth)
    end
    out[#out + 1] = '}'
end

function encode(v, set, out, depth)
    local kind = type(v)
    if kind == 'string' then
        out[#out + 1] = quoted(v)
    elseif kind == 'number' then
        out[#out + 1] = number(v, set)
    elseif kind == 'boolean' then
        out[#out + 1] = v and 'true' or 'false'
    elseif kind == 'nil' or v == null then
        out[#out + 1] = 'null'
    elseif kind == 'table' then
        encode_table(v, set, out, depth + 1)
    else
        refuse(kind, 'type not supported')
    end
end

-- Decoding.

local TOKENS = {
    [123] = 'T_OBJ_BEGIN', [125] = 'T_OBJ_END', [91] = 'T_ARR_BEGIN', [93] = 'T_ARR_END', [44] = 'T_COMMA',
    [58] = 'T_COLON', [34] = 'T_STRING',
}

local function token_name(s, at)
    local c = byte(s, at)
    if not c then return 'T_END' end
    if TOKENS[c] then return TOKENS[c] end
    if find(s, '^[-%d]', at) then return 'T_NUMBER' end
    if find(s, '^true', at) or find(s, '^false', at) then return 'T_BOOLEAN' end
    if find(s, '^null', at) then return 'T_NULL' end
    return 'invalid token'
end

local function expected(what, s, at)
    error('Expected ' .. what .. ' but found ' .. token_name(s, at) .. ' at character ' .. at, 0)
end

local function skip(s, at) return (find(s, '[^ \t\r\n]', at)) or #s + 1 end

local UNESCAPES = {['"'] = '"', ['\\'] = '\\', ['/'] = '/', b = '\b', f = '\f', n = '\n', r = '\r', t = '\t'}

local function utf8(code)
    if code < 0x80 then return char(code) end
    if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
    if code < 0x10000 then
        return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
    end
    return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

local function unicode(s, at)
    local digits = match(s, '^%x%x%x%x', at + 2)
    local code = digits and tonumber(digits, 16)
    if not code or code >= 0xDC00 and code <= 0xDFFF then return end
    if code < 0xD800 or code > 0xDBFF then return utf8(code), at + 6 end
    digits = match(s, '^\\u(%x%x%x%x)', at + 6)
    local low = digits and tonumber(digits, 16)
    if not low or low < 0xDC00 or low > 0xDFFF then return end
    return utf8(0x10000 + (code - 0xD800) * 1024 + low - 0xDC00), at + 12
end

-- Parse the string that begins at `at`; return it and the position after it.
local function decode_string(s, at)
    local begin, out = at, nil
    at = at + 1
    while true do
        local e = find(s, '[%c"\\]', at)
        if not e then error('Expected value but found unexpected end of string at character ' .. #s + 1, 0) end
        local c = byte(s, e)
        if c == 34 then
            if not out then return sub(s, at, e - 1), e + 1 end
            out[#out + 1] = sub(s, at, e - 1)
            return concat(out), e + 1
        end
        out = out or {}
        if c ~= 92 then
            out[#out + 1] = sub(s, at, e)
            at = e + 1
        else
            out[#out + 1] = sub(s, at, e - 1)
            local d = sub(s, e + 1, e + 1)
            if d == 'u' then
                local text, after = unicode(s, e)
                if not text then error('Expected value but found invalid unicode escape code at character ' .. e, 0) end
                out[#out + 1] = text
                at = after
            else
                if not UNESCAPES[d] then error('Expected value but found invalid escape code at character ' .. e, 0) end
                out[#out + 1] = UNESCAPES[d]
                at = e + 2
            end
        end
    end
end

local decode

local function check_depth(depth, set, at)
    if depth > set.decode_depth then
        error('Found too many nested data structures (' .. depth .. ') at character ' .. at, 0)
    end
end

local function decode_object(s, at, set, depth)
    check_depth(depth, set, at)
    local t = {}
    at = skip(s, at + 1)
    if byte(s, at) == 125 then return t, at + 1 end
    while true do
        if byte(s, at) ~= 34 then expected('object key string', s, at) end
        local key, value
        key, at = decode_string(s, at)
        at = skip(s, at)
        if byte(s, at) ~= 58 then expected('colon', s, at) end
        value, at = decode(s, skip(s, at + 1), set, depth)
        t[key] = value
        at = skip(s, at)
        local c = byte(s, at)
        if c == 125 then return t, at + 1 end
        if c ~= 44 then expected('comma or object end', s, at) end
        at = skip(s, at + 1)
    end
end

local function decode_array(s, at, set, depth)
    check_depth(depth, set, at)
    local t, n = {}, 0
    at = skip(s, at + 1)
    if byte(s, at) == 93 then return t, at + 1 end
    while true do
        n = n + 1
        t[n], at = decode(s, at, set, depth)
        at = skip(s, at)
        local c = byte(s, at)
        if c == 93 then return t, at + 1 end
        if c ~= 44 then expected('comma or array end', s, at) end
        at = skip(s, at + 1)
    end
end

function decode(s, at, set, depth)
    local c = byte(s, at)
    if c == 123 then return decode_object(s, at, set, depth + 1) end
    if c == 91 then return decode_array(s, at, set, depth + 1) end
    if c == 34 then return decode_string(s, at) end
    if find(s, '^true', at) then return true, at + 4 end
    if find(s, '^false', at) then return false, at + 5 end
    if find(s, '^null', at) then return null, at + 4 end
    local text = match(s, '^-?%d+%.?%d*[eE]?[+-]?%d*', at)
    if text and set.decode_invalid == false and find(text, '^-?0%d') then
        error('Expected value but found invalid number at character ' .. at, 0)
    end
    if text and find(s, '^-?0[xX]%x+', at) then text = match(s, '^-?0[xX]%x+', at) end
    local n = text and tonumber(text)
    if n then return n, at + #text end
    if set.decode_invalid then
        local word = match(s, '^[-+]?%a+', at)
        local lower = word and word:lower():gsub('^[-+]', '')
        if lower == 'nan' then return 0 / 0, at + #word end
        if lower == 'inf' or lower == 'infinity' then
            return sub(word, 1, 1) == '-' and -1 / 0 or 1 / 0, at + #word
        end
    end
    expected('value', s, at)
end

-- The functions of the library, and their settings.

local json_decode, json_encode = H.json_decode, H.json_encode -- of compiled code, in C, for ordinary texts

local make
local changed = false -- a script has made a setting

local function note_change()
    changed = true
    H.note_change()
end

local function integer_setting(set, field, most, name)
    return function(n)
        if n ~= nil then
            if type(n) ~= 'number' then
                error("bad argument #1 to '" .. name .. "' (number expected, got " .. type(n) .. ')', 2)
            end
            if n < 1 or n > most then
                error("bad argument #1 to '" .. name .. "' (expected integer between 1 and " .. format('%.0f', most) .. ')', 2)
            end
            set[field] = n
            note_change()
        end
        return set[field]
    end
end

local function flag_setting(set, field)
    return function(v)
        if v == 'on' then v = true elseif v == 'off' then v = false end
        if v ~= nil then
            set[field] = v
            note_change()
        end
        return set[field]
    end
end

local function sparse_setting(set)
    return function(convert, ratio, safe)
        note_change()
        if convert ~= nil then set.sparse_convert = convert end
        if type(ratio) == 'number' and ratio >= 0 then set.sparse_ratio = ratio end
        if type(safe) == 'number' and safe >= 0 then set.sparse_safe = safe end
        return set.sparse_convert, set.sparse_ratio, set.sparse_safe
    end
end

local function count(name, ...)
    if select('#', ...) ~= 1 then error("bad argument #1 to '" .. name .. "' (expected 1 argument)", 3) end
end

local function positioned(ok, ...)
    if ok then return ... end
    local e = ...
    if type(e) ~= 'string' then error(e, 0) end
    error(e, 2) -- of the script: this function is always called as the last thing of one here
end

function make()
    local set = settings()
    local cjson = {_NAME = 'cjson', _VERSION = '2.1.0', null = null}
    cjson.encode = function(...)
        count('encode', ...)
        local text = json_encode and not changed and json_encode((...), null)
        if text then return text end
        local out = {}
        local ok, wrong = pcall(encode, (...), set, out, 0)
        if not ok then return positioned(false, wrong) end
        return concat(out)
    end
    cjson.decode = function(...)
        count('decode', ...)
        local s = ...
        if type(s) == 'number' then s = tostring(s) end
        if type(s) ~= 'string' then
            error("bad argument #1 to 'decode' (string expected, got " .. type(s) .. ')', 2)
        end
        if json_decode and not changed then
            local done, value = json_decode(s, null)
            if done then return value end
        end
        local ok, value, at = pcall(decode, s, skip(s, 1), set, 0)
        if not ok then return positioned(false, value) end
        at = skip(s, at)
        if at <= #s then error('Expected the end but found ' .. token_name(s, at) .. ' at character ' .. at, 2) end
        return value
    end
    cjson.encode_max_depth = integer_setting(set, 'encode_depth', 2147483647, 'encode_max_depth')
    cjson.decode_max_depth = integer_setting(set, 'decode_depth', 2147483647, 'decode_max_depth')
    cjson.encode_number_precision = integer_setting(set, 'precision', 14, 'encode_number_precision')
    cjson.encode_keep_buffer = function() return true end
    cjson.encode_invalid_numbers = flag_setting(set, 'encode_invalid')
    cjson.decode_invalid_numbers = flag_setting(set, 'decode_invalid')
    cjson.encode_sparse_array = sparse_setting(set)
    cjson.new = function() return H.lock((make())) end
    return cjson, set
end

local cjson, shared = make()
local defaults = settings()

-- Settings made by one script must not change another one.
H.resets[#H.resets + 1] = function()
    if not changed then return end
    changed = false
    for name, value in pairs(defaults) do shared[name] = value end
end

H.globals.cjson = H.lock(cjson)
