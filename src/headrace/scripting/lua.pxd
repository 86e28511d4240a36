# LuaJIT in C: its functions are those that the extension module lupa.luajit21 exports, found by dlsym().
# lua.py has the same functions for the interpreter.
#
# An error of Lua jumps over the C functions between it and the call that catches it. Here no such function holds
# a reference meanwhile: run() raises at its end, and memory is not limited while Python's objects are converted.
#
#     run()  ──keys, arguments──▶  the script  ──value──▶  encode()  ──bytes──▶  the client's ReplyWriter
#                                   │      ▲
#               redis.call(): argv  ▼      │ decode(): from the host's ReplyWriter
#                               ScriptHost.call()
#
# What is rare (a large or deeply nested reply, a map of RESP3, a fraction as an argument, every error) is left to
# the files in sandbox/, which lua.py always uses.
from headrace.resp.writer cimport ReplyWriter
from headrace.scripting.host cimport ScriptHost


cdef extern from *:
    r"""
    #include <dlfcn.h>
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>

    typedef struct lua_State lua_State;
    typedef int (*lua_CFunction)(lua_State *);
    typedef void *(*lua_Alloc)(void *, void *, size_t, size_t);
    typedef struct {
        int event;
        const char *name, *namewhat, *what, *source;
        int currentline, nups, linedefined, lastlinedefined;
        char short_src[60];
        int i_ci;
    } lua_Debug;
    typedef void (*lua_Hook)(lua_State *, lua_Debug *);
    typedef void (*headrace_host_call)(void *, void *, int, const unsigned char **, Py_ssize_t *);

    enum {
        HEADRACE_REGISTRY = -10000, HEADRACE_GLOBALS = -10002,
        HEADRACE_NIL = 0, HEADRACE_BOOLEAN = 1, HEADRACE_NUMBER = 3, HEADRACE_STRING = 4, HEADRACE_TABLE_TYPE = 5,
        HEADRACE_FUNCTION = 6, HEADRACE_TOKENS = 256, HEADRACE_TOKEN_MAX = 24, HEADRACE_GC_COLLECT = 2, HEADRACE_HOOK_COUNT = 8
    };

    #define HEADRACE_LUA_FUNCTIONS(F) \
        F(lua_State *, lua_newstate, (lua_Alloc, void *)) \
        F(void, luaL_openlibs, (lua_State *)) \
        F(int, luaL_loadbuffer, (lua_State *, const char *, size_t, const char *)) \
        F(void, lua_close, (lua_State *)) \
        F(int, lua_pcall, (lua_State *, int, int, int)) \
        F(int, lua_error, (lua_State *)) \
        F(int, lua_gc, (lua_State *, int, int)) \
        F(int, lua_gettop, (lua_State *)) \
        F(void, lua_settop, (lua_State *, int)) \
        F(void, lua_remove, (lua_State *, int)) \
        F(int, lua_type, (lua_State *, int)) \
        F(int, lua_toboolean, (lua_State *, int)) \
        F(double, lua_tonumber, (lua_State *, int)) \
        F(const char *, lua_tolstring, (lua_State *, int, size_t *)) \
        F(void *, lua_touserdata, (lua_State *, int)) \
        F(void, lua_pushnil, (lua_State *)) \
        F(void, lua_pushboolean, (lua_State *, int)) \
        F(void, lua_pushnumber, (lua_State *, double)) \
        F(void, lua_pushlstring, (lua_State *, const char *, size_t)) \
        F(void, lua_pushlightuserdata, (lua_State *, void *)) \
        F(void, lua_pushcclosure, (lua_State *, lua_CFunction, int)) \
        F(void, lua_createtable, (lua_State *, int, int)) \
        F(void, lua_rawget, (lua_State *, int)) \
        F(void, lua_rawset, (lua_State *, int)) \
        F(void, lua_rawseti, (lua_State *, int, int)) \
        F(void, lua_rawgeti, (lua_State *, int, int)) \
        F(void, lua_pushvalue, (lua_State *, int)) \
        F(void, lua_insert, (lua_State *, int)) \
        F(void, lua_replace, (lua_State *, int)) \
        F(int, lua_next, (lua_State *, int)) \
        F(int, lua_getmetatable, (lua_State *, int)) \
        F(int, lua_rawequal, (lua_State *, int, int)) \
        F(void, lua_call, (lua_State *, int, int)) \
        F(int, lua_checkstack, (lua_State *, int)) \
        F(int, lua_getstack, (lua_State *, int, lua_Debug *)) \
        F(int, lua_getinfo, (lua_State *, const char *, lua_Debug *)) \
        F(const char *, lua_pushfstring, (lua_State *, const char *, ...)) \
        F(int, lua_sethook, (lua_State *, lua_Hook, int, int)) \
        F(lua_Alloc, lua_getallocf, (lua_State *, void **))

    #define HEADRACE_DECLARE(result, name, arguments) result (*name) arguments;
    static struct { HEADRACE_LUA_FUNCTIONS(HEADRACE_DECLARE) } headrace_lua;

    typedef struct {
        lua_State *L;
        size_t used, limit;
        int limited;           // while Lua runs, and nothing of Python
        PyObject *functions;   // a dict: what Lua can call
        PyObject *type, *value, *trace;  // an exception of one of them, raised when Lua has returned
        PyObject *check;       // of `functions`: called by the hook
        size_t memory_max;     // the hook ends a script that uses more
        double first_check_s;
        int running;           // a script, which the hook may end
        int killed;            // it ends: H.killed is the text
        int interval;          // instructions between two calls of the hook
        int quick;             // calls of the hook, one after the other, that came at once
        int hurries;           // `interval` is 1 until the next call, because an instruction may have taken long
        int changed;           // the last script has left something that H.reset() resets
        int protocol;          // of the replies to the script
        double last, due;      // the times of the last call of the hook and of the next check; last 0: none yet
        headrace_host_call call;
        void *host;            // a ScriptHost; NULL outside of run()
        char *reply;           // of the script
        size_t reply_size, reply_cap;
        int base;              // the slots at the bottom of the main stack that stay: HEADRACE_BASE, at first 0
        PyObject *tokens[HEADRACE_TOKENS]; // recent short arguments: the same string becomes the same object
    } headrace_state;

    #define HEADRACE_TABLE 1  // its place in the registry

    #define HEADRACE_LARGE (128 << 10)  // what needs so many bytes at once may take as long as many instructions
    static void headrace_hurry(headrace_state *state);

    static void *headrace_allocate(void *of, void *old, size_t before, size_t size) {
        headrace_state *state = (headrace_state *) of;
        void *block;
        if (size == 0) {
            free(old);
            state->used -= before;
            return NULL;
        }
        if (state->limited && size > before && state->used - before + size > state->limit) return NULL;
        block = realloc(old, size);
        if (block == NULL) return size <= before ? old : NULL;
        if (size >= HEADRACE_LARGE && size > before && state->running && !state->hurries) headrace_hurry(state);
        state->used += size - before;
        return block;
    }

    // Load the functions; return -1 with an exception if one is missing.
    static int headrace_find_functions(const char *path) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const char *missing = NULL;
        if (library == NULL) {
            PyErr_SetString(PyExc_ImportError, dlerror());
            return -1;
        }
        #define HEADRACE_FIND(result, name, arguments) \
            if (!(*(void **) &headrace_lua.name = dlsym(library, #name))) missing = #name;
        HEADRACE_LUA_FUNCTIONS(HEADRACE_FIND)
        if (missing == NULL) return 0;
        PyErr_Format(PyExc_ImportError, "%s has no function %s", path, missing);
        return -1;
    }

    // Return the value at an index as an object: bytes, int, float, bool or None; what has no such form is None.
    static PyObject *headrace_value(lua_State *L, int at) {
        const char *text;
        size_t size;
        double number;
        switch (headrace_lua.lua_type(L, at)) {
        case HEADRACE_STRING:
            text = headrace_lua.lua_tolstring(L, at, &size);
            return PyBytes_FromStringAndSize(text, (Py_ssize_t) size);
        case HEADRACE_NUMBER:
            number = headrace_lua.lua_tonumber(L, at);
            if (number > -9e15 && number < 9e15 && number == (double) (long long) number)
                return PyLong_FromLongLong((long long) number);
            return PyFloat_FromDouble(number);
        case HEADRACE_BOOLEAN:
            return PyBool_FromLong(headrace_lua.lua_toboolean(L, at));
        }
        Py_RETURN_NONE;
    }

    // Push an object; the items of a tuple one after the other. Return how many, or -1 with an exception.
    static int headrace_push(lua_State *L, PyObject *value) {
        if (PyBytes_CheckExact(value)) {
            headrace_lua.lua_pushlstring(L, PyBytes_AS_STRING(value), (size_t) PyBytes_GET_SIZE(value));
        } else if (value == Py_None) {
            headrace_lua.lua_pushnil(L);
        } else if (PyBool_Check(value)) {
            headrace_lua.lua_pushboolean(L, value == Py_True);
        } else if (PyLong_CheckExact(value)) {
            double number = PyLong_AsDouble(value);
            if (number == -1 && PyErr_Occurred()) return -1;
            headrace_lua.lua_pushnumber(L, number);
        } else if (PyFloat_CheckExact(value)) {
            headrace_lua.lua_pushnumber(L, PyFloat_AS_DOUBLE(value));
        } else if (PyTuple_Check(value)) {
            Py_ssize_t i, n = PyTuple_GET_SIZE(value);
            for (i = 0; i < n; i++)
                if (headrace_push(L, PyTuple_GET_ITEM(value, i)) < 0) return -1;
            return (int) n;
        } else {
            PyErr_Format(PyExc_TypeError, "no value of Lua: %.200s", Py_TYPE(value)->tp_name);
            return -1;
        }
        return 1;
    }

    // Run a function of Python with a list of its arguments; return the number of results, or -1.
    static int headrace_run_function(lua_State *L, headrace_state *state, PyObject *function) {
        int i, n = headrace_lua.lua_gettop(L), count = -1;
        PyObject *result = NULL, *item, *list = PyList_New(n);
        if (list != NULL) {
            for (i = 0; i < n; i++) {
                item = headrace_value(L, i + 1);
                if (item == NULL) goto done;
                PyList_SET_ITEM(list, i, item);
            }
            result = PyObject_CallFunctionObjArgs(function, list, NULL);
            if (result != NULL) count = headrace_push(L, result);
        }
    done:
        Py_XDECREF(list);
        Py_XDECREF(result);
        if (count < 0) {
            if (state->type == NULL) PyErr_Fetch(&state->type, &state->value, &state->trace);
            else PyErr_Clear();
        }
        return count;
    }

    static int headrace_call_python(lua_State *L) {
        headrace_state *state = (headrace_state *) headrace_lua.lua_touserdata(L, HEADRACE_GLOBALS - 1);
        PyObject *function = (PyObject *) headrace_lua.lua_touserdata(L, HEADRACE_GLOBALS - 2);
        int count;
        state->limited = 0;
        count = headrace_run_function(L, state, function);
        if (count < 0) headrace_lua.lua_pushlstring(L, "interrupted", 11);
        state->limited = 1;
        return count < 0 ? headrace_lua.lua_error(L) : count;
    }

    static headrace_state *headrace_state_of(PyObject *capsule) {
        return (headrace_state *) PyCapsule_GetPointer(capsule, "headrace.lua");
    }

    static void headrace_close(PyObject *capsule) {
        headrace_state *state = headrace_state_of(capsule);
        int i;
        if (state->L != NULL) headrace_lua.lua_close(state->L);
        Py_XDECREF(state->functions);
        Py_XDECREF(state->type);
        Py_XDECREF(state->value);
        Py_XDECREF(state->trace);
        for (i = 0; i < HEADRACE_TOKENS; i++) Py_XDECREF(state->tokens[i]);
        free(state->reply);
        free(state);
    }

    // Take the exception of a function of Python that was called from Lua; return 0 if there was none.
    static int headrace_restore_exception(headrace_state *state) {
        if (state->type == NULL) return 0;
        PyErr_Restore(state->type, state->value, state->trace);
        state->type = state->value = state->trace = NULL;
        return 1;
    }

    // Call the function below `n` arguments; return a tuple of its results, the error's text, or NULL.
    static PyObject *headrace_finish_call(headrace_state *state, int n) {
        lua_State *L = state->L;
        PyObject *results = NULL;
        int failed, i, count;
        state->limited = 1;
        failed = headrace_lua.lua_pcall(L, n, -1, 0);
        state->limited = 0;
        if (headrace_restore_exception(state)) {
            // it is raised
        } else if (failed) {
            size_t size;
            const char *text = headrace_lua.lua_tolstring(L, -1, &size);
            results = text == NULL ? PyBytes_FromString("unknown error")
                                   : PyBytes_FromStringAndSize(text, (Py_ssize_t) size);
        } else {
            count = headrace_lua.lua_gettop(L) - state->base;
            results = PyTuple_New(count);
            for (i = 0; results != NULL && i < count; i++) {
                PyObject *item = headrace_value(L, state->base + i + 1);
                if (item == NULL) Py_CLEAR(results);
                else PyTuple_SET_ITEM(results, i, item);
            }
        }
        headrace_lua.lua_settop(L, state->base);
        return results;
    }

    // The hook, which Lua calls after some instructions. It stays set between scripts: setting it takes time.

    #define HEADRACE_INTERVAL 200   // instructions; a single one may take 10 ms: comparing two strings of 64 MB
    #define HEADRACE_SLOW_S 0.02    // if that many take longer, the hook is called more often
    #define HEADRACE_QUICK_S 0.002  // so many calls in a row that each come sooner than this: less often again
    #define HEADRACE_QUICK_CALLS 64

    static double headrace_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);  // without a system call, precise to some milliseconds
        return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
    }

    static void headrace_hook(lua_State *, lua_Debug *);

    static void headrace_set_interval(lua_State *L, headrace_state *state, int instructions) {
        state->interval = instructions;
        headrace_lua.lua_sethook(L, headrace_hook, HEADRACE_HOOK_COUNT, instructions);
    }

    // Adapt the interval to the time since the last check. Slow instructions and a thread that had to wait for
    // the processor look the same, but only slow instructions come again: a quick run raises the interval.
    static void headrace_adapt(lua_State *L, headrace_state *state, double elapsed, int in_hook) {
        if (elapsed > HEADRACE_QUICK_S) {
            state->quick = 0;
            if (elapsed > HEADRACE_SLOW_S && state->interval > 1)
                headrace_set_interval(L, state, state->interval < 10 ? 1 : state->interval / 10);
        } else if (in_hook && state->interval < HEADRACE_INTERVAL && ++state->quick == HEADRACE_QUICK_CALLS) {
            state->quick = 0;
            headrace_set_interval(
                L, state, state->interval > HEADRACE_INTERVAL / 2 ? HEADRACE_INTERVAL : 2 * state->interval);
        }
    }

    // Have the hook called after the next instruction, and then at the interval of before.
    static void headrace_hurry(headrace_state *state) {
        if (state->interval == 1) return;
        state->hurries = 1;
        headrace_lua.lua_sethook(state->L, headrace_hook, HEADRACE_HOOK_COUNT, 1);
    }

    // End the running script: every further instruction of it raises an error, which pcall cannot stop.
    static void headrace_kill(lua_State *L, headrace_state *state, const char *text, size_t size) {
        state->limited = 0;
        headrace_lua.lua_rawgeti(L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_lua.lua_pushlstring(L, "killed", 6);
        headrace_lua.lua_pushlstring(L, text, size);
        headrace_lua.lua_rawset(L, -3);
        headrace_lua.lua_settop(L, -2);
        state->limited = 1;
        state->killed = state->changed = 1;
    }

    static int headrace_raise_killed(lua_State *L) {
        headrace_lua.lua_rawgeti(L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_lua.lua_pushlstring(L, "killed", 6);
        headrace_lua.lua_rawget(L, -2);
        return headrace_lua.lua_error(L);
    }

    // End the script unless Lua may have so many bytes more, if need be after a collection of its garbage.
    static int headrace_has_room(lua_State *L, headrace_state *state, size_t size) {
        if (state->used + size <= state->memory_max) return 1;
        headrace_lua.lua_gc(L, HEADRACE_GC_COLLECT, 0);
        if (state->used + size <= state->memory_max) return 1;
        headrace_kill(L, state, "not enough memory", 17);
        return 0;
    }

    // Keep an exception that a function called from Lua has raised.
    static void headrace_keep_exception(headrace_state *state) {
        if (state->type == NULL) PyErr_Fetch(&state->type, &state->value, &state->trace);
        else PyErr_Clear();
    }

    // Ask the host whether the script must end.
    static void headrace_ask_host(lua_State *L, headrace_state *state, double now) {
        PyObject *arguments, *result = NULL, *text;
        state->limited = 0;
        arguments = PyList_New(0);
        if (arguments != NULL) result = PyObject_CallFunctionObjArgs(state->check, arguments, NULL);
        Py_XDECREF(arguments);
        if (result == NULL || !PyTuple_Check(result) || PyTuple_GET_SIZE(result) != 2) {
            if (result == NULL) headrace_keep_exception(state);
            headrace_kill(L, state, "interrupted", 11);
        } else {
            text = PyTuple_GET_ITEM(result, 0);
            state->due = now + PyFloat_AsDouble(PyTuple_GET_ITEM(result, 1));
            if (PyBytes_Check(text))
                headrace_kill(L, state, PyBytes_AS_STRING(text), (size_t) PyBytes_GET_SIZE(text));
        }
        Py_XDECREF(result);
        state->limited = 1;
    }

    // End the script, with an error of Lua, if it must end.
    static void headrace_check(lua_State *L, headrace_state *state, int in_hook) {
        double now;
        if (!state->running) return;
        if (!state->killed && headrace_has_room(L, state, 0)) {
            now = headrace_now();
            if (state->last == 0) state->due = now + state->first_check_s;  // most scripts end before this
            else headrace_adapt(L, state, now - state->last, in_hook);
            state->last = now;
            if (now >= state->due) headrace_ask_host(L, state, now);
        }
        if (!state->killed) return;
        if (in_hook) headrace_set_interval(L, state, 1);  // elsewhere it would interrupt the message handler
        headrace_raise_killed(L);
    }

    static void headrace_hook(lua_State *L, lua_Debug *record) {
        void *of;
        headrace_state *state;
        (void) record;
        headrace_lua.lua_getallocf(L, &of);
        state = (headrace_state *) of;
        if (state->hurries) {
            state->hurries = 0;
            headrace_set_interval(L, state, state->interval);
        }
        headrace_check(L, state, 1);
    }

    static headrace_state *headrace_upvalue(lua_State *L) {
        return (headrace_state *) headrace_lua.lua_touserdata(L, HEADRACE_GLOBALS - 1);
    }

    static void headrace_begin(headrace_state *state) {
        state->killed = 0;
        state->last = 0;
        state->quick = 0;
        if (state->interval != HEADRACE_INTERVAL) headrace_set_interval(state->L, state, HEADRACE_INTERVAL);
        state->running = 1;
    }

    // H.begin_run(): the hook may end what runs from now on.
    static int headrace_begin_run(lua_State *L) {
        headrace_begin(headrace_upvalue(L));
        return 0;
    }

    // H.end_run(): the hook does nothing any more.
    static int headrace_stop(lua_State *L) {
        headrace_upvalue(L)->running = 0;
        return 0;
    }

    // H.poll(): for functions that may take as long as many instructions.
    static int headrace_poll(lua_State *L) {
        headrace_check(L, headrace_upvalue(L), 0);
        return 0;
    }

    // H.hook_interval(): instructions between two calls of the hook.
    static int headrace_hook_interval(lua_State *L) {
        headrace_lua.lua_pushnumber(L, headrace_upvalue(L)->interval);
        return 1;
    }

    // H.note_change(protocol): H.reset() must run before the next script; the protocol may be nil.
    static int headrace_note_change(lua_State *L) {
        headrace_state *state = headrace_upvalue(L);
        state->changed = 1;
        if (headrace_lua.lua_type(L, 1) == HEADRACE_NUMBER) state->protocol = (int) headrace_lua.lua_tonumber(L, 1);
        return 0;
    }

    // H.kill(text)
    static int headrace_kill_script(lua_State *L) {
        size_t size;
        const char *text = headrace_lua.lua_tolstring(L, 1, &size);
        headrace_kill(L, headrace_upvalue(L), text, size);
        return headrace_raise_killed(L);
    }

    // Calls of commands.

    static void headrace_set_text(lua_State *L, const char *name, size_t length, const char *text, size_t size) {
        headrace_lua.lua_pushlstring(L, name, length);
        headrace_lua.lua_pushlstring(L, text, size);
        headrace_lua.lua_rawset(L, -3);
    }

    static long long headrace_integer(const char *p, const char *end) {
        int negative = p < end && *p == '-';
        unsigned long long value = 0;
        for (p += negative; p < end; p++) value = 10 * value + (unsigned long long) (*p - '0');
        return (long long) (negative ? 0 - value : value);
    }

    // Push the value of the encoded reply at p; return the end of it, or NULL if it must be decoded in Lua.
    static const char *headrace_decode(lua_State *L, const char *p, const char *end, int depth) {
        const char *line = p + 1, *stop;
        long long i, n;
        if (depth > 8 || p >= end) return NULL;
        stop = (const char *) memchr(line, '\r', (size_t) (end - line));
        if (stop == NULL) return NULL;
        switch (*p) {
        case '$':
            n = headrace_integer(line, stop);
            if (n < 0) break;
            headrace_lua.lua_pushlstring(L, stop + 2, (size_t) n);
            return stop + 2 + n + 2;
        case ':':
            headrace_lua.lua_pushnumber(L, (double) headrace_integer(line, stop));
            return stop + 2;
        case '*':
        case '>':
            n = headrace_integer(line, stop);
            if (n < 0) break;
            if (!headrace_lua.lua_checkstack(L, 4)) return NULL;
            headrace_lua.lua_createtable(L, n < 1 << 24 ? (int) n : 1 << 24, 0);
            p = stop + 2;
            for (i = 1; i <= n; i++) {
                p = headrace_decode(L, p, end, depth + 1);
                if (p == NULL) return NULL;
                headrace_lua.lua_rawseti(L, -2, (int) i);
            }
            return p;
        case '+':
            headrace_lua.lua_createtable(L, 0, 1);
            headrace_set_text(L, "ok", 2, line, (size_t) (stop - line));
            return stop + 2;
        case '-':
            headrace_lua.lua_createtable(L, 0, 2);
            headrace_set_text(L, "err", 3, line, (size_t) (stop - line));
            return stop + 2;
        case '#':
            headrace_lua.lua_pushboolean(L, *line == 't');
            return stop + 2;
        case '_':
            headrace_lua.lua_pushnil(L);
            return stop + 2;
        default:
            return NULL;
        }
        headrace_lua.lua_pushboolean(L, 0);
        return stop + 2;
    }

    // Push the value of a reply to a command.
    static void headrace_push_reply(lua_State *L, const char *p, size_t size) {
        int top = headrace_lua.lua_gettop(L);
        if (headrace_decode(L, p, p + size, 0) != NULL) {
            if (*p != '-') return;
            headrace_lua.lua_pushlstring(L, "ignore_error_stats_update", 25);  // it is counted
            headrace_lua.lua_pushboolean(L, 1);
            headrace_lua.lua_rawset(L, -3);
            return;
        }
        headrace_lua.lua_settop(L, top);
        headrace_lua.lua_rawgeti(L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_lua.lua_pushlstring(L, "decode", 6);
        headrace_lua.lua_rawget(L, -2);
        headrace_lua.lua_pushlstring(L, p, size);
        headrace_lua.lua_pushnumber(L, 1);
        headrace_lua.lua_call(L, 2, 1);
    }

    // Reply with an error: a table, as those of commands are.
    static int headrace_reject(lua_State *L, int raises, const char *text) {
        headrace_lua.lua_createtable(L, 0, 1);
        headrace_set_text(L, "err", 3, text, strlen(text));
        return raises ? headrace_lua.lua_error(L) : 1;
    }

    // Replace a number that is an argument by its digits, unless it is an integer; return 0 if it is none.
    static int headrace_check_argument(lua_State *L, int at) {
        double number;
        int type = headrace_lua.lua_type(L, at);
        if (type == HEADRACE_STRING) return 1;
        if (type != HEADRACE_NUMBER) return 0;
        number = headrace_lua.lua_tonumber(L, at);
        if (number > -1e17 && number < 1e17 && number == (double) (long long) number) return 1;
        headrace_lua.lua_rawgeti(L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_lua.lua_pushlstring(L, "digits", 6);
        headrace_lua.lua_rawget(L, -2);
        headrace_lua.lua_remove(L, -2);
        headrace_lua.lua_pushvalue(L, at);
        headrace_lua.lua_call(L, 1, 1);
        headrace_lua.lua_replace(L, at);
        return 1;
    }

    // Return an argument as bytes: a new reference. Short ones are often the same as before.
    static PyObject *headrace_argument(headrace_state *state, lua_State *L, int at) {
        char digits[32];
        const char *p = digits;
        size_t n;
        PyObject **slot, *token;
        if (headrace_lua.lua_type(L, at) == HEADRACE_NUMBER) {
            double number = headrace_lua.lua_tonumber(L, at);
            const char *sign = number == 0 && 1 / number < 0 ? "-" : "";
            n = (size_t) snprintf(digits, sizeof digits, "%s%lld", sign, (long long) number);
        } else {
            p = headrace_lua.lua_tolstring(L, at, &n);
        }
        if (n < 2 || n > HEADRACE_TOKEN_MAX) return PyBytes_FromStringAndSize(p, (Py_ssize_t) n);
        slot = &state->tokens[((unsigned char) p[0] * 31u + (unsigned char) p[n - 1] * 7u
                               + (unsigned char) p[n >> 1] * 3u + n) & (HEADRACE_TOKENS - 1)];
        token = *slot;
        if (token == NULL || (size_t) PyBytes_GET_SIZE(token) != n || memcmp(PyBytes_AS_STRING(token), p, n)) {
            token = PyBytes_FromStringAndSize(p, (Py_ssize_t) n);
            if (token == NULL) return NULL;
            Py_XDECREF(*slot);
            *slot = token;
        }
        return Py_NewRef(token);
    }

    // Run a command with the arguments on the stack; return 0 if Python could not.
    static int headrace_call_host(headrace_state *state, lua_State *L, int n, const unsigned char **p, Py_ssize_t *size) {
        PyObject *item, *argv = PyList_New(n);
        int i;
        for (i = 0; argv != NULL && i < n; i++) {
            item = headrace_argument(state, L, i + 1);
            if (item == NULL) Py_CLEAR(argv);
            else PyList_SET_ITEM(argv, i, item);
        }
        if (argv == NULL) {
            headrace_keep_exception(state);
            return 0;
        }
        *size = 0;
        state->call(state->host, argv, state->protocol, p, size);
        Py_DECREF(argv);
        return 1;
    }

    // redis.call() and redis.pcall()
    static int headrace_command(lua_State *L, int raises) {
        headrace_state *state = headrace_upvalue(L);
        const unsigned char *p = NULL;
        Py_ssize_t size = 0;
        size_t length, bytes = 0;
        int i, called, n = headrace_lua.lua_gettop(L);
        if (n == 0) return headrace_reject(L, raises, "ERR Please specify at least one argument for this redis lib call");
        if (!headrace_lua.lua_checkstack(L, 20)) return headrace_reject(L, 1, "ERR too many arguments");
        for (i = 1; i <= n; i++) {
            if (!headrace_check_argument(L, i))
                return headrace_reject(L, raises, "ERR Lua redis lib command arguments must be strings or integers");
            if (headrace_lua.lua_type(L, i) == HEADRACE_STRING && headrace_lua.lua_tolstring(L, i, &length) != NULL)
                bytes += length;  // each is copied, also one string that is given many times
        }
        if (bytes > state->memory_max)
            return headrace_reject(L, raises, "ERR the arguments of one command are longer than the memory of scripts");
        if (state->host == NULL) return headrace_reject(L, 1, "ERR commands can only be called by a script or function");
        headrace_check(L, state, 0);
        state->limited = 0;
        called = headrace_call_host(state, L, n, &p, &size);
        if (!called) headrace_lua.lua_pushlstring(L, "interrupted", 11);
        state->limited = 1;
        if (!called) return headrace_lua.lua_error(L);
        if (!headrace_has_room(L, state, (size_t) size)) return headrace_raise_killed(L);
        headrace_push_reply(L, (const char *) p, (size_t) size);
        return raises && size > 0 && *p == '-' ? headrace_lua.lua_error(L) : 1;
    }

    static int headrace_redis_call(lua_State *L) { return headrace_command(L, 1); }
    static int headrace_redis_pcall(lua_State *L) { return headrace_command(L, 0); }

    // Add a function in C to the table on the stack.
    static void headrace_add_function(lua_State *L, headrace_state *state, const char *name, lua_CFunction function) {
        headrace_lua.lua_pushlstring(L, name, strlen(name));
        headrace_lua.lua_pushlightuserdata(L, state);
        headrace_lua.lua_pushcclosure(L, function, 1);
        headrace_lua.lua_rawset(L, -3);
    }

    // Add the functions in C to the table on the stack.
    static void headrace_add_functions(lua_State *L, headrace_state *state) {
        static const struct { const char *name; lua_CFunction function; } functions[] = {
            {"redis_call", headrace_redis_call}, {"redis_pcall", headrace_redis_pcall}, {"kill", headrace_kill_script},
            {"begin_run", headrace_begin_run}, {"end_run", headrace_stop}, {"note_change", headrace_note_change},
            {"poll", headrace_poll}, {"hook_interval", headrace_hook_interval},
        };
        size_t i;
        for (i = 0; i < sizeof functions / sizeof *functions; i++)
            headrace_add_function(L, state, functions[i].name, functions[i].function);
    }

    // Replies of scripts.

    enum {  // what stays at the bottom of the main stack
        HEADRACE_SHARED = 1, HEADRACE_FAILURE, HEADRACE_SCRIPT_GLOBALS, HEADRACE_SCRIPTS, HEADRACE_LIBRARIES,
        HEADRACE_KEYS, HEADRACE_ARGV, HEADRACE_ERR, HEADRACE_OK, HEADRACE_DOUBLE, HEADRACE_MAP, HEADRACE_SET,
        HEADRACE_BIG_NUMBER, HEADRACE_VERBATIM, HEADRACE_IS_COUNTED, HEADRACE_ENCODE, HEADRACE_RESET,
        // An odd slot more: the stack then never overflows so exactly that no space is left for the message handler,
        // at least for functions with few variables.
        HEADRACE_PADDING, HEADRACE_BASE = HEADRACE_PADDING
    };

    #define HEADRACE_REPLY_MAX (1 << 20)  // a longer one is encoded in Lua, where the hook can end that
    #define HEADRACE_REPLY_DEPTH_MAX 8
    #define HEADRACE_REPLY_KEPT 4096

    // Return where n more bytes of the reply go; NULL if it becomes too long.
    static char *headrace_reply_space(headrace_state *state, size_t n) {
        size_t cap = state->reply_cap ? state->reply_cap : HEADRACE_REPLY_KEPT;
        char *larger;
        if (n > HEADRACE_REPLY_MAX || state->reply_size + n > HEADRACE_REPLY_MAX) return NULL;
        while (cap < state->reply_size + n) cap *= 2;
        if (cap != state->reply_cap) {
            larger = (char *) realloc(state->reply, cap);
            if (larger == NULL) return NULL;
            state->reply = larger;
            state->reply_cap = cap;
        }
        return state->reply + state->reply_size;
    }

    static int headrace_reply_header(headrace_state *state, char kind, long long n) {
        char digits[24], *to;
        int at = sizeof digits;
        unsigned long long rest = n < 0 ? 0 - (unsigned long long) n : (unsigned long long) n;
        size_t length;
        do digits[--at] = (char) ('0' + rest % 10); while (rest /= 10);
        if (n < 0) digits[--at] = '-';
        length = sizeof digits - (size_t) at;
        to = headrace_reply_space(state, length + 3);
        if (to == NULL) return 0;
        *to = kind;
        memcpy(to + 1, digits + at, length);
        memcpy(to + 1 + length, "\r\n", 2);
        state->reply_size += length + 3;
        return 1;
    }

    static int headrace_reply_bytes(headrace_state *state, const char *p, size_t n) {
        char *to = headrace_reply_space(state, n + 2);
        if (to == NULL) return 0;
        memcpy(to, p, n);
        memcpy(to + n, "\r\n", 2);
        state->reply_size += n + 2;
        return 1;
    }

    // Write a status or an error; a line break becomes a space.
    static int headrace_reply_line(headrace_state *state, char kind, const char *p, size_t n) {
        char *to = headrace_reply_space(state, n + 3);
        size_t i;
        if (to == NULL) return 0;
        *to++ = kind;
        for (i = 0; i < n; i++) to[i] = p[i] == '\r' || p[i] == '\n' ? ' ' : p[i];
        memcpy(to + n, "\r\n", 2);
        state->reply_size += n + 3;
        return 1;
    }

    // Push the field of the table at `table` whose name is in a slot; return the field's type.
    static int headrace_field(lua_State *L, int table, int slot) {
        headrace_lua.lua_pushvalue(L, slot);
        headrace_lua.lua_rawget(L, table);
        return headrace_lua.lua_type(L, -1);
    }

    static int headrace_encode(headrace_state *state, lua_State *L, int protocol, int depth);

    static int headrace_encode_table(headrace_state *state, lua_State *L, int protocol, int depth) {
        int table = headrace_lua.lua_gettop(L), slot, i, n;
        size_t size;
        const char *text;
        if (depth > HEADRACE_REPLY_DEPTH_MAX || !headrace_lua.lua_checkstack(L, 8)) return 0;
        for (slot = HEADRACE_ERR; slot <= HEADRACE_OK; slot++) {
            if (headrace_field(L, table, slot) == HEADRACE_STRING) {
                text = headrace_lua.lua_tolstring(L, -1, &size);
                return headrace_reply_line(state, slot == HEADRACE_ERR ? '-' : '+', text, size);
            }
            headrace_lua.lua_settop(L, table);
        }
        for (slot = HEADRACE_DOUBLE; slot <= HEADRACE_VERBATIM; slot++) {
            if (headrace_field(L, table, slot) != HEADRACE_NIL) return 0;
            headrace_lua.lua_settop(L, table);
        }
        for (n = 0;; n++) {
            headrace_lua.lua_rawgeti(L, table, n + 1);
            if (headrace_lua.lua_type(L, -1) == HEADRACE_NIL) break;
            headrace_lua.lua_settop(L, table);
            if (n > HEADRACE_REPLY_MAX) return 0;
        }
        if (!headrace_reply_header(state, '*', n)) return 0;
        for (i = 1; i <= n; i++) {
            headrace_lua.lua_settop(L, table);
            headrace_lua.lua_rawgeti(L, table, i);
            if (!headrace_encode(state, L, protocol, depth)) return 0;
        }
        return 1;
    }

    // Encode the value on top of the stack; return 0 if that must be done in Lua.
    static int headrace_encode(headrace_state *state, lua_State *L, int protocol, int depth) {
        double number;
        size_t size;
        const char *text;
        int is_true;
        switch (headrace_lua.lua_type(L, -1)) {
        case HEADRACE_STRING:
            text = headrace_lua.lua_tolstring(L, -1, &size);
            return headrace_reply_header(state, '$', (long long) size) && headrace_reply_bytes(state, text, size);
        case HEADRACE_NUMBER:
            number = headrace_lua.lua_tonumber(L, -1);
            if (!(number < 9223372036854775808.0 && number >= -9223372036854775808.0))
                return headrace_reply_header(state, ':', -9223372036854775807LL - 1);
            return headrace_reply_header(state, ':', (long long) number);
        case HEADRACE_BOOLEAN:
            is_true = headrace_lua.lua_toboolean(L, -1);
            if (state->protocol == 2 || protocol == 2) {
                if (is_true) return headrace_reply_header(state, ':', 1);
                return protocol == 2 ? headrace_reply_bytes(state, "$-1", 3) : headrace_reply_bytes(state, "_", 1);
            }
            return headrace_reply_bytes(state, is_true ? "#t" : "#f", 2);
        case HEADRACE_TABLE_TYPE:
            return headrace_encode_table(state, L, protocol, depth + 1);
        default:
            return protocol == 2 ? headrace_reply_bytes(state, "$-1", 3) : headrace_reply_bytes(state, "_", 1);
        }
    }

    // Runs of scripts.

    static void headrace_push_field(lua_State *L, const char *name) {
        headrace_lua.lua_pushlstring(L, name, strlen(name));
        headrace_lua.lua_rawget(L, HEADRACE_SHARED);
    }

    // Return the table of a failure that "stack overflow" is: there is no space to do it in Lua.
    static int headrace_handle_overflow(lua_State *L) {
        lua_Debug record;
        int level = 0, i;
        while (headrace_lua.lua_getstack(L, level, &record) && headrace_lua.lua_getinfo(L, "Sl", &record)
               && (record.currentline <= 0 || strncmp(record.source, "@headrace", 9) == 0)) {
            record.source = "@";
            record.currentline = 0;
            level++;
        }
        headrace_lua.lua_createtable(L, 4, 0);
        for (i = 1; i <= 4; i++) {
            if (i == 1 && record.currentline > 0)
                headrace_lua.lua_pushfstring(L, "ERR %s:%d: stack overflow", record.short_src, record.currentline);
            else if (i == 1) headrace_lua.lua_pushfstring(L, "ERR stack overflow");
            else if (i == 2) headrace_lua.lua_pushfstring(L, "%s", record.source + 1);
            else if (i == 3) headrace_lua.lua_pushnumber(L, record.currentline);
            else headrace_lua.lua_pushboolean(L, 0);
            headrace_lua.lua_rawseti(L, -2, i);
        }
        return 1;
    }

    // The message handler of runs.
    static int headrace_handle_error(lua_State *L) {
        const char *text = headrace_lua.lua_type(L, 1) == HEADRACE_STRING ? headrace_lua.lua_tolstring(L, 1, NULL) : "";
        headrace_upvalue(L)->running = 0;
        if (strcmp(text, "stack overflow") == 0) return headrace_handle_overflow(L);
        headrace_lua.lua_pushvalue(L, HEADRACE_GLOBALS - 2);
        headrace_lua.lua_insert(L, 1);
        headrace_lua.lua_call(L, 1, 1);
        return 1;
    }

    // Fill the bottom of the stack, and set the hook. To be called when the sandbox is complete.
    static int headrace_finish_setup(PyObject *capsule, headrace_host_call call, size_t memory_max, double first_check_s) {
        static const char *const fields[] = {"failure", "globals", "scripts", "libraries"};
        static const char *const names[] = {
            "KEYS", "ARGV", "err", "ok", "double", "map", "set", "big_number", "verbatim_string",
            "ignore_error_stats_update",
        };
        headrace_state *state = headrace_state_of(capsule);
        lua_State *L = state->L;
        size_t i;
        headrace_lua.lua_checkstack(L, 64);
        headrace_lua.lua_rawgeti(L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_push_field(L, fields[0]);
        headrace_lua.lua_pushlightuserdata(L, state);
        headrace_lua.lua_insert(L, -2);
        headrace_lua.lua_pushcclosure(L, headrace_handle_error, 2);
        for (i = 1; i < sizeof fields / sizeof *fields; i++) headrace_push_field(L, fields[i]);
        for (i = 0; i < sizeof names / sizeof *names; i++)
            headrace_lua.lua_pushlstring(L, names[i], strlen(names[i]));
        headrace_push_field(L, "encode");
        headrace_push_field(L, "reset");
        headrace_lua.lua_pushnil(L);
        state->base = HEADRACE_BASE;
        state->call = call;
        state->memory_max = memory_max;
        state->first_check_s = first_check_s;
        headrace_set_interval(L, state, HEADRACE_INTERVAL);
        return 0;
    }

    // Push a table of the words of a list from one index to another.
    static void headrace_push_words(lua_State *L, PyObject *words, Py_ssize_t from, Py_ssize_t to) {
        Py_ssize_t i;
        headrace_lua.lua_createtable(L, (int) (to - from), 0);
        for (i = from; i < to; i++) {
            PyObject *word = PyList_GET_ITEM(words, i);
            headrace_lua.lua_pushlstring(L, PyBytes_AS_STRING(word), (size_t) PyBytes_GET_SIZE(word));
            headrace_lua.lua_rawseti(L, -2, (int) (i - from + 1));
        }
    }

    // Call the function on the stack; return whether it failed.
    static int headrace_protected(headrace_state *state, int arguments) {
        int failed;
        state->limited = 1;
        failed = headrace_lua.lua_pcall(state->L, arguments, 1, HEADRACE_FAILURE);
        state->limited = 0;
        return failed;
    }

    // Return the error on the stack: a tuple of text, source, line, and whether it is counted.
    static PyObject *headrace_failure(headrace_state *state) {
        lua_State *L = state->L;
        const char *text;
        size_t size;
        PyObject *result;
        int i;
        if (headrace_lua.lua_type(L, -1) != HEADRACE_TABLE_TYPE) {  // memory or the stack was full
            text = headrace_lua.lua_tolstring(L, -1, &size);
            return Py_BuildValue("(Ny#iO)", PyBytes_FromFormat("ERR %s", text == NULL ? "unknown error" : text), "",
                                 (Py_ssize_t) 0, 0, Py_False);
        }
        result = PyTuple_New(4);
        for (i = 0; result != NULL && i < 4; i++) {
            PyObject *item;
            headrace_lua.lua_rawgeti(L, -1, i + 1);
            item = headrace_value(L, -1);
            headrace_lua.lua_settop(L, -2);
            if (item == NULL) Py_CLEAR(result);
            else PyTuple_SET_ITEM(result, i, item);
        }
        return result;
    }

    // Push what runs, with its keys and arguments; return how many arguments it gets, or -1 with an exception.
    static int headrace_push_script(lua_State *L, PyObject *library, PyObject *name, PyObject *argv, Py_ssize_t keys) {
        Py_ssize_t n = PyList_GET_SIZE(argv);
        int is_function = library != Py_None;
        if (is_function) {
            headrace_push(L, library);
            headrace_lua.lua_rawget(L, HEADRACE_LIBRARIES);
        }
        headrace_push(L, name);
        headrace_lua.lua_rawget(L, is_function ? -2 : HEADRACE_SCRIPTS);
        if (is_function) headrace_lua.lua_remove(L, -2);
        else headrace_lua.lua_pushvalue(L, HEADRACE_KEYS);
        headrace_push_words(L, argv, 3, 3 + keys);
        if (!is_function) {
            headrace_lua.lua_rawset(L, HEADRACE_SCRIPT_GLOBALS);
            headrace_lua.lua_pushvalue(L, HEADRACE_ARGV);
        }
        headrace_push_words(L, argv, 3 + keys, n);
        if (!is_function) headrace_lua.lua_rawset(L, HEADRACE_SCRIPT_GLOBALS);
        return is_function ? 2 : 0;
    }

    // Encode what the script has returned; return whether that failed. *p, *size: the reply.
    static int headrace_finish_run(headrace_state *state, int protocol, const unsigned char **p, Py_ssize_t *size) {
        lua_State *L = state->L;
        size_t length;
        state->reply_size = 0;
        if (headrace_encode(state, L, protocol, 0)) {
            *p = (const unsigned char *) state->reply;
            *size = (Py_ssize_t) state->reply_size;
            return 0;
        }
        headrace_lua.lua_settop(L, HEADRACE_BASE + 1);
        headrace_lua.lua_pushvalue(L, HEADRACE_ENCODE);
        headrace_lua.lua_pushvalue(L, HEADRACE_BASE + 1);
        headrace_lua.lua_pushnumber(L, protocol);
        if (headrace_protected(state, 2)) return 1;
        *p = (const unsigned char *) headrace_lua.lua_tolstring(L, -1, &length);
        *size = (Py_ssize_t) length;
        return 0;
    }

    // Return whether the value that a script has returned is the error of a command.
    static PyObject *headrace_is_counted(lua_State *L) {
        if (headrace_lua.lua_type(L, HEADRACE_BASE + 1) != HEADRACE_TABLE_TYPE) Py_RETURN_FALSE;
        headrace_field(L, HEADRACE_BASE + 1, HEADRACE_IS_COUNTED);
        return PyBool_FromLong(headrace_lua.lua_type(L, -1) == HEADRACE_BOOLEAN && headrace_lua.lua_toboolean(L, -1));
    }

    // Run a script or function. Return the error as a tuple, or None, or if the reply is an error whether it is
    // counted. *p, *size: the reply, until headrace_end_run().
    static PyObject *headrace_run(
        PyObject *capsule, void *host, PyObject *library, PyObject *name, PyObject *argv, Py_ssize_t keys,
        int protocol, const unsigned char **p, Py_ssize_t *size
    ) {
        headrace_state *state = headrace_state_of(capsule);
        lua_State *L = state->L;
        int failed;
        PyObject *result;
        if (state->changed) {
            state->changed = 0;
            state->protocol = 2;
            headrace_lua.lua_pushvalue(L, HEADRACE_RESET);
            headrace_lua.lua_call(L, 0, 0);
        }
        state->host = host;
        failed = headrace_push_script(L, library, name, argv, keys);
        headrace_begin(state);
        failed = headrace_protected(state, failed) || headrace_finish_run(state, protocol, p, size);
        state->running = 0;
        state->host = NULL;
        if (failed) state->changed = 1;
        if (headrace_restore_exception(state)) result = NULL;
        else if (failed) result = headrace_failure(state);
        else if (**p == '-') result = headrace_is_counted(L);
        else result = Py_NewRef(Py_None);
        if (failed || result == NULL) *size = 0;
        if (result == NULL) headrace_lua.lua_settop(L, HEADRACE_BASE);
        return result;
    }

    static void headrace_end_run(PyObject *capsule) {
        headrace_state *state = headrace_state_of(capsule);
        headrace_lua.lua_settop(state->L, HEADRACE_BASE);
        if (state->reply_cap > HEADRACE_REPLY_KEPT) {
            free(state->reply);
            state->reply = NULL;
            state->reply_cap = 0;
        }
    }

    static PyObject *headrace_item(PyObject *functions, const char *name) {
        PyObject *key = PyBytes_FromString(name), *function;
        if (key == NULL) return NULL;
        function = PyDict_GetItemWithError(functions, key);
        Py_DECREF(key);
        return function;
    }

    static PyObject *headrace_open(const char *path, PyObject *functions, size_t limit) {
        headrace_state *state;
        PyObject *capsule, *name, *function;
        Py_ssize_t at = 0;
        if (headrace_lua.lua_newstate == NULL && headrace_find_functions(path) < 0) return NULL;
        state = (headrace_state *) calloc(1, sizeof *state);
        if (state == NULL) return PyErr_NoMemory();
        capsule = PyCapsule_New(state, "headrace.lua", headrace_close);
        if (capsule == NULL) { free(state); return NULL; }
        state->limit = limit;
        state->L = headrace_lua.lua_newstate(headrace_allocate, state);
        if (state->L == NULL) { Py_DECREF(capsule); return PyErr_NoMemory(); }
        state->functions = Py_NewRef(functions);
        state->check = headrace_item(functions, "check");
        state->protocol = 2;
        headrace_lua.luaL_openlibs(state->L);
        headrace_lua.lua_createtable(state->L, 0, 64);
        while (PyDict_Next(functions, &at, &name, &function)) {
            headrace_push(state->L, name);
            headrace_lua.lua_pushlightuserdata(state->L, state);
            headrace_lua.lua_pushlightuserdata(state->L, function);
            headrace_lua.lua_pushcclosure(state->L, headrace_call_python, 2);
            headrace_lua.lua_rawset(state->L, -3);
        }
        headrace_add_functions(state->L, state);
        headrace_lua.lua_rawseti(state->L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_lua.lua_settop(state->L, 0);
        return capsule;
    }

    static PyObject *headrace_execute(PyObject *capsule, PyObject *text, PyObject *name) {
        headrace_state *state = headrace_state_of(capsule);
        const char *source = PyBytes_AS_STRING(text);
        if (headrace_lua.luaL_loadbuffer(state->L, source, (size_t) PyBytes_GET_SIZE(text), PyBytes_AS_STRING(name))) {
            headrace_lua.lua_settop(state->L, 0);
            PyErr_Format(PyExc_SyntaxError, "%s cannot be compiled", PyBytes_AS_STRING(name));
            return NULL;
        }
        headrace_lua.lua_rawgeti(state->L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        return headrace_finish_call(state, 1);
    }

    static PyObject *headrace_call(PyObject *capsule, PyObject *name, PyObject *arguments) {
        headrace_state *state = headrace_state_of(capsule);
        lua_State *L = state->L;
        int n;
        headrace_lua.lua_rawgeti(L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_push(L, name);
        headrace_lua.lua_rawget(L, -2);
        headrace_lua.lua_remove(L, -2);
        n = headrace_push(L, arguments);
        if (n >= 0) return headrace_finish_call(state, n);
        headrace_lua.lua_settop(L, state->base);
        return NULL;
    }

    static int headrace_set_number(PyObject *capsule, PyObject *name, double number) {
        headrace_state *state = headrace_state_of(capsule);
        headrace_lua.lua_rawgeti(state->L, HEADRACE_REGISTRY, HEADRACE_TABLE);
        headrace_push(state->L, name);
        headrace_lua.lua_pushnumber(state->L, number);
        headrace_lua.lua_rawset(state->L, 1);
        headrace_lua.lua_settop(state->L, 0);
        return 0;
    }

    static size_t headrace_memory(PyObject *capsule) { return headrace_state_of(capsule)->used; }

    static void headrace_collect(PyObject *capsule) {
        headrace_lua.lua_gc(headrace_state_of(capsule)->L, HEADRACE_GC_COLLECT, 0);
    }
    """
    object headrace_open(const char *path, object functions, size_t limit)
    object headrace_execute(object state, object text, object name)
    object headrace_call(object state, object name, object arguments)
    int headrace_set_number(object state, object name, double number) except -1
    ctypedef void (*headrace_host_call)(void *, void *, int, const unsigned char **, Py_ssize_t *) noexcept
    int headrace_finish_setup(object state, headrace_host_call call, size_t memory_max, double first_check_s) except -1
    object headrace_run(
        object state, void *host, object library, object name, list argv, Py_ssize_t keys, int protocol,
        const unsigned char **p, Py_ssize_t *size)
    void headrace_end_run(object state)
    size_t headrace_memory(object state)
    void headrace_collect(object state)


cdef inline object open_state(bytes path, dict functions, Py_ssize_t limit):
    return headrace_open(path, functions, <size_t> limit)


cdef inline object execute(object state, bytes text, bytes name):
    return headrace_execute(state, text, name)


cdef inline object call(object state, bytes name, tuple arguments):
    return headrace_call(state, name, arguments)


cdef inline int set_number(object state, bytes name, double number) except -1:
    return headrace_set_number(state, name, number)


cdef inline Py_ssize_t memory(object state):
    return <Py_ssize_t> headrace_memory(state)


cdef inline int collect(object state) except -1:
    headrace_collect(state)
    return 0


cdef inline void _call_host(
    void *host, void *argv, int protocol, const unsigned char **p, Py_ssize_t *n
) noexcept:
    cdef ScriptHost of = <ScriptHost> host
    of.command_reply.mark_sent(of.command_reply.pending_bytes())
    of.call(<list> argv, protocol)
    p[0] = of.command_reply.p + of.command_reply.start
    n[0] = of.command_reply.used - of.command_reply.start


cdef inline int finish_setup(object state, Py_ssize_t memory_max, double first_check_s) except -1:
    return headrace_finish_setup(state, _call_host, <size_t> memory_max, first_check_s)


cdef inline object run(
    object state, ScriptHost host, bytes library, bytes name, list argv, Py_ssize_t keys, int protocol,
    ReplyWriter out
):
    cdef const unsigned char *p
    cdef Py_ssize_t n = 0
    result = headrace_run(state, <void *> host, library, name, argv, keys, protocol, &p, &n)
    if n:
        out.raw_from(p, 0, n)
        if p[0] == 45:
            result = p[1 : n - 2], result
    headrace_end_run(state)
    return result
