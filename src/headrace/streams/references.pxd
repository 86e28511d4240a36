# The C face of references.py.
from headrace.streams.group cimport Group
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef int KEEPREF
cdef int DELREF
cdef int ACKED

cpdef bint referenced(Stream stream, unsigned long long ms, unsigned long long seq) except -1
cpdef StreamId read_by_all(Stream stream)
cpdef bint held(Stream stream, unsigned long long ms, unsigned long long seq) except -1
cpdef Py_ssize_t drop_references(Stream stream, unsigned long long ms, unsigned long long seq)
