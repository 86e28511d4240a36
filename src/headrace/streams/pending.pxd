# The C face of pending.py. A slot is the number of a pending entry; -1 is none.
from headrace.streams cimport weight as weights
from headrace.streams.consumer cimport Consumer
from headrace.streams.records cimport Records
from headrace.streams.slots cimport Slots
from headrace.streams.weight cimport Weight
from headrace.structures cimport footprint

cdef Py_ssize_t NONE
cdef Py_ssize_t NOBODY


cdef class Pending:
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t unowned
    cdef Records records
    cdef readonly Weight weight
    cdef Slots by_id
    cdef list owners
    cdef list spare
    cdef Py_ssize_t first
    cdef Py_ssize_t zone_end
    cdef Py_ssize_t end
    cdef Py_ssize_t finger

    cpdef Consumer enroll(self, bytes name, long long now_ms)
    cpdef Py_ssize_t dismiss(self, Consumer consumer)
    cpdef list[Consumer] enrolled(self)
    cpdef Py_ssize_t find(self, unsigned long long ms, unsigned long long seq)
    cpdef Py_ssize_t add(self, unsigned long long ms, unsigned long long seq, Consumer owner, long long time_ms,
                         long long deliveries)
    cpdef void remove(self, Py_ssize_t slot)
    cpdef void assign(self, Py_ssize_t slot, Consumer owner, long long time_ms, long long deliveries)
    cpdef void touch(self, Py_ssize_t slot, long long time_ms, long long deliveries)
    cpdef unsigned long long ms_of(self, Py_ssize_t slot)
    cpdef unsigned long long seq_of(self, Py_ssize_t slot)
    cpdef long long time_of(self, Py_ssize_t slot)
    cpdef long long deliveries_of(self, Py_ssize_t slot)
    cpdef Consumer owner_of(self, Py_ssize_t slot)
    cpdef Py_ssize_t from_id(self, unsigned long long ms, unsigned long long seq)
    cpdef Py_ssize_t after(self, Py_ssize_t slot)
    cpdef Py_ssize_t last(self)
    cpdef Py_ssize_t of_consumer_from(self, Consumer consumer, unsigned long long ms, unsigned long long seq)
    cpdef Py_ssize_t of_consumer_after(self, Consumer consumer, Py_ssize_t slot)
    cpdef Py_ssize_t oldest(self)
    cpdef Py_ssize_t newest(self)
    cpdef Py_ssize_t newer(self, Py_ssize_t slot)
    cpdef Pending copy(self)
    cpdef Py_ssize_t memory_bytes(self)
    cpdef void check(self)
    cdef Consumer _owner(self, Py_ssize_t number)
    cdef void _line_up(self, Py_ssize_t slot, bint owned, long long time_ms)
    cdef Py_ssize_t _last_by(self, long long time_ms)
    cdef void _step_out(self, Py_ssize_t slot, bint owned)
    cdef void _check_order(self)
