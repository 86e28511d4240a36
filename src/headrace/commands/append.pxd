# The C face of append.py.
from headrace cimport mem
from headrace.commands cimport arguments, idempotency
from headrace.commands.call cimport Call
from headrace.commands.trim cimport Trim
from headrace.streams cimport idempotency as requests
from headrace.streams.idempotency cimport Idempotency
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef unsigned long long U64_MAX
cdef unsigned char STAR
cdef unsigned char DASH
cdef int CLIENT
cdef int CLOCK
cdef int SEQUENCE


cdef class Append:
    cdef bint make_stream
    cdef Trim trim
    cdef int source
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef Py_ssize_t id_at
    cdef Py_ssize_t pid_at
    cdef Py_ssize_t iid_at

    cdef void read_id(self, bytes word)
    cdef Py_ssize_t read_option(self, list[bytes] argv, Py_ssize_t at)
    cdef void _take_producer(self, list[bytes] argv, Py_ssize_t at, str option)
    cdef bytes iid(self, list[bytes] argv)
    cdef void choose_id(self, Stream stream, long long now)
    cdef void _take_time(self, Stream stream, unsigned long long now)


cdef Append parse(Call call)
cdef bint _is_no_option(bytes word)
cdef Py_ssize_t _read_options(Append request, Call call, list[bytes] argv)
cdef bint _is_duplicate(Call call, Append request, bytes iid, Stream stream)
cdef list[bytes] _effect(Append request, list[bytes] argv, Stream stream)
