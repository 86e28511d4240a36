# The C face of delivery.py.
from headrace cimport mem
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid

cdef long long I64_MAX
cdef long long UNKNOWN
cdef long long NO_LAG

cpdef long long distance(Stream stream, unsigned long long ms, unsigned long long seq)
cpdef long long lag(Stream stream, Group group)
cpdef bint has_lag(Stream stream, Group group) except -1
cpdef void advance(Stream stream, Group group, unsigned long long ms, unsigned long long seq)
cpdef void deliver(Stream stream, Group group, Consumer consumer, unsigned long long ms, unsigned long long seq,
                   long long now_ms, bint pending)
cdef bint _tombstone_from(Stream stream, unsigned long long ms, unsigned long long seq) noexcept
