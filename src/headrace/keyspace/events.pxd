# The C face of events.py.
from headrace.keyspace.settings cimport Settings

cdef int KEYSPACE
cdef int KEYEVENT


cdef class Events:
    cdef readonly Settings settings
    cdef public object publish

    cpdef void tell(self, str cls, bytes event, bytes key, Py_ssize_t database)
