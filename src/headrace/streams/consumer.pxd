# The C face of consumer.py.
from headrace.streams.records cimport Records
from headrace.streams.slots cimport Slots

cdef long long NEVER


cdef class Consumer:
    cdef readonly bytes name
    cdef readonly Py_ssize_t number
    cdef public long long seen_ms
    cdef public long long active_ms
    cdef readonly Py_ssize_t pending_count
    cdef Slots owned
