# The C face of input.py.
from headrace cimport mem
from headrace.persistence cimport crc64, lzf

cdef Py_ssize_t READ_BYTES
cdef long long TELL_BYTES
cdef unsigned long long STRING_MAX
cdef unsigned long long LZF_RATIO_MAX
cdef unsigned int CODED
cdef unsigned int U32_LENGTH
cdef unsigned int U64_LENGTH
cdef unsigned long long INT8
cdef unsigned long long INT16
cdef unsigned long long INT32
cdef unsigned long long LZF


cdef class RdbInput:
    cdef object read
    cdef object progress
    cdef bytearray buf
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef long long base
    cdef bint summing
    cdef Py_ssize_t summed
    cdef unsigned long long crc
    cdef long long told
    cdef bint coded
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq

    cpdef long long here(self)
    cpdef unsigned long long checksum(self)
    cpdef bytes rest(self)
    cpdef unsigned int byte(self)
    cpdef unsigned long long length(self)
    cpdef long long time(self)
    cpdef unsigned int u32(self)
    cpdef void raw_id(self)
    cpdef void id(self)
    cpdef bytes string(self)
    cpdef bytearray block(self)
    cpdef bytes bytes_of(self, Py_ssize_t n)
    cdef unsigned long long _length(self)
    cdef bytes _take(self, unsigned long long n, long long at)
    cdef bytes _take_long(self, Py_ssize_t size)
    cdef bytes _decimal(self, unsigned long long encoding, long long at)
    cdef bytearray _decompressed(self, long long at)
    cdef void _fill(self, Py_ssize_t n)
    cdef void _append(self, bytes piece)
    cdef void _sum_up(self)
