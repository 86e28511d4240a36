"""LZF compression of long strings. The compressed bytes are items, one after the other:

    000LLLLL  byte ...             the next L + 1 bytes, as they are                     (1 - 32)
    LLLooooo  oooooooo             L + 2 bytes from o + 1 back, L not 0 and not 7        (3 - 8)
    111ooooo  LLLLLLLL  oooooooo   L + 9 bytes from o + 1 back                           (9 - 264)

A copy may overlap its own output. Any choice of copies decompresses to the same bytes. This module makes
the same choice as Redis, so that DUMP payloads are equal. The choice follows from these rules: the table
remembers one place per hash of three bytes, the latest; nothing is copied from place 0; of a copy only the
last two places are remembered; and copies stop near the end.

Places in the table from an earlier string are harmless: a place is used only if its bytes are equal, and all
places of this string that count have been entered since.
"""

from __future__ import annotations

import cython

from headrace import mem

DISTANCE_MAX = cython.declare(cython.Py_ssize_t, 8192)
COPY_MAX = cython.declare(cython.Py_ssize_t, 264)
COPY_SHORT_MAX = cython.declare(cython.Py_ssize_t, 8)  # a longer copy takes three bytes
COPY_UNROLLED = cython.declare(cython.Py_ssize_t, 16)  # Redis compares these before it checks for the end
RUN_MAX = cython.declare(cython.Py_ssize_t, 32)
GAIN_MIN = cython.declare(cython.Py_ssize_t, 4)  # the result must be so many bytes shorter
INPUT_MAX = cython.declare(cython.Py_ssize_t, 0x7FFFFFFF)  # places in the table have 32 bits
TABLE_BYTES = cython.declare(cython.Py_ssize_t, 1 << 18)  # a place for each 16-bit hash
ITEM_BYTES_MAX = cython.declare(cython.Py_ssize_t, 8)
# A larger buffer is kept only until the next string.
CAP_KEPT_MAX = cython.declare(cython.Py_ssize_t, 1 << 20)


@cython.final
@cython.cclass
class LzfCompressor:
    """Compresses strings, one after another. The last result is at the start of `out`."""

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
    def compress(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Compress the first n bytes of source into `out`; return the size, 0 if that saves too little."""
        self.reserve(n)
        self.used = compress_into(source, n, self.p, self.table)
        return self.used

    @cython.cfunc
    def reserve(self, n: cython.Py_ssize_t) -> cython.void:
        """Make `out` large enough for compress_into() of n bytes."""
        if n <= INPUT_MAX and (n + ITEM_BYTES_MAX > self.cap or self.cap > CAP_KEPT_MAX):
            mem.resize(self.out, n + ITEM_BYTES_MAX)
            self.p = self.out
            self.cap = n + ITEM_BYTES_MAX


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def compress_into(
    source: cython.p_const_uchar, n: cython.Py_ssize_t, out: cython.p_uchar, table: cython.p_uchar
) -> cython.Py_ssize_t:
    """Compress n bytes into out; return the size, 0 if compression saves too little.

    out: has space for n + ITEM_BYTES_MAX bytes. table: the table of an LzfCompressor.
    """
    if n <= GAIN_MIN or n > INPUT_MAX:
        return 0
    room: cython.Py_ssize_t = n - GAIN_MIN
    distance_max: cython.ulonglong = DISTANCE_MAX
    run_max: cython.Py_ssize_t = RUN_MAX
    used: cython.Py_ssize_t = 2  # the first byte is reserved for the length of the open run
    run: cython.Py_ssize_t = 1
    place: cython.Py_ssize_t = 1  # nothing is copied to or from place 0
    last: cython.Py_ssize_t = n - 3  # the last place with three bytes
    window: cython.uint = source[0]  # three bytes, the first one highest; the next byte is at place + 2
    window = (window << 8 | source[1]) << 8 | source[2]
    found: cython.Py_ssize_t
    back: cython.ulonglong
    third: cython.uint
    ahead: cython.ulonglong
    size: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    out[1] = source[0]
    mem.put_u32le(table, _table_offset(window), 0)
    while place <= last:
        third = source[place + 2]
        window = (window << 8 | third) & 0xFFFFFF
        slot = _table_offset(window)
        found = mem.u32le(table, slot)
        mem.put_u32le(table, slot, place)
        back = mem.sub_u64(place, found + 1)  # huge for a place of an earlier string that is after this one
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
                used = _end_run(out, used, run)
                run = 0
            continue
        if used - (run == 0) + 4 >= room:
            return 0
        used = _end_run(out, used, run) - 1
        run = 0
        size = _match_length(source, found, place, n - place)
        used = _put_copy(out, used, place - found - 1, size) + 1
        place += size
        if place + 6 <= n:  # in one load
            ahead = mem.u64be(source, place - 2)
            mem.put_u32le(table, _table_offset(ahead >> 40), place - 2)
            window = ahead >> 32 & 0xFFFFFF
            mem.put_u32le(table, _table_offset(window), place - 1)
        elif place <= last:
            window = source[place - 2]
            window = (window << 8 | source[place - 1]) << 8 | source[place]
            mem.put_u32le(table, _table_offset(window), place - 2)
            window = (window << 8 | source[place + 1]) & 0xFFFFFF
            mem.put_u32le(table, _table_offset(window), place - 1)
    if used + 3 > room:
        return 0
    return _put_rest(source, place, n, out, used, run)


@cython.cfunc
@cython.nogil
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
            used = _end_run(out, used, run)
            run = 0
    return _end_run(out, used, run) - 1


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _table_offset(window: cython.uint) -> cython.Py_ssize_t:
    """Return the offset in the table for these three bytes, the first one highest."""
    high: cython.int = window >> 8
    low: cython.int = window
    return 4 * ((high - 5 * low) & 0xFFFF)


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _end_run(out: cython.p_uchar, used: cython.Py_ssize_t, run: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Store the length of the open run, if there is one, and reserve a byte for the next; return used."""
    if run == 0:
        return used
    out[used - run - 1] = run - 1
    return used + 1


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _put_copy(
    out: cython.p_uchar, used: cython.Py_ssize_t, back: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write the item that copies size bytes; return its end."""
    if size <= COPY_SHORT_MAX:
        out[used] = size - 2 << 5 | back >> 8
        out[used + 1] = back & 0xFF
        return used + 2
    out[used] = 0xE0 | back >> 8
    out[used + 1] = size - 9
    out[used + 2] = back & 0xFF
    return used + 3


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _match_length(
    source: cython.p_const_uchar, found: cython.Py_ssize_t, at: cython.Py_ssize_t, left: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the number of equal bytes at found and `at`, of which three are known, with `left` to the end.

    Redis stops two bytes before the end, but checks that only after COPY_UNROLLED bytes.
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
    """Return data compressed; None if that is not at least four bytes shorter."""
    compressor: LzfCompressor = LzfCompressor()
    size: cython.Py_ssize_t = compressor.compress(data, len(data))
    return mem.to_bytes(compressor.p, 0, size) if size else None


@cython.ccall
def decompress(data: bytes, size: cython.Py_ssize_t) -> bytes:
    """Decompress data to size bytes; raise ValueError if it is damaged."""
    if size < 0 or size > COPY_MAX * len(data):
        raise ValueError(f"{len(data)} packed bytes cannot expand to {size}")
    made: bytearray = bytearray(size)
    out: cython.p_uchar = made
    used: cython.Py_ssize_t = decompress_into(data, 0, len(data), out, size)
    if used != size:
        raise ValueError("packed bytes are damaged")
    return bytes(made)


@cython.cfunc
@cython.exceptval(check=False)
def decompress_into(
    source: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Decompress the n bytes at `at` into out (size bytes); return how many were written, -1 if damaged.

    If there is space, more bytes are copied than needed, in fixed sizes: later items overwrite the excess.
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
