# The C face of expiry.py.

cdef Py_ssize_t HEAP_STALE_MIN


cdef class Expiry:
    cdef readonly dict at
    cdef list heap
    cdef readonly object total

    cpdef void set(self, bytes key, long long at_ms)
    cpdef bint drop(self, bytes key)
    cpdef long long get(self, bytes key)
    cpdef bint is_due(self, bytes key, long long now)
    cpdef bytes due(self, long long now)
    cpdef long long next_death(self)
