# The C face of call.py.
from headrace.commands.arguments cimport Arguments
from headrace.commands.session cimport Session
from headrace.commands.spec cimport Command
from headrace.keyspace.blocking cimport Waiter
from headrace.keyspace.keyspace cimport Database, Keyspace
from headrace.resp.writer cimport Answer


cdef class Call:
    cdef readonly object engine
    cdef readonly object host
    cdef readonly Keyspace keyspace
    cdef public Session session
    cdef public Answer answer
    cdef public Database database
    cdef public Command command
    cdef public list argv
    cdef public long long now
    cdef public bint may_block
    cdef public bint recording
    cdef readonly object effects
    cdef list records
    cdef Arguments _arguments

    cpdef Arguments arguments(self)
    cpdef bint replayed(self)
    cpdef void record(self, list[bytes] words)
    cpdef void record_verbatim(self)
    cpdef void notify(self, str cls, bytes event, bytes key)
    cpdef void missed(self, bytes key)
    cpdef void wait(self, list[bytes] keys, long long deadline_ms, object serve, str on_timeout=*,
                    object lane=*, object has_news=*)
