# The C face of encoder.py.
from headrace cimport mem
from headrace.arrow.growing cimport Growing

cdef unsigned char CR
cdef unsigned char LF
cdef unsigned char ARRAY
cdef unsigned char BULK
cdef unsigned char MINUS
cdef unsigned char POINT
cdef unsigned char DIGIT
cdef Py_ssize_t HEADER_MAX
cdef Py_ssize_t NUMBER_MAX
cdef Py_ssize_t DECIMALS_MAX
cdef double PLAIN_MIN
cdef long long PLAIN_MAX
cdef int TEXT
cdef int FIXED
cdef int INTEGER
cdef int BOOLEAN
cdef int REAL
cdef int MAP


cdef class Cells:
    cdef readonly int form
    cdef readonly bytes name
    cdef Py_ssize_t start
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t width
    cdef long long scale
    cdef bint signed
    cdef bint some_null
    cdef Py_ssize_t size
    cdef const unsigned char *validity
    cdef const unsigned char *offsets
    cdef const unsigned char *values
    cdef tuple owners
    cdef Cells keys
    cdef Cells items

    cdef bint _is_null(self, Py_ssize_t row) noexcept
    cdef Py_ssize_t _offset(self, Py_ssize_t i) except -1
    cdef Py_ssize_t count(self, Py_ssize_t row) except -1
    cdef Py_ssize_t write(self, Growing out, Py_ssize_t row) except -1
    cdef Py_ssize_t write_value(self, Growing out, Py_ssize_t row) except -1
    cdef Py_ssize_t _write_integer(self, Growing out, Py_ssize_t i) except -1


cdef Py_ssize_t _put_bulk(Growing out, const unsigned char *source, Py_ssize_t at, Py_ssize_t n) except -1
cdef Py_ssize_t _put_head(Growing out, unsigned char kind, Py_ssize_t n) noexcept
cdef Py_ssize_t _end_line(Growing out) noexcept
cdef Py_ssize_t _end_number(Growing out, Py_ssize_t begin, Py_ssize_t end) noexcept
cdef Py_ssize_t _put_real(Growing out, double v) except -1


cdef class XaddEncoder:
    cdef Growing out
    cdef list cells
    cdef Cells ids
    cdef readonly Py_ssize_t rows
    cdef bytes head
    cdef Py_ssize_t head_words

    cdef Py_ssize_t _append(self, Py_ssize_t row) except -1
