# The C face of replaying.py.
from headrace.commands.call cimport Call
from headrace.commands.session cimport Session
from headrace.commands.spec cimport Command
from headrace.engine.engine cimport Engine
from headrace.engine.stats cimport Row
from headrace.keyspace.keyspace cimport Keyspace


cdef class Replayer:
    cdef readonly Engine engine
    cdef readonly Keyspace keyspace
    cdef readonly Session session
    cdef Call call
    cdef public long long now_ms

    cpdef bytes execute(self, list[bytes] words)
    cdef Row _find(self, list[bytes] words)
