-- The library `bit`: operations on 32-bit words. LuaJIT has the one that Redis has, in C.

local H = ...

local copy = {}
for name, operation in pairs(bit) do copy[name] = operation end
H.globals.bit = H.lock(copy)
