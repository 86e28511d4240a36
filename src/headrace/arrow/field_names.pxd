# The C face of field_names.py.
from headrace cimport mem
from headrace.arrow cimport growing
from headrace.arrow.columns cimport Column
from headrace.arrow.growing cimport Growing
from headrace.structures cimport listpack_walk

cdef Py_ssize_t ESCAPED_BYTES_MAX
cdef Py_ssize_t FEW


cdef class FieldNames:
    cdef Growing places
    cdef Growing repeated
    cdef bint are_text
    cdef bint escape
    cdef Py_ssize_t size
    cdef Column texts

    cdef Py_ssize_t examine(self, const unsigned char *p) except -1
    cdef Py_ssize_t _join(self, const unsigned char *p, Py_ssize_t count, bint escape) except -1


cdef Py_ssize_t append_escaped(Column column, const unsigned char *p, Py_ssize_t at) except -1
cdef bytes text(const unsigned char *p, Py_ssize_t at)
cdef bint is_text(const unsigned char *p, Py_ssize_t at) noexcept
cdef bint same_text(const unsigned char *p, Py_ssize_t a, Py_ssize_t b) except -1
