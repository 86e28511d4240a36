# The C face of user.py.
from headrace.access.selector cimport Selector, Wish


cdef class User:
    cdef readonly bytes name
    cdef readonly bint enabled
    cdef readonly bint nopass
    cdef readonly bytes sanitize
    cdef readonly dict passwords
    cdef readonly list selectors

    cdef void _reset(self)
    cpdef bint is_all_powerful(self)
    cpdef long long verdict(self, Wish wish)
