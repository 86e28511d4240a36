"""Read a node by entries, in either direction, and an entry by pieces, without creating objects."""

from __future__ import annotations

import cython

from headrace import mem
from headrace.streams.node import Node
from headrace.structures import listpack_walk

DELETED_FLAG = cython.declare(cython.longlong, 1)
SAME_FIELDS_FLAG = cython.declare(cython.longlong, 2)
INTEGER_TEXT_MAX = cython.declare(cython.Py_ssize_t, 20)


@cython.final
@cython.no_gc
@cython.freelist(16)
@cython.nonecheck(False)  # its node is never None
@cython.cclass
class EntryWalk:
    """A position on one entry of a node; tombstones are not skipped.

    enter() and next() walk forwards from the first entry, enter_end() and previous() backwards from the last
    one; seek() moves to an ID. next_field_or_value() walks through the pieces of the entry: field, value,
    field, value ... A change of the node invalidates what was read.
    """

    node: Node
    p: cython.p_const_uchar
    # the current entry
    at: cython.Py_ssize_t  # the offset of its flags
    ms: cython.ulonglong
    seq: cython.ulonglong
    field_count: cython.longlong
    deleted: cython.bint
    has_same_fields: cython.bint
    # the position in its pieces
    next_element_at: cython.Py_ssize_t  # the offset of the next element of the entry
    entry_elements_left: cython.longlong  # elements of the entry from there on, including lp-count
    master_field_at: cython.Py_ssize_t  # the next field in the master entry
    is_value_next: cython.bint  # the field was read there; its value follows
    # the current piece
    text_pointer: cython.p_const_uchar
    text_at: cython.Py_ssize_t
    text_size: cython.Py_ssize_t
    scratch: bytearray | None  # for the digits of an integer
    scratch_pointer: cython.p_uchar  # borrowed from it

    def __init__(self, node: Node) -> None:
        self.scratch = None
        self.enter(node)

    @cython.ccall
    def enter(self, node: Node) -> cython.void:
        """Move before the first entry of node."""
        self.node = node
        self.p = node.pack.p
        self.at = node.entries_at
        self.next_element_at = node.entries_at
        self.entry_elements_left = 0

    @cython.ccall
    def enter_end(self, node: Node) -> cython.void:
        """Move after the last entry of node."""
        self.node = node
        self.p = node.pack.p
        self.at = node.pack.used
        self.next_element_at = node.pack.used
        self.entry_elements_left = 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def next(self) -> cython.bint:
        """Move to the next entry; return False if there is none."""
        self.p = self.node.pack.p
        at: cython.Py_ssize_t = self.next_element_at
        left: cython.longlong = self.entry_elements_left
        while left > 0:
            at = _element_end(self.p, at)
            left -= 1
        if at >= self.node.pack.used:
            self.next_element_at = at
            self.entry_elements_left = 0
            return False
        self._read_header(at)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def previous(self) -> cython.bint:
        """Move to the previous entry; return False if there is none."""
        self.p = self.node.pack.p
        at: cython.Py_ssize_t = self.at
        if at <= self.node.entries_at:
            return False
        self._read_header(_entry_start(self.p, at))
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def seek(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Move to the first live entry that is not below ms-seq; else to the end, and return False.

        Skipped entries are read only as far as needed, at a third of the cost of next(). The walk begins at
        the end that is nearer by the times of the first and the last entry. The IDs of live entries rise;
        those of tombstones need not, after XSETID has set the last ID back.
        """
        node: Node = self.node
        p: cython.p_const_uchar = node.pack.p
        first: cython.Py_ssize_t = node.entries_at
        end: cython.Py_ssize_t = node.pack.used
        last: cython.Py_ssize_t = _last_live(node)
        at: cython.Py_ssize_t
        wanted: cython.ulonglong = mem.sub_u64(ms, node.ms) if ms >= node.ms else 0
        self.p = p
        if last < 0 or _entry_is_below(node, last, ms, seq):
            self.at = self.next_element_at = end
            self.entry_elements_left = 0
            return False
        if wanted > mem.as_unsigned(listpack_walk.integer(p, _element_end(p, last))) >> 1:
            at = last
            while at > first:
                at = _entry_start(p, at)
                if not _is_deleted(p, at):
                    if _entry_is_below(node, at, ms, seq):
                        break
                    last = at
            at = last
        else:
            at = first
            while _is_deleted(p, at) or _entry_is_below(node, at, ms, seq):
                at = self._entry_end(at)
        self._read_header(at)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def next_field_or_value(self) -> cython.bint:
        """Move to the next field or value of the entry; return False if there is none.

        Its text is the text_size bytes at offset text_at of text_pointer.
        """
        if self.entry_elements_left <= 1:
            return False
        if self.has_same_fields and not self.is_value_next:
            self.is_value_next = True
            self.master_field_at = self._set_piece(self.master_field_at)
            return True
        self.is_value_next = False
        self.entry_elements_left -= 1
        self.next_element_at = self._set_piece(self.next_element_at)
        return True

    @cython.ccall
    def rewind_entry(self) -> cython.void:
        """Move before the first piece of the entry again."""
        self._read_header(self.at)

    @cython.ccall
    def piece(self) -> bytes:
        """Return the current piece: a field or a value."""
        return mem.to_bytes(self.text_pointer, self.text_at, self.text_size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _entry_end(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the offset after the entry at `at`."""
        p: cython.p_const_uchar = self.p
        flags: cython.longlong = listpack_walk.integer(p, at)
        left: cython.longlong = self.node.field_count + 1
        at = _element_end(p, _element_end(p, _element_end(p, at)))
        if flags & SAME_FIELDS_FLAG == 0:
            left = 2 * listpack_walk.integer(p, at) + 2
        while left > 0:
            at = _element_end(p, at)
            left -= 1
        return at

    @cython.cfunc
    @cython.exceptval(check=False)
    def _read_header(self, at: cython.Py_ssize_t) -> cython.void:
        """Read the header of the entry at `at`, and make it the current one."""
        node: Node = self.node
        self.at = at
        self.next_element_at = at
        flags: cython.longlong = self._take_integer()
        self.deleted = flags & DELETED_FLAG != 0
        self.has_same_fields = flags & SAME_FIELDS_FLAG != 0
        self.ms = mem.add_u64(node.ms, mem.as_unsigned(self._take_integer()))
        self.seq = mem.add_u64(node.seq, mem.as_unsigned(self._take_integer()))
        self.is_value_next = False
        if self.has_same_fields:
            self.field_count = node.field_count
            self.master_field_at = node.fields_at
            self.entry_elements_left = node.field_count + 1
        else:
            self.field_count = self._take_integer()
            self.entry_elements_left = 2 * self.field_count + 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _take_integer(self) -> cython.longlong:
        """Read the integer at next_element_at, and move after it."""
        p: cython.p_const_uchar = self.p
        at: cython.Py_ssize_t = self.next_element_at
        if p[at] < 0x80:
            self.next_element_at = at + 2
            return p[at]
        self.next_element_at = _element_end(p, at)
        return listpack_walk.integer(p, at)

    @cython.cfunc
    def _set_piece(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Make the element at `at` the current piece; return the offset after it."""
        p: cython.p_const_uchar = self.p
        if 0x80 <= p[at] < 0xC0:  # a short string, the most common case
            self.text_pointer = p
            self.text_at = at + 1
            self.text_size = p[at] & 0x3F
            return at + 2 + self.text_size
        if listpack_walk.is_integer(p, at):
            if self.scratch is None:
                self.scratch = bytearray(INTEGER_TEXT_MAX)
                self.scratch_pointer = self.scratch
            self.text_size = listpack_walk.put_integer_text(
                self.scratch_pointer, listpack_walk.integer(p, at)
            )
            self.text_pointer = self.scratch_pointer
            self.text_at = 0
        else:
            self.text_pointer = p
            self.text_at = listpack_walk.text_start(p, at)
            self.text_size = listpack_walk.text_size(p, at)
        return _element_end(p, at)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _element_end(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the offset after the element at `at`; for the two most common encodings without a call."""
    if p[at] < 0x80:
        return at + 2
    if p[at] < 0xC0:
        return at + 2 + (p[at] & 0x3F)
    return listpack_walk.next_at(p, at)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_deleted(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.bint:
    """Return whether the entry at `at` is a tombstone."""
    return listpack_walk.integer(p, at) & DELETED_FLAG != 0


@cython.cfunc
@cython.exceptval(check=False)
def _entry_start(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the offset of the entry that ends at `at`."""
    at = listpack_walk.previous_at(p, at)
    left: cython.longlong = listpack_walk.integer(p, at)
    while left > 0:
        if p[at - 1] < 0x80:  # a trailing length of one byte
            at -= 1 + p[at - 1]
        else:
            at = listpack_walk.previous_at(p, at)
        left -= 1
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _last_live(node: Node) -> cython.Py_ssize_t:
    """Return the offset of the last live entry of node; -1 if there is none."""
    p: cython.p_const_uchar = node.pack.p
    at: cython.Py_ssize_t = node.pack.used
    while at > node.entries_at:
        at = _entry_start(p, at)
        if not _is_deleted(p, at):
            return at
    return -1


@cython.cfunc
@cython.exceptval(check=False)
def _entry_is_below(
    node: Node, at: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong
) -> cython.bint:
    """Return whether the ID of the entry at `at` is below ms-seq."""
    p: cython.p_const_uchar = node.pack.p
    at = _element_end(p, at)
    its: cython.ulonglong = mem.add_u64(node.ms, mem.as_unsigned(listpack_walk.integer(p, at)))
    if its != ms:
        return its < ms
    its = mem.add_u64(node.seq, mem.as_unsigned(listpack_walk.integer(p, _element_end(p, at))))
    return its < seq


@cython.ccall
@cython.exceptval(check=False)
def has_live_entry_from(node: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    """Return whether node has a live entry that is not below ms-seq; False if it is cold."""
    last: cython.Py_ssize_t = _last_live(node)
    return last >= 0 and not _entry_is_below(node, last, ms, seq)
