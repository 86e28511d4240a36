# The C face of pause.py.


cdef class Pause:
    cdef readonly long long until
    cdef readonly bint writes_only
    cdef readonly dict held

    cpdef void extend(self, long long until, bint writes_only)
    cpdef void end(self)
