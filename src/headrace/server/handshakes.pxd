# The C face of handshakes.py.
from headrace.server.connection cimport Connection
from headrace.server.secure cimport Secure

cdef int STEPS_MAX
cdef Py_ssize_t WOULD_BLOCK
cdef Py_ssize_t BROKEN


cdef class Handshakes:
    cdef readonly dict going
    cdef public int steps
    cdef public object introduce

    cpdef void begin(self, Connection connection)
    cpdef void part(self, Connection connection)
    cpdef Py_ssize_t read(self, Connection connection, bytearray scratch)
