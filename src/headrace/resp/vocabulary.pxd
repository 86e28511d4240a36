# The C face of vocabulary.py.
from headrace cimport mem

cdef unsigned int PLACES
cdef Py_ssize_t WORD_MAX


cdef class Vocabulary:
    cdef list words

    cdef bytes word(self, const unsigned char *p, Py_ssize_t at, Py_ssize_t n)
