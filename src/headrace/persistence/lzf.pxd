# The C face of lzf.py.
from headrace cimport mem

cdef Py_ssize_t DISTANCE_MAX
cdef Py_ssize_t COPY_MAX
cdef Py_ssize_t COPY_SHORT_MAX
cdef Py_ssize_t COPY_UNROLLED
cdef Py_ssize_t RUN_MAX
cdef Py_ssize_t GAIN_MIN
cdef Py_ssize_t INPUT_MAX
cdef Py_ssize_t TABLE_BYTES
cdef Py_ssize_t ITEM_BYTES_MAX
cdef Py_ssize_t CAP_KEPT_MAX


cdef class Packer:
    cdef bytearray table
    cdef bytearray out
    cdef unsigned char *p
    cdef Py_ssize_t cap
    cdef Py_ssize_t used

    cdef Py_ssize_t pack(self, const unsigned char *source, Py_ssize_t n)


cpdef bytes decompress(bytes data, Py_ssize_t size)
cdef Py_ssize_t _pack(const unsigned char *source, Py_ssize_t n, unsigned char *out, unsigned char *table) noexcept
cdef Py_ssize_t _slot(unsigned int window) noexcept
cdef Py_ssize_t _close(unsigned char *out, Py_ssize_t used, Py_ssize_t run) noexcept
cdef Py_ssize_t _put_copy(unsigned char *out, Py_ssize_t used, Py_ssize_t back, Py_ssize_t size) noexcept
cdef Py_ssize_t _same(const unsigned char *source, Py_ssize_t found, Py_ssize_t at, Py_ssize_t left) noexcept
cdef Py_ssize_t unpack(const unsigned char *source, Py_ssize_t at, Py_ssize_t n, unsigned char *out,
                        Py_ssize_t size) noexcept
