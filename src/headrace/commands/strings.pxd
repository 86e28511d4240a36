# The C face of strings.py.
from headrace.commands cimport set_options
from headrace.commands.call cimport Call
from headrace.commands.set_options cimport SetOptions
from headrace.keyspace.keyspace cimport Database
from headrace.resp.writer cimport Answer

cdef void answer_string(Answer answer, object value)
cdef object replaceable(Call call, bytes key)
cdef void store(Call call, bytes key, bytes value)
cdef void store_until(Call call, bytes key, bytes value, long long moment)
cdef void remove(Call call, bytes key)
cdef void set_with_options(Call call)
cdef void store_pairs(Call call)
