# The C face of durability.py.
from headrace.engine.engine cimport Engine
from headrace.persistence.aof.log cimport Log
from headrace.server.turn cimport Turn


cdef class Durability:
    cdef dict __dict__
    cdef public object config
    cdef public Engine engine
    cdef public Turn turn
    cdef public object files
    cdef public object wake
    cdef public object names
    cdef public Log log
    cdef public bint beginning
    cdef public str trouble
    cdef public bint snapshot_failed
    cdef public long long start
    cdef public long long synced
    cdef public bint unsafe
    cdef public bint stirred
    cdef public object syncer

    cpdef bint commit(self)
