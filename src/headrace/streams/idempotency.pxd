# The C face of idempotency.py.
from headrace cimport mem
from headrace.streams.weight cimport Weight
from headrace.structures.streamid cimport StreamId
from headrace.structures.xxh3 cimport Digest

cdef long long SWEEP_INTERVAL_MS
cdef long long SWEEP_AGAIN_MS
cdef Py_ssize_t SWEEP_STEPS_MAX
cdef Py_ssize_t PRODUCER_BYTES
cdef Py_ssize_t IID_BYTES


cdef class Idempotency:
    cdef public long long duration_s
    cdef public unsigned long long added
    cdef public unsigned long long duplicates
    cdef readonly object by_producer
    cdef Forgetting forgetting
    cdef bint queued
    cdef readonly Weight weight
    cdef object __weakref__

    cpdef StreamId lookup(self, bytes pid, bytes iid)
    cpdef void record(self, bytes pid, bytes iid, unsigned long long ms, unsigned long long seq, long long maxsize)
    cpdef void clear(self)
    cpdef Py_ssize_t expire(self, long long now_ms, Py_ssize_t steps)
    cpdef Py_ssize_t producers(self)
    cpdef Py_ssize_t tracked(self)
    cpdef Idempotency copy(self)
    cpdef Py_ssize_t memory_bytes(self)
    cdef void _queue(self)
    cdef void _forget_oldest(self, object iids)


cdef class Forgetting:
    cdef object queue
    cdef long long due_ms

    cpdef void join(self, Idempotency one)
    cpdef long long next_sweep(self)
    cpdef void sweep(self, long long now_ms)


cpdef bytes iid_of(list[bytes] words, Py_ssize_t start)
cdef unsigned long long _turn(unsigned long long v)
