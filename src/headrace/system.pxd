# The system's clocks, scheduler and files in C; system.py has the same functions for the interpreter.
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline long long now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    if now.tv_sec < 0:
        clock_gettime(CLOCK_MONOTONIC, &now)
    return <long long> now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef inline long long monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <long long> now.tv_sec * 1000000000 + now.tv_nsec


cdef inline int run_signal_handlers() except -1:
    return PyErr_CheckSignals()


cdef extern from "sched.h" nogil:
    int sched_yield()


cdef extern from "unistd.h" nogil:
    ssize_t pread(int descriptor, void *target, size_t n, long long offset)


cdef inline void yield_core() noexcept nogil:
    sched_yield()


cdef inline Py_ssize_t read_at(int descriptor, unsigned char *buf, Py_ssize_t n, long long offset) noexcept nogil:
    cdef Py_ssize_t found = pread(descriptor, buf, n, offset)
    while found < 0 and errno == EINTR:
        found = pread(descriptor, buf, n, offset)
    return -errno if found < 0 else found
