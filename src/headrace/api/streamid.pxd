# The C face of streamid.py.
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId


cdef class StreamID:
    cdef unsigned long long _ms
    cdef unsigned long long _seq

    cdef bint _before(self, StreamID that) noexcept


cpdef StreamID from_reply(bytes text)
