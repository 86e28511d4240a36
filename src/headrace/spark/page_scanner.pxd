# The C face of page_scanner.py.
from headrace cimport mem
from headrace.arrow.growing cimport Growing

cdef unsigned char CR
cdef unsigned char LF
cdef unsigned char ARRAY
cdef unsigned char BULK
cdef unsigned char DASH
cdef unsigned char TWO
cdef Py_ssize_t USUAL_NOTE
cdef long long CUT
cdef long long UNKNOWN
cdef Py_ssize_t DIGITS_MAX
cdef long long ENTRY_MAX
cdef long long INBOX_MAX
cdef long long COUNT_MAX


cdef class PageScanner:
    cdef Growing inbox
    cdef Py_ssize_t at
    cdef Py_ssize_t cursor
    cdef Growing notes
    cdef Py_ssize_t note
    cdef long long left
    cdef readonly long long entries
    cdef bytes anchor
    cdef readonly bint anchor_lost
    cdef readonly bytes first_id
    cdef readonly bytes last_id

    cpdef void page(self, bytes anchor)
    cpdef void restart(self)
    cpdef void feed(self, bytearray data, Py_ssize_t n)
    cdef void _tidy(self)
    cpdef Py_ssize_t held(self) noexcept
    cpdef bint scan(self)
    cdef bint _refused(self)
    cdef Py_ssize_t _pass_anchor(self, const unsigned char *p, Py_ssize_t note)
    cdef bint _note_usual(self, const unsigned char *p, Py_ssize_t end) except -1
    cdef bint _note_entry(self, const unsigned char *p, Py_ssize_t end) except -1
    cdef bint _note_word(self, const unsigned char *p, Py_ssize_t end) except -1
    cdef long long _number(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t end, unsigned char kind) except -1
    cdef bytes _id(self, const unsigned char *p, Py_ssize_t note)
    cpdef void skip(self)
