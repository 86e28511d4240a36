# The C face of arrow_decoder.py.
from headrace cimport mem
from headrace.arrow cimport columns as kinds
from headrace.arrow cimport field_names, growing
from headrace.arrow.columns cimport Column
from headrace.arrow.growing cimport Growing
from headrace.spark.encoder cimport Cells
from headrace.spark.exact_rows cimport ExactRows
from headrace.spark.page_scanner cimport PageScanner
from headrace.spark.runs cimport Runs

cdef unsigned char DASH
cdef Py_ssize_t ID_DIGITS_MAX
cdef unsigned long long U64_TENTH
cdef Py_ssize_t FEW_PAIRS
cdef int PERMISSIVE
cdef int DROPMALFORMED
cdef int FAILFAST


cdef class ArrowDecoder:
    cdef PageScanner scanner
    cdef Growing notes
    cdef list columns
    cdef Column fields
    cdef Column keys
    cdef Column items
    cdef Column corrupt
    cdef Runs runs
    cdef readonly bint exact
    cdef Growing row_notes
    cdef bint escape
    cdef bint typed
    cdef bint dated
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef list order
    cdef dict latest
    cdef str stream
    cdef int mode
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t dropped

    cdef Py_ssize_t _at(self, Py_ssize_t note, Py_ssize_t i) noexcept
    cdef Py_ssize_t _size(self, Py_ssize_t note, Py_ssize_t i) noexcept
    cdef bytes _word(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t i)
    cpdef bint decode(self, Py_ssize_t rows_max, Py_ssize_t size_max)
    cdef bint _append(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t pairs) except -1
    cdef Py_ssize_t _note_rows(self, Py_ssize_t note, Py_ssize_t rows) except -1
    cdef Py_ssize_t _find(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t pairs) except -1
    cdef Column _search(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t n)
    cdef bint _malformed(self, const unsigned char *p, Py_ssize_t note, Column column) except -1
    cdef bint _read_id(self, const unsigned char *p, Py_ssize_t note) except -1
    cdef bint _use_id(self, const unsigned char *p, Py_ssize_t note, Column column) except -1
    cdef unsigned long long _unsigned(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except? 0
    cdef bint _is_text(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t pairs, bint with_values) except -1
    cdef bint _not_text(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t pairs, Column column) except -1
    cdef Py_ssize_t _write_escaped(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t pairs, Column column) except -1
    cdef Py_ssize_t _write_pairs(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t pairs, Column column) except -1
    cdef bint _comes_again(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t i, Py_ssize_t pairs) except -1
    cdef bytes _as_json(self, const unsigned char *p, Py_ssize_t note, Py_ssize_t pairs)
