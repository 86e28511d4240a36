# The C face of stats.py.
from headrace.commands.spec cimport Command
from headrace.engine.histogram cimport Histogram


cdef class Row:
    cdef readonly Command command
    cdef readonly object run
    cdef readonly int arity
    cdef readonly bint readonly
    cdef readonly bint is_plain
    cdef public long long calls
    cdef public long long rejected
    cdef public long long failed
    cdef public long long ns
    cdef public Histogram latencies

    cpdef void reset(self)


cdef class Stats:
    cdef public long long commands
    cdef public long long connections
    cdef public long long unblocked
    cdef public long long error_replies
    cdef readonly dict errors
    cdef readonly list rows

    cpdef void reset(self)
    cpdef void count_error(self, bytes text)
