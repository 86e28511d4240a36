# The C face of slots.py.
from headrace cimport mem
from headrace.streams.records cimport Records
from headrace.structures cimport footprint

cdef Py_ssize_t BLOCK_SLOTS
cdef Py_ssize_t BLOCK_FIRST
cdef Py_ssize_t BLOCK_SMALL
cdef Py_ssize_t BLOCK_MERGED
cdef Py_ssize_t SLOT
cdef Py_ssize_t NONE


cdef class Block:
    cdef bytearray buf
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef Py_ssize_t count
    cdef unsigned long long low_ms
    cdef unsigned long long low_seq

    cdef Py_ssize_t at(self, Py_ssize_t place)
    cdef void insert(self, Py_ssize_t place, Py_ssize_t slot)
    cdef void delete(self, Py_ssize_t place)
    cdef void append_from(self, Block other, Py_ssize_t place)
    cdef void resize(self, Py_ssize_t cap)
    cdef Block copy(self)


cdef class Slots:
    cdef Records records
    cdef list blocks
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t block_at
    cdef Py_ssize_t place

    cpdef Py_ssize_t find(self, unsigned long long ms, unsigned long long seq)
    cpdef Py_ssize_t seek(self, unsigned long long ms, unsigned long long seq)
    cpdef Py_ssize_t after(self, Py_ssize_t slot)
    cpdef Py_ssize_t last(self)
    cpdef void insert(self, Py_ssize_t slot, unsigned long long ms, unsigned long long seq)
    cpdef void remove(self, Py_ssize_t slot)
    cpdef list slots(self)
    cpdef Slots copy(self, Records records)
    cpdef Py_ssize_t memory_bytes(self)
    cpdef void check(self)
    cdef void _bisect(self, unsigned long long ms, unsigned long long seq)
    cdef Py_ssize_t _remembered(self)
    cdef bint _before_is_before(self, unsigned long long ms, unsigned long long seq) except -1
    cdef Py_ssize_t _settled(self)
    cdef void _locate(self, Py_ssize_t slot)
    cdef void _append(self, Py_ssize_t slot, unsigned long long ms, unsigned long long seq)
    cdef void _split(self, Block block)
    cdef void _merge(self)
