# The C face of column_runs.py.
from headrace cimport mem
from headrace.arrow cimport columns as kinds
from headrace.arrow.columns cimport Column
from headrace.arrow.growing cimport Growing

cdef Py_ssize_t RUN_MAX


cdef class ColumnRuns:
    cdef list columns
    cdef Column keys
    cdef Column items
    cdef Growing ids
    cdef bint possible
    cdef Py_ssize_t most

    cdef Py_ssize_t append_parts(self, Py_ssize_t rows, Column column, Py_ssize_t part,
                                 unsigned long long scale) except -1
    cdef bint finish(self, Py_ssize_t before, Py_ssize_t rows) except -1
