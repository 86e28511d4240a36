# The C face of listpack.py: what other compiled modules may touch.
from headrace cimport mem
from headrace.structures cimport listpack_walk


cdef class Listpack:
    cdef object buf
    cdef unsigned char *p
    cdef readonly Py_ssize_t cap
    cdef readonly Py_ssize_t used
    cdef readonly unsigned int count

    cpdef Py_ssize_t append(self, bytes value)
    cpdef Py_ssize_t append_int(self, long long v)
    cdef Py_ssize_t append_piece(self, const unsigned char *source, Py_ssize_t source_at, Py_ssize_t n)
    cpdef void reserve(self, Py_ssize_t n)
    cpdef void insert(self, Py_ssize_t at, bytes value)
    cpdef void replace(self, Py_ssize_t at, bytes value)
    cpdef void replace_int(self, Py_ssize_t at, long long v)
    cpdef void delete(self, Py_ssize_t at)
    cpdef void shrink(self)
    cpdef Listpack hand_on(self)
    cpdef bytes get(self, Py_ssize_t at)
    cpdef Py_ssize_t first(self)
    cpdef Py_ssize_t last(self)
    cpdef Py_ssize_t next(self, Py_ssize_t at)
    cpdef Py_ssize_t previous(self, Py_ssize_t at)
    cpdef bytes to_bytes(self)
    cpdef Listpack copy(self)
    cpdef void check(self)
    cdef void _splice(self, Py_ssize_t at, Py_ssize_t old, bytes value)
    cdef void _open(self, Py_ssize_t at, Py_ssize_t old, Py_ssize_t new)
    cdef void _resize(self, Py_ssize_t cap)
    cdef void _seal(self) noexcept
    cdef void _take_elements(self, const unsigned char *source, Py_ssize_t end)


cdef Listpack adopted(object data, Py_ssize_t count)
cdef bint is_decimal(const unsigned char *p, Py_ssize_t at, Py_ssize_t n) noexcept
cdef long long decimal(const unsigned char *p, Py_ssize_t at, Py_ssize_t n) noexcept
cdef Py_ssize_t integer_size(long long v) noexcept
cdef Py_ssize_t string_head(Py_ssize_t n) noexcept
cdef bint equals(const unsigned char *p, Py_ssize_t at, const unsigned char *q, Py_ssize_t q_at, Py_ssize_t n) noexcept
