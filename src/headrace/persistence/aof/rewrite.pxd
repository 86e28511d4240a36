# The C face of rewrite.py.
from headrace cimport mem
from headrace.keyspace.keyspace cimport Database, Keyspace
from headrace.keyspace.settings cimport Settings
from headrace.persistence.aof.records cimport Recorder
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.idempotency cimport Idempotency
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef unsigned long long U64_MAX
cdef long long I64_MAX
cdef Py_ssize_t PIECE_BYTES
cdef Py_ssize_t PROGRESS_BYTES
cdef Py_ssize_t NACKED_PER_COMMAND
