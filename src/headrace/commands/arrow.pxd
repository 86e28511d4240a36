# The C face of arrow.py.
from headrace.arrow cimport ipc
from headrace.arrow.columns cimport Column
from headrace.arrow.encoder cimport RangeEncoder
from headrace.arrow.growing cimport Growing
from headrace.arrow.ipc cimport BatchMessage
from headrace.commands.arguments cimport Arguments
from headrace.commands.call cimport Call
from headrace.commands.spec cimport Command
from headrace.resp.writer cimport Answer
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef bytes ZEROS
cdef long long COUNT_DEFAULT


cdef class Request:
    cdef long long count
    cdef bint anchor
    cdef str mode
    cdef list columns


cdef void _answer_message(Answer answer, BatchMessage message, Py_ssize_t rows)
