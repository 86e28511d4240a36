# The C face of footprint.py.
cdef Py_ssize_t GRAIN
cdef Py_ssize_t POOLED_MAX
cdef Py_ssize_t MALLOC_HEAD
cdef Py_ssize_t COLLECTED

cpdef Py_ssize_t taken(Py_ssize_t n) except -1
cpdef Py_ssize_t of_kind(object kind) except -1
cpdef Py_ssize_t of(object thing) except -1
