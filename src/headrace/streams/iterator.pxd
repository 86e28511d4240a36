# The C face of iterator.py.
from headrace cimport mem
from headrace.streams cimport node as nodes_of
from headrace.streams.node cimport Node
from headrace.streams.node_walk cimport EntryWalk
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.rax_walk cimport RaxCursor


cdef class StreamIterator:
    cdef Stream stream
    cdef unsigned long long from_ms
    cdef unsigned long long from_seq
    cdef unsigned long long to_ms
    cdef unsigned long long to_seq
    cdef bint reverse
    cdef Node node
    cdef readonly EntryWalk walk
    cdef bint sought
    cdef RaxCursor cursor
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq
    cdef readonly Py_ssize_t fields
    cdef const unsigned char *p
    cdef Py_ssize_t at
    cdef Py_ssize_t size

    cpdef bint next(self) except -1
    cpdef bint next_piece(self) except -1
    cpdef list[bytes] entry(self)
    cdef bint _step(self, EntryWalk walk) except -1
    cdef void _leave(self, Node node)
    cdef void _enter(self, Node node)
