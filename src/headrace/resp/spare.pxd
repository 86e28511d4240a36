# The C face of spare.py.
from headrace cimport mem

cdef Py_ssize_t KEPT_MAX
cdef Py_ssize_t BLOCK_MAX


cdef class Spare:
    cdef bytearray block

    cdef bytearray more(self, bytearray own, Py_ssize_t used, Py_ssize_t cap)
    cdef bytearray back(self, bytearray large)
