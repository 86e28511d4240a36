# The C face of transactions.py.
from headrace.commands.call cimport Call
from headrace.commands.session cimport Session
from headrace.keyspace.keyspace cimport Database
from headrace.keyspace.watching cimport Watch


cdef bint still_good(Call call)
cdef void leave(Call call)
