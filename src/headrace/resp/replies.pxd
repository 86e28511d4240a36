# The C face of replies.py.
from headrace cimport mem
from headrace.resp.inbox cimport Inbox

cdef long long NONE
cdef long long COUNT_MAX
cdef Py_ssize_t DEPTH_MAX
cdef long long BULK_MAX
cdef unsigned char SIMPLE
cdef unsigned char ERROR
cdef unsigned char INTEGER
cdef unsigned char BULK
cdef unsigned char BLOB_ERROR
cdef unsigned char VERBATIM
cdef unsigned char ARRAY
cdef unsigned char MAP
cdef unsigned char SET
cdef unsigned char PUSH
cdef unsigned char ATTRIBUTE
cdef unsigned char NULL
cdef unsigned char BOOLEAN
cdef unsigned char DOUBLE
cdef unsigned char BIG_NUMBER


cdef class Aggregate:
    cdef unsigned char kind
    cdef long long left
    cdef list items
    cdef Aggregate parent

    cdef object whole(self)


cdef class ReplyParser(Inbox):
    cdef unsigned char kind
    cdef long long size
    cdef Aggregate top
    cdef Py_ssize_t depth

    cpdef object next(self)
    cdef object _item(self)
    cdef object _open(self, unsigned char kind, long long count)
    cdef object _string(self)
    cdef long long _length(self, Py_ssize_t begin, Py_ssize_t end, long long most)
