# The C face of settings.py.


cdef class Settings:
    cdef public Py_ssize_t databases
    cdef public int notify_keyspace_events
    cdef public bint stream_compact_tombstones
    cdef public long long stream_idmp_duration
    cdef public long long stream_idmp_maxsize
    cdef public long long stream_node_max_bytes
    cdef public long long stream_node_max_entries
