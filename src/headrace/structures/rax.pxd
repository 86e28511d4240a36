# The C face of rax.py.
from headrace cimport mem
from headrace.structures cimport footprint

cdef bytes ZEROS
cdef object NO_VALUE


cdef class RaxNode:
    cdef bytes edges
    cdef object child
    cdef list children
    cdef object value


cdef RaxNode _node(bytes edges, object child, object value)
cdef bytes _run(bytes key, Py_ssize_t at)
cdef object below(RaxNode node, bytes key, Py_ssize_t at)
cdef Py_ssize_t width(RaxNode node) noexcept
cdef Py_ssize_t shared(bytes run, bytes key, Py_ssize_t at) noexcept
cdef Py_ssize_t place_of(bytes edges, unsigned char byte) noexcept
cdef void _hang(RaxNode node, Py_ssize_t place, object lower)
cdef void _cut(RaxNode branch, unsigned char byte)
cdef list[object] _below(RaxNode node)


cdef class Rax:
    cdef RaxNode root
    cdef readonly Py_ssize_t keys
    cdef readonly Py_ssize_t nodes

    cpdef object find(self, bytes key)
    cpdef bint contains(self, bytes key)
    cpdef bint insert(self, bytes key, object value)
    cpdef bint remove(self, bytes key)
    cdef void _drop_leaf(self, bytes key, RaxNode node, RaxNode above, RaxNode higher)
    cdef object _value(self, bytes key)
    cdef void _add(self, RaxNode branch, Py_ssize_t place, bytes key, Py_ssize_t at, object value)
    cdef object _tail(self, bytes key, Py_ssize_t at, object value)
    cdef void _split(self, RaxNode node, Py_ssize_t same, bytes key, Py_ssize_t at, object value)
    cdef void _absorb(self, RaxNode node)
