# The C face of databases.py.
from headrace.commands cimport arguments
from headrace.commands.call cimport Call
from headrace.keyspace cimport keyspace, scan

cdef long long I32_MAX

cdef void check_flush(list[bytes] argv)
cdef Py_ssize_t parse_i32(bytes text)
cdef Py_ssize_t parse_index(bytes text, str refusal)
