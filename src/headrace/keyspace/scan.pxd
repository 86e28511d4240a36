# The C face of scan.py.

cdef Py_ssize_t HOLES_MIN
cdef int BACKSLASH
cdef int CARET
cdef int DASH
cdef int OPENING
cdef int CLOSING
cdef int QUESTION
cdef int STAR


cdef class Order:
    cdef readonly list keys
    cdef object serials
    cdef object next_serial

    cpdef void add(self, bytes key, dict[bytes, object] live)
    cpdef void tidy(self, dict[bytes, object] live)
    cpdef void empty(self)


cpdef bint matches(bytes pattern, bytes text, bint ignore_case=*)
cdef bint _matches(bytes pattern, bytes text)
cdef Py_ssize_t _one(bytes pattern, Py_ssize_t at, int c)
cdef Py_ssize_t _one_of_set(bytes pattern, Py_ssize_t at, int c)
