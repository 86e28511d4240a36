# The C face of object.py.
from headrace.commands cimport arguments
from headrace.commands.call cimport Call
from headrace.streams.stream cimport Stream

cdef int MINUS

cpdef bytes encoding(object value)
cdef object value_of(Call call)
cdef bint is_shared(object value)
