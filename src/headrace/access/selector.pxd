# The C face of selector.py.
from headrace.keyspace.scan cimport matches

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


cdef bint fits(bytes glob, bytes name)


cdef class Selector:
    cdef readonly bint all_commands
    cdef readonly bint all_keys
    cdef readonly bint all_channels
    cdef readonly set allowed
    cdef readonly dict first_words
    cdef readonly bint from_all
    cdef readonly list rules
    cdef readonly list globs
    cdef readonly list uses
    cdef readonly list channels

    cdef void _begin(self, bint from_all, set[bytes] allowed)
    cpdef long long verdict(self, Wish wish)
    cdef bint _allows(self, Wish wish)
    cpdef bint opens(self, bytes key, int use)
    cpdef bint hears(self, bytes channel, bint literal)
