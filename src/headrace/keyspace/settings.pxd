# The C face of settings.py.


cdef class Settings:
    cdef public Py_ssize_t databases
    cdef public long long stream_node_max_bytes
    cdef public long long stream_node_max_entries
