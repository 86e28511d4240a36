# The C face of counting.py.
from headrace cimport mem
from headrace.streams cimport compaction, node_walk
from headrace.streams cimport node as nodes_of
from headrace.streams.compaction cimport Compaction, Worn
from headrace.streams.node cimport Node
from headrace.streams.weight cimport Weight
from headrace.structures cimport streamid
from headrace.structures cimport footprint
from headrace.structures.rax cimport Rax
from headrace.structures.rax_walk cimport RaxCursor


cdef class Counting:
    cdef bytearray buf
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef readonly Py_ssize_t serials
    cdef readonly Py_ssize_t nodes
    cdef Compaction compaction
    cdef Weight weight
    cdef readonly Worn worn
    cdef Node recent

    cpdef void close(self, Node node)
    cpdef void reopen(self, Node node, Rax nodes)
    cpdef void lose(self, Node node, long long n)
    cpdef void drop(self, Node node, Rax nodes)
    cpdef unsigned long long before(self, Node node)
    cpdef bint is_in_recent(self, unsigned long long ms, unsigned long long seq) except -1
    cpdef Py_ssize_t memory_bytes(self)
    cpdef void check(self, Rax nodes, Node tail)
    cdef void _count_in(self, Node node)
    cdef void _count_out(self, Node node, Rax nodes)
    cdef void _subtract(self, Node node, long long n)
    cdef void _note_if_worn(self, Node node)
    cdef void _renumber(self, Rax nodes)
    cdef void _make_room(self, Py_ssize_t cap)
