# The C face of expire.py.
from headrace.commands cimport arguments
from headrace.commands.call cimport Call
from headrace.keyspace.keyspace cimport Database

cdef long long I64_MAX
cdef int NX
cdef int XX
cdef int GT
cdef int LT

cdef int parse_conditions(list[bytes] argv)
cdef bint holds(int conditions, long long moment, long long current)
cdef void expire(Call call, long long base, bint in_seconds)
cdef long long moment_of_death(Call call)
cdef long long seconds(long long ms)
