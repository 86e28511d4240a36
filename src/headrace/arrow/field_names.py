"""The names of an entry's fields in a listpack, which become the keys of a map of all fields."""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import growable_buffer
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.structures import listpack_walk

# An entry with more bytes than this gets no map of text if they are not UTF-8: escapes take four times as
# many bytes, and the values of one column must stay below 2 GiB.
ESCAPED_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1 << 26)
FEW_NAMES = cython.declare(cython.Py_ssize_t, 16)  # up to here names are compared, above looked up in a dict


@cython.final
@cython.cclass
class FieldNames:
    """The names of an entry's fields, for the map of all fields."""

    offsets_in_pack: GrowableBuffer  # where they are in the listpack, u32 each
    repeated_flags: (
        GrowableBuffer  # a byte each: 1 if a later name is the same, because a map has each key once
    )
    are_utf8: cython.bint  # whether all are UTF-8
    escape: cython.bint  # whether to escape bytes that are not UTF-8
    total_bytes: cython.Py_ssize_t  # total bytes
    unique_names: Column  # the names that are not repeated: the keys of each row

    def __init__(self, escape: cython.bint) -> None:
        self.escape = escape
        self.offsets_in_pack = GrowableBuffer(64)
        self.repeated_flags = GrowableBuffer(64)
        self.unique_names = Column("text")
        self.are_utf8 = False
        self.total_bytes = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def examine(self, p: cython.p_const_uchar) -> cython.Py_ssize_t:
        """Compute all attributes from the names at offsets_in_pack."""
        count: cython.Py_ssize_t = self.offsets_in_pack.used // 4
        latest: dict[bytes, cython.Py_ssize_t] = {}
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        at: cython.Py_ssize_t
        name: bytes
        self.are_utf8 = True
        self.total_bytes = 0
        self.repeated_flags.used = 0
        if self.repeated_flags.cap < count:
            self.repeated_flags.grow(count)
        for i in range(count):
            at = mem.u32le(self.offsets_in_pack.p, 4 * i)
            self.total_bytes += listpack_walk.next_at(p, at) - at
            self.are_utf8 = self.are_utf8 and is_utf8_element(p, at)
        escape: cython.bint = self.escape and not self.are_utf8 and self.total_bytes <= ESCAPED_BYTES_MAX
        for i in range(count):
            at = mem.u32le(self.offsets_in_pack.p, 4 * i)
            self.repeated_flags.p[i] = 0
            if count <= FEW_NAMES and not escape:
                for j in range(i):
                    if same_text(p, mem.u32le(self.offsets_in_pack.p, 4 * j), at):
                        self.repeated_flags.p[j] = 1
            else:
                name = growable_buffer.escaped(element_text(p, at)) if escape else element_text(p, at)
                if name in latest:
                    self.repeated_flags.p[latest[name]] = 1
                latest[name] = i
        self._fill_unique_names(p, count, escape)
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _fill_unique_names(
        self, p: cython.p_const_uchar, count: cython.Py_ssize_t, escape: cython.bint
    ) -> cython.Py_ssize_t:
        """Fill `unique_names`."""
        i: cython.Py_ssize_t
        self.unique_names.values.used = 0
        self.unique_names.offsets.used = 4
        for i in range(count):
            if not self.repeated_flags.p[i] and escape:
                append_escaped(self.unique_names, p, mem.u32le(self.offsets_in_pack.p, 4 * i))
            elif not self.repeated_flags.p[i]:
                self.unique_names.append_element(p, mem.u32le(self.offsets_in_pack.p, 4 * i))
        return self.unique_names.values.used


@cython.cfunc
@cython.exceptval(-1, check=False)
def append_escaped(column: Column, p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Append the text of the element at `at`; escape each byte that is not UTF-8."""
    if listpack_walk.is_integer(p, at):
        return column.append_element(p, at)
    column.values.put_escaped(p, listpack_walk.text_start(p, at), listpack_walk.text_size(p, at))
    return column.offsets.put_u32(column.values.used)


@cython.cfunc
def element_text(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> bytes:
    """Return the text of the element at `at`."""
    if listpack_walk.is_integer(p, at):
        return str(listpack_walk.integer(p, at)).encode()
    return mem.to_bytes(p, listpack_walk.text_start(p, at), listpack_walk.text_size(p, at))


@cython.cfunc
@cython.exceptval(check=False)
def is_utf8_element(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.bint:
    """Return whether the element at `at` is UTF-8; integers are."""
    if 0x80 <= p[at] < 0xC0:
        return mem.is_utf8(p, at + 1, p[at] & 0x3F)
    if listpack_walk.is_integer(p, at):
        return True
    return mem.is_utf8(p, listpack_walk.text_start(p, at), listpack_walk.text_size(p, at))


@cython.cfunc
@cython.exceptval(-1, check=False)
def same_text(p: cython.p_const_uchar, a: cython.Py_ssize_t, b: cython.Py_ssize_t) -> cython.bint:
    """Return whether two elements have the same text, in any encoding."""
    n: cython.Py_ssize_t = p[a] & 0x3F
    if 0x80 <= p[a] < 0xC0 and 0x80 <= p[b] < 0xC0:
        return p[a] == p[b] and mem.compare(p, a + 1, p, b + 1, n) == 0
    if listpack_walk.is_integer(p, a) or listpack_walk.is_integer(p, b):
        return element_text(p, a) == element_text(p, b)
    n = listpack_walk.text_size(p, a)
    if listpack_walk.text_size(p, b) != n:
        return False
    return mem.compare(p, listpack_walk.text_start(p, a), p, listpack_walk.text_start(p, b), n) == 0
