# The C face of door.py.
from headrace.api cimport field_words
from headrace.commands.session cimport Session
from headrace.engine.engine cimport Engine
from headrace.engine.stats cimport Row
from headrace.resp.reader cimport Reader

cdef Py_ssize_t IDLE_MAX
cdef long long FAR_MS


cdef object raised(object reply)


cdef class Door:
    cdef object __weakref__
    cdef readonly Engine engine
    cdef readonly object clock
    cdef object now
    cdef object follow_clock
    cdef object elapsed
    cdef readonly object lock
    cdef public object storage
    cdef readonly object far
    cdef object gone
    cdef list idle
    cdef public object keeper
    cdef public long long safe
    cdef Reader reader
    cdef readonly str refusal
    cdef list ringing
    cdef dict sleepers
    cdef long long watched_ms

    cpdef void enter(self)
    cpdef void leave(self)
    cpdef void settle(self, long long written)
    cpdef void rouse(self)
    cdef void _leave_quickly(self)
    cdef object _run(self, list[bytes] argv, object stop, bint quick)
    cdef void _close_gone(self)
    cdef void _serve_woken(self)
    cdef Session _session(self)
    cdef void _put_back(self, Session session)
    cpdef object run(self, list[bytes] argv, object stop)
    cdef object _reply(self, Session session)
    cdef object _sleep(self, Session session, object bell, object stop, long long before)
    cdef long long _written(self, Session session, long long before)
    cdef void _abandon(self, Session session)
    cdef object _at_once(self, Session session, list[bytes] argv, long long now)
