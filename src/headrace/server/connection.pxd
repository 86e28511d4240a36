# The C face of connection.py.
from headrace.commands.session cimport Session
from headrace.resp.parser cimport RequestParser
from headrace.server.secure cimport Secure


cdef class Connection:
    cdef readonly int fd
    cdef readonly Session session
    cdef readonly RequestParser parser
    cdef readonly Secure secure
    cdef unsigned int watched
    cdef bint ready
    cdef bint answered
    cdef bint halted
    cdef readonly bint held
    cdef bint ended
    cdef readonly bint closed
