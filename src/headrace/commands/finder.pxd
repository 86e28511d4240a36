# The C face of finder.py.
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid

cdef unsigned long long U64_MAX
cdef int STEPS_MAX


cdef class Finder:
    cdef Stream stream
    cdef StreamIterator _entry
    cdef bint _untouched

    cpdef StreamIterator find(self, unsigned long long ms, unsigned long long seq)
