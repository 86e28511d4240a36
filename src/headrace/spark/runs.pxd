# The C face of runs.py.
from headrace cimport mem
from headrace.arrow cimport column_runs
from headrace.arrow cimport columns as kinds
from headrace.arrow.column_runs cimport ColumnRuns
from headrace.arrow.columns cimport Column
from headrace.arrow.growing cimport Growing

cdef unsigned char DASH
cdef Py_ssize_t RUN_MIN
cdef Py_ssize_t NAMES_MAX
cdef Py_ssize_t U64_DIGITS


cdef class Runs(ColumnRuns):
    cdef Growing notes
    cdef bint dated
    cdef Py_ssize_t stride
    cdef Py_ssize_t size

    cdef Py_ssize_t append(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t row, Py_ssize_t rows_max,
                           Py_ssize_t size_max) except -1
    cdef Py_ssize_t _end(self, Py_ssize_t note) noexcept
    cdef Py_ssize_t _length(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t most,
                            Py_ssize_t size_max) noexcept
    cdef bint _bind(self, const unsigned char *p, Py_ssize_t note) except -1
    cdef Py_ssize_t _at(self, Py_ssize_t note, Py_ssize_t i) noexcept
    cdef Py_ssize_t _size(self, Py_ssize_t note, Py_ssize_t i) noexcept
    cdef bint _are_keys(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t words, bint utf8) except -1
    cdef Py_ssize_t _read_ids(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t rows) except -1
    cdef Py_ssize_t _append_values(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t rows,
                                   Column column) except -1
    cdef Py_ssize_t _append_numbers(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t rows,
                                    Column column) except -1
    cdef Py_ssize_t _append_texts(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t rows,
                                  Column column) except -1
    cdef Py_ssize_t _append_maps(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t rows,
                                 Column column) except -1
    cdef Py_ssize_t _append_keys(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t rows,
                                 Py_ssize_t pairs) except -1
