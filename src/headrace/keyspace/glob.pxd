# The C face of glob.py.
from headrace.keyspace.glob_elements cimport Elements

cdef int BACKSLASH
cdef int CARET
cdef int DASH
cdef int OPENING
cdef int CLOSING
cdef int QUESTION
cdef int STAR
cdef Py_ssize_t STEPS_PER_BYTE
cdef Py_ssize_t STEPS_MIN
cdef Py_ssize_t SEGMENT_MAX

cdef int lower_case(int c) noexcept
cpdef bint matches(bytes pattern, bytes text, bint ignore_case=*)


cdef class Glob:
    cdef readonly bytes pattern
    cdef bint fold
    cdef Elements elements

    cpdef bint matches(self, bytes text)
    cdef int _compare(self, bytes text) noexcept
    cdef Py_ssize_t _accept(self, Py_ssize_t at, int byte) noexcept
    cdef Py_ssize_t _accept_class(self, Py_ssize_t at, int byte) noexcept
