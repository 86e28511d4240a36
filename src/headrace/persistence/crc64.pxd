# The C face of crc64.py.
from headrace cimport mem

cdef Py_ssize_t ROW
cdef bytes TABLE

cdef unsigned long long update(unsigned long long crc, const unsigned char *p, Py_ssize_t at, Py_ssize_t n) noexcept
cpdef unsigned long long crc64(bytes data, unsigned long long crc=*)
