# The C face of nack.py.
from headrace.commands cimport arguments, members
from headrace.commands.call cimport Call
from headrace.streams.group cimport Group
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef long long I64_MAX
cdef long long NOT_GIVEN
cdef int SILENT
cdef int FAIL
cdef int FATAL


cdef class Nack:
    cdef int mode
    cdef Py_ssize_t count
    cdef Py_ssize_t ids_at
    cdef long long retry_count
    cdef bint force

    cdef Py_ssize_t _read_option(self, list[bytes] argv, Py_ssize_t at)
    cdef long long deliveries_after(self, long long deliveries) noexcept


cdef int _mode_of(bytes word)
