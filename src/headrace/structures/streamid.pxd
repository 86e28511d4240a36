# The C face of streamid.py: what other compiled modules may touch.
from headrace cimport mem


cdef bytearray SCRATCH


cdef class StreamId:
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq

    cpdef bint precedes(self, StreamId other) except -1
    cpdef StreamId successor(self)
    cpdef StreamId predecessor(self)
    cpdef bytes key(self)
    cpdef bytes text(self)


cpdef bytes text_of(unsigned long long ms, unsigned long long seq)
cpdef bytes decimal(long long n)
cpdef bytes key_of(unsigned long long ms, unsigned long long seq)
cpdef StreamId from_key(bytes key)
cpdef StreamId parse(bytes text, unsigned long long missing_seq)
cpdef StreamId parse_bound(bytes text, unsigned long long missing_seq)
cpdef StreamId parse_start(bytes text)
cpdef StreamId parse_end(bytes text)
cdef bint before(unsigned long long ms, unsigned long long seq,
                 unsigned long long than_ms, unsigned long long than_seq) noexcept
cdef StreamId _parse(bytes text, Py_ssize_t at, unsigned long long missing_seq)
cdef unsigned long long _number(const unsigned char *p, Py_ssize_t at, Py_ssize_t end)
