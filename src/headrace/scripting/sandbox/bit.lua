-- The library `bit`: operations on 32-bit words. LuaJIT has the one that Redis has, in C, but for the length of
-- tohex(): at most 8 digits in Redis, 254 in LuaJIT.

local H = ...

local copy = {}
for name, operation in pairs(bit) do copy[name] = operation end
local tobit, tohex, tonumber, max, min = bit.tobit, bit.tohex, tonumber, math.max, math.min

function copy.tohex(x, ...)
    local digits = ...
    digits = tonumber(digits)
    if not digits then return tohex(x, ...) end
    return tohex(x, max(-8, min(8, tobit(digits))))
end
H.names[copy.tohex] = 'tohex'

H.globals.bit = H.lock(copy)
