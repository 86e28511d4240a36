# The C face of compaction.py.
from headrace cimport mem
from headrace.streams.node cimport Node
from headrace.streams.node_walk cimport EntryWalk
from headrace.streams.weight cimport Weight
from headrace.structures cimport streamid
from headrace.structures.listpack cimport Listpack

cdef long long STEP_INTERVAL_MS
cdef long long STEP_BYTES


cdef class Compaction


cdef class Worn:
    cdef Compaction compaction
    cdef readonly object nodes
    cdef bint queued
    cdef Weight weight
    cdef object __weakref__

    cpdef void note(self, Node node)
    cpdef void forget(self, Node node)
    cpdef long long rewrite_oldest(self)


cdef class Compaction:
    cdef object queue
    cdef long long due_ms

    cpdef void join(self, Worn worn)
    cpdef long long next_step(self)
    cpdef void step(self, long long now_ms)


cpdef bint is_worn(Node node) except -1
cpdef long long rewrite(Node node, Weight weight)
cdef long long _elements(EntryWalk walk) noexcept
cdef bytes _header(list[bytes] parts, long long elements)
