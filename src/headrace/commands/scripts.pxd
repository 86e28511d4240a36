# The C face of scripts.py.
from headrace.commands cimport arguments, strings
from headrace.commands.call cimport Call
from headrace.keyspace.keyspace cimport Database


cdef bint is_held(Call call, bytes key, bytes token)
cdef void live(Call call, bytes key, long long ms)
