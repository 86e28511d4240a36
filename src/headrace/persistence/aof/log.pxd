# The C face of log.py. A log can be derived from, and its methods be replaced: a dictionary and no cdef methods.
from headrace.persistence.aof.records cimport Recorder


cdef class Log:
    cdef dict __dict__
    cdef public object files
    cdef public object names
    cdef public str policy
    cdef public bint timestamps
    cdef public bint disable_gc
    cdef public object sync_later
    cdef public bint sync_paused
    cdef public long long written
    cdef public long long synced
    cdef public long long delayed
    cdef public str trouble
    cdef public long long base_size
    cdef public object rewrite
    cdef public object manifest
    cdef public object monitor
    cdef public long long checked_ms
    cdef public Recorder _recorder
    cdef public Py_ssize_t _recorded
    cdef public object _file
    cdef public long long _file_size
    cdef public long long _older_size
    cdef public bint _cut_due
    cdef public bint _unsettled
    cdef public long long _base_offset
    cdef public object _pending
    cdef public long long _pending_offset
    cdef public long long _sync_ms

    cpdef bint commit(self, list items, long long now_ms)
    cpdef bint _syncs_always(self)
    cpdef void _record(self, list items, long long now_ms)
    cpdef bint _flush(self, bint sync)
    cpdef void _append(self, object file)
    cpdef bint _sync(self)
