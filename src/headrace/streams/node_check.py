"""Validate the bytes of a node from an untrusted source, in one pass.

node.py shows the layout of a node, listpack_walk.py that of elements. Every element must be complete, with
the right trailing length. The elements must be a master entry and as many entries as it states. The IDs of
live entries must rise; those of tombstones need not: Redis 7.0 let XSETID go back before deleted entries.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.structures import listpack_walk, stream_id

HEADER_BYTES = cython.declare(cython.Py_ssize_t, 6)
END_BYTE = cython.declare(cython.uchar, 0xFF)
COUNT_UNKNOWN = cython.declare(cython.Py_ssize_t, 65535)
DELETED_FLAG = cython.declare(cython.longlong, 1)
SAME_FIELDS_FLAG = cython.declare(cython.longlong, 2)
INT16 = cython.declare(cython.Py_ssize_t, 0xF1)  # 3 bytes; F2 and F3: 4 and 5
INT64 = cython.declare(cython.Py_ssize_t, 0xF4)
FLAGS_MAX = cython.declare(cython.uchar, 3)
# The common first six bytes of an entry: flags (same fields) and two deltas up to 127, each one byte followed
# by its trailing length 1. Compared as one word, in which the last two bytes are masked.
COMMON_ENTRY_START = cython.declare(cython.ulonglong, 0x010001000102)
COMMON_ENTRY_MASK = cython.declare(cython.ulonglong, 0xFF80FF80FFFE)
COMMON_ENTRY_START_BYTES = cython.declare(cython.Py_ssize_t, 6)
MASK_BYTES = cython.declare(cython.Py_ssize_t, 8)
# From this size on, other servers write trailing lengths in another form: see listpack_walk.py.
AMBIGUOUS_TRAIL_MIN = cython.declare(cython.Py_ssize_t, 0x3FFF)


class EntryBeforeNode(ValueError):
    """A stored node that is valid except that live entries are before its own ID."""


@cython.final
@cython.no_gc
@cython.cclass
class NodeCheck:
    """Validates the bytes of one node, which must not change meanwhile."""

    data: object
    p: cython.p_const_uchar  # borrowed from it
    at: cython.Py_ssize_t  # the next element
    end: cython.Py_ssize_t  # the offset of the end byte
    count: cython.Py_ssize_t  # elements passed
    last_ms: cython.ulonglong  # the last live entry read
    last_seq: cython.ulonglong
    # An element is so large that its trailing length may be in the form of another server.
    has_wide_element: cython.bint

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.p = data
        self.at = HEADER_BYTES
        self.end = len(data) - 1
        self.count = 0
        self.last_ms = self.last_seq = 0
        self.has_wide_element = False

    @cython.ccall
    def run(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Validate the bytes as the node with the master ID ms-seq.

        Raises:
            EntryBeforeNode: if live entries before the master ID are the only error. Some servers write such
                nodes, but a search by ID would miss these entries.
            ValueError: for any other error.
        """
        self._check_frame()
        live: cython.longlong = self._read_integer()
        deleted: cython.longlong = self._read_integer()
        fields: cython.longlong = self._read_field_count()
        self._skip(fields)
        if self._read_integer() != 0:
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
            after = _common_entry_end(p, at, self.end, fields)
            if after > 0:
                flags = p[at]
                entry_ms = mem.add_u64(ms, p[at + 2])
                entry_seq = mem.add_u64(seq, p[at + 4])
                self.at = after
                self.count += fields + 4
            else:
                flags = self._read_flags()
                entry_ms = mem.add_u64(ms, mem.as_unsigned(self._read_integer()))
                entry_seq = mem.add_u64(seq, mem.as_unsigned(self._read_integer()))
                self._skip_entry_rest(flags, fields)
            if flags & DELETED_FLAG:
                tombstones += 1
                continue
            if lives == 0:
                if entry_ms == 0 and entry_seq == 0:
                    raise ValueError("a node has an entry 0-0, which no read after any ID would find")
                strayed = stream_id.is_before(entry_ms, entry_seq, ms, seq)
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
        """Check the header and the end byte."""
        size: cython.Py_ssize_t = self.end + 1
        if size < HEADER_BYTES + 1:
            raise ValueError(f"a listpack has at least 7 bytes, not {size}")
        total: cython.Py_ssize_t = mem.u32le(self.p, 0)
        if total != size:
            raise ValueError(f"the listpack says {total} bytes, there are {size}")
        if self.p[self.end] != END_BYTE:
            raise ValueError("the listpack has no end byte")

    @cython.cfunc
    def _check_count(self) -> cython.void:
        said: cython.Py_ssize_t = mem.u16le(self.p, 4)
        if said != COUNT_UNKNOWN and said != self.count:
            raise ValueError(f"the listpack says {said} elements, there are {self.count}")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _read_flags(self) -> cython.longlong:
        """Read the flags of an entry. They must be one byte, so that a deletion can change them in place."""
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
    def _skip_entry_rest(self, flags: cython.longlong, fields: cython.longlong) -> cython.Py_ssize_t:
        """Skip the rest of an entry after its deltas; return the offset after it."""
        before: cython.longlong = fields + 3
        if not flags & SAME_FIELDS_FLAG:
            fields = 2 * self._read_field_count()
            before = fields + 4
        self._skip(fields)
        if self._read_integer() != before:
            raise ValueError(f"an entry of {before} elements says it has another number of them")
        return self.at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_field_count(self) -> cython.longlong:
        """Read a number of fields, which cannot exceed the number of bytes."""
        v: cython.longlong = self._read_integer()
        if not 0 <= v <= self.end:
            raise ValueError(f"a node of {self.end + 1} bytes cannot have {v} fields")
        return v

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-0x4000000000000003, check=True)  # a rare value, unlike -1
    def _read_integer(self) -> cython.longlong:
        """Read the next element as an integer."""
        p: cython.p_const_uchar = self.p
        at: cython.Py_ssize_t = self.at
        v: cython.longlong
        if self.end - at < 3:  # the last element of a node may be that close to the end
            return self._read_any_integer()
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
        return self._read_any_integer()

    @cython.cfunc
    @cython.exceptval(-0x4000000000000003, check=True)
    def _read_any_integer(self) -> cython.longlong:
        """Read the next element as an integer in any encoding."""
        at: cython.Py_ssize_t = self.at
        self._skip(1)
        if not listpack_walk.is_integer(self.p, at):
            raise ValueError(f"a string instead of a number, at byte {at} of the node")
        return listpack_walk.integer(self.p, at)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _skip(self, n: cython.longlong) -> cython.Py_ssize_t:
        """Skip n elements; return the offset after them."""
        p: cython.p_const_uchar = self.p
        at: cython.Py_ssize_t = self.at
        end: cython.Py_ssize_t = self.end
        size: cython.Py_ssize_t  # bytes of encoding and payload, for common encodings
        left: cython.longlong = n
        while left > 0:
            if at >= end:
                raise ValueError("the node ends inside an entry")
            size = _size_by_first_byte(p[at])
            if size > 0 and end - at > size and p[at + size] == size:
                at += size + 1
            else:
                at = self._element_end(at)
            left -= 1
        self.at = at
        self.count += n
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _element_end(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the offset after the element at `at`, in any encoding."""
        after: cython.Py_ssize_t = listpack_walk.checked_next(self.p, at, self.end)
        if after < 0:
            raise ValueError(f"an element is damaged, at byte {at} of the node")
        self.has_wide_element |= after - at >= AMBIGUOUS_TRAIL_MIN
        return after


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_by_first_byte(first: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the bytes of encoding and payload of an element by its first byte; 0 if that is not enough."""
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
def _common_entry_end(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, fields: cython.longlong
) -> cython.Py_ssize_t:
    """Return the offset after the entry at `at` if it is valid and in the most common form, else 0."""
    size: cython.Py_ssize_t
    left: cython.longlong = fields
    if end - at < MASK_BYTES or mem.u64le(p, at) & COMMON_ENTRY_MASK != COMMON_ENTRY_START:
        return 0
    at += COMMON_ENTRY_START_BYTES
    while left > 0:
        if at >= end:
            return 0
        size = _size_by_first_byte(p[at])
        if size == 0 or end - at <= size or p[at + size] != size:
            return 0
        at += size + 1
        left -= 1
    if fields + 3 > 0x7F or end - at < 2 or p[at] != fields + 3 or p[at + 1] != 1:
        return 0
    return at + 2
