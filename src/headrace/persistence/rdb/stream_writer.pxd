# The C face of stream_writer.py.
from headrace cimport mem
from headrace.persistence.rdb.output cimport RdbOutput
from headrace.streams cimport node as nodes_of
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.idempotency cimport Idempotency
from headrace.streams.node cimport Node
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures.rax_walk cimport RaxCursor
from headrace.structures.streamid cimport StreamId

cdef int WITH_ACTIVE_TIMES
cdef int WITH_PRODUCERS
cdef int WITH_UNOWNED
cdef unsigned char NODE_KEY_BYTES
cdef long long NEVER


cpdef void write_stream(RdbOutput out, Stream stream, int stream_type, long long now_ms)
cpdef void write_producers(RdbOutput out, Stream stream, long long now_ms)
cpdef void write_unowned(RdbOutput out, Pending pending)
cpdef bytes stand_in(Group group)
cdef void _write_nodes(RdbOutput out, Stream stream)
cdef void _write_group(RdbOutput out, Group group, int stream_type, long long now_ms)
cdef void _write_id(RdbOutput out, Pending pending, Py_ssize_t slot)
cdef list _young(object iids, long long limit)
