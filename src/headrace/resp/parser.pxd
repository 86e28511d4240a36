# The C face of parser.py.
from headrace cimport mem
from headrace.resp.inbox cimport Inbox
from headrace.resp.vocabulary cimport Vocabulary

cdef unsigned char CR
cdef unsigned char LF
cdef unsigned char ARRAY
cdef unsigned char BULK
cdef unsigned char HANDSHAKE
cdef long long NONE
cdef long long WORDS_MAX
cdef Py_ssize_t INLINE_MAX
cdef long long STRANGER_WORDS_MAX
cdef Py_ssize_t STRANGER_WORD_MAX
cdef long long ROOM_MAX
cdef Vocabulary HEARD


cdef class RequestParser(Inbox):
    cdef public long long bulk_max
    cdef public bint stranger
    cdef list words
    cdef long long count
    cdef Py_ssize_t taken
    cdef long long size
    cdef Py_ssize_t held

    cpdef Py_ssize_t pending(self)
    cpdef list[bytes] next(self)
    cdef bint _begin_array(self)
    cdef list[bytes] _array(self)
    cdef long long _size(self)
    cdef list[bytes] _inline(self)
