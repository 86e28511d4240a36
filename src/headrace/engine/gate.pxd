# The C face of gate.py.
from headrace.commands.session cimport Session
from headrace.engine.stats cimport Row
from headrace.streams.weight cimport Weight


cdef class Gate:
    cdef readonly bint shut
    cdef readonly bint loading
    cdef readonly bytes refusal
    cdef readonly long long until
    cdef readonly bint writes_only
    cdef readonly dict held
    cdef readonly Weight memory
    cdef readonly object eviction

    cdef void _look(self)
    cpdef void set_loading(self, bint on)
    cpdef void refuse_writes(self, bytes text)
    cpdef void pause(self, long long until, bint writes_only)
    cpdef void end_pause(self)
    cpdef dict take_held(self)
    cpdef object refused(self, Session session, Row row, list[bytes] argv)
    cdef object _memory_refused(self, Session session, Row row, list[bytes] argv)
    cpdef bint writes(self, Session session, Row row)
