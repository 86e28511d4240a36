# The C face of crc64.py.
from headrace cimport mem

cdef Py_ssize_t LANE
cdef bytes TABLE
cdef bytes MOVES

cdef unsigned long long update(unsigned long long crc, const unsigned char *p, Py_ssize_t at, Py_ssize_t n) noexcept
cdef unsigned long long _next(const unsigned char *table, unsigned long long word) noexcept
cdef unsigned long long _moved(unsigned long long crc) noexcept
cpdef unsigned long long crc64(bytes data, unsigned long long crc=*)
