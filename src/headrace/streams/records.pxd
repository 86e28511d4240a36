# The C face of records.py.
from headrace cimport mem
from headrace.streams cimport weight as weights
from headrace.streams.weight cimport Weight
from headrace.structures cimport footprint

cdef int CHUNK_BITS
cdef Py_ssize_t CHUNK_RECORDS
cdef Py_ssize_t CHUNK_FIRST
cdef Py_ssize_t CHUNKS_MAX
cdef Py_ssize_t PLACE
cdef Py_ssize_t NARROW
cdef Py_ssize_t WIDE
cdef Py_ssize_t OWNER_NARROW_MAX
cdef unsigned long long U16_MAX
cdef unsigned long long U32_MAX
cdef unsigned long long U48_MAX
cdef Py_ssize_t NEXT
cdef Py_ssize_t PREVIOUS


cdef class Chunk:
    cdef Py_ssize_t number
    cdef bytearray buf
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef Py_ssize_t used
    cdef Py_ssize_t live
    cdef Py_ssize_t free
    cdef Py_ssize_t width
    cdef Weight weight
    cdef Py_ssize_t weighed

    cdef void clear(self)
    cdef void weigh(self)
    cdef Py_ssize_t take(self)
    cdef void give(self, Py_ssize_t place)
    cdef void widen(self)
    cdef void deliver(self, Py_ssize_t at, Py_ssize_t owner, long long time_ms, long long count) noexcept
    cdef Chunk copy(self, Weight weight)
    cdef void check(self)


cdef class Records:
    cdef list chunks
    cdef list roomy
    cdef Py_ssize_t live
    cdef readonly Weight weight

    cpdef Py_ssize_t take(self, unsigned long long ms, unsigned long long seq, Py_ssize_t owner, long long time_ms,
                          long long count)
    cpdef void give(self, Py_ssize_t slot)
    cpdef unsigned long long ms_of(self, Py_ssize_t slot)
    cpdef unsigned long long seq_of(self, Py_ssize_t slot)
    cpdef bint precedes(self, Py_ssize_t slot, unsigned long long ms, unsigned long long seq) except -1
    cpdef bint stands_for(self, Py_ssize_t slot, unsigned long long ms, unsigned long long seq) except -1
    cpdef long long time_of(self, Py_ssize_t slot)
    cpdef long long count_of(self, Py_ssize_t slot)
    cpdef Py_ssize_t owner_of(self, Py_ssize_t slot)
    cpdef void deliver(self, Py_ssize_t slot, Py_ssize_t owner, long long time_ms, long long count)
    cpdef Py_ssize_t next_of(self, Py_ssize_t slot)
    cpdef Py_ssize_t previous_of(self, Py_ssize_t slot)
    cpdef void link(self, Py_ssize_t slot, Py_ssize_t follower)
    cpdef Records copy(self)
    cpdef Py_ssize_t memory_bytes(self)
    cpdef void check(self)
    cdef Chunk _chunk(self, Py_ssize_t slot)
    cdef Py_ssize_t _link(self, Py_ssize_t slot, Py_ssize_t which)
    cdef void _open(self)


cdef bint fits(Py_ssize_t owner, long long time_ms, long long count) noexcept
cdef unsigned long long _u48(const unsigned char *p, Py_ssize_t at) noexcept
cdef void _put_u48(unsigned char *p, Py_ssize_t at, unsigned long long v) noexcept
