"""A node: entries of a stream packed into one listpack.

Its key in the rax of the stream is the master ID, the ID of the first entry that was added to it. All boxes
are listpack elements; numbers are integers:

    +------+---------+------------+---------+-----+---------+---+
    | live | deleted | num-fields | field-1 | ... | field-N | 0 |        the master entry
    +------+---------+------------+---------+-----+---------+---+
    +-------+----------+-----------+---------+-----+---------+----------+
    | flags | ms-delta | seq-delta | value-1 | ... | value-N | lp-count |  flags & 2: same fields
    +-------+----------+-----------+---------+-----+---------+----------+
    +-------+----------+-----------+------------+---------+---------+-----+----------+
    | flags | ms-delta | seq-delta | num-fields | field-1 | value-1 | ... | lp-count |
    +-------+----------+-----------+------------+---------+---------+-----+----------+

flags & 1 marks the entry as deleted (a tombstone); only compaction.py removes tombstones. Deltas are
differences to the master ID modulo 2^64. lp-count is the number of elements before it in its entry, so that a
walk from right to left finds where the entry begins; the 0 ends that walk.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem
from headrace.streams.node_check import NodeCheck
from headrace.structures import listpack, listpack_walk, stream_id
from headrace.structures.listpack import Listpack
from headrace.structures.rax_walk import RaxCursor

LIVE_COUNT_AT = cython.declare(cython.Py_ssize_t, 6)
DELETED_FLAG = cython.declare(cython.longlong, 1)
SAME_FIELDS_FLAG = cython.declare(cython.longlong, 2)
# The most bytes of an element beside its text, and of an entry beside its pieces.
ELEMENT_OVERHEAD_MAX = cython.declare(cython.Py_ssize_t, 10)
ENTRY_OVERHEAD_MAX = cython.declare(cython.Py_ssize_t, 40)
MASTER_OVERHEAD_MAX = cython.declare(cython.Py_ssize_t, 24)
BYTES_MAX = cython.declare(cython.longlong, 1 << 30)  # what a limit of 0 means


@cython.final
@cython.no_gc
@cython.cclass
class Node:
    """A listpack of entries, its master ID, and the contents of its master entry."""

    pack: Listpack
    ms: cython.ulonglong
    seq: cython.ulonglong
    live_count: cython.uint
    deleted_count: cython.uint
    field_count: cython.uint
    fields_at: cython.uint  # the offset of field-1
    entries_at: cython.uint  # the offset of the first entry
    serial: cython.uint  # the number among the closed nodes, see live_counts.py; 0: the tail
    reclaimed_count: cython.uint  # tombstones reclaimed by compaction.py
    reclaimed_bytes: cython.uint  # the bytes they took
    awaits_rewrite: cython.bint  # it is queued for rewriting
    is_inner: cython.bint  # it is not in the tree: a node of a cold run; its serial is its index in the file
    run: Any  # the ColdRun that this node stands for, see cold_run.py; None: its listpack has its entries
    snapshot_epoch: cython.uint  # of the last image that needs nothing from it any more, see stream_image.py

    def __init__(self, ms: cython.ulonglong, seq: cython.ulonglong, pack: Listpack) -> None:
        """Wrap a listpack that begins with a master entry."""
        self.pack = pack
        self.ms = ms
        self.seq = seq
        self.serial = self.reclaimed_count = self.reclaimed_bytes = self.snapshot_epoch = 0
        self.awaits_rewrite = self.is_inner = False
        self.run = None
        p: cython.p_uchar = pack.p
        at: cython.Py_ssize_t = LIVE_COUNT_AT
        self.live_count = listpack_walk.integer(p, at)
        at = listpack_walk.next_at(p, at)
        self.deleted_count = listpack_walk.integer(p, at)
        at = listpack_walk.next_at(p, at)
        self.field_count = listpack_walk.integer(p, at)
        at = listpack_walk.next_at(p, at)
        self.fields_at = at
        _: cython.longlong
        for _ in range(self.field_count):
            at = listpack_walk.next_at(p, at)
        self.entries_at = listpack_walk.next_at(p, at)

    @staticmethod
    def from_bytes(key: bytes, data: bytes) -> Node:
        """Return the node that was stored as data under key. Raises what NodeCheck.run raises."""
        master: stream_id.StreamId = stream_id.from_key(key)
        block: bytearray = bytearray(data)
        check: NodeCheck = NodeCheck(block)
        check.run(master.ms, master.seq)
        return node_from_checked_data(master.ms, master.seq, block, check)

    @cython.ccall
    def key(self) -> bytes:
        """Return the 16-byte key of this node in the rax of the stream."""
        return stream_id.key_of(self.ms, self.seq)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def fits(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        raw: cython.Py_ssize_t,
        bytes_max: cython.longlong,
        entries_max: cython.longlong,
    ) -> cython.bint:
        """Return whether an entry, whose fields and values have `raw` bytes, may be added to this node.

        Reclaimed tombstones count as if they were still stored.
        """
        if bytes_max <= 0 or bytes_max > BYTES_MAX:
            bytes_max = BYTES_MAX
        used: cython.Py_ssize_t = self.pack.used if self.reclaimed_count == 0 else self.uncompacted_size()
        if used + 1 + raw >= bytes_max:
            return False
        if entries_max > 0 and self.live_count + self.deleted_count + self.reclaimed_count >= entries_max:
            return False
        return stream_id.is_before(self.ms, self.seq, ms, seq)

    @cython.ccall
    def append(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        words: list[bytes],
        start: cython.Py_ssize_t,
        raw: cython.Py_ssize_t,
    ) -> cython.void:
        """Add the entry ms-seq with the pairs words[start:] = field, value, ...

        The space is reserved first, so the later steps cannot fail.

        Args:
            raw: the sum of the lengths of words[start:], in bytes.

        Raises:
            ElementsTooLarge: before any change, if the listpack would exceed 4 GiB.
        """
        pack: Listpack = self.pack
        end: cython.Py_ssize_t = len(words)
        pack.reserve(raw + (end - start) * ELEMENT_OVERHEAD_MAX + ENTRY_OVERHEAD_MAX)
        same: cython.bint = self._has_fields_of(words, start)
        pairs: cython.Py_ssize_t = (end - start) // 2
        pack.append_int(SAME_FIELDS_FLAG if same else 0)
        pack.append_int(mem.as_signed(mem.sub_u64(ms, self.ms)))
        pack.append_int(mem.as_signed(mem.sub_u64(seq, self.seq)))
        at: cython.Py_ssize_t = start
        step: cython.Py_ssize_t = 1
        if same:
            at += 1
            step = 2
        else:
            pack.append_int(pairs)
        word: bytes
        source: cython.p_const_uchar
        while at < end:
            word = words[at]
            source = word
            pack.append_slice(source, 0, len(word))
            at += step
        pack.append_int(pairs + 3 if same else 2 * pairs + 4)
        self.set_counts(self.live_count + 1, self.deleted_count)

    @cython.ccall
    def mark_deleted(self, at: cython.Py_ssize_t) -> cython.void:
        """Turn the live entry at offset `at` into a tombstone. The caller must also call set_counts()."""
        self.pack.replace_int(at, listpack_walk.integer(self.pack.p, at) | DELETED_FLAG)

    @cython.ccall
    def set_counts(self, live: cython.longlong, deleted: cython.longlong) -> cython.void:
        """Write the numbers of live entries and of tombstones; entries may move by some bytes."""
        before: cython.Py_ssize_t = self.pack.used
        self.pack.replace_int(LIVE_COUNT_AT, live)
        if deleted != self.deleted_count:
            self.pack.replace_int(listpack_walk.next_at(self.pack.p, LIVE_COUNT_AT), deleted)
        moved: cython.Py_ssize_t = self.pack.used - before
        self.fields_at += moved
        self.entries_at += moved
        self.live_count = live
        self.deleted_count = deleted

    @cython.ccall
    def replace_pack(self, pack: Listpack, reclaimed: cython.longlong) -> cython.void:
        """Replace the listpack by one with `reclaimed` fewer tombstones, and update the counts in it."""
        self.reclaimed_count += reclaimed
        self.reclaimed_bytes += self.pack.used - pack.used
        self.pack = pack
        self.set_counts(self.live_count, self.deleted_count - reclaimed)

    @cython.ccall
    def uncompacted_size(self) -> cython.Py_ssize_t:
        """Return what pack.used would be if no tombstone had been reclaimed."""
        deleted: cython.Py_ssize_t = listpack.integer_size(self.deleted_count)
        return (
            self.pack.used
            + self.reclaimed_bytes
            + listpack.integer_size(self.deleted_count + self.reclaimed_count)
            - deleted
        )

    @cython.ccall
    def copy(self) -> Node:
        """Return a copy of the node."""
        other: Node = Node(self.ms, self.seq, self.pack.copy())
        other.reclaimed_count = self.reclaimed_count
        other.reclaimed_bytes = self.reclaimed_bytes
        return other

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        self.pack.check()
        again: Node = Node.from_bytes(self.key(), self.pack.to_bytes())
        assert (again.live_count, again.deleted_count, again.field_count) == (
            self.live_count,
            self.deleted_count,
            self.field_count,
        )
        assert (again.fields_at, again.entries_at) == (self.fields_at, self.entries_at)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _has_fields_of(self, words: list[bytes], start: cython.Py_ssize_t) -> cython.bint:
        """Return whether the pairs words[start:] have the fields of the master entry, in its order."""
        end: cython.Py_ssize_t = len(words)
        if (end - start) // 2 != self.field_count:
            return False
        p: cython.p_uchar = self.pack.p
        field_at: cython.Py_ssize_t = self.fields_at
        word: bytes
        q: cython.p_const_uchar
        at: cython.Py_ssize_t = start
        while at < end:
            word = words[at]
            q = word
            if not listpack.element_equals(p, field_at, q, 0, len(word)):
                return False
            field_at = listpack_walk.next_at(p, field_at)
            at += 2
        return True


@cython.ccall
def node_from_checked_data(
    ms: cython.ulonglong, seq: cython.ulonglong, data: bytearray, check: NodeCheck
) -> Node:
    """Return the node ms-seq of data, which check has validated."""
    pack: Listpack = (
        Listpack.from_bytes(data) if check.has_wide_element else listpack.from_trusted(data, check.count)
    )
    return Node(ms, seq, pack)


@cython.ccall
def create_node(
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    words: list[bytes],
    start: cython.Py_ssize_t,
    raw: cython.Py_ssize_t,
    room: Listpack | None = None,
) -> Node:
    """Create a node whose first entry is ms-seq with the pairs words[start:] = field, value, ...

    Args:
        raw: the sum of the lengths of words[start:], in bytes.
        room: an empty listpack to use instead of a new one.
    """
    end: cython.Py_ssize_t = len(words)
    overhead: cython.Py_ssize_t = MASTER_OVERHEAD_MAX + ENTRY_OVERHEAD_MAX
    pack: Listpack = Listpack(raw + (end - start) * ELEMENT_OVERHEAD_MAX + overhead) if room is None else room
    pack.append_int(0)
    pack.append_int(0)
    pack.append_int((end - start) // 2)
    at: cython.Py_ssize_t = start
    while at < end:
        pack.append(words[at])
        at += 2
    pack.append_int(0)
    node: Node = Node(ms, seq, pack)
    node.append(ms, seq, words, start, raw)
    return node


@cython.ccall
def node_of_cursor(cursor: RaxCursor) -> Node:
    """Return the node at the position of a cursor over the nodes of a stream."""
    value: Any = cursor.value
    node: Node = value
    return node


@cython.ccall
def total_argument_bytes(words: list[bytes], start: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the sum of the lengths of words[start:] in bytes."""
    total: cython.Py_ssize_t = 0
    word: bytes
    at: cython.Py_ssize_t
    for at in range(start, len(words)):
        word = words[at]
        total += len(word)
    return total
