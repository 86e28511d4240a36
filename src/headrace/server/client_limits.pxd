# The C face of client_limits.py.
from headrace.commands.session cimport Session

cdef long long STRANGER_MAX


cdef class Unread:
    cdef object buffers
    cdef long long least
    cdef readonly bint lagging
    cdef readonly dict since
    cdef readonly Py_ssize_t reply_limit

    cpdef bint too_much(self, object connection, Session session, long long n, long long now)
    cdef object _limit_of(self, Session session)
    cdef void _forget(self, object connection)
