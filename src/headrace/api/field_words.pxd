# The C face of field_words.py.

cdef bytes word_of(object value)
cdef void put(list[bytes] argv, object fields)
cpdef list[bytes] words_of(object fields)
