# The C face of selector.py.
from headrace.keyspace.glob cimport Glob

cdef long long COMMAND
cdef long long KEY
cdef long long CHANNEL


cdef class Wish:
    cdef readonly bytes name
    cdef readonly list argv
    cdef readonly bint at_once
    cdef public list keys
    cdef public list uses
    cdef public list channels
    cdef public bint literal


cdef Glob prepare(bytes glob)


cdef class Selector:
    cdef readonly bint all_commands
    cdef readonly bint all_keys
    cdef readonly bint all_channels
    cdef readonly set allowed
    cdef readonly dict first_words
    cdef readonly bint from_all
    cdef readonly dict rules
    cdef dict parts
    cdef list globs
    cdef dict places
    cdef list uses
    cdef readonly dict channels

    cdef void _begin(self, bint from_all, set[bytes] allowed)
    cpdef long long verdict(self, Wish wish)
    cdef bint _allows(self, Wish wish)
    cpdef bint opens(self, bytes key, int use)
    cpdef bint hears(self, bytes channel, bint literal)
