# The C face of read_options.py.
from headrace.commands cimport arguments
from headrace.resp.writer cimport Answer

cdef long long I64_MAX
cdef long long NO_BLOCK
cdef long long NO_CLAIM


cdef class ReadOptions:
    cdef readonly bint grouped
    cdef readonly long long count
    cdef readonly long long maxcount
    cdef readonly long long maxsize
    cdef readonly long long block
    cdef readonly long long claim
    cdef readonly bint noack
    cdef readonly bytes group
    cdef readonly bytes consumer
    cdef readonly Py_ssize_t streams_at

    cpdef void read(self, list[bytes] argv, long long now)
    cdef Py_ssize_t _read_option(self, list[bytes] argv, Py_ssize_t at, long long now)
    cdef void _for_groups(self, str option)
    cpdef long long deadline(self, long long now) noexcept


cdef class Room:
    cdef Answer answer
    cdef long long entries
    cdef long long _left
    cdef long long _per_stream
    cdef long long _maxsize
    cdef Py_ssize_t _start

    cdef long long for_stream(self) noexcept
    cdef bint is_full(self) noexcept
    cdef void take(self) noexcept


cdef long long _parse_limit(bytes word, str option)
cdef long long _parse_idle(bytes word)
