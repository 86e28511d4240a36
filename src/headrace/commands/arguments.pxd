# The C face of arguments.py.

cdef long long IDS_MAX
cdef Py_ssize_t I64_DIGITS_MAX
cdef unsigned long long U64_TENTH
cdef unsigned long long I64_MAX
cdef int DIGIT
cdef int MINUS
cdef int CASE


cpdef bint is_word(bytes text, bytes word)
cpdef long long parse_i64(bytes text)
cpdef long long parse_timeout(bytes text, long long now)
cpdef Py_ssize_t id_count(list[bytes] argv, Py_ssize_t at, object bad, object mismatch)
cpdef double parse_double(bytes text)


cdef class Arguments:
    cdef public list argv
    cdef public Py_ssize_t at

    cpdef bint more(self)
    cpdef Py_ssize_t left(self)
    cpdef bytes word(self)
    cpdef bint flag(self, bytes word)
    cpdef bint option(self, bytes word)
    cpdef long long integer(self)
    cpdef list[bytes] rest(self)
    cpdef void end(self)
