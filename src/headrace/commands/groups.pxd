# The C face of groups.py.
from headrace cimport mem
from headrace.commands cimport arguments, idempotency
from headrace.commands.call cimport Call
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef long long UNKNOWN


cdef class Position:
    cdef bint make_stream
    cdef long long entries_read
    cdef Py_ssize_t read_at

    cdef void read(self, list[bytes] argv, bint creating)
    cdef void cap(self, Call call, Stream stream)


cdef Stream stream_at(Call call)
cdef Group group_at(Call call)
cdef void changed(Call call, bytes event)
cdef void place_stream(Call call, bytes key, Stream stream)
