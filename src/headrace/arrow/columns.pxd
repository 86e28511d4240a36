# The C face of columns.py.
from headrace cimport mem
from headrace.arrow cimport growing
from headrace.arrow.growing cimport Growing
from headrace.structures cimport listpack, listpack_walk

cdef unsigned char PLUS
cdef unsigned char MINUS
cdef unsigned char POINT
cdef int EXPONENT
cdef Py_ssize_t DIGITS_MAX
cdef unsigned long long I64_MAX
cdef unsigned long long TIMESTAMP_MS_MAX
cdef unsigned long long EXACT_MAX
cdef long long POWER_MAX

cdef int ID
cdef int TIMESTAMP
cdef int SEQUENCE
cdef int FIELDS
cdef int CORRUPT
cdef int TEXT
cdef int BINARY
cdef int INTEGER
cdef int REAL
cdef int BOOLEAN
cdef int CONVERTED


cdef class Column:
    cdef readonly int kind
    cdef readonly bytes name
    cdef readonly Py_ssize_t width
    cdef readonly bint nullable
    cdef bint utf8
    cdef bint utf8_values
    cdef long long low
    cdef long long high
    cdef long long scale
    cdef object convert
    cdef Growing validity
    cdef Growing offsets
    cdef Growing values
    cdef Py_ssize_t nulls
    cdef readonly Py_ssize_t misfits
    cdef bint found
    cdef Py_ssize_t at
    cdef Py_ssize_t n
    cdef bint stored
    cdef long long number
    cdef double real
    cdef bytes raw
    cdef Py_ssize_t word

    cdef bint named(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t n) noexcept
    cdef bint names(self, const unsigned char *p, Py_ssize_t at) noexcept
    cdef Py_ssize_t read_element(self, const unsigned char *p, Py_ssize_t at) noexcept
    cdef bint read_id(self, unsigned long long ms, unsigned long long seq) noexcept
    cdef bint _take_stored(self) noexcept
    cdef bint _scale(self) noexcept
    cdef bint parse(self, const unsigned char *p) except -1
    cdef bint _parse_integer(self, const unsigned char *p) except -1
    cdef bint _parse_real(self, const unsigned char *p) except -1
    cdef bint _parse_hard_real(self, const unsigned char *p) except -1
    cdef Py_ssize_t write(self, const unsigned char *p, Py_ssize_t row) except -1
    cdef Py_ssize_t _write_integer(self) except -1
    cdef Py_ssize_t _write_real(self) except -1
    cdef Py_ssize_t append_text(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t n) except -1
    cdef Py_ssize_t append_element(self, const unsigned char *p, Py_ssize_t at) except -1
    cdef bint write_validity(self, Py_ssize_t row) except -1
    cdef Py_ssize_t write_id(self, unsigned long long ms, unsigned long long seq, Py_ssize_t row) except -1
    cdef bint has_offsets(self) noexcept
    cdef Py_ssize_t cut(self, Py_ssize_t rows) except -1
    cpdef void close(self)
