# The C face of writer.py.
from headrace cimport mem
from headrace.resp cimport spare as blocks
from headrace.resp.spare cimport Spare

cdef Py_ssize_t CAP_MIN
cdef Py_ssize_t DROPPED_CAP
cdef Py_ssize_t HEADER_MAX
cdef Py_ssize_t ID_MAX
cdef unsigned char CR
cdef unsigned char LF
cdef unsigned char SPACE
cdef unsigned int CRLF
cdef unsigned char DIGIT
cdef unsigned char HYPHEN
cdef unsigned char SIMPLE
cdef unsigned char ERROR
cdef unsigned char INTEGER
cdef unsigned char BULK
cdef unsigned char ARRAY
cdef unsigned char MAP
cdef unsigned char SET
cdef unsigned char PUSH
cdef unsigned char DOUBLE
cdef unsigned char VERBATIM


cdef class Answer:
    cdef public unsigned int protocol
    cdef bytearray buf
    cdef unsigned char *p
    cdef readonly Py_ssize_t cap
    cdef Py_ssize_t start
    cdef Py_ssize_t used
    cdef public Py_ssize_t limit
    cdef readonly bint overflowed
    cdef public Spare spare

    cpdef void ok(self)
    cpdef void simple(self, bytes text)
    cpdef void error(self, bytes text)
    cpdef int integer(self, long long v) except -1
    cpdef int bulk(self, bytes v) except -1
    cdef int bulk_from(self, const unsigned char *source, Py_ssize_t at, Py_ssize_t n) except -1
    cpdef void raw(self, bytes encoded)
    cpdef int stream_id(self, unsigned long long ms, unsigned long long seq) except -1
    cpdef void null(self)
    cpdef void null_array(self)
    cpdef int array(self, Py_ssize_t n) except -1
    cpdef void map(self, Py_ssize_t n)
    cpdef void set(self, Py_ssize_t n)
    cpdef void push(self, Py_ssize_t n)
    cpdef void double(self, double v)
    cpdef void boolean(self, bint v)
    cpdef void verbatim(self, bytes v)
    cpdef void value(self, object v)
    cpdef Py_ssize_t mark(self)
    cpdef void rewind(self, Py_ssize_t mark)
    cpdef Py_ssize_t open_array(self)
    cpdef void close_array(self, Py_ssize_t mark, Py_ssize_t n)
    cpdef void close_map(self, Py_ssize_t mark, Py_ssize_t n)
    cpdef Py_ssize_t pending(self)
    cpdef void sent(self, Py_ssize_t n)
    cpdef bytes take(self)
    cdef int _header(self, unsigned char kind, long long n) except -1
    cdef void _line(self, unsigned char kind, bytes text)
    cdef void _close(self, unsigned char kind, Py_ssize_t mark, Py_ssize_t n)
    cdef void _grow(self, Py_ssize_t n)
    cdef void _drop(self, Py_ssize_t n)
    cdef void _resize(self, Py_ssize_t cap)
    cdef void open_bulk(self, Py_ssize_t n)
    cdef void raw_from(self, const unsigned char *source, Py_ssize_t at, Py_ssize_t n)


cdef Py_ssize_t put_header(unsigned char *p, Py_ssize_t at, unsigned char kind, long long n) noexcept
