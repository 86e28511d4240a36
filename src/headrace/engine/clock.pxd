# The C face of clock.py.
from headrace cimport system


cdef class RealClock:
    cpdef long long now_ms(self)


cdef class SetClock(RealClock):
    cdef public long long ms

    cpdef void advance(self, long long ms)
