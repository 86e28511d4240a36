# LuaJIT in C: its functions are those that the extension module lupa.luajit21 exports, found by dlsym().
# lua.py has the same functions for the interpreter.
#
# An error of Lua jumps over the C functions between it and the call that catches it. Here no such function holds
# a reference meanwhile: run() raises at its end, and memory is not limited while Python's objects are converted.
cdef extern from *:
    r"""
    #include <dlfcn.h>
    #include <stdlib.h>
    #include <string.h>

    typedef struct lua_State lua_State;
    typedef int (*lua_CFunction)(lua_State *);
    typedef void *(*lua_Alloc)(void *, void *, size_t, size_t);

    enum {
        HEADRACE_REGISTRY = -10000, HEADRACE_GLOBALS = -10002,
        HEADRACE_BOOLEAN = 1, HEADRACE_NUMBER = 3, HEADRACE_STRING = 4, HEADRACE_GC_COLLECT = 2
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
        F(void, lua_rawgeti, (lua_State *, int, int))

    #define HEADRACE_DECLARE(result, name, arguments) result (*name) arguments;
    static struct { HEADRACE_LUA_FUNCTIONS(HEADRACE_DECLARE) } headrace_lua;

    typedef struct {
        lua_State *L;
        size_t used, limit;
        int limited;           // while Lua runs, and nothing of Python
        PyObject *functions;   // a dict: what Lua can call
        PyObject *type, *value, *trace;  // an exception of one of them, raised when Lua has returned
    } headrace_state;

    #define HEADRACE_TABLE 1  // its place in the registry

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
        if (state->L != NULL) headrace_lua.lua_close(state->L);
        Py_XDECREF(state->functions);
        Py_XDECREF(state->type);
        Py_XDECREF(state->value);
        Py_XDECREF(state->trace);
        free(state);
    }

    // Call the function below `n` arguments; return a tuple of its results, the error's text, or NULL.
    static PyObject *headrace_finish_call(headrace_state *state, int n) {
        lua_State *L = state->L;
        PyObject *results = NULL;
        int failed, i, count;
        state->limited = 1;
        failed = headrace_lua.lua_pcall(L, n, -1, 0);
        state->limited = 0;
        if (state->type != NULL) {
            PyErr_Restore(state->type, state->value, state->trace);
            state->type = state->value = state->trace = NULL;
        } else if (failed) {
            size_t size;
            const char *text = headrace_lua.lua_tolstring(L, -1, &size);
            results = text == NULL ? PyBytes_FromString("unknown error")
                                   : PyBytes_FromStringAndSize(text, (Py_ssize_t) size);
        } else {
            count = headrace_lua.lua_gettop(L);
            results = PyTuple_New(count);
            for (i = 0; results != NULL && i < count; i++) {
                PyObject *item = headrace_value(L, i + 1);
                if (item == NULL) Py_CLEAR(results);
                else PyTuple_SET_ITEM(results, i, item);
            }
        }
        headrace_lua.lua_settop(L, 0);
        return results;
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
        headrace_lua.luaL_openlibs(state->L);
        headrace_lua.lua_createtable(state->L, 0, 64);
        while (PyDict_Next(functions, &at, &name, &function)) {
            headrace_push(state->L, name);
            headrace_lua.lua_pushlightuserdata(state->L, state);
            headrace_lua.lua_pushlightuserdata(state->L, function);
            headrace_lua.lua_pushcclosure(state->L, headrace_call_python, 2);
            headrace_lua.lua_rawset(state->L, -3);
        }
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
        headrace_lua.lua_rawget(L, 1);
        headrace_lua.lua_remove(L, 1);
        n = headrace_push(L, arguments);
        if (n >= 0) return headrace_finish_call(state, n);
        headrace_lua.lua_settop(L, 0);
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
