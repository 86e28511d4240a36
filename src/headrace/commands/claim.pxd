# The C face of claim.py.
from headrace.commands cimport arguments, entries, members
from headrace.commands.call cimport Call
from headrace.commands.finder cimport Finder
from headrace.resp.writer cimport Answer
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef long long I64_MAX
cdef long long NOT_GIVEN
cdef long long COUNT_DEFAULT
cdef long long COUNT_MAX
cdef long long LOOKED_AT_PER_COUNT


cdef class Claim:
    cdef Call call
    cdef bytes key
    cdef Finder finder
    cdef Group group
    cdef Consumer consumer
    cdef long long min_idle
    cdef long long time
    cdef long long retry_count
    cdef bint just_id
    cdef bint force
    cdef long long claimed
    cdef long long changes
    cdef bint made
    cdef bint last_told
    cdef Py_ssize_t effects_at

    cdef void begin(self)
    cdef void end(self)
    cdef bint is_idle(self, Py_ssize_t slot)
    cdef void take(self, Answer answer, Py_ssize_t slot, StreamIterator entry, bytes word)
    cdef void drop(self, Py_ssize_t slot, bytes word)
    cdef void record(self, Py_ssize_t slot, bytes word)


cdef long long parse_milliseconds(bytes word, str what)
cdef list[StreamId] _leading_ids(list[bytes] argv)
cdef StreamId _read_claim_options(Claim claim, list[bytes] argv, Py_ssize_t at)
cdef void _claim_one(Claim claim, StreamId wanted, bytes word)
cdef long long _parse_count(bytes word)
cdef void _claim_from(Claim claim, StreamId start, long long count)
