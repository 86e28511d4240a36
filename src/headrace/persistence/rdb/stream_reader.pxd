# The C face of stream_reader.py.
from headrace cimport mem
from headrace.keyspace.keyspace cimport Keyspace
from headrace.persistence.rdb.input cimport RdbInput
from headrace.streams cimport delivery
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.idempotency cimport Idempotency
from headrace.streams.node cimport Node
from headrace.streams.node_walk cimport EntryWalk
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.listpack cimport Listpack
from headrace.structures.streamid cimport StreamId

cdef int WITH_COUNTERS
cdef int WITH_ACTIVE_TIMES
cdef int WITH_PRODUCERS
cdef int WITH_UNOWNED
cdef long long UNKNOWN
cdef long long I64_MAX
cdef unsigned long long COUNTER_MAX
cdef unsigned long long REMEMBERED_MAX
cdef Py_ssize_t NO_TIME_LIMIT

cpdef bint is_stream(int kind)
cpdef Stream read_stream(RdbInput inp, int kind, Keyspace keyspace)
cpdef void forget_old(Stream stream, long long now_ms)
cdef unsigned long long _read_nodes(RdbInput inp, Stream stream)
cdef void _gather(Stream stream, bytes key, bytearray data, long long at)
cdef void _read_counters(RdbInput inp, int kind, Stream stream, unsigned long long alive)
cdef unsigned long long _read_counter(RdbInput inp)
cdef void _read_group(RdbInput inp, int kind, Stream stream)
cdef list _read_pending(RdbInput inp, Pending pending)
cdef void _read_consumer(RdbInput inp, int kind, Group group, list owners)
cdef void _hand_out(Pending pending, list owners, list times)
cdef void _read_unowned(RdbInput inp, Pending pending)
cpdef void read_producers(RdbInput inp, Stream stream, Keyspace keyspace)
