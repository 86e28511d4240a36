# The C face of histogram.py.
from headrace cimport mem

cdef Py_ssize_t STEPS
cdef int STEP_BITS
cdef long long LONGEST
cdef Py_ssize_t OCTAVE_BYTES

cdef long long longest_of(Py_ssize_t counter) noexcept


cdef class Histogram:
    cdef readonly Py_ssize_t counters
    cdef bytearray buf
    cdef unsigned char *p

    cpdef int add(self, long long ns) except -1
    cdef int _grow(self, Py_ssize_t counter) except -1
