# read(2) and write(2) on raw descriptors, as C; descriptors.py says the same for the interpreter.
from libc.errno cimport EAGAIN, EINTR, errno

cdef extern from "<unistd.h>":
    ssize_t c_read "read"(int fd, void *buf, size_t n)
    ssize_t c_write "write"(int fd, const void *buf, size_t n)

cdef enum:
    WOULD_BLOCK = -1
    BROKEN = -2


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
