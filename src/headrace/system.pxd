# The system's clocks in C; system.py has the same functions for the interpreter.
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
