# The C face of node.py.
from headrace cimport mem
from headrace.streams.node_check cimport NodeCheck
from headrace.structures cimport listpack, listpack_walk, streamid
from headrace.structures.listpack cimport Listpack
from headrace.structures.rax_walk cimport RaxCursor


cdef class Node:
    cdef readonly Listpack pack
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq
    cdef readonly unsigned int live
    cdef readonly unsigned int deleted
    cdef readonly unsigned int fields
    cdef unsigned int fields_at
    cdef unsigned int entries_at
    cdef readonly unsigned int serial
    cdef readonly unsigned int gone
    cdef unsigned int gone_bytes
    cdef readonly bint noted

    cpdef bytes key(self)
    cpdef bint fits(self, unsigned long long ms, unsigned long long seq, Py_ssize_t raw, long long bytes_max,
                    long long entries_max) except -1
    cpdef void append(self, unsigned long long ms, unsigned long long seq, list[bytes] words, Py_ssize_t start,
                      Py_ssize_t raw)
    cpdef void bury(self, Py_ssize_t at)
    cpdef void count(self, long long live, long long deleted)
    cpdef void take_over(self, Listpack pack, long long gone)
    cpdef Py_ssize_t used_before(self)
    cpdef Node copy(self)
    cpdef void check(self)
    cdef bint _has_fields_of(self, list[bytes] words, Py_ssize_t start) except -1


cpdef Node checked_node(unsigned long long ms, unsigned long long seq, bytearray data, NodeCheck check)
cpdef Node open_node(unsigned long long ms, unsigned long long seq, list[bytes] words, Py_ssize_t start,
                     Py_ssize_t raw, Listpack room=*)
cpdef Node node_at(RaxCursor cursor)
cpdef Py_ssize_t raw_bytes(list[bytes] words, Py_ssize_t start)
