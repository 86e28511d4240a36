# The C face of output.py.
from headrace cimport mem
from headrace.persistence cimport crc64
from headrace.persistence.lzf cimport Packer
from headrace.structures cimport listpack

cdef Py_ssize_t BUFFER_BYTES
cdef Py_ssize_t LENGTH_BYTES_MAX
cdef Py_ssize_t RAW_ID_BYTES
cdef Py_ssize_t INTEGER_TEXT_MAX
cdef Py_ssize_t PACKED_MIN
cdef unsigned char MINUS
cdef unsigned char INT8
cdef unsigned char INT16
cdef unsigned char INT32
cdef unsigned char LZF
cdef unsigned char LENGTH14
cdef unsigned char LENGTH32
cdef unsigned char LENGTH64


cdef class RdbOutput:
    cdef object sink
    cdef Packer packer
    cdef bytearray buf
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef Py_ssize_t used
    cdef long long flushed
    cdef unsigned long long _crc

    cpdef void byte(self, unsigned char v)
    cpdef void length(self, unsigned long long n)
    cpdef void string(self, object value)
    cdef void string_from(self, const unsigned char *source, Py_ssize_t n)
    cpdef void raw(self, bytes data)
    cdef void raw_from(self, const unsigned char *source, Py_ssize_t n)
    cpdef void raw16(self, unsigned long long ms, unsigned long long seq)
    cpdef void numbers(self, unsigned long long ms, unsigned long long seq)
    cpdef void time(self, long long ms)
    cpdef void u64le(self, unsigned long long v)
    cpdef void u16le(self, unsigned int v)
    cpdef long long offset(self)
    cpdef unsigned long long crc(self)
    cpdef void flush(self)
    cpdef bytes take(self)
    cdef void _make_room(self, Py_ssize_t n)
    cdef bint _integer(self, const unsigned char *source, Py_ssize_t n) except -1
