"""LZF: what servers pack longer strings with. The packed bytes are items, one after the other:

    000LLLLL  byte ...             the next L + 1 bytes, as they are                     (1 - 32)
    LLLooooo  oooooooo             L + 2 bytes from o + 1 back, L not 0 and not 7        (3 - 8)
    111ooooo  LLLLLLLL  oooooooo   L + 9 bytes from o + 1 back                           (9 - 264)

A copy may run into what it makes itself. Any choice of copies unpacks to the same; ours is, to the byte,
the servers', so that a DUMP of ours is theirs. It follows from: one place remembered per hash of three bytes,
the latest; place 0 never copied from; of a copy only the last two places remembered; and where copies stop
near the end.

What the table holds from another string does no harm: places are tried before they are believed, and three
bytes that were there before in this string have entered it since.
"""

from __future__ import annotations

import cython

from headrace import mem

DISTANCE_MAX = cython.declare(cython.Py_ssize_t, 8192)
COPY_MAX = cython.declare(cython.Py_ssize_t, 264)
COPY_SHORT_MAX = cython.declare(cython.Py_ssize_t, 8)  # a longer copy takes three bytes
COPY_UNROLLED = cython.declare(cython.Py_ssize_t, 16)  # what servers compare before they look for the end
RUN_MAX = cython.declare(cython.Py_ssize_t, 32)
GAIN_MIN = cython.declare(cython.Py_ssize_t, 4)  # it must be so many bytes shorter to be worth it
INPUT_MAX = cython.declare(cython.Py_ssize_t, 0x7FFFFFFF)  # places in the table have 32 bits
TABLE_BYTES = cython.declare(cython.Py_ssize_t, 1 << 18)  # a place for each 16-bit hash
ITEM_BYTES_MAX = cython.declare(cython.Py_ssize_t, 8)


@cython.final
@cython.cclass
class Packer:
    """Packs strings, one after another. What it packed last is in `out`, from the start on."""

    __slots__ = ("cap", "out", "p", "table", "used")

    table: bytearray  # 65536 places, u32
    out: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t

    def __init__(self) -> None:
        self.table = bytearray(TABLE_BYTES)
        self.cap = 0
        self.out = bytearray()
        self.p = self.out
        self.used = 0

    @cython.cfunc
    def pack(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Pack the n bytes at `at` of source; the size in `out`, 0 when they are better left as they are."""
        self.used = 0
        if n <= GAIN_MIN or n > INPUT_MAX:
            return 0
        if n + ITEM_BYTES_MAX > self.cap:
            self.cap = n + ITEM_BYTES_MAX
            mem.resize(self.out, self.cap)
            self.p = self.out
        self.used = _pack(source, at, n, self.p, self.table)
        return self.used


@cython.cfunc
@cython.exceptval(check=False)
def _pack(
    source: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    table: cython.p_uchar,
) -> cython.Py_ssize_t:
    """Pack into out, which has room for n bytes and an item; 0 when that gains too little."""
    room: cython.Py_ssize_t = n - GAIN_MIN
    used: cython.Py_ssize_t = 1  # the first byte waits for the length of the open run
    run: cython.Py_ssize_t = 0
    place: cython.Py_ssize_t = 0
    last: cython.Py_ssize_t = n - 3  # the last place where three bytes are
    found: cython.Py_ssize_t
    size: cython.Py_ssize_t
    distance: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    while place <= last:
        slot = _slot(source, start + place)
        found = mem.u32le(table, slot)
        mem.put_u32le(table, slot, place)
        if not (0 < found < place and place - found <= DISTANCE_MAX) or (
            source[start + found] != source[start + place]
            or source[start + found + 1] != source[start + place + 1]
            or source[start + found + 2] != source[start + place + 2]
        ):
            if used >= room:
                return 0
            out[used] = source[start + place]
            used += 1
            place += 1
            run += 1
            if run == RUN_MAX:
                used = _close(out, used, run)
                run = 0
            continue
        if used - (run == 0) + 4 >= room:
            return 0
        used = _close(out, used, run) - 1
        run = 0
        size = _same(source, start + found, start + place, n - place)
        distance = place - found - 1
        if size <= COPY_SHORT_MAX:
            out[used] = size - 2 << 5 | distance >> 8
        else:
            out[used] = 0xE0 | distance >> 8
            used += 1
            out[used] = size - 9
        out[used + 1] = distance & 0xFF
        used += 3
        place += size
        if place <= last:
            mem.put_u32le(table, _slot(source, start + place - 2), place - 2)
            mem.put_u32le(table, _slot(source, start + place - 1), place - 1)
    if used + 3 > room:
        return 0
    while place < n:
        out[used] = source[start + place]
        used += 1
        place += 1
        run += 1
        if run == RUN_MAX:
            used = _close(out, used, run)
            run = 0
    return _close(out, used, run) - 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _slot(source: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the table has the place of these three bytes."""
    a: cython.int = source[at]
    b: cython.int = source[at + 1]
    c: cython.int = source[at + 2]
    hashed: cython.int = ((a << 8 | b) - 5 * (b << 8 | c)) & 0xFFFF
    return 4 * hashed


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _close(out: cython.p_uchar, used: cython.Py_ssize_t, run: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """End the open run, if there is one, with its length, and keep a byte for that of the next."""
    if run == 0:
        return used
    out[used - run - 1] = run - 1
    return used + 1


@cython.cfunc
@cython.exceptval(check=False)
def _same(
    source: cython.p_const_uchar, found: cython.Py_ssize_t, at: cython.Py_ssize_t, left: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """How many bytes to copy from found to `at`, where three are known to be alike and `left` are left.

    The servers stop two bytes before the end, yet look that far only after COPY_UNROLLED bytes.
    """
    most: cython.Py_ssize_t = min(COPY_MAX, left - 2)
    most = max(most, COPY_UNROLLED + 3) if most > COPY_UNROLLED else max(most, 3)
    size: cython.Py_ssize_t = 3
    while size < most and source[found + size] == source[at + size]:
        size += 1
    return size


def compress(data: bytes) -> bytes | None:
    """data packed; None when that would not be at least four bytes shorter."""
    packer: Packer = Packer()
    size: cython.Py_ssize_t = packer.pack(data, 0, len(data))
    return mem.take(packer.p, 0, size) if size else None


@cython.ccall
def decompress(data: bytes, size: cython.Py_ssize_t) -> bytes:
    """What data is the packed form of, which must be of size bytes; ValueError when it is not."""
    if size < 0 or size > COPY_MAX * len(data):
        raise ValueError(f"{len(data)} packed bytes cannot unpack to {size}")
    made: bytearray = bytearray(size)
    out: cython.p_uchar = made
    used: cython.Py_ssize_t = unpack(data, 0, len(data), out, size)
    if used != size:
        raise ValueError("packed bytes are damaged")
    return bytes(made)


@cython.cfunc
@cython.exceptval(check=False)
def unpack(
    source: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Unpack the n bytes at `at` into out, which has room for size; how many that made, -1 when damaged."""
    end: cython.Py_ssize_t = at + n
    used: cython.Py_ssize_t = 0
    control: cython.Py_ssize_t
    count: cython.Py_ssize_t
    back: cython.Py_ssize_t
    i: cython.Py_ssize_t
    while at < end:
        control = source[at]
        at += 1
        if control < RUN_MAX:
            count = control + 1
            if count > end - at or count > size - used:
                return -1
            mem.copy(out, used, source, at, count)
            at += count
            used += count
            continue
        count = (control >> 5) + 2
        if count == 9:
            if at >= end:
                return -1
            count += source[at]
            at += 1
        if at >= end:
            return -1
        back = ((control & 0x1F) << 8 | source[at]) + 1
        at += 1
        if back > used or count > size - used:
            return -1
        if back >= count:
            mem.move(out, used, used - back, count)
        else:
            for i in range(used, used + count):
                out[i] = out[i - back]
        used += count
    return used
