# read(2), write(2) and epoll_wait(2) on raw descriptors in C; descriptors.py is the same for the interpreter.
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno

cdef extern from "<unistd.h>":
    ssize_t c_read "read"(int fd, void *buf, size_t n)
    ssize_t c_write "write"(int fd, const void *buf, size_t n)

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd

    cdef struct epoll_event:
        unsigned int events
        epoll_data_t data

    int epoll_wait(int poller, epoll_event *events, int most, int timeout_ms)

cdef enum:
    WOULD_BLOCK = -1
    BROKEN = -2
    EVENT_BYTES = 16


cdef inline Py_ssize_t read(int fd, unsigned char *buf, Py_ssize_t at, Py_ssize_t n) noexcept:
    cdef Py_ssize_t got = c_read(fd, buf + at, n)
    while got < 0 and errno == EINTR:
        got = c_read(fd, buf + at, n)
    if got < 0:
        return WOULD_BLOCK if errno == EAGAIN else BROKEN
    return got


cdef inline Py_ssize_t write(int fd, const unsigned char *buf, Py_ssize_t at, Py_ssize_t n) noexcept:
    cdef Py_ssize_t put = c_write(fd, buf + at, n)
    while put < 0 and errno == EINTR:
        put = c_write(fd, buf + at, n)
    if put < 0:
        return WOULD_BLOCK if errno == EAGAIN else BROKEN
    return put


cdef inline Py_ssize_t wait(int poller, unsigned char *events, int most, int timeout_ms) except -1:
    cdef int n
    with nogil:  # always: in a busy server this is the only place where another thread gets its loop
        n = epoll_wait(poller, <epoll_event *> events, most, timeout_ms)
    if n >= 0:
        return n
    if errno == EINTR:
        PyErr_CheckSignals()
        return 0
    PyErr_SetFromErrno(OSError)
    return -1


cdef inline int event_fd(const unsigned char *events, Py_ssize_t i) noexcept:
    return (<const epoll_event *> events)[i].data.fd


cdef inline unsigned int event_mask(const unsigned char *events, Py_ssize_t i) noexcept:
    return (<const epoll_event *> events)[i].events
