# The C face of ipc.py.
from headrace cimport mem
from headrace.arrow.columns cimport Column
from headrace.arrow.growing cimport Growing

cdef unsigned int CONTINUATION
cdef Py_ssize_t ALIGNMENT
cdef Py_ssize_t PREFIX
cdef unsigned int VERSION
cdef unsigned int RECORD_BATCH
cdef Py_ssize_t MESSAGE_VTABLE
cdef Py_ssize_t MESSAGE
cdef Py_ssize_t BATCH_VTABLE
cdef Py_ssize_t BATCH
cdef Py_ssize_t NODES


cdef class BatchMessage:
    cdef Growing nodes
    cdef Growing spans
    cdef list pieces
    cdef Py_ssize_t size

    cpdef void add(self, Column column, Py_ssize_t rows)
    cpdef void add_map(self, Column column, Py_ssize_t rows, Column keys, Column items)
    cpdef bytearray head(self, Py_ssize_t rows)
    cdef void _put_head(self, unsigned char *p, Py_ssize_t rows) noexcept
    cdef Py_ssize_t _node(self, Py_ssize_t rows, Py_ssize_t nulls) except -1
    cdef Py_ssize_t _buffer(self, Growing piece) except -1


cdef Py_ssize_t padded(Py_ssize_t n) noexcept
cdef void _put_vtable(unsigned char *p, Py_ssize_t at, unsigned int size, unsigned int first, unsigned int second,
                      unsigned int third) noexcept
cdef Py_ssize_t _put_pair(Growing to, Py_ssize_t a, Py_ssize_t b) except -1
