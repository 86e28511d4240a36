# Arithmetic that Lua lacks, in C: integers and floats as bytes, for sandbox/struct.lua and sandbox/cmsgpack.lua.
# A form is one of the module struct: `<` or `>`, and the letter of a type.
from headrace.scripting cimport lua


cdef extern from *:
    r"""
    #include <math.h>

    // Return the size of a type in bytes; 0 if there is no such type.
    static int headrace_number_size(const char *form, size_t n) {
        if (n != 2) return 0;
        switch (form[1]) {
        case 'b': case 'B': return 1;
        case 'h': case 'H': return 2;
        case 'i': case 'I': case 'l': case 'L': case 'f': return 4;
        case 'q': case 'Q': case 'd': return 8;
        }
        return 0;
    }

    // Return the low 64 bits of a number without its fraction; of one that is not finite, those of -2^63.
    static unsigned long long headrace_number_bits(double value) {
        double rest;
        if (!isfinite(value)) return 1ULL << 63;
        rest = fmod(trunc(value), 18446744073709551616.0);
        return rest < 0 ? 0 - (unsigned long long) -rest : (unsigned long long) rest;
    }

    // H.pack_number(form, value): return its bytes; an integer is cut to the size.
    static int headrace_pack_number(lua_State *L) {
        char bytes[8];
        size_t length;
        const char *form = headrace_lua.lua_tolstring(L, 1, &length);
        double value = headrace_lua.lua_tonumber(L, 2);
        int i, size = headrace_number_size(form, length);
        unsigned long long bits;
        float narrow;
        unsigned int narrow_bits;
        if (form[1] == 'd') {
            memcpy(&bits, &value, sizeof bits);
        } else if (form[1] == 'f') {
            narrow = (float) value;
            memcpy(&narrow_bits, &narrow, sizeof narrow_bits);
            bits = narrow_bits;
        } else {
            bits = headrace_number_bits(value);
        }
        for (i = 0; i < size; i++) bytes[*form == '<' ? i : size - 1 - i] = (char) (bits >> 8 * i & 255);
        headrace_lua.lua_pushlstring(L, bytes, (size_t) size);
        return 1;
    }

    // H.unpack_number(form, bytes): return the number that they are.
    static int headrace_unpack_number(lua_State *L) {
        size_t length, n;
        const char *form = headrace_lua.lua_tolstring(L, 1, &length);
        const char *bytes = headrace_lua.lua_tolstring(L, 2, &n);
        int i, size = headrace_number_size(form, length);
        unsigned long long bits = 0;
        unsigned int narrow_bits;
        float narrow;
        double value;
        if (bytes == NULL || n != (size_t) size) return 0;
        for (i = 0; i < size; i++)
            bits |= (unsigned long long) (unsigned char) bytes[*form == '<' ? i : size - 1 - i] << 8 * i;
        if (form[1] == 'd') {
            memcpy(&value, &bits, sizeof value);
        } else if (form[1] == 'f') {
            narrow_bits = (unsigned int) bits;
            memcpy(&narrow, &narrow_bits, sizeof narrow);
            value = (double) narrow;
        } else if (form[1] >= 'a' && size > 0) {  // signed
            if (size < 8 && bits >> (8 * size - 1)) bits |= ~0ULL << 8 * size;
            value = (double) (long long) bits;
        } else {
            value = (double) bits;
        }
        headrace_lua.lua_pushnumber(L, value);
        return 1;
    }

    static int headrace_add_numbers(PyObject *capsule) {
        headrace_state *state = headrace_state_of(capsule);
        headrace_lua.lua_rawgeti(state->L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_add_function(state->L, state, "pack_number", headrace_pack_number);
        headrace_add_function(state->L, state, "unpack_number", headrace_unpack_number);
        headrace_lua.lua_settop(state->L, 0);
        return 0;
    }
    """
    int headrace_add_numbers(object state) except -1


cdef inline int add_numbers(object state) except -1:
    return headrace_add_numbers(state)
