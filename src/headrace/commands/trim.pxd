# The C face of trim.py.
from headrace cimport mem
from headrace.commands cimport arguments
from headrace.commands.call cimport Call
from headrace.streams cimport references
from headrace.streams cimport trim as trimming
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.node cimport Node
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef int NO_TRIM
cdef int MAXLEN
cdef int MINID
cdef long long NODES_PER_TRIM
cdef long long LIMIT_UNKNOWN
cdef long long LIMIT_MAX
cdef unsigned long long U64_MAX
cdef int NO_POLICY


cdef class Trim:
    cdef int strategy
    cdef bint approximate
    cdef long long maxlen
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef long long limit
    cdef bint limit_given
    cdef Py_ssize_t strategy_at
    cdef Py_ssize_t threshold_at
    cdef long long removed
    cdef int policy

    cdef Py_ssize_t read(self, list[bytes] argv, Py_ssize_t at)
    cdef Py_ssize_t _read_valued(self, bytes word, list[bytes] argv, Py_ssize_t at)
    cdef void _begin(self, int strategy, list[bytes] argv, Py_ssize_t at)
    cdef void settle(self, bint required, long long node_entries_max, bint replayed)
    cdef long long apply(self, Stream stream)
    cdef void make_exact(self, Stream stream, list[bytes] words)
    cdef void _make_acked_exact(self, Stream stream, list[bytes] words)
    cdef bytes _reached(self, Stream stream, unsigned long long ms, unsigned long long seq, bytes most)


cdef class SetId:
    cdef StreamId last
    cdef long long entries_added
    cdef StreamId max_deleted


cdef int policy_of(bytes word)
cdef long long default_limit(long long node_entries_max)
cdef bytes first_record(Stream stream)
cdef Trim parse_trim(Call call)
cpdef long long carry_out(Call call)
cdef SetId parse_set_id(list[bytes] argv, bint replayed)
cdef void check_set_id(SetId request, Stream stream, bint replayed)
