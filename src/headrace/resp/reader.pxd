# The C face of reader.py.
from headrace cimport mem
from headrace.resp.writer cimport Answer

cdef unsigned char CR
cdef unsigned char SIMPLE
cdef unsigned char ERROR
cdef unsigned char INTEGER
cdef unsigned char BULK
cdef unsigned char ARRAY
cdef unsigned char DIGIT
cdef unsigned char HYPHEN


cdef class Reader:
    cdef Py_ssize_t at
    cdef Py_ssize_t end

    cpdef object take(self, Answer answer)
    cdef object _item(self, const unsigned char *p)
    cdef long long _number(self, const unsigned char *p)
