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
# A larger buffer is kept only until the next string.
CAP_KEPT_MAX = cython.declare(cython.Py_ssize_t, 1 << 20)


@cython.final
@cython.cclass
class LzfCompressor:
    """Packs strings, one after another. What it packed last is in `out`, from the start on."""

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
    def pack(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Pack the first n bytes of source; the size in `out`, 0 when they are better left as they are."""
        self.used = 0
        if n <= GAIN_MIN or n > INPUT_MAX:
            return 0
        if n + ITEM_BYTES_MAX > self.cap or self.cap > CAP_KEPT_MAX:
            mem.resize(self.out, n + ITEM_BYTES_MAX)
            self.p = self.out
            self.cap = n + ITEM_BYTES_MAX
        self.used = _pack(source, n, self.p, self.table)
        return self.used


@cython.cfunc
@cython.exceptval(check=False)
def _pack(
    source: cython.p_const_uchar, n: cython.Py_ssize_t, out: cython.p_uchar, table: cython.p_uchar
) -> cython.Py_ssize_t:
    """Pack at least five bytes into out, which has room for n and an item; 0 when that gains too little."""
    room: cython.Py_ssize_t = n - GAIN_MIN
    distance_max: cython.ulonglong = DISTANCE_MAX
    run_max: cython.Py_ssize_t = RUN_MAX
    used: cython.Py_ssize_t = 2  # the first byte waits for the length of the open run
    run: cython.Py_ssize_t = 1
    place: cython.Py_ssize_t = 1  # nothing is before place 0, and nothing copied from it
    last: cython.Py_ssize_t = n - 3  # the last place where three bytes are
    window: cython.uint = source[0]  # three bytes, the first one highest; the one to come is at place + 2
    window = (window << 8 | source[1]) << 8 | source[2]
    found: cython.Py_ssize_t
    back: cython.ulonglong
    third: cython.uint
    ahead: cython.ulonglong
    size: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    out[1] = source[0]
    mem.put_u32le(table, _slot(window), 0)
    while place <= last:
        third = source[place + 2]
        window = (window << 8 | third) & 0xFFFFFF
        slot = _slot(window)
        found = mem.u32le(table, slot)
        mem.put_u32le(table, slot, place)
        back = mem.sub_u64(place, found + 1)  # of a place from another string that is yet to come: huge
        if (
            back >= distance_max
            or found == 0
            or (mem.u32le(source, found) & 0xFFFFFF) != (mem.u16le(source, place) | third << 16)
        ):
            if used >= room:
                return 0
            out[used] = source[place]
            used += 1
            place += 1
            run += 1
            if run == run_max:
                used = _close(out, used, run)
                run = 0
            continue
        if used - (run == 0) + 4 >= room:
            return 0
        used = _close(out, used, run) - 1
        run = 0
        size = _same(source, found, place, n - place)
        used = _put_copy(out, used, place - found - 1, size) + 1
        place += size
        if place + 6 <= n:  # all at once
            ahead = mem.u64be(source, place - 2)
            mem.put_u32le(table, _slot(ahead >> 40), place - 2)
            window = ahead >> 32 & 0xFFFFFF
            mem.put_u32le(table, _slot(window), place - 1)
        elif place <= last:
            window = source[place - 2]
            window = (window << 8 | source[place - 1]) << 8 | source[place]
            mem.put_u32le(table, _slot(window), place - 2)
            window = (window << 8 | source[place + 1]) & 0xFFFFFF
            mem.put_u32le(table, _slot(window), place - 1)
    if used + 3 > room:
        return 0
    return _put_rest(source, place, n, out, used, run)


@cython.cfunc
@cython.exceptval(check=False)
def _put_rest(
    source: cython.p_const_uchar,
    place: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    used: cython.Py_ssize_t,
    run: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Add the last bytes, from place on, to the open run; return how many bytes are used of out."""
    while place < n:
        out[used] = source[place]
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
def _slot(window: cython.uint) -> cython.Py_ssize_t:
    """Where the table has the place of these three bytes, the first one highest."""
    high: cython.int = window >> 8
    low: cython.int = window
    return 4 * ((high - 5 * low) & 0xFFFF)


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
@cython.inline
@cython.exceptval(check=False)
def _put_copy(
    out: cython.p_uchar, used: cython.Py_ssize_t, back: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write the item that copies size bytes; where it ends."""
    if size <= COPY_SHORT_MAX:
        out[used] = size - 2 << 5 | back >> 8
        out[used + 1] = back & 0xFF
        return used + 2
    out[used] = 0xE0 | back >> 8
    out[used + 1] = size - 9
    out[used + 2] = back & 0xFF
    return used + 3


@cython.cfunc
@cython.inline
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
    differing: cython.ulonglong
    while size + 8 <= most:
        differing = mem.u64le(source, found + size) ^ mem.u64le(source, at + size)
        if differing:
            return size + (mem.ctz64(differing) >> 3)
        size += 8
    while size < most and source[found + size] == source[at + size]:
        size += 1
    return size


def compress(data: bytes) -> bytes | None:
    """data packed; None when that would not be at least four bytes shorter."""
    packer: LzfCompressor = LzfCompressor()
    size: cython.Py_ssize_t = packer.pack(data, len(data))
    return mem.to_bytes(packer.p, 0, size) if size else None


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
    """Unpack the n bytes at `at` into out, which has room for size; how many that made, -1 when damaged.

    Where there is room, pieces are copied by more than they have: the rest is overwritten by what follows.
    """
    end: cython.Py_ssize_t = at + n
    used: cython.Py_ssize_t = 0
    run_max: cython.Py_ssize_t = RUN_MAX
    control: cython.Py_ssize_t
    count: cython.Py_ssize_t
    back: cython.Py_ssize_t
    i: cython.Py_ssize_t
    while at < end:
        control = source[at]
        at += 1
        if control < run_max:
            count = control + 1
            if end - at >= 32 and size - used >= 32:
                mem.copy(out, used, source, at, 32)
            elif count > end - at or count > size - used:
                return -1
            else:
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
        if back >= 8 and size - used >= count + 8:
            for i in range(0, count, 8):
                mem.copy(out, used + i, out, used + i - back, 8)
        else:
            for i in range(used, used + count):
                out[i] = out[i - back]
        used += count
    return used
