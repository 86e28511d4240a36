# The C face of records.py.
from headrace cimport mem
from headrace.resp cimport writer

cdef Py_ssize_t CAP_MIN
cdef Py_ssize_t CAP_KEPT_MAX
cdef Py_ssize_t COPIED_MAX
cdef Py_ssize_t HEADER_MAX
cdef unsigned int CRLF
cdef unsigned char BULK
cdef unsigned char ARRAY


cdef class Recorder:
    cdef bytearray buf
    cdef unsigned char *p
    cdef readonly Py_ssize_t cap
    cdef readonly Py_ssize_t used
    cdef Py_ssize_t database
    cdef long long second

    cpdef void put(self, Py_ssize_t database, list[bytes] words)
    cpdef void put_all(self, list items)
    cpdef void stamp(self, long long now_ms)
    cpdef void forget_database(self)
    cpdef Py_ssize_t size(self)
    cpdef memoryview view(self)
    cpdef Py_ssize_t write_to(self, object file)
    cpdef void cut(self, Py_ssize_t size)
    cpdef void clear(self)
    cdef void _select(self, Py_ssize_t database)
    cdef void _record(self, list[bytes] words)
    cdef void _raw(self, bytes text)
    cdef void _grow(self, Py_ssize_t n)
    cdef void _resize(self, Py_ssize_t cap)
