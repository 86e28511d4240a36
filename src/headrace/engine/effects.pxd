# The C face of effects.py.


cdef class Effects:
    cdef public bint listening
    cdef readonly list items
    cdef public long long offset
    cdef Py_ssize_t _transaction

    cpdef void record(self, Py_ssize_t database, list[bytes] words)
    cpdef void begin(self)
    cpdef void end(self)
    cpdef Py_ssize_t position(self)
    cpdef void bind(self, Py_ssize_t start)
