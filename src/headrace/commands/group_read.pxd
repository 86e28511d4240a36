# The C face of group_read.py.
from headrace.commands cimport entries, members, read_options
from headrace.commands.call cimport Call
from headrace.commands.finder cimport Finder
from headrace.commands.read_options cimport ReadOptions, Room
from headrace.keyspace.keyspace cimport Database
from headrace.resp.writer cimport Answer
from headrace.streams cimport delivery
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef long long I64_MAX
cdef unsigned long long U64_MAX
cdef long long LOOK_AGAIN_MS


cdef class GroupRead:
    cdef ReadOptions options
    cdef list keys
    cdef list after
    cdef list streams
    cdef list groups

    cdef void resolve(self, Call call)
    cdef bint attempt(self, Call call)
    cpdef bint serve(self, Call call)
    cpdef bint has_news(self, Database database, bytes key)
    cdef void await_idle(self, Call call)
    cdef Py_ssize_t _answer_stream(self, Call call, Py_ssize_t i, Room room)


cdef StreamId _parse_id(bytes word)
cdef long long _oldest_delivery(Stream stream, Group group)


cdef class Turn:
    cdef Call call
    cdef bytes key
    cdef Stream stream
    cdef Group group
    cdef Consumer consumer
    cdef Room room
    cdef long long most
    cdef long long found
    cdef long long delivered

    cdef void answer_history(self, StreamId after)
    cdef void answer_claimed(self, long long min_idle)
    cdef void answer_new(self, bint noack, bint claiming)
    cdef void _record_delivery(self, StreamIterator entry, bytes last)
    cdef void _answer_with_delivery(self, StreamIterator entry, long long idle, long long deliveries)
    cdef void _count(self) noexcept


cdef class Retold:
    cdef Turn turn
    cdef Py_ssize_t slot
    cdef list ids

    cdef void add(self, Py_ssize_t slot)
    cdef void flush(self)
