# The C face of scripts.py.
from headrace.commands cimport arguments, strings, trim
from headrace.commands.call cimport Call
from headrace.keyspace.keyspace cimport Database
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId


cdef bint is_held(Call call, bytes key, bytes token)
cdef void live(Call call, bytes key, long long ms)
