# The C face of arrow_columns.py.
from headrace cimport mem

cdef unsigned char PLUS
cdef unsigned char MINUS
cdef unsigned char POINT
cdef Py_ssize_t DIGITS_MAX
cdef unsigned long long I64_MAX
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


cdef class Growing:
    cdef bytearray buf
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef Py_ssize_t used

    cdef Py_ssize_t grow(self, Py_ssize_t extra) except -1
    cdef Py_ssize_t put(self, const unsigned char *source, Py_ssize_t at, Py_ssize_t n) except -1
    cdef Py_ssize_t put_u32(self, unsigned int v) except -1
    cdef Py_ssize_t put_bit(self, Py_ssize_t row, bint on) except -1
    cdef bytearray take(self)


cdef class Column:
    cdef readonly int kind
    cdef readonly bytes name
    cdef readonly Py_ssize_t width
    cdef readonly bint nullable
    cdef bint utf8
    cdef long long low
    cdef long long high
    cdef long long scale
    cdef object convert
    cdef Growing validity
    cdef Growing offsets
    cdef Growing values
    cdef Py_ssize_t nulls
    cdef bint found
    cdef Py_ssize_t at
    cdef Py_ssize_t n
    cdef long long number
    cdef double real
    cdef bytes raw

    cdef bint named(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t n) noexcept
    cdef bint parse(self, const unsigned char *p) except -1
    cdef bint _parse_integer(self, const unsigned char *p) except -1
    cdef bint _parse_real(self, const unsigned char *p) except -1
    cdef Py_ssize_t write(self, const unsigned char *p, Py_ssize_t row) except -1
    cdef Py_ssize_t _write_integer(self) except -1
    cdef Py_ssize_t _write_real(self) except -1
    cdef Py_ssize_t append_text(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t n) except -1
