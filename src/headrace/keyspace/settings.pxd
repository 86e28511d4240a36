# The C face of settings.py.


cdef class Settings:
    cdef public Py_ssize_t databases
    cdef public long long latency_monitor_threshold
    cdef public tuple latency_percentiles
    cdef public bint latency_tracking
    cdef public int notify_keyspace_events
    cdef public long long slowlog_log_slower_than
    cdef public long long slowlog_max_len
    cdef public bint stream_compact_tombstones
    cdef public long long stream_idmp_duration
    cdef public long long stream_idmp_maxsize
    cdef public long long stream_node_max_bytes
    cdef public long long stream_node_max_entries
