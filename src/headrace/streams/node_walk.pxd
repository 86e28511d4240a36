# The C face of node_walk.py.
from headrace cimport mem
from headrace.streams.node cimport Node
from headrace.structures cimport listpack_walk


cdef class EntryWalk:
    cdef Node node
    cdef const unsigned char *p
    cdef readonly Py_ssize_t at
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq
    cdef readonly long long fields
    cdef readonly bint deleted
    cdef readonly bint same
    cdef Py_ssize_t piece_at
    cdef long long left
    cdef Py_ssize_t field_at
    cdef bint named
    cdef const unsigned char *text
    cdef Py_ssize_t text_at
    cdef Py_ssize_t size
    cdef bytearray scratch
    cdef unsigned char *room

    cpdef void enter(self, Node node)
    cpdef void enter_end(self, Node node)
    cpdef bint next(self) except -1
    cpdef bint previous(self) except -1
    cpdef bint seek(self, unsigned long long ms, unsigned long long seq) except -1
    cpdef bint next_piece(self) except -1
    cpdef bytes piece(self)
    cdef Py_ssize_t _past(self, Py_ssize_t at) noexcept
    cdef void _read(self, Py_ssize_t at) noexcept
    cdef long long _take(self) noexcept
    cdef Py_ssize_t _show(self, Py_ssize_t at)


cdef Py_ssize_t _after(const unsigned char *p, Py_ssize_t at) noexcept
cdef bint _is_deleted(const unsigned char *p, Py_ssize_t at) noexcept
cdef Py_ssize_t _before(const unsigned char *p, Py_ssize_t at) noexcept
cdef Py_ssize_t _last_live(Node node) noexcept
cdef bint _is_below(Node node, Py_ssize_t at, unsigned long long ms, unsigned long long seq) noexcept
cpdef bint reaches(Node node, unsigned long long ms, unsigned long long seq) noexcept
