# The C face of glob_elements.py.
from headrace cimport mem

cdef int BACKSLASH
cdef int CARET
cdef int DASH
cdef int OPENING
cdef int CLOSING
cdef int QUESTION
cdef int STAR
cdef Py_ssize_t SHORT
cdef Py_ssize_t SEGMENT_MAX
cdef Py_ssize_t TABLES_BYTES_MAX
cdef unsigned int ANY
cdef unsigned int ANY_RUN
cdef unsigned int CLASS
cdef Py_ssize_t BITMAP_BYTES
cdef unsigned long long U64_MAX

cdef int lower_case(int c) noexcept


cdef class Elements:
    cdef bint fold
    cdef bytearray codes
    cdef unsigned char *p
    cdef Py_ssize_t count
    cdef Py_ssize_t minimum
    cdef bytearray bitmaps
    cdef dict tables
    cdef Py_ssize_t tables_bytes

    cdef void _split(self, bytes pattern)
    cdef Py_ssize_t _add_bitmap(self, bytes pattern, Py_ssize_t at)
    cdef void _add_range(self, unsigned char *b, int low, int high) noexcept
    cpdef void check(self)
    cdef bint _accepts(self, Py_ssize_t i, int byte) noexcept
    cpdef bint match(self, bytes text)
    cdef bint _stands(self, Py_ssize_t first, Py_ssize_t last, bytes text, Py_ssize_t at) noexcept
    cdef Py_ssize_t _find(self, Py_ssize_t first, Py_ssize_t last, bytes text, Py_ssize_t begin, Py_ssize_t end)
    cdef Py_ssize_t _find_literals(self, Py_ssize_t first, Py_ssize_t last, bytes text, Py_ssize_t begin,
                                   Py_ssize_t end)
    cdef Py_ssize_t _find_classes(self, Py_ssize_t first, Py_ssize_t last, bytes text, Py_ssize_t begin,
                                  Py_ssize_t end)
    cdef bytearray _accepting(self, Py_ssize_t first, Py_ssize_t last)
