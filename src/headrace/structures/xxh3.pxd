# The C face of xxh3.py.
from headrace cimport mem

cdef unsigned long long PRIME32_1
cdef unsigned long long PRIME32_2
cdef unsigned long long PRIME32_3
cdef unsigned long long PRIME64_1
cdef unsigned long long PRIME64_2
cdef unsigned long long PRIME64_3
cdef unsigned long long PRIME64_4
cdef unsigned long long PRIME64_5
cdef unsigned long long MIX_1
cdef unsigned long long MIX_2
cdef unsigned long long U64_MAX
cdef unsigned long long LOW_HALF
cdef Py_ssize_t STRIPE
cdef Py_ssize_t STRIPES_PER_BLOCK
cdef Py_ssize_t LANES
cdef Py_ssize_t SCRAMBLE_AT
cdef bytes SECRET


cdef class Digest:
    cdef readonly unsigned long long low
    cdef readonly unsigned long long high

    cpdef void take(self, bytes data)
    cdef void _take_3(self, const unsigned char *p, Py_ssize_t n)
    cdef void _take_8(self, const unsigned char *p, Py_ssize_t n)
    cdef void _take_16(self, const unsigned char *p, Py_ssize_t n)
    cdef void _take_128(self, const unsigned char *p, Py_ssize_t n)
    cdef void _take_240(self, const unsigned char *p, Py_ssize_t n)
    cdef void _take_long(self, const unsigned char *p, Py_ssize_t n)
    cdef void _mix_32(self, const unsigned char *p, Py_ssize_t a, Py_ssize_t b, Py_ssize_t key)
    cdef void _finish(self, unsigned long long n)


cdef unsigned long long _secret(Py_ssize_t at) noexcept
cdef unsigned long long _fold(unsigned long long a, unsigned long long b) noexcept
cdef unsigned long long _mix_16(const unsigned char *p, Py_ssize_t at, Py_ssize_t key) noexcept
cdef unsigned long long _avalanche(unsigned long long h) noexcept
cdef unsigned long long _avalanche_64(unsigned long long h) noexcept
cdef void _add_stripe(unsigned char *lanes, const unsigned char *p, Py_ssize_t at, Py_ssize_t key) noexcept
cdef void _scramble(unsigned char *lanes) noexcept
cdef unsigned long long _merge(unsigned char *lanes, Py_ssize_t key, unsigned long long start) noexcept
