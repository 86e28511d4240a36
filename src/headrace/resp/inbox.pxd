# The C face of inbox.py.
from headrace cimport mem
from headrace.resp cimport spare as blocks
from headrace.resp.spare cimport Spare

cdef Py_ssize_t CAP_MIN
cdef Py_ssize_t LINE_MAX
cdef unsigned char CR
cdef unsigned char DIGIT
cdef unsigned char HYPHEN
cdef Py_ssize_t DIGITS_MAX
cdef long long INVALID


cdef class Inbox:
    cdef bytearray buf
    cdef unsigned char *p
    cdef readonly Py_ssize_t cap
    cdef Py_ssize_t filled
    cdef Py_ssize_t at
    cdef public Spare spare

    cpdef void feed(self, bytes data)
    cdef void feed_from(self, const unsigned char *source, Py_ssize_t at, Py_ssize_t n)
    cdef Py_ssize_t line_end(self, str refusal)
    cdef long long number(self, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef void rest(self)
    cdef void _make_room(self, Py_ssize_t n)
    cdef void _resize(self, Py_ssize_t cap)
