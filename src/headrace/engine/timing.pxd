# The C face of timing.py.
from headrace cimport system
from headrace.commands.call cimport Call
from headrace.commands.channels cimport Channels
from headrace.engine.clock cimport RealClock
from headrace.engine.histogram cimport Histogram
from headrace.engine.stats cimport Row
from headrace.keyspace.settings cimport Settings

cdef long long NEVER_NS


cdef class Timing:
    cdef readonly bint on
    cdef bint timed
    cdef bint tracking
    cdef readonly long long lap_ns
    cdef long long notable_ns
    cdef bint watched
    cdef bint real
    cdef readonly RealClock clock
    cdef Settings settings
    cdef Channels channels
    cdef readonly object slow
    cdef readonly object events

    cpdef void settle(self)
    cpdef void begin(self)
    cpdef int ran(self, Call call, Row row, long long since_ns) except -1
    cpdef void served(self, Row row, long long since_ns)
    cdef inline long long _lap(self, Row row, long long since_ns) noexcept
    cdef void _note(self, Call call, long long taken)
    cdef void _show(self, Call call)
