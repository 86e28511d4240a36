# The C face of session.py.
from headrace.keyspace.blocking cimport Waiter
from headrace.keyspace.watching cimport Watch
from headrace.resp.writer cimport Answer

cdef Py_ssize_t WORD_BYTES
cdef int REPLY_ON
cdef int REPLY_OFF
cdef int REPLY_SKIP_NEXT
cdef int REPLY_SKIP


cdef class Session:
    cdef readonly long long id
    cdef readonly Answer answer
    cdef public Py_ssize_t database
    cdef public bytes name
    cdef public bytes library_name
    cdef public bytes library_version
    cdef public bytes user
    cdef public object identity
    cdef public object access
    cdef public bint authenticated
    cdef public bint stranger
    cdef public bytes address
    cdef public bytes local_address
    cdef public int file_number
    cdef public long long created_ms
    cdef public long long active_ms
    cdef public object last_command
    cdef public list queue
    cdef Py_ssize_t queued
    cdef public bint queue_spoilt
    cdef public Watch watch
    cdef public Waiter waiting
    cdef public long long written
    cdef public bint closing
    cdef public bint killed
    cdef public bint replayed
    cdef public int reply
    cdef public bint aloud
    cdef public int subscribed
    cdef public bint monitoring
    cdef readonly dict channels
    cdef readonly dict patterns
    cdef public bint no_evict
    cdef public bint no_touch
    cdef public object transport

    cpdef void reset(self)
    cpdef void enqueue(self, object row, list[bytes] argv)
    cpdef Py_ssize_t queued_bytes(self)
    cpdef void reply_on(self)
    cpdef void reply_off(self)
    cpdef void reply_skip(self)
    cpdef bint is_muted(self)
    cpdef void next_reply(self)
