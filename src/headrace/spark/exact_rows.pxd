# The C face of exact_rows.py.
from headrace cimport mem
from headrace.arrow.columns cimport Column
from headrace.arrow.growing cimport Growing
from headrace.spark.encoder cimport Cells


cdef class ExactRows:
    cdef Column entries
    cdef Column names
    cdef Column values
    cdef Growing scratch

    cpdef Py_ssize_t compare(self, Growing replies, Growing notes, Growing row_notes, list[Cells] cells) except -1
    cdef bint _is_same(self, const unsigned char *p, const unsigned char *notes, Py_ssize_t note, Py_ssize_t row,
                       list[Cells] cells) except -1
    cdef Py_ssize_t _keep(self, const unsigned char *p, const unsigned char *notes, Py_ssize_t note) except -1


cdef Py_ssize_t _head_bytes(Py_ssize_t n) noexcept
