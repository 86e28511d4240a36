"""XXH3, the 128-bit hash of bytes, with seed 0 and the standard secret.

How an input of n bytes is read depends on n:

    0           nothing: two words of the secret
    1 - 3       its first, middle and last byte in one word
    4 - 8       its first and last four bytes, which may overlap
    9 - 16      its first and last eight
    17 - 128    pairs of 16 bytes, one from each end, inwards
    129 - 240   32 bytes after another, and the last 32 again
    241 -       stripes of 64 bytes into eight lanes, scrambled after each block of 16 stripes:

        | stripe 0 | stripe 1 | ... | stripe 15 | scramble | stripe 16 | ...      | last 64 bytes |
          secret 0   secret 8        secret 120              secret 0               secret 121

The format is fixed for good (xxHash 0.8); all words are little-endian, all sums and products modulo 2^64.
"""

from __future__ import annotations

import cython

from headrace import mem

PRIME32_1 = cython.declare(cython.ulonglong, 0x9E3779B1)
PRIME32_2 = cython.declare(cython.ulonglong, 0x85EBCA77)
PRIME32_3 = cython.declare(cython.ulonglong, 0xC2B2AE3D)
PRIME64_1 = cython.declare(cython.ulonglong, 0x9E3779B185EBCA87)
PRIME64_2 = cython.declare(cython.ulonglong, 0xC2B2AE3D27D4EB4F)
PRIME64_3 = cython.declare(cython.ulonglong, 0x165667B19E3779F9)
PRIME64_4 = cython.declare(cython.ulonglong, 0x85EBCA77C2B2AE63)
PRIME64_5 = cython.declare(cython.ulonglong, 0x27D4EB2F165667C5)
MIX_1 = cython.declare(cython.ulonglong, 0x165667919E3779F9)
MIX_2 = cython.declare(cython.ulonglong, 0x9FB21C651E98DF25)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
LOW_HALF = cython.declare(cython.ulonglong, 0xFFFFFFFF)

STRIPE = cython.declare(cython.Py_ssize_t, 64)
STRIPES_PER_BLOCK = cython.declare(cython.Py_ssize_t, 16)
LANES = cython.declare(cython.Py_ssize_t, 8)
SCRAMBLE_AT = cython.declare(cython.Py_ssize_t, 128)  # the last stripe's worth of the secret

SECRET = cython.declare(
    bytes,
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
        "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
        "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
)


@cython.final
@cython.cclass
class Digest:
    """The 128-bit hash of the last input of compute(), as two words. Reusable for many inputs."""

    low: cython.ulonglong
    high: cython.ulonglong

    def __init__(self) -> None:
        self.low = 0
        self.high = 0

    @cython.ccall
    def compute(self, data: bytes) -> cython.void:
        """Hash data and store the result in low and high."""
        p: cython.p_const_uchar = data
        n: cython.Py_ssize_t = len(data)
        if n > 240:
            self._hash_long(p, n)
        elif n > 128:
            self._hash_240(p, n)
        elif n > 16:
            self._hash_128(p, n)
        elif n > 8:
            self._hash_16(p, n)
        elif n > 3:
            self._hash_8(p, n)
        elif n > 0:
            self._hash_3(p, n)
        else:
            self.low = _avalanche_64(_secret(64) ^ _secret(72))
            self.high = _avalanche_64(_secret(80) ^ _secret(88))

    @cython.cfunc
    def _hash_3(self, p: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        first: cython.ulonglong = p[0]
        middle: cython.ulonglong = p[n >> 1]
        last: cython.ulonglong = p[n - 1]
        size: cython.ulonglong = n
        word: cython.ulonglong = first << 16 | middle << 24 | size << 8 | last
        swapped: cython.ulonglong = mem.swap_u64(word) >> 32
        turned: cython.ulonglong = (swapped << 13 | swapped >> 19) & LOW_HALF
        low_key: cython.ulonglong = _secret(0)
        high_key: cython.ulonglong = _secret(8)
        self.low = _avalanche_64(word ^ (low_key & LOW_HALF) ^ low_key >> 32)
        self.high = _avalanche_64(turned ^ (high_key & LOW_HALF) ^ high_key >> 32)

    @cython.cfunc
    def _hash_8(self, p: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        head: cython.ulonglong = mem.u32le(p, 0)
        tail: cython.ulonglong = mem.u32le(p, n - 4)
        size: cython.ulonglong = n
        keyed: cython.ulonglong = (head | tail << 32) ^ _secret(16) ^ _secret(24)
        factor: cython.ulonglong = mem.add_u64(PRIME64_1, size << 2)
        low: cython.ulonglong = mem.mul_u64(keyed, factor)
        high: cython.ulonglong = mem.mul_high_u64(keyed, factor)
        high = mem.add_u64(high, mem.add_u64(low, low))
        low ^= high >> 3
        low = mem.mul_u64(low ^ low >> 35, MIX_2)
        self.low = low ^ low >> 28
        self.high = _avalanche(high)

    @cython.cfunc
    def _hash_16(self, p: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        head: cython.ulonglong = mem.u64le(p, 0)
        tail: cython.ulonglong = mem.u64le(p, n - 8)
        size: cython.ulonglong = n
        keyed: cython.ulonglong = head ^ tail ^ _secret(32) ^ _secret(40)
        low: cython.ulonglong = mem.add_u64(mem.mul_u64(keyed, PRIME64_1), (size - 1) << 54)
        high: cython.ulonglong = mem.mul_high_u64(keyed, PRIME64_1)
        tail ^= _secret(48) ^ _secret(56)
        high = mem.add_u64(high, mem.add_u64(tail, mem.mul_u64(tail & LOW_HALF, PRIME32_2 - 1)))
        low ^= mem.swap_u64(high)
        high = mem.add_u64(mem.mul_high_u64(low, PRIME64_2), mem.mul_u64(high, PRIME64_2))
        self.low = _avalanche(mem.mul_u64(low, PRIME64_2))
        self.high = _avalanche(high)

    @cython.cfunc
    def _hash_128(self, p: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        self.low = mem.mul_u64(n, PRIME64_1)
        self.high = 0
        inner: cython.Py_ssize_t = (n - 1) // 32 * 16  # where the innermost pair begins
        while inner >= 0:
            self._mix_32(p, inner, n - inner - 16, 2 * inner)
            inner -= 16
        self._finish(n)

    @cython.cfunc
    def _hash_240(self, p: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        self.low = mem.mul_u64(n, PRIME64_1)
        self.high = 0
        at: cython.Py_ssize_t = 0
        while at < 128:
            self._mix_32(p, at, at + 16, at)
            at += 32
        self.low = _avalanche(self.low)
        self.high = _avalanche(self.high)
        while at + 32 <= n:
            self._mix_32(p, at, at + 16, at - 125)
            at += 32
        self._mix_32(p, n - 16, n - 32, 103)
        self._finish(n)

    @cython.cfunc
    def _hash_long(self, p: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        buf: bytearray = bytearray(STRIPE)
        lanes: cython.p_uchar = buf
        mem.put_u64le(lanes, 0, PRIME32_3)
        mem.put_u64le(lanes, 8, PRIME64_1)
        mem.put_u64le(lanes, 16, PRIME64_2)
        mem.put_u64le(lanes, 24, PRIME64_3)
        mem.put_u64le(lanes, 32, PRIME64_4)
        mem.put_u64le(lanes, 40, PRIME32_2)
        mem.put_u64le(lanes, 48, PRIME64_5)
        mem.put_u64le(lanes, 56, PRIME32_1)
        stripe: cython.Py_ssize_t
        stripes: cython.Py_ssize_t = (n - 1) // STRIPE
        for stripe in range(stripes):
            _add_stripe(lanes, p, stripe * STRIPE, stripe % STRIPES_PER_BLOCK * 8)
            # A block is scrambled when it is known not to be the last.
            if stripe % STRIPES_PER_BLOCK == STRIPES_PER_BLOCK - 1:
                _scramble(lanes)
        _add_stripe(lanes, p, n - STRIPE, 121)
        size: cython.ulonglong = n
        self.low = _merge(lanes, 11, mem.mul_u64(size, PRIME64_1))
        self.high = _merge(lanes, 117, U64_MAX - mem.mul_u64(size, PRIME64_2))

    @cython.cfunc
    def _mix_32(
        self, p: cython.p_const_uchar, a: cython.Py_ssize_t, b: cython.Py_ssize_t, key: cython.Py_ssize_t
    ) -> cython.void:
        """Mix the 16 bytes at a into the low word, those at b into the high one, and cross both."""
        low: cython.ulonglong = mem.add_u64(self.low, _mix_16(p, a, key))
        high: cython.ulonglong = mem.add_u64(self.high, _mix_16(p, b, key + 16))
        self.low = low ^ mem.add_u64(mem.u64le(p, b), mem.u64le(p, b + 8))
        self.high = high ^ mem.add_u64(mem.u64le(p, a), mem.u64le(p, a + 8))

    @cython.cfunc
    def _finish(self, n: cython.ulonglong) -> cython.void:
        """Finalize the hash of 17 to 240 bytes."""
        low: cython.ulonglong = self.low
        high: cython.ulonglong = self.high
        self.low = _avalanche(mem.add_u64(low, high))
        high = mem.add_u64(mem.mul_u64(low, PRIME64_1), mem.mul_u64(high, PRIME64_4))
        high = _avalanche(mem.add_u64(high, mem.mul_u64(n, PRIME64_2)))
        self.high = mem.sub_u64(0, high)


@cython.cfunc
@cython.exceptval(check=False)
def _secret(at: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the 64-bit word of the secret at `at`."""
    p: cython.p_const_uchar = SECRET
    return mem.u64le(p, at)


@cython.cfunc
@cython.exceptval(check=False)
def _fold(a: cython.ulonglong, b: cython.ulonglong) -> cython.ulonglong:
    """Return the xor of both halves of the 128-bit product."""
    return mem.mul_u64(a, b) ^ mem.mul_high_u64(a, b)


@cython.cfunc
@cython.exceptval(check=False)
def _mix_16(p: cython.p_const_uchar, at: cython.Py_ssize_t, key: cython.Py_ssize_t) -> cython.ulonglong:
    return _fold(mem.u64le(p, at) ^ _secret(key), mem.u64le(p, at + 8) ^ _secret(key + 8))


@cython.cfunc
@cython.exceptval(check=False)
def _avalanche(h: cython.ulonglong) -> cython.ulonglong:
    """Mix h so that every bit depends on every bit."""
    h = mem.mul_u64(h ^ h >> 37, MIX_1)
    return h ^ h >> 32


@cython.cfunc
@cython.exceptval(check=False)
def _avalanche_64(h: cython.ulonglong) -> cython.ulonglong:
    """Mix h in the older, slower way used for the shortest inputs."""
    h = mem.mul_u64(h ^ h >> 33, PRIME64_2)
    h = mem.mul_u64(h ^ h >> 29, PRIME64_3)
    return h ^ h >> 32


@cython.cfunc
@cython.exceptval(check=False)
def _add_stripe(
    lanes: cython.p_uchar, p: cython.p_const_uchar, at: cython.Py_ssize_t, key: cython.Py_ssize_t
) -> cython.void:
    """Add 64 bytes to the lanes: each word to the neighbouring lane, its keyed product to its own lane."""
    lane: cython.Py_ssize_t
    word: cython.ulonglong
    keyed: cython.ulonglong
    neighbour: cython.Py_ssize_t
    for lane in range(LANES):
        word = mem.u64le(p, at + 8 * lane)
        keyed = word ^ _secret(key + 8 * lane)
        neighbour = 8 * (lane ^ 1)
        mem.put_u64le(lanes, neighbour, mem.add_u64(mem.u64le(lanes, neighbour), word))
        word = mem.mul_u64(keyed & LOW_HALF, keyed >> 32)
        mem.put_u64le(lanes, 8 * lane, mem.add_u64(mem.u64le(lanes, 8 * lane), word))


@cython.cfunc
@cython.exceptval(check=False)
def _scramble(lanes: cython.p_uchar) -> cython.void:
    """Scramble the lanes at the end of a block, so that no later input can undo an earlier one."""
    lane: cython.Py_ssize_t
    word: cython.ulonglong
    for lane in range(LANES):
        word = mem.u64le(lanes, 8 * lane)
        word ^= word >> 47 ^ _secret(SCRAMBLE_AT + 8 * lane)
        mem.put_u64le(lanes, 8 * lane, mem.mul_u64(word, PRIME32_1))


@cython.cfunc
@cython.exceptval(check=False)
def _merge(lanes: cython.p_uchar, key: cython.Py_ssize_t, start: cython.ulonglong) -> cython.ulonglong:
    """Merge the eight lanes into one word."""
    at: cython.Py_ssize_t = 0
    while at < STRIPE:
        start = mem.add_u64(
            start,
            _fold(mem.u64le(lanes, at) ^ _secret(key + at), mem.u64le(lanes, at + 8) ^ _secret(key + at + 8)),
        )
        at += 16
    return _avalanche(start)
