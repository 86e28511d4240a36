# The C face of counters.py.
from headrace.commands cimport arguments
from headrace.commands.call cimport Call
from headrace.keyspace.keyspace cimport Database

cdef long long I64_MAX

cdef void add(Call call, long long amount)
cdef void keep(Database database, bytes key, object before, bytes after)
