# The C face of tally.py.
from headrace cimport mem
from headrace.resp.inbox cimport Inbox

cdef long long NULL
cdef long long COUNT_MAX
cdef long long BULK_MAX
cdef unsigned char SIMPLE
cdef unsigned char ERROR
cdef unsigned char INTEGER
cdef unsigned char BULK
cdef unsigned char ARRAY


cdef class Tally(Inbox):
    cdef Py_ssize_t wanted
    cdef Py_ssize_t passed
    cdef long long left
    cdef Py_ssize_t element
    cdef readonly list errors
    cdef readonly bytes value
    cdef readonly bint null

    cpdef bint done(self)
    cdef bint _step(self) except -1
