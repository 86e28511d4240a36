"""A range of a stream into columns: from the listpacks straight into Arrow buffers.

Entries of a node that have its master entry's fields say nothing of their names. So the columns are bound to
the fields once a node, and such an entry is read by handing its elements out:

    master entry   | device | temp | site |            flags  ms  seq  d12  21.5  17  lp-count
    bound          | UTF8   |  -   | INT64|                            UTF8   -   INT64

Such entries one after another are taken together (node_runs).
An integer of the listpack goes into a column of numbers as it is, never by way of its digits.

The rows are those that spark/decode/arrow_decoder makes of the same entries' XRANGE reply: first every
column learns where its value is, then reads it; only when all are good, or the mode allows a null, is
anything appended.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.arrow import columns as kinds
from headrace.arrow import field_names, malformed
from headrace.arrow.columns import Column
from headrace.arrow.field_names import FieldNames
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.arrow.ipc import BatchMessage
from headrace.arrow.malformed import MODES
from headrace.arrow.node_runs import NodeRuns
from headrace.streams.iterator import StreamIterator
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.structures import listpack_walk

ROWS_MAX = cython.declare(cython.longlong, 20_000)
# What one batch may cost, about a nanosecond each: its bytes, and more for what is slow.
WORK_MAX = cython.declare(cython.Py_ssize_t, 2 << 20)
CELL_WORK = cython.declare(cython.Py_ssize_t, 16)
CORRUPT_WORK = cython.declare(cython.Py_ssize_t, 4096)
FEW = cython.declare(cython.Py_ssize_t, 16)  # columns up to here are compared, more are looked up

PERMISSIVE = cython.declare(cython.int, 0)
DROPMALFORMED = cython.declare(cython.int, 1)
FAILFAST = cython.declare(cython.int, 2)


@cython.final
@cython.cclass
class RangeEncoder:
    """Encodes the entries of an iterator, then gives the message. Made for one batch of one stream.

    rows, dropped  rows of the batch, and malformed entries that were left out of it
    seen           entries looked at, and the ID of the last of them
    """

    columns: list[Column]
    named: list[Column]  # those read from a field
    by_name: dict[bytes, Column]
    ignored: Column  # stands for no column
    fields: Column | None  # the map of all fields, its pairs in keys and items
    keys: Column
    items: Column
    corrupt: Column | None
    stream: str
    mode: cython.int
    # the node whose master entry is at hand
    node: Node | None
    bound: list[Column]  # for each of its fields
    # for the map: the names and the values of the entry at hand
    names: FieldNames
    names_of_node: FieldNames
    names_of_entry: FieldNames
    escape: cython.bint  # whether not all of its words that must be text are UTF-8
    found_at: GrowableBuffer  # where in the listpack the values are, u32 each
    runs: NodeRuns
    # what was done
    rows: cython.Py_ssize_t
    dropped: cython.Py_ssize_t
    seen: cython.longlong
    work: cython.Py_ssize_t
    ms: cython.ulonglong
    seq: cython.ulonglong

    def __init__(self, columns: list[Column], stream: str, mode: str) -> None:
        self.columns = columns
        self.named = []
        self.by_name = {}
        self.ignored = Column("ignored")
        self.fields = None
        self.keys = Column("text")
        self.items = Column("text")
        self.corrupt = None
        self.stream = stream
        self.mode = MODES[mode]
        column: Column
        for column in columns:
            if column.kind >= kinds.TEXT:
                self.named.append(column)
                self.by_name[column.name] = column
            elif column.kind == kinds.FIELDS:
                self.fields = column
            elif column.kind == kinds.CORRUPT:
                self.corrupt = column
        self.node = None
        self.bound = []
        escape: cython.bint = self.fields is not None and self.fields.utf8
        self.names_of_node = FieldNames(escape)
        self.names_of_entry = FieldNames(escape)
        self.names = self.names_of_node
        self.escape = False
        self.found_at = GrowableBuffer(64)
        self.runs = NodeRuns(columns, self.keys, self.items)
        self.rows = 0
        self.dropped = 0
        self.seen = 0
        self.work = 0
        self.ms = 0
        self.seq = 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def encode(self, entries: StreamIterator, count: cython.longlong) -> cython.bint:
        """Take at most count more entries, or as many as one batch may have; False when none is left."""
        walk: EntryWalk
        if count > ROWS_MAX:
            count = ROWS_MAX
        while self.seen < count and self.work < WORK_MAX:
            if not entries.next():
                return False
            assert entries.walk is not None and entries.node is not None
            walk = entries.walk
            if walk.same and self.node is not entries.node:
                self._bind(entries.node)
            if walk.same and self.runs.fits and self._take_run(entries, walk, count):
                continue
            self.ms = walk.ms
            self.seq = walk.seq
            self.seen += 1
            self._append(walk, walk.p)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _take_run(self, entries: StreamIterator, walk: EntryWalk, count: cython.longlong) -> cython.bint:
        """Append the entry and those behind it that are like it; False if that is not the way."""
        runs: NodeRuns = self.runs
        node: Node = walk.node
        rows: cython.Py_ssize_t = runs.append(
            node, walk.at, self.rows, count - self.seen, WORK_MAX - self.work, entries.to_ms, entries.to_seq
        )
        if rows == 0:
            return False
        self.rows += rows
        self.seen += rows
        self.work += runs.work
        self.ms = runs.ms
        self.seq = runs.seq
        walk.piece_at = runs.end
        walk.left = 0
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def pass_anchor(
        self, entries: StreamIterator, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Take the next entry if it is not ms-seq, which is left out. Whether it was ms-seq."""
        if not entries.next():
            return False
        if entries.ms == ms and entries.seq == seq:
            return True
        assert entries.walk is not None and entries.node is not None
        self.ms = entries.ms
        self.seq = entries.seq
        self.seen += 1
        if entries.walk.same:
            self._bind(entries.node)
        self._append(entries.walk, entries.walk.p)
        return False

    @cython.ccall
    def message(self) -> BatchMessage:
        """The rows as an Arrow IPC message, which holds until close()."""
        message: BatchMessage = BatchMessage()
        column: Column
        for column in self.columns:
            if column.kind == kinds.FIELDS:
                message.add_map(column, self.rows, self.keys, self.items)
            else:
                message.add(column, self.rows)
        return message

    def misfits(self) -> list[int]:
        """For each column how many values were not of its type; nothing if all were."""
        counts = [column.misfits for column in self.columns]
        return counts if any(counts) else []

    @cython.ccall
    def close(self) -> cython.void:
        """The message is where it should be: what was made for it is of no more use."""
        column: Column
        for column in self.columns:
            column.close()
        self.keys.close()
        self.items.close()
        self.names_of_node.texts.close()
        self.names_of_entry.texts.close()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _bind(self, node: Node) -> cython.Py_ssize_t:
        """Find the columns of the master entry's fields."""
        p: cython.p_const_uchar = node.pack.p
        at: cython.Py_ssize_t = node.fields_at
        _: cython.longlong
        names: FieldNames = self.names_of_node
        self.node = node
        self.bound.clear()
        names.places.used = 0
        for _ in range(node.fields):
            self.bound.append(self._column_of(p, at))
            names.places.put_u32(at)
            at = listpack_walk.next_at(p, at)
        if self.fields is not None:
            names.examine(p)
        self.runs.bind(self.bound, names.texts, names.are_text)
        self.work += at - node.fields_at
        return at

    @cython.cfunc
    def _column_of(self, p: cython.p_const_uchar, at: cython.Py_ssize_t) -> Column:
        """The column read from the field whose name is the element at `at`, or the one that is ignored."""
        column: Column
        if len(self.named) > FEW:
            return self.by_name.get(field_names.text(p, at), self.ignored)
        for column in self.named:
            if column.names(p, at):
                return column
        return self.ignored

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append(self, walk: EntryWalk, p: cython.p_const_uchar) -> cython.bint:
        """Append the row of an entry: find and read all its values first, then write."""
        column: Column
        good: cython.bint = True
        start: cython.Py_ssize_t = walk.piece_at
        end: cython.Py_ssize_t = self._find(walk, p)
        for column in self.columns:
            if column.kind >= kinds.TEXT:
                if column.found and not column.parse(p):
                    column.misfits += 1
                    good = self._malformed(column)
            elif column.kind == kinds.FIELDS:
                column.found = True
                self.escape = column.utf8 and not self._all_text(p, column)
                if self.escape:
                    good = self._not_text(column, end - start)
            elif column.kind != kinds.CORRUPT and not column.read_id(self.ms, self.seq):
                part: str = "sequence" if column.kind == kinds.SEQUENCE else "time"
                raise malformed.too_large(self.stream, self._id(), part)
            if not column.found and not column.nullable:
                good = self._malformed(column)
        self.work += end - start + CELL_WORK * len(self.columns)
        if walk.same:  # its names are not among its bytes, but in each row's map, if there is one
            self.work += self.names_of_node.texts.values.used
        if not good and self.mode == DROPMALFORMED:
            self.dropped += 1
        else:
            if not good and self.corrupt is not None:
                self._keep_corrupt(walk, self.corrupt)
            self._write(p)
        walk.piece_at = end  # so that the walk need not step over the elements again
        walk.left = 1
        return good

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _find(self, walk: EntryWalk, p: cython.p_const_uchar) -> cython.Py_ssize_t:
        """Tell the columns where their values are; answers where the entry's last element is."""
        at: cython.Py_ssize_t = walk.piece_at
        i: cython.longlong
        column: Column
        for column in self.columns:
            column.found = False
        if not walk.same:
            return self._find_named(walk, p)
        if self.fields is not None:
            self.names = self.names_of_node
            self.found_at.used = 0
            for i in range(walk.fields):
                self.found_at.put_u32(at)
                column = self.bound[i]
                at = column.read_element(p, at)
        else:
            for column in self.bound:  # of a field named twice the last value counts
                at = column.read_element(p, at)
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _find_named(self, walk: EntryWalk, p: cython.p_const_uchar) -> cython.Py_ssize_t:
        """The same of an entry that says its fields' names."""
        at: cython.Py_ssize_t = walk.piece_at
        _: cython.longlong
        column: Column
        names: FieldNames = self.names_of_entry
        names.places.used = 0
        self.found_at.used = 0
        for _ in range(walk.fields):
            names.places.put_u32(at)
            column = self._column_of(p, at) if self.named else self.ignored
            at = listpack_walk.next_at(p, at)
            self.found_at.put_u32(at)
            at = column.read_element(p, at)
        if self.fields is not None:
            self.names = names
            names.examine(p)
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _all_text(self, p: cython.p_const_uchar, column: Column) -> cython.bint:
        """Whether all names and, if they have to be, all values are UTF-8."""
        check: cython.bint = self.names.are_text and column.utf8_values
        i: cython.Py_ssize_t = self.found_at.used // 4 if check else 0
        while i > 0 and field_names.is_text(p, mem.u32le(self.found_at.p, 4 * i - 4)):
            i -= 1
        return i == 0 and self.names.are_text

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _not_text(self, column: Column, size: cython.Py_ssize_t) -> cython.bint:
        """Raise, or allow the map to be written with escapes. Answers False: the entry is malformed."""
        column.misfits += 1
        if self.mode == FAILFAST:
            raise malformed.not_text(self.stream, self._id())
        self.work += 4 * (size + self.names.size)
        if size + self.names.size > field_names.ESCAPED_BYTES_MAX:
            self._malformed(column)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _malformed(self, column: Column) -> cython.bint:
        """The entry has no good value for the column: raise, or make it null. Answers False."""
        column.found = False
        if self.mode == FAILFAST or (self.mode == PERMISSIVE and not column.nullable):
            raise malformed.missing(self.stream, self._id(), column.name)
        return False

    @cython.cfunc
    def _id(self) -> str:
        return f"{self.ms}-{self.seq}"

    @cython.cfunc
    def _keep_corrupt(self, walk: EntryWalk, column: Column) -> cython.void:
        """Put the whole entry into the column of corrupt records."""
        words: list[bytes] = []
        while walk.next_piece():
            words.append(walk.piece())
        column.raw = malformed.as_json(self._id(), words)
        column.found = True
        self.work += CORRUPT_WORK + len(column.raw)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write(self, p: cython.p_const_uchar) -> cython.Py_ssize_t:
        """Append what was found."""
        column: Column
        for column in self.columns:
            if column.kind == kinds.ID:
                column.write_id(self.ms, self.seq, self.rows)
            elif column.kind == kinds.FIELDS:
                self._write_pairs(p, column)
            else:
                column.write(p, self.rows)
        self.rows += 1
        return self.rows

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_pairs(self, p: cython.p_const_uchar, column: Column) -> cython.Py_ssize_t:
        """Append all pairs as one map; of a field named twice the last value."""
        i: cython.Py_ssize_t
        names: FieldNames = self.names
        keys: Column = self.keys
        before: cython.uint = keys.values.used
        if column.write_validity(self.rows):
            keys.values.put(names.texts.values.p, 0, names.texts.values.used)
            for i in range(1, names.texts.offsets.used // 4):
                keys.offsets.put_u32(before + mem.u32le(names.texts.offsets.p, 4 * i))
            for i in range(self.found_at.used // 4):
                if not names.repeated.p[i] and self.escape and column.utf8_values:
                    field_names.append_escaped(self.items, p, mem.u32le(self.found_at.p, 4 * i))
                elif not names.repeated.p[i]:
                    self.items.append_element(p, mem.u32le(self.found_at.p, 4 * i))
        return column.offsets.put_u32(keys.offsets.used // 4 - 1)
