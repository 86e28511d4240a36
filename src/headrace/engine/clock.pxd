# The C face of clock.py.
from headrace cimport system


cpdef long long sooner(long long a, long long b) noexcept


cdef class RealClock:
    cpdef long long now_ms(self)
    cpdef long long monotonic_ns(self)


cdef class SetClock(RealClock):
    cdef public long long ms

    cpdef void advance(self, long long ms)
