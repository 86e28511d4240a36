# The C face of listpack_walk.py.
from headrace cimport mem

cdef bint is_integer(const unsigned char *p, Py_ssize_t at) noexcept
cdef long long integer(const unsigned char *p, Py_ssize_t at) noexcept
cdef Py_ssize_t text_at(const unsigned char *p, Py_ssize_t at) noexcept
cdef Py_ssize_t text_size(const unsigned char *p, Py_ssize_t at) noexcept
cdef Py_ssize_t encoded_size(const unsigned char *p, Py_ssize_t at) noexcept
cdef Py_ssize_t trail_size(const unsigned char *p, Py_ssize_t at, Py_ssize_t size) noexcept
cdef Py_ssize_t next_at(const unsigned char *p, Py_ssize_t at) noexcept
cdef Py_ssize_t previous_at(const unsigned char *p, Py_ssize_t at) noexcept
cdef Py_ssize_t put_integer_text(unsigned char *p, long long v) noexcept
cpdef Py_ssize_t check(data)
cdef Py_ssize_t checked_next(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t _trail_says(const unsigned char *p, Py_ssize_t at, Py_ssize_t n) noexcept
