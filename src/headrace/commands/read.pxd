# The C face of read.py.
from headrace.commands cimport arguments, entries
from headrace.commands.call cimport Call
from headrace.resp.writer cimport Answer
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef long long I64_MAX
cdef long long NO_COUNT
cdef long long NO_BLOCK


cdef class Read:
    cdef long long count
    cdef long long block
    cdef Py_ssize_t streams_at
    cdef list keys
    cdef list after

    cdef void read_options(self, list[bytes] argv, long long now)
    cdef void resolve(self, Call call)
    cpdef bint serve(self, Call call)
    cdef Py_ssize_t _answer_stream(self, Answer answer, Stream stream, Py_ssize_t i)


cdef void _answer_range(Call call, StreamId first, StreamId last, bint reverse)
cdef long long _parse_range_count(list[bytes] argv)
cdef long long parse_timeout(bytes word, long long now)
