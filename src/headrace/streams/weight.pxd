# The C face of weight.py.

cdef Py_ssize_t STREAM_BYTES
cdef Py_ssize_t NODE_BYTES
cdef Py_ssize_t GROUP_BYTES
cdef Py_ssize_t CONSUMER_BYTES
cdef Py_ssize_t PLACES_BYTES
cdef Py_ssize_t NO_LIMIT


cdef class Weight:
    cdef public Py_ssize_t total
    cdef public Py_ssize_t most
    cdef readonly Weight whole
    cdef public bytes key
    cdef public object shedding

    cpdef void add(self, Py_ssize_t n)
    cpdef void join(self, Weight whole)
    cpdef void can_shed(self, object stream)
    cpdef void leave(self)
