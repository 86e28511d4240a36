# The C face of rename.py.
from headrace.commands cimport arguments, databases
from headrace.commands.call cimport Call
from headrace.keyspace cimport keyspace
from headrace.keyspace.keyspace cimport Database
from headrace.streams.stream cimport Stream

cdef Database database_at(Call call, bytes text)
cpdef void place(Database database, bytes key, object value, long long moment)
cdef void leave(Database database, bytes key)
cdef void tell(Database database, bytes event, bytes key)
cpdef void tell_former(Database database, bytes key, bytes former, object value)
cdef bint rename(Call call, bint replace)
cdef object duplicate(object value)
