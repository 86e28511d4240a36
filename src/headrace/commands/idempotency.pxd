# The C face of idempotency.py.
from headrace cimport mem
from headrace.commands cimport arguments
from headrace.commands.call cimport Call
from headrace.streams.idempotency cimport Idempotency
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef long long DURATION_MAX
cdef long long MAXSIZE_MAX
cdef long long NOT_GIVEN


cdef class Configuration:
    cdef long long duration_s
    cdef long long maxsize
    cdef long long added
    cdef long long duplicates

    cdef void read(self, list[bytes] argv, bint replayed)


cdef Stream new_stream(Call call)
cdef Idempotency memory_of(Call call, Stream stream)
cdef void restore_counters(Call call, Stream stream, Configuration asked)
