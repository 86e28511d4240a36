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
    cdef readonly object lane
    cdef readonly object has_news
    cdef readonly long long number
    cdef readonly long long tried
    cdef readonly bint alive

    cpdef bint is_worth_a_try(self, long long round_number, object database, bytes key)


cdef class Turns:
    cdef dict lanes
    cdef list heads
    cdef object alone

    cpdef Waiter next(self)
    cpdef void found(self, Waiter waiter, bint served)
    cdef void _advance(self, object lane)


cdef class Blocking:
    cdef readonly Py_ssize_t count
    cdef long long number
    cdef readonly long long round
    cdef readonly dict queues
    cdef readonly dict ready
    cdef list heap
    cdef list alarms
    cdef dict armed

    cpdef void wait(self, Waiter waiter)
    cpdef void forget(self, Waiter waiter)
    cdef void _leave(self, Waiter waiter, bytes key)
    cpdef void signal(self, Py_ssize_t database, bytes key)
    cpdef void signal_all(self, Py_ssize_t database)
    cpdef list[Waiter] waiters(self, Py_ssize_t database, bytes key)
    cpdef Turns turns(self, Py_ssize_t database, bytes key)
    cpdef void arm(self, Py_ssize_t database, bytes key, long long at)
    cpdef void ring(self, long long now)
    cdef long long _next_alarm(self)
    cpdef list[Waiter] expired(self, long long now)
    cpdef long long next_deadline(self)
