# The C face of rax_walk.py.
from headrace cimport mem
from headrace.structures cimport rax
from headrace.structures.rax cimport Rax, RaxNode

cdef Py_ssize_t ITSELF


cdef class RaxCursor:
    cdef readonly bytes key
    cdef readonly object value
    cdef Rax tree
    cdef bint stands

    cdef object here
    cdef RaxNode before
    cdef Py_ssize_t before_place
    cdef Py_ssize_t before_at
    cdef RaxNode after
    cdef Py_ssize_t after_place
    cdef Py_ssize_t after_at

    cdef bytearray buf
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef Py_ssize_t used

    cpdef bint seek(self, str op, bytes key=*)
    cpdef bint next(self)
    cpdef bint previous(self)
    cdef void _part(self, bytes key)
    cdef void _note_before(self, RaxNode node, Py_ssize_t place, Py_ssize_t at) noexcept
    cdef void _note_after(self, RaxNode node, Py_ssize_t place, Py_ssize_t at) noexcept
    cdef bint _first(self, RaxNode node, Py_ssize_t place, bytes key, Py_ssize_t at)
    cdef bint _last(self, RaxNode node, Py_ssize_t place, bytes key, Py_ssize_t at)
    cdef object _step(self, RaxNode node, Py_ssize_t place)
    cdef void _put(self, bytes source, Py_ssize_t at, Py_ssize_t n)
    cdef bint _stand(self, bytes key, object value)
    cdef bint _leave(self)
