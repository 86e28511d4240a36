"""The names of an entry's fields in a listpack: what the keys of a map of all fields are made of."""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import growable_buffer
from headrace.arrow.columns import Column
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.structures import listpack_walk

# Of an entry with more bytes than this no map of text is made if they are not UTF-8: escaped, they take four
# times as much, and the values of one column must stay below 2 GiB.
ESCAPED_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1 << 26)
FEW = cython.declare(cython.Py_ssize_t, 16)  # names up to here are compared, more are looked up


@cython.final
@cython.cclass
class FieldNames:
    """The names of an entry's fields, which the map of all fields needs."""

    places: GrowableBuffer  # where they are in the listpack, u32 each
    repeated: GrowableBuffer  # a byte each: 1 when a later one is the same; a map has each key once
    are_text: cython.bint  # whether all are UTF-8
    escape: cython.bint  # whether bytes that are not UTF-8 are to be escaped
    size: cython.Py_ssize_t  # bytes of all
    texts: Column  # those not repeated: what each row's keys are

    def __init__(self, escape: cython.bint) -> None:
        self.escape = escape
        self.places = GrowableBuffer(64)
        self.repeated = GrowableBuffer(64)
        self.texts = Column("text")
        self.are_text = False
        self.size = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def examine(self, p: cython.p_const_uchar) -> cython.Py_ssize_t:
        """Learn what is to be known of the names in places."""
        count: cython.Py_ssize_t = self.places.used // 4
        latest: dict[bytes, cython.Py_ssize_t] = {}
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        at: cython.Py_ssize_t
        name: bytes
        self.are_text = True
        self.size = 0
        self.repeated.used = 0
        if self.repeated.cap < count:
            self.repeated.grow(count)
        for i in range(count):
            at = mem.u32le(self.places.p, 4 * i)
            self.size += listpack_walk.next_at(p, at) - at
            self.are_text = self.are_text and is_text(p, at)
        escape: cython.bint = self.escape and not self.are_text and self.size <= ESCAPED_BYTES_MAX
        for i in range(count):
            at = mem.u32le(self.places.p, 4 * i)
            self.repeated.p[i] = 0
            if count <= FEW and not escape:
                for j in range(i):
                    if same_text(p, mem.u32le(self.places.p, 4 * j), at):
                        self.repeated.p[j] = 1
            else:
                name = growable_buffer.escaped(text(p, at)) if escape else text(p, at)
                if name in latest:
                    self.repeated.p[latest[name]] = 1
                latest[name] = i
        self._join(p, count, escape)
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _join(
        self, p: cython.p_const_uchar, count: cython.Py_ssize_t, escape: cython.bint
    ) -> cython.Py_ssize_t:
        """Make texts."""
        i: cython.Py_ssize_t
        self.texts.values.used = 0
        self.texts.offsets.used = 4
        for i in range(count):
            if not self.repeated.p[i] and escape:
                append_escaped(self.texts, p, mem.u32le(self.places.p, 4 * i))
            elif not self.repeated.p[i]:
                self.texts.append_element(p, mem.u32le(self.places.p, 4 * i))
        return self.texts.values.used


@cython.cfunc
@cython.exceptval(-1, check=False)
def append_escaped(column: Column, p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Append the text of the element at `at`, each byte that is not UTF-8 escaped."""
    if listpack_walk.is_integer(p, at):
        return column.append_element(p, at)
    column.values.put_escaped(p, listpack_walk.text_at(p, at), listpack_walk.text_size(p, at))
    return column.offsets.put_u32(column.values.used)


@cython.cfunc
def text(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> bytes:
    """The text of the element at `at`."""
    if listpack_walk.is_integer(p, at):
        return str(listpack_walk.integer(p, at)).encode()
    return mem.to_bytes(p, listpack_walk.text_at(p, at), listpack_walk.text_size(p, at))


@cython.cfunc
@cython.exceptval(check=False)
def is_text(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.bint:
    """Whether the element at `at` is UTF-8, as integers are."""
    if 0x80 <= p[at] < 0xC0:
        return mem.is_utf8(p, at + 1, p[at] & 0x3F)
    if listpack_walk.is_integer(p, at):
        return True
    return mem.is_utf8(p, listpack_walk.text_at(p, at), listpack_walk.text_size(p, at))


@cython.cfunc
@cython.exceptval(-1, check=False)
def same_text(p: cython.p_const_uchar, a: cython.Py_ssize_t, b: cython.Py_ssize_t) -> cython.bint:
    """Whether two elements have the same text, whatever way each is stored."""
    n: cython.Py_ssize_t = p[a] & 0x3F
    if 0x80 <= p[a] < 0xC0 and 0x80 <= p[b] < 0xC0:
        return p[a] == p[b] and mem.compare(p, a + 1, p, b + 1, n) == 0
    if listpack_walk.is_integer(p, a) or listpack_walk.is_integer(p, b):
        return text(p, a) == text(p, b)
    n = listpack_walk.text_size(p, a)
    if listpack_walk.text_size(p, b) != n:
        return False
    return mem.compare(p, listpack_walk.text_at(p, a), p, listpack_walk.text_at(p, b), n) == 0
