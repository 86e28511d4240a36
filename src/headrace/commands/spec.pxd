# The C face of spec.py.


cdef class Command:
    cdef readonly bytes name
    cdef readonly bytes word
    cdef readonly int name_words
    cdef readonly int arity
    cdef readonly object run
    cdef readonly object flags
    cdef readonly int first_key
    cdef readonly int last_key
    cdef readonly int key_step
    cdef readonly object movable_keys
    cdef readonly str group
    cdef readonly str since
    cdef readonly str summary
    cdef readonly str syntax
    cdef readonly str complexity
    cdef readonly object categories
    cdef readonly dict subcommands
    cdef readonly bint write
    cdef readonly bint readonly
    cdef readonly bint blocking
    cdef readonly bint denyoom
    cdef readonly bint may_queue

    cpdef bint fits(self, Py_ssize_t words)
    cpdef Command subcommand(self, bytes word)
