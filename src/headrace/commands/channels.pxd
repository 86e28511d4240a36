# The C face of channels.py.
from headrace.commands.session cimport Session
from headrace.keyspace.events cimport Events
from headrace.keyspace.glob cimport Glob
from headrace.resp.writer cimport Answer


cdef class Channels:
    cdef readonly dict names
    cdef readonly dict patterns
    cdef dict globs
    cdef readonly dict monitors
    cdef readonly list outbox
    cdef Events events

    cpdef void subscribe(self, Session session, bytes name)
    cpdef void subscribe_pattern(self, Session session, bytes glob)
    cpdef void unsubscribe(self, Session session, bytes name)
    cpdef void unsubscribe_pattern(self, Session session, bytes glob)
    cpdef void leave(self, Session session)
    cpdef void monitor(self, Session session)
    cpdef void show(self, bytes line)
    cpdef long long publish(self, bytes channel, bytes message)
    cpdef void deliver(self, list[Session] woken)
    cdef void _count(self, Session session)
