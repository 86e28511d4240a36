# Byte primitives in C; mem.py has the same functions for the interpreter. Callers inline these bodies.
# Integers are read at fixed offsets from one pointer, so that the compiler uses a single load.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.conversion cimport PyOS_string_to_double
from libc.string cimport memchr, memcmp, memcpy, memmove

cdef extern from *:
    """
    static inline const char *headrace_two_digits(unsigned v) {
        static const char digits[] =
            "00010203040506070809101112131415161718192021222324"
            "25262728293031323334353637383940414243444546474849"
            "50515253545556575859606162636465666768697071727374"
            "75767778798081828384858687888990919293949596979899";
        return digits + 2 * v;
    }
    static inline int headrace_digits_of(unsigned long long v) {  // how many
        static const unsigned long long tens[] = {
            1ULL, 10ULL, 100ULL, 1000ULL, 10000ULL, 100000ULL, 1000000ULL, 10000000ULL, 100000000ULL,
            1000000000ULL, 10000000000ULL, 100000000000ULL, 1000000000000ULL, 10000000000000ULL,
            100000000000000ULL, 1000000000000000ULL, 10000000000000000ULL, 100000000000000000ULL,
            1000000000000000000ULL, 10000000000000000000ULL
        };
        int n = (64 - __builtin_clzll(v | 1)) * 1233 >> 12;  // 1233 / 4096 is nearly the logarithm of 2
        return n + (n == 0 || v >= tens[n]);
    }
    """
    const char *headrace_two_digits(unsigned int v) noexcept nogil
    int headrace_digits_of(unsigned long long v) noexcept nogil


cdef inline object alloc(Py_ssize_t n):
    return PyBytes_FromStringAndSize(NULL, n)  # only the caller has it and never uses it as bytes, so it may be written to


cdef inline void copy(unsigned char *target, Py_ssize_t target_at,
                      const unsigned char *source, Py_ssize_t source_at, Py_ssize_t n) noexcept nogil:
    memcpy(target + target_at, source + source_at, n)


cdef inline void move(unsigned char *buf, Py_ssize_t to, Py_ssize_t at, Py_ssize_t n) noexcept nogil:
    memmove(buf + to, buf + at, n)


cdef inline bytes to_bytes(const unsigned char *buf, Py_ssize_t at, Py_ssize_t n):
    return PyBytes_FromStringAndSize(<const char *> buf + at, n)


cdef inline int compare(const unsigned char *a, Py_ssize_t a_at,
                        const unsigned char *b, Py_ssize_t b_at, Py_ssize_t n) noexcept nogil:
    return memcmp(a + a_at, b + b_at, n)


cdef inline void copy_short(unsigned char *target, Py_ssize_t target_at,
                           const unsigned char *source, Py_ssize_t source_at, Py_ssize_t n) noexcept nogil:
    cdef unsigned char *t = target + target_at
    cdef const unsigned char *s = source + source_at
    cdef unsigned long long head, tail
    if n > 16:
        memcpy(t, s, n)
    elif n >= 8:  # the first eight bytes and the last eight, which may overlap
        memcpy(&head, s, 8)
        memcpy(&tail, s + n - 8, 8)
        memcpy(t, &head, 8)
        memcpy(t + n - 8, &tail, 8)
    elif n >= 4:
        memcpy(&head, s, 4)
        memcpy(&tail, s + n - 4, 4)
        memcpy(t, &head, 4)
        memcpy(t + n - 4, &tail, 4)
    elif n > 0:
        t[0] = s[0]
        if n > 1:
            t[1] = s[1]
            t[n - 1] = s[n - 1]


cdef inline bint equal_bytes(const unsigned char *a, Py_ssize_t a_at,
                           const unsigned char *b, Py_ssize_t b_at, Py_ssize_t n) noexcept nogil:
    if n > 16:
        return memcmp(a + a_at, b + b_at, n) == 0
    if n >= 8:
        return u64le(a, a_at) == u64le(b, b_at) and u64le(a, a_at + n - 8) == u64le(b, b_at + n - 8)
    if n >= 4:
        return u32le(a, a_at) == u32le(b, b_at) and u32le(a, a_at + n - 4) == u32le(b, b_at + n - 4)
    while n > 0:
        n -= 1
        if a[a_at + n] != b[b_at + n]:
            return False
    return True


cdef inline int parse_8_digits(const unsigned char *buf, Py_ssize_t at) noexcept nogil:
    cdef unsigned long long v = u64le(buf, at)
    if (v & 0xF0F0F0F0F0F0F0F0ULL) != 0x3030303030303030ULL:
        return -1
    if ((v + 0x0606060606060606ULL) & 0xF0F0F0F0F0F0F0F0ULL) != 0x3030303030303030ULL:
        return -1
    v &= 0x0F0F0F0F0F0F0F0FULL
    v = (v * 10 + (v >> 8)) & 0x00FF00FF00FF00FFULL  # pairs of digits, then fours, then all eight
    v = (v * 100 + (v >> 16)) & 0x0000FFFF0000FFFFULL
    return <int> ((v * 10000 + (v >> 32)) & 0xFFFFFFFFULL)


cdef inline Py_ssize_t find(const unsigned char *buf, Py_ssize_t at, Py_ssize_t end,
                            unsigned char byte) noexcept nogil:
    cdef const unsigned char *found = <const unsigned char *> memchr(buf + at, byte, end - at)
    return -1 if found == NULL else found - buf


cdef inline unsigned int u16le(const unsigned char *buf, Py_ssize_t at) noexcept nogil:
    cdef const unsigned char *p = buf + at
    cdef unsigned int a = p[0], b = p[1]
    return a | b << 8


cdef inline void put_u16le(unsigned char *buf, Py_ssize_t at, unsigned int v) noexcept nogil:
    buf[at] = v & 0xFF
    buf[at + 1] = v >> 8 & 0xFF


cdef inline unsigned int u32le(const unsigned char *buf, Py_ssize_t at) noexcept nogil:
    cdef const unsigned char *p = buf + at
    cdef unsigned int a = p[0], b = p[1], c = p[2], d = p[3]
    return a | b << 8 | c << 16 | d << 24


cdef inline void put_u32le(unsigned char *buf, Py_ssize_t at, unsigned int v) noexcept nogil:
    buf[at] = v & 0xFF
    buf[at + 1] = v >> 8 & 0xFF
    buf[at + 2] = v >> 16 & 0xFF
    buf[at + 3] = v >> 24


cdef inline unsigned long long u64le(const unsigned char *buf, Py_ssize_t at) noexcept nogil:
    cdef const unsigned char *p = buf + at
    cdef unsigned long long low = u32le(p, 0), high = u32le(p, 4)
    return low | high << 32


cdef inline void put_u64le(unsigned char *buf, Py_ssize_t at, unsigned long long v) noexcept nogil:
    put_u32le(buf, at, <unsigned int> v)
    put_u32le(buf, at + 4, <unsigned int> (v >> 32))


cdef inline unsigned long long _swap_u64(unsigned long long v) noexcept nogil:
    return (v << 56 | (v & 0xFF00) << 40 | (v & 0xFF0000) << 24 | (v & 0xFF000000U) << 8
            | v >> 8 & 0xFF000000U | v >> 24 & 0xFF0000 | v >> 40 & 0xFF00 | v >> 56)


cdef inline unsigned long long u64be(const unsigned char *buf, Py_ssize_t at) noexcept nogil:
    return _swap_u64(u64le(buf, at))


cdef inline void put_u64be(unsigned char *buf, Py_ssize_t at, unsigned long long v) noexcept nogil:
    put_u64le(buf, at, _swap_u64(v))


cdef inline Py_ssize_t put_decimal(unsigned char *buf, Py_ssize_t at, unsigned long long v) noexcept nogil:
    cdef Py_ssize_t n = headrace_digits_of(v), end = at + n
    while v >= 100:
        end -= 2
        put_two_digits(buf, end, <unsigned int> (v % 100))
        v //= 100
    if v >= 10:
        put_two_digits(buf, at, <unsigned int> v)
    else:
        buf[at] = 48 + <unsigned char> v
    return n


cdef inline void put_two_digits(unsigned char *buf, Py_ssize_t at, unsigned int v) noexcept nogil:
    memcpy(buf + at, headrace_two_digits(v), 2)


cdef inline long long as_signed(unsigned long long v) noexcept nogil:
    return <long long> v


cdef inline unsigned long long as_unsigned(long long v) noexcept nogil:
    return <unsigned long long> v


cdef inline unsigned long long add_u64(unsigned long long a, unsigned long long b) noexcept nogil:
    return a + b


cdef inline unsigned long long sub_u64(unsigned long long a, unsigned long long b) noexcept nogil:
    return a - b


cdef inline int resize(bytearray buf, Py_ssize_t n) except -1:
    return PyByteArray_Resize(buf, n)


cdef inline void put_f64le(unsigned char *buf, Py_ssize_t at, double v) noexcept nogil:
    cdef unsigned long long bits
    memcpy(&bits, &v, 8)
    put_u64le(buf, at, bits)


cdef inline void put_f32le(unsigned char *buf, Py_ssize_t at, double v) noexcept nogil:
    cdef float narrow = <float> v
    cdef unsigned int bits
    memcpy(&bits, &narrow, 4)
    put_u32le(buf, at, bits)


cdef inline double parse_f64(const unsigned char *buf, Py_ssize_t at, Py_ssize_t n) except? -1:
    cdef char text[64]
    cdef char *end
    cdef double v
    if n >= 64:
        return float(to_bytes(buf, at, n))
    memcpy(text, buf + at, n)
    text[n] = 0
    v = PyOS_string_to_double(text, &end, NULL)
    if end != text + n:
        raise ValueError("no number")
    return v


cdef inline bint is_utf8(const unsigned char *buf, Py_ssize_t at, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t end = at + n, tail, i
    cdef unsigned char lead, second
    while end - at >= 8 and not u64le(buf, at) & 0x8080808080808080ULL:
        at += 8  # eight ASCII bytes at once: most text is nothing else
    if end - at < 8 <= n and not u64le(buf, end - 8) & 0x8080808080808080ULL:
        return True  # the rest is ASCII, too: the last eight bytes overlap those checked before
    if 4 <= n < 8 and not (u32le(buf, at) | u32le(buf, end - 4)) & 0x80808080U:
        return True
    while at < end:
        lead = buf[at]
        at += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        tail = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if end - at < tail:
            return False
        second = buf[at]
        if lead == 0xE0 and second < 0xA0 or lead == 0xF0 and second < 0x90:
            return False  # a longer form than needed
        if lead == 0xED and second > 0x9F or lead == 0xF4 and second > 0x8F:
            return False  # a surrogate, or past U+10FFFF
        for i in range(tail):
            if buf[at + i] & 0xC0 != 0x80:
                return False
        at += tail
    return True


cdef extern from *:
    int ctz "__builtin_ctzll"(unsigned long long v) noexcept nogil
    int clz "__builtin_clzll"(unsigned long long v) noexcept nogil


cdef extern from *:
    """
    #if defined(__x86_64__)
    __attribute__((target("sse4.2")))
    static unsigned headrace_crc32c(const unsigned char *p, Py_ssize_t n, unsigned crc) {
        unsigned long long wide = crc, word;
        for (; n >= 8; n -= 8, p += 8) {
            memcpy(&word, p, 8);
            wide = __builtin_ia32_crc32di(wide, word);
        }
        for (crc = (unsigned) wide; n > 0; n--)
            crc = __builtin_ia32_crc32qi(crc, *p++);
        return crc;
    }
    static inline int headrace_has_crc32c(void) { return __builtin_cpu_supports("sse4.2"); }
    #else
    static unsigned headrace_crc32c(const unsigned char *p, Py_ssize_t n, unsigned crc) { return 0; }
    static inline int headrace_has_crc32c(void) { return 0; }
    #endif
    """
    unsigned int headrace_crc32c(const unsigned char *p, Py_ssize_t n, unsigned int crc) noexcept nogil
    bint headrace_has_crc32c() noexcept nogil


cdef inline bint has_crc32c() noexcept nogil:
    return headrace_has_crc32c()


cdef inline unsigned int crc32c(const unsigned char *buf, Py_ssize_t at, Py_ssize_t n,
                                unsigned int crc) noexcept nogil:
    return headrace_crc32c(buf + at, n, crc)


cdef inline int ctz64(unsigned long long v) noexcept nogil:
    return ctz(v)


cdef inline int bit_length(unsigned long long v) noexcept nogil:
    return 64 - clz(v)


cdef inline const unsigned char *borrow(object owner, Py_ssize_t n) except? NULL:
    cdef Py_buffer view
    PyObject_GetBuffer(owner, &view, PyBUF_SIMPLE)
    cdef const unsigned char *p = <const unsigned char *> view.buf
    cdef Py_ssize_t size = view.len
    PyBuffer_Release(&view)
    if size < n:
        raise ValueError(f"{size} bytes where {n} should be")
    return p


cdef inline const unsigned char *tail(const unsigned char *buf, Py_ssize_t at) noexcept nogil:
    return buf + at


cdef inline object alloc_pointers(Py_ssize_t n):
    return PyBytes_FromStringAndSize(NULL, n * sizeof(unsigned char *))


cdef inline void put_pointer(unsigned char *array, Py_ssize_t i, const unsigned char *p) noexcept nogil:
    memcpy(array + i * sizeof(p), &p, sizeof(p))


cdef inline const unsigned char *pointer_at(const unsigned char *array, Py_ssize_t i) noexcept nogil:
    cdef const unsigned char *p
    memcpy(&p, array + i * sizeof(p), sizeof(p))
    return p


cdef inline double f64le(const unsigned char *buf, Py_ssize_t at) noexcept nogil:
    cdef unsigned long long bits = u64le(buf, at)
    cdef double v
    memcpy(&v, &bits, 8)
    return v


cdef inline long long truncate(double v) noexcept nogil:
    return <long long> v
