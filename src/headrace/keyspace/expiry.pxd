# The C face of expiry.py.
from headrace.streams.weight cimport Weight

cdef Py_ssize_t TIME_BYTES
cdef Py_ssize_t HEAP_STALE_MIN


cdef class Expiry:
    cdef readonly dict at
    cdef list heap
    cdef readonly object total
    cdef Weight weight

    cpdef void set(self, bytes key, long long at_ms)
    cpdef bint drop(self, bytes key)
    cpdef void empty(self)
    cdef void _tidy(self)
    cpdef long long get(self, bytes key)
    cpdef bint is_due(self, bytes key, long long now)
    cpdef bytes due(self, long long now)
    cpdef long long next_death(self)
