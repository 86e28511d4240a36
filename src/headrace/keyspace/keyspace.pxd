# The C face of keyspace.py.
from headrace.keyspace.blocking cimport Blocking
from headrace.keyspace.events cimport Events
from headrace.keyspace.expiry cimport Expiry
from headrace.keyspace.scan cimport Order
from headrace.keyspace.settings cimport Settings
from headrace.keyspace.watching cimport Watch, Watching
from headrace.streams.compaction cimport Compaction
from headrace.streams.idempotency cimport Forgetting
from headrace.streams.stream cimport Stream
from headrace.streams.weight cimport Weight
from headrace.structures cimport footprint

cdef Py_ssize_t SWEEP_KEYS_MAX
cdef Py_ssize_t PLACE_BYTES
cdef Py_ssize_t BYTES_HEAD


cpdef bytes type_name(object value)
cpdef Py_ssize_t string_bytes(Py_ssize_t n) except? -1


cdef class Keyspace:
    cdef readonly list databases
    cdef readonly Settings settings
    cdef readonly Blocking blocking
    cdef readonly Events events
    cdef readonly Forgetting forgetting
    cdef readonly Compaction compaction
    cdef readonly Weight weight
    cdef public long long now
    cdef public bint reading
    cdef public bint keep_dead
    cdef bint mortal
    cdef public long long changes
    cdef public long long hits
    cdef public long long misses
    cdef public long long expired
    cdef public object on_expired
    cdef public object random

    cpdef Database database(self, Py_ssize_t index)
    cpdef void swap(self, Py_ssize_t first, Py_ssize_t second)
    cpdef Py_ssize_t flush_all(self)
    cpdef bint sweep(self)
    cpdef long long next_death(self)
    cpdef void unwatch(self, Watch watch)


cdef class Database:
    cdef readonly Keyspace keyspace
    cdef readonly Py_ssize_t index
    cdef readonly dict values
    cdef readonly Expiry expiry_times
    cdef readonly Watching watching
    cdef Order order

    cpdef object find(self, bytes key)
    cpdef Stream stream(self, bytes key)
    cpdef object string(self, bytes key)
    cpdef bint contains(self, bytes key)
    cpdef Py_ssize_t size(self)
    cpdef list[bytes] keys(self)
    cpdef bytes random_key(self)
    cdef Order _arrivals(self)
    cpdef void put(self, bytes key, object value)
    cpdef void announce(self, bytes key, object value)
    cpdef void replace(self, bytes key, object value)
    cpdef void grown(self, Py_ssize_t before, Py_ssize_t after)
    cpdef bint remove(self, bytes key)
    cpdef Py_ssize_t flush(self)
    cdef void _set(self, bytes key, object value)
    cdef void _drop(self, bytes key)
    cdef void _weigh_out(self, bytes key, object value)
    cpdef long long expiry(self, bytes key)
    cpdef void set_expiry(self, bytes key, long long at_ms)
    cpdef bint clear_expiry(self, bytes key)
    cpdef Py_ssize_t sweep(self, Py_ssize_t budget)
    cdef bint _bury_if_due(self, bytes key)
    cdef void _bury(self, bytes key)
    cpdef void touched(self, bytes key)
    cpdef void spoilt(self, bytes key)
    cpdef void ready(self, bytes key)
    cpdef void watch(self, bytes key, Watch watch)
    cpdef void spoil_existing(self)
