"""Checking a node that comes from outside: one pass over its bytes, that believes none of them.

node.py draws a node, listpack_walk.py the elements it is made of. Every element must be whole and say its
length the right way, the elements must be a master entry and entries, as many as it says, and the live
entries must rise. Tombstones need not: Redis 7.0 let XSETID go back below deleted entries.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.structures import listpack_walk, stream_id

HEADER = cython.declare(cython.Py_ssize_t, 6)
END = cython.declare(cython.uchar, 0xFF)
COUNT_UNKNOWN = cython.declare(cython.Py_ssize_t, 65535)
DELETED = cython.declare(cython.longlong, 1)
SAME_FIELDS = cython.declare(cython.longlong, 2)
INT16 = cython.declare(cython.Py_ssize_t, 0xF1)  # 3 bytes; F2 and F3: 4 and 5
INT64 = cython.declare(cython.Py_ssize_t, 0xF4)
FLAGS_MAX = cython.declare(cython.uchar, 3)
# How most entries begin: flags with the master's fields and two deltas up to 127, each one byte and its
# trailing length 1. Looked at as a word, of which the last two bytes do not count.
USUAL_HEAD = cython.declare(cython.ulonglong, 0x010001000102)
USUAL_MASK = cython.declare(cython.ulonglong, 0xFF80FF80FFFE)
USUAL_BYTES = cython.declare(cython.Py_ssize_t, 6)
MASK_BYTES = cython.declare(cython.Py_ssize_t, 8)
# From here on the trailing length of an element may have the form of another server: listpack_walk.py.
WIDE = cython.declare(cython.Py_ssize_t, 0x3FFF)


class EntryBeforeNode(ValueError):
    """A stored node in which all is sound, but that live entries come before its own ID."""


@cython.final
@cython.no_gc
@cython.cclass
class NodeCheck:
    """One pass over the bytes of a node, which must stay as they are meanwhile."""

    data: object
    p: cython.p_const_uchar  # borrowed from it
    at: cython.Py_ssize_t  # the next element
    end: cython.Py_ssize_t  # where the end byte stands
    count: cython.Py_ssize_t  # elements passed
    last_ms: cython.ulonglong  # the last live entry passed
    last_seq: cython.ulonglong
    wide: cython.bint  # some are so large that their trailing length may have another server's form

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.p = data
        self.at = HEADER
        self.end = len(data) - 1
        self.count = 0
        self.last_ms = self.last_seq = 0
        self.wide = False

    @cython.ccall
    def run(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """ValueError unless it is a sound node of the master ID ms-seq.

        EntryBeforeNode if only that: some servers write such, yet no search would find all of its entries.
        """
        self._check_frame()
        live: cython.longlong = self._integer()
        deleted: cython.longlong = self._integer()
        fields: cython.longlong = self._few()
        self._skip(fields)
        if self._integer() != 0:
            raise ValueError("the master entry of a node does not end with 0")
        p: cython.p_const_uchar = self.p
        last_ms: cython.ulonglong = ms
        last_seq: cython.ulonglong = seq
        lives: cython.longlong = 0
        tombstones: cython.longlong = 0
        strayed: cython.bint = False
        flags: cython.longlong
        entry_ms: cython.ulonglong
        entry_seq: cython.ulonglong
        at: cython.Py_ssize_t
        after: cython.Py_ssize_t
        while self.at < self.end:
            at = self.at
            after = _usual_entry(p, at, self.end, fields)
            if after > 0:
                flags = p[at]
                entry_ms = mem.add_u64(ms, p[at + 2])
                entry_seq = mem.add_u64(seq, p[at + 4])
                self.at = after
                self.count += fields + 4
            else:
                flags = self._flags()
                entry_ms = mem.add_u64(ms, mem.as_unsigned(self._integer()))
                entry_seq = mem.add_u64(seq, mem.as_unsigned(self._integer()))
                self._skip_pieces(flags, fields)
            if flags & DELETED:
                tombstones += 1
                continue
            if lives == 0:
                if entry_ms == 0 and entry_seq == 0:
                    raise ValueError("a node has an entry 0-0, which no read after any ID would find")
                strayed = stream_id.before(entry_ms, entry_seq, ms, seq)
            elif entry_ms < last_ms or (entry_ms == last_ms and entry_seq <= last_seq):
                raise ValueError(f"entry {entry_ms}-{entry_seq} is out of order in its node")
            last_ms = entry_ms
            last_seq = entry_seq
            lives += 1
        if lives != live or tombstones != deleted:
            raise ValueError(f"the node says {live} + {deleted} entries, there are {lives} + {tombstones}")
        self._check_count()
        self.last_ms = last_ms
        self.last_seq = last_seq
        if strayed:
            raise EntryBeforeNode(f"the node {ms}-{seq} has entries that come before it")

    @cython.cfunc
    def _check_frame(self) -> cython.void:
        """Header and end byte."""
        size: cython.Py_ssize_t = self.end + 1
        if size < HEADER + 1:
            raise ValueError(f"a listpack has at least 7 bytes, not {size}")
        total: cython.Py_ssize_t = mem.u32le(self.p, 0)
        if total != size:
            raise ValueError(f"the listpack says {total} bytes, there are {size}")
        if self.p[self.end] != END:
            raise ValueError("the listpack has no end byte")

    @cython.cfunc
    def _check_count(self) -> cython.void:
        said: cython.Py_ssize_t = mem.u16le(self.p, 4)
        if said != COUNT_UNKNOWN and said != self.count:
            raise ValueError(f"the listpack says {said} elements, there are {self.count}")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _flags(self) -> cython.longlong:
        """The flags of an entry, which are one byte: a tombstone is made in place."""
        p: cython.p_const_uchar = self.p
        at: cython.Py_ssize_t = self.at
        if self.end - at < 2 or p[at] > FLAGS_MAX or p[at + 1] != 1:
            raise ValueError(f"the flags of an entry are not one byte of 0 to 3, at byte {at} of the node")
        self.at = at + 2
        self.count += 1
        return p[at]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _skip_pieces(self, flags: cython.longlong, fields: cython.longlong) -> cython.Py_ssize_t:
        """Pass what an entry has after its deltas; returns the offset after it."""
        before: cython.longlong = fields + 3
        if not flags & SAME_FIELDS:
            fields = 2 * self._few()
            before = fields + 4
        self._skip(fields)
        if self._integer() != before:
            raise ValueError(f"an entry of {before} elements says it has another number of them")
        return self.at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _few(self) -> cython.longlong:
        """A number of fields: there cannot be more of them than bytes."""
        v: cython.longlong = self._integer()
        if not 0 <= v <= self.end:
            raise ValueError(f"a node of {self.end + 1} bytes cannot have {v} fields")
        return v

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-0x4000000000000003, check=True)  # any but the common ones, which -1 is of
    def _integer(self) -> cython.longlong:
        """The integer that is the next element."""
        p: cython.p_const_uchar = self.p
        at: cython.Py_ssize_t = self.at
        v: cython.longlong
        if self.end - at < 3:  # the last one of a node may be that near
            return self._long_integer()
        v = p[at]
        if v < 0x80 and p[at + 1] == 1:
            self.at = at + 2
            self.count += 1
            return v
        if 0xC0 <= v < 0xE0 and p[at + 2] == 2:
            self.at = at + 3
            self.count += 1
            v = (v & 0x1F) << 8 | p[at + 1]
            return v if v < 1 << 12 else v - (1 << 13)
        return self._long_integer()

    @cython.cfunc
    @cython.exceptval(-0x4000000000000003, check=True)
    def _long_integer(self) -> cython.longlong:
        """The same, whatever its encoding."""
        at: cython.Py_ssize_t = self.at
        self._skip(1)
        if not listpack_walk.is_integer(self.p, at):
            raise ValueError(f"a string stands where a number must be, at byte {at} of the node")
        return listpack_walk.integer(self.p, at)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _skip(self, n: cython.longlong) -> cython.Py_ssize_t:
        """Pass n elements; returns the offset after them."""
        p: cython.p_const_uchar = self.p
        at: cython.Py_ssize_t = self.at
        end: cython.Py_ssize_t = self.end
        size: cython.Py_ssize_t  # of encoding and payload, where that is quickly said
        left: cython.longlong = n
        while left > 0:
            if at >= end:
                raise ValueError("the node ends inside an entry")
            size = _quick_size(p[at])
            if size > 0 and end - at > size and p[at + size] == size:
                at += size + 1
            else:
                at = self._skip_any(at)
            left -= 1
        self.at = at
        self.count += n
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _skip_any(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The offset past the element at `at`, of whatever kind it is."""
        after: cython.Py_ssize_t = listpack_walk.checked_next(self.p, at, self.end)
        if after < 0:
            raise ValueError(f"an element is damaged, at byte {at} of the node")
        self.wide |= after - at >= WIDE
        return after


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _quick_size(first: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The bytes of encoding and payload of the element that begins so; 0 when that byte does not say it."""
    if first < 0x80:
        return 1
    if first < 0xC0:
        return 1 + (first & 0x3F)
    if first < 0xE0:
        return 2
    if INT16 <= first < INT64:
        return first - INT16 + 3
    return 9 if first == INT64 else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _usual_entry(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, fields: cython.longlong
) -> cython.Py_ssize_t:
    """The offset after the entry at `at` if it is sound and of the most common form; 0 if not."""
    size: cython.Py_ssize_t
    left: cython.longlong = fields
    if end - at < MASK_BYTES or mem.u64le(p, at) & USUAL_MASK != USUAL_HEAD:
        return 0
    at += USUAL_BYTES
    while left > 0:
        if at >= end:
            return 0
        size = _quick_size(p[at])
        if size == 0 or end - at <= size or p[at + size] != size:
            return 0
        at += size + 1
        left -= 1
    if fields + 3 > 0x7F or end - at < 2 or p[at] != fields + 3 or p[at + 1] != 1:
        return 0
    return at + 2
