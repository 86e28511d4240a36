# The C face of blocking.py.

cdef Py_ssize_t HEAP_DEAD_MIN


cdef class Waiter:
    cdef readonly object session
    cdef readonly Py_ssize_t database
    cdef readonly list keys
    cdef readonly long long deadline
    cdef readonly object serve
    cdef readonly object on_timeout
    cdef readonly object command
    cdef readonly bint alive


cdef class Blocking:
    cdef readonly Py_ssize_t count
    cdef long long number
    cdef readonly dict queues
    cdef readonly dict ready
    cdef list heap

    cpdef void wait(self, Waiter waiter)
    cpdef void forget(self, Waiter waiter)
    cpdef void signal(self, Py_ssize_t database, bytes key)
    cpdef void signal_all(self, Py_ssize_t database)
    cpdef list[Waiter] waiters(self, Py_ssize_t database, bytes key)
    cpdef list[Waiter] expired(self, long long now)
    cpdef long long next_deadline(self)
