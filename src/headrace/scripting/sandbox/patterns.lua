-- Patterns of strings that cannot run for long: string.find, match, gmatch and gsub.
--
-- The functions of Lua's library try all ways to match without ever calling the hook. For a pattern with k
-- repetitions and a subject of n bytes that can take n^(k+1) steps. Below STEPS_MAX they are used; above it
-- the matcher of this file, which is slower, but which the hook can interrupt.

local H = ...

local find, match, gmatch, gsub, sub, byte, rep = string.find, string.match, string.gmatch, string.gsub, string.sub, string.byte, string.rep
local format, char = string.format, string.char
local type, error, tostring, tonumber, select, unpack = type, error, tostring, tonumber, select, unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local nested_gsub = H.nesting('gsub', gsub)

local STEPS_MAX = 2e7
local STEPS_POLL = 1e5 -- more take as long as many instructions
local ITEMS_MAX = 100 -- repetitions and captures of one pattern: each takes space on the C stack
local CAPTURES_MAX = 32
local ESCAPE, DOLLAR, CARET, PERCENT_B, PERCENT_F = 37, 36, 94, 98, 102

-- Return whether the library's function is sure to end soon. anchors: a ^ at the beginning of p is no character.
local function is_cheap(s, p, anchors)
    local n = #s
    if n <= 16 and #p <= 8 then return true end
    local k = select(2, gsub(p, '[*+%-?]', '')) + 2 * select(2, gsub(p, '%%[bf]', ''))
    local items = k + select(2, gsub(p, '[(]', ''))
    if items > ITEMS_MAX then error('pattern too complex') end
    if anchors and byte(p, 1) == CARET and k > 0 then k = k - 1 end
    local steps = (n + 1) ^ (k + 1) * #p
    if steps > STEPS_POLL then H.poll() end
    return steps <= STEPS_MAX or (k == 0 and n * #p <= 10 * STEPS_MAX)
end

-- The end of the single character or class that begins at `at` of the pattern.
local function class_end(p, at)
    local c = byte(p, at)
    if c == ESCAPE then
        if at == #p then error("malformed pattern (ends with '%')") end
        return at + 2
    end
    at = at + 1
    if c ~= 91 then return at end
    if byte(p, at) == 94 then at = at + 1 end
    repeat
        local d = byte(p, at)
        if not d then error("malformed pattern (missing ']')") end
        at = at + 1
        if d == ESCAPE then at = at + 1 end
    until byte(p, at) == 93
    return at + 1
end

-- One byte is matched by the library: no repetition can be in it.
local function single(s, i, p, from, to)
    local c = byte(s, i)
    if not c then return false end
    local first = byte(p, from)
    if to == from + 1 then return first == 46 or first == c end
    return find(char(c), '^' .. sub(p, from, to - 1)) ~= nil
end

local do_match

local function captured(m, k)
    local c = m[k]
    if not c then error('invalid capture index') end
    return c
end

local function repeated(m, s, i, p, from, to, least)
    local n = 0
    while single(s, i + n, p, from, to) do n = n + 1 end
    while n >= least do
        local e = do_match(m, s, i + n, p, to + 1)
        if e then return e end
        n = n - 1
    end
end

local function open_capture(m, s, i, p, at)
    if m.n >= CAPTURES_MAX then error('too many captures') end
    m.n = m.n + 1
    local k = m.n
    if byte(p, at + 1) == 41 then
        m[k] = {i, 'position'}
        at = at + 2
    else
        m[k] = {i, 'open'}
        at = at + 1
    end
    local e = do_match(m, s, i, p, at)
    if not e then m.n, m[k] = k - 1, nil end
    return e
end

local function close_capture(m, s, i, p, at)
    for k = m.n, 1, -1 do
        if m[k][2] == 'open' then
            m[k][2] = i
            local e = do_match(m, s, i, p, at + 1)
            if not e then m[k][2] = 'open' end
            return e
        end
    end
    error('invalid pattern capture')
end

local function balanced(s, i, p, at)
    local open, close = byte(p, at), byte(p, at + 1)
    if not close then error("unbalanced pattern") end
    if byte(s, i) ~= open then return end
    local depth, j = 1, i + 1
    while j <= #s do
        local c = byte(s, j)
        if c == close then
            depth = depth - 1
            if depth == 0 then return j + 1 end
        elseif c == open then
            depth = depth + 1
        end
        j = j + 1
    end
end

local function in_set(c, set) return find(char(c or 0), '^' .. set) ~= nil end

-- Match the pattern from `at` on at position i of s; return the position after the match, or nil.
function do_match(m, s, i, p, at)
    while true do
        local c = byte(p, at)
        if not c then return i end
        if c == 40 then return open_capture(m, s, i, p, at) end
        if c == 41 then return close_capture(m, s, i, p, at) end
        if c == DOLLAR and at == #p then return i == #s + 1 and i or nil end
        local d = c == ESCAPE and byte(p, at + 1)
        if d == PERCENT_B then
            i = balanced(s, i, p, at + 2)
            if not i then return end
            at = at + 4
        elseif d == PERCENT_F then
            if byte(p, at + 2) ~= 91 then error("missing '[' after '%f' in pattern") end
            local to = class_end(p, at + 2)
            local set = sub(p, at + 2, to - 1)
            if in_set(byte(s, i - 1), set) or not in_set(byte(s, i), set) then return end
            at = to
        elseif d and d >= 48 and d <= 57 then
            local capture = captured(m, d - 48)
            if type(capture[2]) ~= 'number' then error('invalid capture index') end
            local text = sub(s, capture[1], capture[2] - 1)
            if sub(s, i, i + #text - 1) ~= text then return end
            i, at = i + #text, at + 2
        else
            local to = class_end(p, at)
            local mode = byte(p, to)
            if mode == 63 then -- ?
                if single(s, i, p, at, to) then
                    local e = do_match(m, s, i + 1, p, to + 1)
                    if e then return e end
                end
                at = to + 1
            elseif mode == 42 then
                return repeated(m, s, i, p, at, to, 0)
            elseif mode == 43 then
                return repeated(m, s, i, p, at, to, 1)
            elseif mode == 45 then
                while true do
                    local e = do_match(m, s, i, p, to + 1)
                    if e then return e end
                    if not single(s, i, p, at, to) then return end
                    i = i + 1
                end
            else
                if not single(s, i, p, at, to) then return end
                i, at = i + 1, to
            end
        end
    end
end

-- Return the captures, or the whole match if there are none and `whole` is set.
local function captures(m, s, from, to, whole)
    if m.n == 0 then
        if whole then return sub(s, from, to - 1) end
        return
    end
    local values = {}
    for k = 1, m.n do
        local c = m[k]
        if c[2] == 'position' then
            values[k] = c[1]
        elseif c[2] == 'open' then
            error('unfinished capture')
        else
            values[k] = sub(s, c[1], c[2] - 1)
        end
    end
    return unpack(values, 1, m.n)
end

-- Return the matcher state, and where the first match at or after `from` begins and ends.
local function search(s, p, from, anchors)
    local anchored = anchors and byte(p, 1) == CARET
    local i = from
    repeat
        local m = {n = 0}
        local e = do_match(m, s, i, p, anchored and 2 or 1)
        if e then return m, i, e end
        i = i + 1
    until anchored or i > #s + 1
end

-- Return the position from which to search: 1 to #s + 1.
local function start_of(s, init)
    init = tonumber(init) or 1
    if init ~= init then return 1 end
    init = init < 0 and #s + ceil(init) + 1 or floor(init)
    return max(1, min(init, #s + 1))
end

local function slow_find(s, p, init)
    local m, i, e = search(s, p, start_of(s, init), true)
    if not m then return nil end
    return i, e - 1, captures(m, s, i, e)
end

local function slow_match(s, p, init)
    local m, i, e = search(s, p, start_of(s, init), true)
    if not m then return nil end
    return captures(m, s, i, e, true)
end

-- In gmatch a ^ at the beginning is a character like any other.
local function slow_gmatch(s, p)
    local from = 1
    return function()
        while from <= #s + 1 do
            local m, i, e = search(s, p, from, false)
            if not m then from = #s + 2 return nil end
            from = e == i and e + 1 or e
            return captures(m, s, i, e, true)
        end
    end
end

local function replacement(m, s, i, e, by)
    local kind, value = type(by), nil
    if kind == 'function' then
        value = by(captures(m, s, i, e, true))
    elseif kind == 'table' then
        value = by[(captures(m, s, i, e, true))]
    else
        return (gsub(by, '%%(.)', function(d)
            if d == '0' then return sub(s, i, e - 1) end
            if not find(d, '%d') then return d end
            local text = select(tonumber(d), captures(m, s, i, e, true))
            if not text then error('invalid capture index') end
            return tostring(text)
        end))
    end
    if not value then return sub(s, i, e - 1) end
    if type(value) ~= 'string' and type(value) ~= 'number' then
        error('invalid replacement value (a ' .. type(value) .. ')')
    end
    return value
end

local function slow_gsub(s, p, by, most)
    local out, at, count = {}, 1, 0
    local anchored = byte(p, 1) == CARET
    most = most or #s + 1
    while count < most do
        local m = {n = 0}
        local e = do_match(m, s, at, p, anchored and 2 or 1)
        if e then
            count = count + 1
            out[#out + 1] = replacement(m, s, at, e, by)
        end
        if e and e > at then
            at = e
        elseif at <= #s then
            out[#out + 1] = sub(s, at, at)
            at = at + 1
        else
            break
        end
        if anchored then break end
    end
    out[#out + 1] = sub(s, at)
    return table.concat(out), count
end

local strings = H.strings

local function text_of(v) return type(v) == 'number' and tostring(v) or v end

function strings.find(s, p, init, plain)
    s, p = text_of(s), text_of(p)
    if type(s) ~= 'string' or type(p) ~= 'string' then return find(s, p, init, plain) end
    if plain or not find(p, '[%^%$%*%+%?%.%(%[%%%-]') then
        if #s * #p > STEPS_POLL then H.poll() end
        if #s * #p < STEPS_MAX then return find(s, p, init, plain) end
        local at = H.find_plain(s, p, start_of(s, init))
        if not at then return nil end
        return at, at + #p - 1
    end
    if is_cheap(s, p, true) then return find(s, p, init) end
    return slow_find(s, p, init)
end

function strings.match(s, p, init)
    s, p = text_of(s), text_of(p)
    if type(s) ~= 'string' or type(p) ~= 'string' or is_cheap(s, p, true) then return match(s, p, init) end
    return slow_match(s, p, init)
end

function strings.gmatch(s, p)
    s, p = text_of(s), text_of(p)
    if type(s) ~= 'string' or type(p) ~= 'string' or is_cheap(s, p, false) then return gmatch(s, p) end
    return slow_gmatch(s, p)
end
strings.gfind = strings.gmatch

function strings.gsub(s, p, by, most)
    s, p = text_of(s), text_of(p)
    if type(s) ~= 'string' or type(p) ~= 'string' or is_cheap(s, p, true) then
        local substitute = (type(by) == 'string' or type(by) == 'number') and gsub or nested_gsub
        if most == nil then return substitute(s, p, by) end
        return substitute(s, p, by, most)
    end
    local kind = type(by)
    if kind ~= 'string' and kind ~= 'number' and kind ~= 'function' and kind ~= 'table' then return gsub(s, p, by) end
    return slow_gsub(s, p, by, tonumber(most))
end

-- Without this, a program could ask for a string of any size: the library reserves the space first.
function strings.rep(s, n)
    s = text_of(s)
    local times = tonumber(n)
    if type(s) ~= 'string' or not times then return rep(s, n) end
    if s == '' then return '' end
    if #s * times > H.memory_max * 1024 then error('not enough memory', 0) end
    return rep(s, times)
end

for _, name in ipairs {'find', 'match', 'gmatch', 'gsub', 'rep'} do H.names[strings[name]] = name end
