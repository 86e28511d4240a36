# The C face of set_options.py.
from headrace.commands cimport arguments
from headrace.commands.call cimport Call

cdef long long I64_MAX
cdef int ALWAYS
cdef int IF_ABSENT
cdef int IF_PRESENT
cdef int NO_TIME
cdef int EX
cdef int PX
cdef int EXAT
cdef int PXAT


cdef class SetOptions:
    cdef int condition
    cdef bint get
    cdef bint keep
    cdef bint persist
    cdef int unit
    cdef bytes amount

    cdef void read_set(self, list[bytes] argv)
    cdef void read_getex(self, list[bytes] argv)
    cdef Py_ssize_t _read_time(self, list[bytes] argv, Py_ssize_t at)


cdef int unit_of(bytes word)
cdef long long moment_of(Call call, int unit, bytes amount)
