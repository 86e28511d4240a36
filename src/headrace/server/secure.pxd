# The C face of secure.py.
from headrace cimport mem
from headrace.server cimport descriptors

cdef Py_ssize_t PIECE
cdef Py_ssize_t RECORD_MAX
cdef Py_ssize_t WRITE_MAX
cdef Py_ssize_t WOULD_BLOCK
cdef Py_ssize_t BROKEN
cdef int WANT_READ


cdef class Secure:
    cdef object incoming
    cdef object outgoing
    cdef readonly object wire
    cdef readonly bint handshaking
    cdef readonly bint ended
    cdef readonly str fault
    cdef readonly bytes rest
    cdef Py_ssize_t owed

    cpdef Py_ssize_t read(self, int fd, bytearray scratch)
    cdef Py_ssize_t _decrypt(self, bytearray scratch, Py_ssize_t end)
    cdef Py_ssize_t write(self, int fd, unsigned char *p, Py_ssize_t at, Py_ssize_t n)
    cpdef void farewell(self, int fd)
    cdef bint _push(self, int fd)
