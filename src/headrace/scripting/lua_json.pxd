# JSON in C, for sandbox/cjson.lua: texts of at most HEADRACE_REPLY_MAX bytes in ordinary form. Whatever else there
# is (an error, a fraction of many digits, a table with a metatable, deep nesting) is left to cjson.lua, so that
# there is one place for each error.
#
# The buffer for the reply of a script is free while it runs: it holds the text, or a string without its escapes.
from headrace.scripting cimport lua


cdef extern from *:
    r"""
    #define HEADRACE_JSON_DEPTH_MAX 100
    #define HEADRACE_JSON_NULL 2  // the index of the argument that stands for null

    typedef struct { lua_State *L; headrace_state *state; const char *p, *end; } headrace_json;

    static void headrace_json_skip(headrace_json *json) {
        while (json->p < json->end && (*json->p == ' ' || *json->p == '\n' || *json->p == '\r' || *json->p == '\t'))
            json->p++;
    }

    // Return the value of four hexadecimal digits at p, or -1.
    static long headrace_json_hex(const char *p, const char *end) {
        long value = 0;
        int i;
        if (end - p < 4) return -1;
        for (i = 0; i < 4; i++) {
            int c = (unsigned char) p[i];
            if (c >= '0' && c <= '9') value = 16 * value + c - '0';
            else if ((c | 32) >= 'a' && (c | 32) <= 'f') value = 16 * value + (c | 32) - 'a' + 10;
            else return -1;
        }
        return value;
    }

    // Return where the character of an escape \uXXXX ends, whose X begin at p, and write it to `to`; NULL if invalid.
    static const char *headrace_json_unicode(const char *p, const char *end, unsigned char **to) {
        long code = headrace_json_hex(p, end), low;
        unsigned char *q = *to;
        if (code < 0 || (code >= 0xDC00 && code <= 0xDFFF)) return NULL;
        p += 4;
        if (code >= 0xD800 && code <= 0xDBFF) {
            if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return NULL;
            low = headrace_json_hex(p + 2, end);
            if (low < 0xDC00 || low > 0xDFFF) return NULL;
            code = 0x10000 + (code - 0xD800) * 1024 + low - 0xDC00;
            p += 6;
        }
        if (code < 0x80) {
            *q++ = (unsigned char) code;
        } else if (code < 0x800) {
            *q++ = (unsigned char) (0xC0 + (code >> 6));
            *q++ = (unsigned char) (0x80 + (code & 63));
        } else {
            if (code >= 0x10000) {
                *q++ = (unsigned char) (0xF0 + (code >> 18));
                *q++ = (unsigned char) (0x80 + (code >> 12 & 63));
            } else {
                *q++ = (unsigned char) (0xE0 + (code >> 12));
            }
            *q++ = (unsigned char) (0x80 + (code >> 6 & 63));
            *q++ = (unsigned char) (0x80 + (code & 63));
        }
        *to = q;
        return p;
    }

    // Push the string whose opening quote is at p. Each function returns 0 if cjson.lua must do it.
    static int headrace_json_string(headrace_json *json) {
        const char *p = ++json->p, *end = json->end;
        unsigned char *to, *text;
        while (p < end && *p != '"' && *p != '\\') p++;
        if (p >= end) return 0;
        if (*p == '"') {
            headrace_lua.lua_pushlstring(json->L, json->p, (size_t) (p - json->p));
            json->p = p + 1;
            return 1;
        }
        json->state->reply_size = 0;
        text = to = (unsigned char *) headrace_reply_space(json->state, (size_t) (end - json->p));
        if (to == NULL) return 0;
        for (p = json->p; p < end && *p != '"'; p++) {
            if (*p != '\\') { *to++ = (unsigned char) *p; continue; }
            if (++p >= end) return 0;
            switch (*p) {
            case '"': case '\\': case '/': *to++ = (unsigned char) *p; break;
            case 'b': *to++ = '\b'; break;
            case 'f': *to++ = '\f'; break;
            case 'n': *to++ = '\n'; break;
            case 'r': *to++ = '\r'; break;
            case 't': *to++ = '\t'; break;
            case 'u':
                p = headrace_json_unicode(p + 1, end, &to);
                if (p == NULL) return 0;
                p--;
                break;
            default: return 0;
            }
        }
        if (p >= end) return 0;
        headrace_lua.lua_pushlstring(json->L, (const char *) text, (size_t) (to - text));
        json->p = p + 1;
        return 1;
    }

    static int headrace_json_number(headrace_json *json) {
        static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
                                        1e15};
        const char *begin = json->p, *p = begin, *end = json->end, *digits;
        unsigned long long value = 0;
        int negative, places = 0, count;
        double number;
        negative = *p == '-';
        p += negative;
        for (digits = p; p < end && *p >= '0' && *p <= '9'; p++) value = 10 * value + (unsigned long long) (*p - '0');
        count = (int) (p - digits);
        if (count == 0 || count > 15 || (count > 1 && *digits == '0')) return 0;
        if (p < end && *p == '.') {
            for (digits = ++p; p < end && *p >= '0' && *p <= '9'; p++)
                if (count + p - digits < 15) value = 10 * value + (unsigned long long) (*p - '0');
            if (p == digits || count + p - digits > 15) return 0;
            places = (int) (p - digits);
        }
        if (p < end && *p != ',' && *p != ']' && *p != '}' && *p != ' ' && *p != '\n' && *p != '\r' && *p != '\t') return 0;
        number = (double) value / powers[places];  // both are exact, so the quotient is rounded correctly
        headrace_lua.lua_pushnumber(json->L, negative ? -number : number);
        json->p = p;
        return 1;
    }

    static int headrace_json_word(headrace_json *json, const char *word, size_t size) {
        if ((size_t) (json->end - json->p) < size || memcmp(json->p, word, size)) return 0;
        json->p += size;
        return 1;
    }

    static int headrace_json_value(headrace_json *json, int depth);

    static int headrace_json_object(headrace_json *json, int depth) {
        headrace_lua.lua_createtable(json->L, 0, 0);  // it grows as in cjson.lua, so keys have the same order
        json->p++;
        headrace_json_skip(json);
        if (json->p < json->end && *json->p == '}') { json->p++; return 1; }
        for (;;) {
            if (json->p >= json->end || *json->p != '"' || !headrace_json_string(json)) return 0;
            headrace_json_skip(json);
            if (json->p >= json->end || *json->p != ':') return 0;
            json->p++;
            headrace_json_skip(json);
            if (!headrace_json_value(json, depth)) return 0;
            headrace_lua.lua_rawset(json->L, -3);
            headrace_json_skip(json);
            if (json->p >= json->end) return 0;
            if (*json->p == '}') { json->p++; return 1; }
            if (*json->p++ != ',') return 0;
            headrace_json_skip(json);
        }
    }

    static int headrace_json_array(headrace_json *json, int depth) {
        int n = 0;
        headrace_lua.lua_createtable(json->L, 0, 0);
        json->p++;
        headrace_json_skip(json);
        if (json->p < json->end && *json->p == ']') { json->p++; return 1; }
        for (;;) {
            if (!headrace_json_value(json, depth)) return 0;
            headrace_lua.lua_rawseti(json->L, -2, ++n);
            headrace_json_skip(json);
            if (json->p >= json->end) return 0;
            if (*json->p == ']') { json->p++; return 1; }
            if (*json->p++ != ',') return 0;
            headrace_json_skip(json);
        }
    }

    static int headrace_json_value(headrace_json *json, int depth) {
        if (json->p >= json->end) return 0;
        switch (*json->p) {
        case '{':
        case '[':
            if (depth >= HEADRACE_JSON_DEPTH_MAX || !headrace_lua.lua_checkstack(json->L, 8)) return 0;
            return *json->p == '{' ? headrace_json_object(json, depth + 1) : headrace_json_array(json, depth + 1);
        case '"':
            return headrace_json_string(json);
        case 't':
            headrace_lua.lua_pushboolean(json->L, 1);
            return headrace_json_word(json, "true", 4);
        case 'f':
            headrace_lua.lua_pushboolean(json->L, 0);
            return headrace_json_word(json, "false", 5);
        case 'n':
            headrace_lua.lua_pushvalue(json->L, HEADRACE_JSON_NULL);
            return headrace_json_word(json, "null", 4);
        default:
            return headrace_json_number(json);
        }
    }

    // H.json_decode(text, null): return true and the value, or nothing.
    static int headrace_json_decode(lua_State *L) {
        headrace_json json = {L, headrace_upvalue(L), NULL, NULL};
        size_t size;
        headrace_check(L, json.state, 0);
        json.p = headrace_lua.lua_tolstring(L, 1, &size);
        json.end = json.p + size;
        if (size > HEADRACE_REPLY_MAX) return 0;
        headrace_lua.lua_settop(L, 2);
        headrace_lua.lua_pushboolean(L, 1);
        headrace_json_skip(&json);
        if (!headrace_json_value(&json, 0)) return 0;
        headrace_json_skip(&json);
        return json.p == json.end ? 2 : 0;
    }

    static int headrace_json_put(headrace_state *state, const char *text, size_t n) {
        char *to = headrace_reply_space(state, n);
        if (to == NULL) return 0;
        memcpy(to, text, n);
        state->reply_size += n;
        return 1;
    }

    static int headrace_json_quote(headrace_state *state, const char *p, size_t n) {
        static const char hex[] = "0123456789abcdef";
        const char *end = p + n, *from;
        char escape[6] = {'\\', 'u', '0', '0', 0, 0};
        if (!headrace_json_put(state, "\"", 1)) return 0;
        while (p < end) {
            for (from = p; p < end && (unsigned char) *p >= 32 && *p != '"' && *p != '\\' && *p != '/' && *p != 127; p++) {}
            if (p > from && !headrace_json_put(state, from, (size_t) (p - from))) return 0;
            if (p >= end) break;
            switch (*p) {
            case '"': case '\\': case '/': escape[1] = *p; break;
            case '\b': escape[1] = 'b'; break;
            case '\f': escape[1] = 'f'; break;
            case '\n': escape[1] = 'n'; break;
            case '\r': escape[1] = 'r'; break;
            case '\t': escape[1] = 't'; break;
            default:
                escape[1] = 'u';
                escape[4] = hex[(unsigned char) *p >> 4];
                escape[5] = hex[*p & 15];
            }
            if (!headrace_json_put(state, escape, escape[1] == 'u' ? 6 : 2)) return 0;
            p++;
        }
        return headrace_json_put(state, "\"", 1);
    }

    static int headrace_json_put_number(headrace_state *state, double number) {
        char digits[32], *text;
        int n, done;
        if (number != number || number - number != 0) return 0;  // NaN, infinite
        if (number > -1e14 && number < 1e14 && number == (double) (long long) number && (number != 0 || 1 / number > 0)) {
            n = snprintf(digits, sizeof digits, "%lld", (long long) number);
            return headrace_json_put(state, digits, (size_t) n);
        }
        text = PyOS_double_to_string(number, 'g', 14, 0, NULL);  // as printf(), whatever the locale
        if (text == NULL) { PyErr_Clear(); return 0; }
        done = headrace_json_put(state, text, strlen(text));
        PyMem_Free(text);
        return done;
    }

    static int headrace_json_encode_value(headrace_state *state, lua_State *L, int depth);

    // Return how many elements the table at the index has if it is an array, 0 for an object, -1 for neither.
    static int headrace_json_length(lua_State *L, int table) {
        double key, most = 0, count = 0;
        headrace_lua.lua_pushnil(L);
        while (headrace_lua.lua_next(L, table)) {
            headrace_lua.lua_settop(L, table + 1);
            if (headrace_lua.lua_type(L, -1) != HEADRACE_NUMBER) return 0;
            key = headrace_lua.lua_tonumber(L, -1);
            if (!(key >= 1 && key < 2147483647.0) || key != (double) (int) key) return 0;
            count++;
            if (key > most) most = key;
        }
        return most > 2 * count && most > 10 ? -1 : (int) most;
    }

    static int headrace_json_encode_table(headrace_state *state, lua_State *L, int depth) {
        int table = headrace_lua.lua_gettop(L), i, n;
        if (depth > HEADRACE_JSON_DEPTH_MAX || !headrace_lua.lua_checkstack(L, 8)) return 0;
        if (headrace_lua.lua_getmetatable(L, table)) return 0;
        n = headrace_json_length(L, table);
        headrace_lua.lua_settop(L, table);
        if (n < 0) return 0;
        for (i = 1; i <= n; i++) {
            if (!headrace_json_put(state, i == 1 ? "[" : ",", 1)) return 0;
            headrace_lua.lua_rawgeti(L, table, i);
            if (!headrace_json_encode_value(state, L, depth)) return 0;
            headrace_lua.lua_settop(L, table);
        }
        if (n > 0) return headrace_json_put(state, "]", 1);
        if (!headrace_json_put(state, "{", 1)) return 0;
        headrace_lua.lua_pushnil(L);
        for (i = 0; headrace_lua.lua_next(L, table); i++) {
            const char *key;
            size_t size;
            if (i > 0 && !headrace_json_put(state, ",", 1)) return 0;
            if (headrace_lua.lua_type(L, table + 1) == HEADRACE_STRING) {
                key = headrace_lua.lua_tolstring(L, table + 1, &size);
                if (!headrace_json_quote(state, key, size) || !headrace_json_put(state, ":", 1)) return 0;
            } else if (headrace_lua.lua_type(L, table + 1) == HEADRACE_NUMBER) {
                if (!headrace_json_put(state, "\"", 1)
                    || !headrace_json_put_number(state, headrace_lua.lua_tonumber(L, table + 1))
                    || !headrace_json_put(state, "\":", 2)) return 0;
            } else {
                return 0;
            }
            if (!headrace_json_encode_value(state, L, depth)) return 0;
            headrace_lua.lua_settop(L, table + 1);
        }
        return headrace_json_put(state, "}", 1);
    }

    // Encode the value on top of the stack.
    static int headrace_json_encode_value(headrace_state *state, lua_State *L, int depth) {
        const char *text;
        size_t size;
        switch (headrace_lua.lua_type(L, -1)) {
        case HEADRACE_STRING:
            text = headrace_lua.lua_tolstring(L, -1, &size);
            return headrace_json_quote(state, text, size);
        case HEADRACE_NUMBER:
            return headrace_json_put_number(state, headrace_lua.lua_tonumber(L, -1));
        case HEADRACE_BOOLEAN:
            return headrace_lua.lua_toboolean(L, -1) ? headrace_json_put(state, "true", 4)
                                                     : headrace_json_put(state, "false", 5);
        case HEADRACE_NIL:
            return headrace_json_put(state, "null", 4);
        case HEADRACE_TABLE_TYPE:
            return headrace_json_encode_table(state, L, depth + 1);
        default:
            return headrace_lua.lua_rawequal(L, -1, HEADRACE_JSON_NULL) && headrace_json_put(state, "null", 4);
        }
    }

    // H.json_encode(value, null): return the text, or nil.
    static int headrace_json_encode(lua_State *L) {
        headrace_state *state = headrace_upvalue(L);
        headrace_check(L, state, 0);
        state->reply_size = 0;
        headrace_lua.lua_settop(L, 2);
        headrace_lua.lua_pushvalue(L, 1);
        if (headrace_json_encode_value(state, L, 0)) headrace_lua.lua_pushlstring(L, state->reply, state->reply_size);
        else headrace_lua.lua_pushnil(L);
        return 1;
    }

    static int headrace_add_json(PyObject *capsule) {
        headrace_state *state = headrace_state_of(capsule);
        headrace_lua.lua_rawgeti(state->L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_add_function(state->L, state, "json_decode", headrace_json_decode);
        headrace_add_function(state->L, state, "json_encode", headrace_json_encode);
        headrace_lua.lua_settop(state->L, 0);
        return 0;
    }
    """
    int headrace_add_json(object state) except -1


cdef inline int add_json(object state) except -1:
    return headrace_add_json(state)
