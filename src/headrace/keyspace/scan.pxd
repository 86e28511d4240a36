# The C face of scan.py.

cdef Py_ssize_t HOLES_MIN


cdef class Order:
    cdef readonly list keys
    cdef object serials
    cdef object next_serial

    cpdef void add(self, bytes key, dict[bytes, object] live)
    cpdef void tidy(self, dict[bytes, object] live)
    cpdef void empty(self)
