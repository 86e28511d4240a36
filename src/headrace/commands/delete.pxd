# The C face of delete.py.
from headrace.commands cimport arguments
from headrace.commands cimport trim as trims
from headrace.commands.call cimport Call
from headrace.streams cimport references
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId



cdef class Removal:
    cdef readonly int policy
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t ids_at

    cpdef list[StreamId] ids(self, list[bytes] argv)


cdef Removal parse_removal(list[bytes] argv, Py_ssize_t at)
cdef void answer_missing(Call call, Py_ssize_t count)
