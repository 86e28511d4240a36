# The C face of growing.py.
from headrace cimport mem

cdef unsigned char HYPHEN
cdef unsigned int ZERO
cdef Py_ssize_t DECIMAL_MAX
cdef Py_ssize_t ID_MAX
cdef Py_ssize_t SPARE_MAX
cdef Py_ssize_t SPARE_BYTES_MAX
cdef list SPARE
cdef unsigned char BACKSLASH
cdef unsigned char LETTER_X
cdef bytes HEX_DIGITS
cdef Py_ssize_t ESCAPE_BYTES


cdef class Growing:
    cdef bytearray buf
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef Py_ssize_t used
    cdef Py_ssize_t id_at
    cdef Py_ssize_t id_digits
    cdef unsigned long long id_thousands

    cdef Py_ssize_t grow(self, Py_ssize_t extra) except -1
    cdef Py_ssize_t put(self, const unsigned char *source, Py_ssize_t at, Py_ssize_t n) except -1
    cdef Py_ssize_t put_escaped(self, const unsigned char *source, Py_ssize_t at, Py_ssize_t n) except -1
    cdef Py_ssize_t _put_escape(self, unsigned char byte) except -1
    cdef Py_ssize_t put_u32(self, unsigned int v) except -1
    cdef Py_ssize_t put_bit(self, Py_ssize_t row, bint on) except -1
    cdef Py_ssize_t put_decimal(self, long long v) except -1
    cdef Py_ssize_t put_id(self, unsigned long long ms, unsigned long long seq) except -1
    cdef bytearray take(self)


cpdef bytes escaped(bytes data)
cpdef Growing spare()
cpdef void give_back(Growing used_up)
