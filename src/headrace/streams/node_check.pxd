# The C face of node_check.py.
from headrace cimport mem
from headrace.structures cimport listpack_walk, streamid

cdef Py_ssize_t HEADER
cdef unsigned char END
cdef Py_ssize_t COUNT_UNKNOWN
cdef long long DELETED
cdef long long SAME_FIELDS
cdef Py_ssize_t INT16
cdef Py_ssize_t INT64
cdef unsigned char FLAGS_MAX
cdef Py_ssize_t WIDE
cdef unsigned long long USUAL_HEAD
cdef unsigned long long USUAL_MASK
cdef Py_ssize_t USUAL_BYTES
cdef Py_ssize_t MASK_BYTES


cdef class NodeCheck:
    cdef object data
    cdef const unsigned char *p
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef readonly Py_ssize_t count
    cdef unsigned long long last_ms
    cdef unsigned long long last_seq
    cdef readonly bint wide

    cpdef void run(self, unsigned long long ms, unsigned long long seq)
    cdef void _check_frame(self)
    cdef void _check_count(self)
    cdef long long _flags(self) except -1
    cdef Py_ssize_t _skip_pieces(self, long long flags, long long fields) except -1
    cdef long long _few(self) except -1
    cdef long long _integer(self) except? -0x4000000000000003
    cdef long long _long_integer(self) except? -0x4000000000000003
    cdef Py_ssize_t _skip(self, long long n) except -1
    cdef Py_ssize_t _skip_any(self, Py_ssize_t at) except -1


cdef Py_ssize_t _quick_size(Py_ssize_t first) noexcept
cdef Py_ssize_t _usual_entry(const unsigned char *p, Py_ssize_t at, Py_ssize_t end, long long fields) noexcept
