-- The library `bit`: operations on 32-bit words.

local H = ...
local type, error, select, format = type, error, select, string.format

local function number(v, k, name)
    if type(v) == 'string' and tonumber(v) then v = tonumber(v) end
    if type(v) ~= 'number' then
        error("bad argument #" .. k .. " to '" .. name .. "' (number expected, got " .. (v == nil and 'no value' or type(v)) .. ')', 3)
    end
    return v
end

local bit = {}

for _, name in ipairs {'tobit', 'bnot', 'bswap'} do
    bit[name] = function(a) return H.bit(name, number(a, 1, name), 0) end
end

for _, name in ipairs {'lshift', 'rshift', 'arshift', 'rol', 'ror'} do
    bit[name] = function(a, b) return H.bit(name, number(a, 1, name), number(b, 2, name)) end
end

for _, name in ipairs {'band', 'bor', 'bxor'} do
    bit[name] = function(...)
        local result = H.bit('tobit', number((...), 1, name), 0)
        for k = 2, select('#', ...) do result = H.bit(name, result, number((select(k, ...)), k, name)) end
        return result
    end
end

function bit.tohex(a, n)
    local value = H.bit('tobit', number(a, 1, 'tohex'), 0) % 4294967296
    n = n == nil and 8 or H.bit('tobit', number(n, 2, 'tohex'), 0)
    local upper = n < 0
    if upper then n = -n end
    if n > 8 then n = 8 end
    if n == 0 then return '' end
    return (format(upper and '%08X' or '%08x', value):sub(-n))
end

H.globals.bit = H.lock(bit)
