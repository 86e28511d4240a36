# The C face of read.py.
from headrace.commands cimport arguments, entries, read_options
from headrace.commands.call cimport Call
from headrace.commands.read_options cimport ReadOptions, Room
from headrace.keyspace.keyspace cimport Database
from headrace.resp.writer cimport Answer
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef long long NO_COUNT


cdef class Read:
    cdef ReadOptions options
    cdef list keys
    cdef list after
    cdef dict lowest

    cdef void resolve(self, Call call)
    cpdef bint serve(self, Call call)
    cdef void index(self)
    cpdef bint has_news(self, Database database, bytes key)
    cdef Py_ssize_t _answer_stream(self, Answer answer, Stream stream, Py_ssize_t i, Room room)


cdef void _answer_range(Call call, StreamId first, StreamId last, bint reverse)
cdef long long _parse_range_count(list[bytes] argv)
