# The C face of watching.py.


cdef class Watch:
    cdef public bint spoilt
    cdef readonly dict keys

    cpdef bint holds(self, Py_ssize_t database, bytes key)


cdef class Watching:
    cdef readonly dict watches

    cpdef void add(self, bytes key, Watch watch)
    cpdef void drop(self, bytes key, Watch watch)
    cpdef void spoil(self, bytes key)
