-- The library `struct`: numbers and strings as packed bytes.
--
--     < > =   byte order       ! n    alignment         b B h H l L T i n I n   integers
--     f d     floats           s      string and a zero byte     c n   n bytes     x   a zero byte

local H = ...
local type, error, select, tonumber = type, error, select, tonumber
local sub, byte, find, rep, char, match = string.sub, string.byte, string.find, string.rep, string.char, string.match

local SIZES = {b = 1, B = 1, h = 2, H = 2, l = 8, L = 8, T = 8, i = 4, I = 4, f = 4, d = 8}
local INTEGERS = {[1] = 'b', [2] = 'h', [4] = 'i', [8] = 'q'}
local COUNT_MAX = 1024 * 1024 * 1024

local function wrong(k, name, text) error("bad argument #" .. k .. " to '" .. name .. "' (" .. text .. ')', 3) end

-- Return a function that returns (option, size, bytes of padding) of the next option at an offset, or nil.
local function options(form, name)
    local at, little, align = 1, true, 1
    local function count(default)
        local digits = match(form, '^%d+', at)
        if not digits then return default end
        at = at + #digits
        local n = tonumber(digits)
        if n > COUNT_MAX then error('integral size overflow', 4) end
        return n
    end
    return function(offset)
        while at <= #form do
            local option = sub(form, at, at)
            at = at + 1
            if option == '<' or option == '=' then
                little = true
            elseif option == '>' then
                little = false
            elseif option == '!' then
                align = count(8)
                if align == 0 or align > 32 or not ({[1] = 1, [2] = 1, [4] = 1, [8] = 1, [16] = 1, [32] = 1})[align] then
                    error('alignment is not a power of 2', 3)
                end
            elseif option ~= ' ' then
                local size = SIZES[option]
                if option == 'i' or option == 'I' then
                    size = count(4)
                    if size > 32 then error('integral size ' .. size .. ' is larger than limit of 32', 3) end
                elseif option == 'c' then
                    return option, count(1), 0, little
                elseif option == 's' or option == 'x' then
                    return option, option == 'x' and 1 or 0, 0, little
                elseif not size then
                    error("bad argument #1 to '" .. name .. "' (invalid format option '" .. option .. "')", 3)
                end
                local to = size < align and size or align
                local padding = 0
                if to > 1 then padding = (to - offset % to) % to end
                return option, size, padding, little
            end
        end
    end
end

local function is_integer(option) return find('bBhHlLTiI', option, 1, true) ~= nil end

local function text_form(form, name)
    if type(form) ~= 'string' then
        wrong(1, name, 'string expected, got ' .. (form == nil and 'no value' or type(form)))
    end
end

local struct = {}

local function pack_integer(value, size, little)
    local n = size
    if not INTEGERS[n] then n = 8 end
    local bytes = H.pack_number('<' .. INTEGERS[n], value)
    if n > size then bytes = sub(bytes, 1, size) end
    if size > n then bytes = bytes .. rep(char(value < 0 and 255 or 0), size - n) end
    return little and bytes or bytes:reverse()
end

function struct.pack(form, ...)
    text_form(form, 'pack')
    local out, offset, k = {}, 0, 0
    local values, given = {...}, select('#', ...)
    local function put(text)
        out[#out + 1] = text
        offset = offset + #text
    end
    local function argument(kind)
        k = k + 1
        local v = values[k]
        if k > given then wrong(k + 1, 'pack', kind .. ' expected, got no value') end
        if kind == 'string' and type(v) == 'number' then v = tostring(v) end
        if kind == 'number' and type(v) == 'string' and tonumber(v) then v = tonumber(v) end
        if type(v) ~= kind then wrong(k + 1, 'pack', kind .. ' expected, got ' .. (v == nil and 'nil' or type(v))) end
        return v
    end
    local next_option = options(form, 'pack')
    while true do
        local option, size, padding, little = next_option(offset)
        if not option then break end
        if padding > 0 then put(rep('\0', padding)) end
        if option == 'x' then
            put('\0')
        elseif option == 's' then
            put(argument('string') .. '\0')
        elseif option == 'c' then
            local text = argument('string')
            if size == 0 then size = #text end
            if #text < size then wrong(k + 1, 'pack', 'string too short') end
            put(sub(text, 1, size))
        elseif is_integer(option) then
            put(pack_integer(argument('number'), size, little))
        else
            put(H.pack_number((little and '<' or '>') .. option, argument('number')))
        end
    end
    return table.concat(out)
end

local function unpack_integer(bytes, little, signed)
    if not little then bytes = bytes:reverse() end
    local size = #bytes
    if size > 8 then
        bytes, size = sub(bytes, 1, 8), 8
    elseif not INTEGERS[size] then
        local negative = signed and byte(bytes, size) >= 128
        local full = size < 4 and 4 or 8
        bytes, size = bytes .. rep(char(negative and 255 or 0), full - size), full
    end
    local form = INTEGERS[size]
    return H.unpack_number('<' .. (signed and form or form:upper()), bytes)
end

function struct.unpack(form, data, start)
    text_form(form, 'unpack')
    if type(data) ~= 'string' then
        wrong(2, 'unpack', 'string expected, got ' .. (data == nil and 'no value' or type(data)))
    end
    local at, values, n = (start or 1) - 1, {}, 0
    if at < 0 then wrong(3, 'unpack', 'offset must be 1 or greater') end
    local next_option = options(form, 'unpack')
    while true do
        local option, size, padding, little = next_option(at)
        if not option then break end
        at = at + padding
        if at + size > #data then wrong(2, 'unpack', 'data string too short') end
        if option == 's' then
            local e = find(data, '\0', at + 1, true)
            if not e then wrong(2, 'unpack', 'unfinished string in data') end
            n = n + 1
            values[n] = sub(data, at + 1, e - 1)
            size = e - at
        elseif option == 'c' then
            if size == 0 then
                if n == 0 or type(values[n]) ~= 'number' then error("format 'c0' needs a previous size", 2) end
                size = values[n]
                n = n - 1
                if at + size > #data then wrong(2, 'unpack', 'data string too short') end
            end
            n = n + 1
            values[n] = sub(data, at + 1, at + size)
        elseif option ~= 'x' then
            local bytes = sub(data, at + 1, at + size)
            n = n + 1
            if is_integer(option) then
                values[n] = unpack_integer(bytes, little, find('bhli', option, 1, true) ~= nil)
            else
                values[n] = H.unpack_number((little and '<' or '>') .. option, bytes)
            end
        end
        at = at + size
    end
    values[n + 1] = at + 1
    return unpack(values, 1, n + 1)
end

function struct.size(form)
    text_form(form, 'size')
    local total = 0
    local next_option = options(form, 'size')
    while true do
        local option, size, padding = next_option(total)
        if not option then return total end
        if option == 's' then wrong(1, 'size', "variable-size format in struct.size") end
        if option == 'c' and size == 0 then wrong(1, 'size', "variable-length format in struct.size") end
        total = total + padding + size
    end
end

H.globals.struct = H.lock(struct)
