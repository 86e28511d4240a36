# The C face of parser.py.
from headrace cimport mem

cdef Py_ssize_t CAP_MIN
cdef Py_ssize_t CAP_KEPT_MAX
cdef unsigned char CR
cdef unsigned char LF
cdef unsigned char DIGIT
cdef unsigned char HYPHEN
cdef unsigned char ARRAY
cdef unsigned char BULK
cdef long long NONE
cdef Py_ssize_t DIGITS_MAX
cdef long long INVALID
cdef long long WORDS_MAX
cdef Py_ssize_t LINE_MAX


cdef class RequestParser:
    cdef public long long bulk_max
    cdef bytearray buf
    cdef unsigned char *p
    cdef readonly Py_ssize_t cap
    cdef Py_ssize_t filled
    cdef Py_ssize_t at
    cdef list[bytes] words
    cdef long long left
    cdef long long size
    cdef Py_ssize_t held

    cpdef void feed(self, bytes data)
    cdef void feed_from(self, const unsigned char *source, Py_ssize_t at, Py_ssize_t n)
    cpdef Py_ssize_t pending(self)
    cpdef list[bytes] next(self)
    cdef bint _begin_array(self)
    cdef list[bytes] _array(self)
    cdef list[bytes] _inline(self)
    cdef Py_ssize_t _line_end(self, str refusal)
    cdef long long _number(self, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef void _make_room(self, Py_ssize_t n)
    cdef void _rest(self)
    cdef void _resize(self, Py_ssize_t cap)
