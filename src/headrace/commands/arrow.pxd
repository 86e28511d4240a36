# The C face of arrow.py.
from headrace.arrow.columns cimport Column
from headrace.arrow.encoder cimport RangeEncoder
from headrace.commands.arguments cimport Arguments
from headrace.commands.call cimport Call
from headrace.commands.spec cimport Command
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef long long COUNT_DEFAULT


cdef class Request:
    cdef long long count
    cdef bint anchor
    cdef str mode
    cdef list columns
