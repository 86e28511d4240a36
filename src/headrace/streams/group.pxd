# The C face of group.py.
from headrace.streams cimport weight as weights
from headrace.streams.consumer cimport Consumer
from headrace.streams.pending cimport Pending
from headrace.streams.weight cimport Weight
from headrace.structures cimport footprint


cdef class Group:
    cdef readonly bytes name
    cdef public unsigned long long last_ms
    cdef public unsigned long long last_seq
    cdef public long long entries_read
    cdef readonly Pending pending
    cdef readonly Weight weight
    cdef dict by_name

    cpdef Consumer consumer(self, bytes name)
    cpdef Consumer make_consumer(self, bytes name, long long now_ms)
    cpdef Py_ssize_t drop_consumer(self, Consumer consumer)
    cpdef list[Consumer] consumers(self)
    cpdef Py_ssize_t consumer_count(self)
    cpdef Group copy(self)
    cpdef Py_ssize_t memory_bytes(self)
    cpdef void check(self)
    cdef void _hold(self, Pending pending)
