"""Encode a range of a stream as columns, from listpacks directly into Arrow buffers.

Entries of a node with its master entry's fields do not repeat the names. So the columns are bound to the
fields once for each node, and the elements of such an entry are read in order:

    master entry   | device | temp | site |            flags  ms  seq  d12  21.5  17  lp-count
    bound          | UTF8   |  -   | INT64|                            UTF8   -   INT64

Runs of such entries are appended together (node_run_appender). An integer of the listpack is copied to a
column of numbers without being formatted and parsed.

The rows are the same as those of spark/decode/arrow_decoder for the XRANGE reply: first each column locates
and parses its value. The values are appended only if all of them fit, or the mode allows nulls.
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
from headrace.arrow.node_run_appender import NodeRunAppender
from headrace.streams.iterator import StreamIterator
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.structures import listpack_walk

ROWS_MAX = cython.declare(cython.longlong, 20_000)
# The maximum cost of a batch, in about nanoseconds: its bytes, and more for slow steps.
WORK_MAX = cython.declare(cython.Py_ssize_t, 2 << 20)
CELL_WORK = cython.declare(cython.Py_ssize_t, 16)
CORRUPT_WORK = cython.declare(cython.Py_ssize_t, 4096)
# Up to here names are compared, above looked up in a dict.
NAME_COMPARISON_COLUMNS_MAX = cython.declare(cython.Py_ssize_t, 16)

PERMISSIVE = cython.declare(cython.int, 0)
DROPMALFORMED = cython.declare(cython.int, 1)
FAILFAST = cython.declare(cython.int, 2)


@cython.final
@cython.cclass
class RangeEncoder:
    """Encodes the entries of an iterator as one batch of one stream: encode(), then message().

    row_count, dropped_entries  rows of the batch, and malformed entries that were omitted
    entries_read, ms, seq       entries read, and the ID of the last of them
    """

    columns: list[Column]
    field_columns: list[Column]  # those read from a field
    columns_by_name: dict[bytes, Column]
    ignored_column: Column  # for fields without a column
    map_column: Column | None  # the map of all fields, its pairs in keys and items
    keys: Column
    items: Column
    corrupt_column: Column | None
    stream: str
    mode: cython.int
    node: Node | None  # the node of the bound master entry
    node_columns: list[Column]  # for each of its fields
    # for the map: the names and the values of the current entry
    names: FieldNames
    node_names: FieldNames
    entry_names: FieldNames
    must_escape: cython.bint  # whether some of its texts are not UTF-8
    value_offsets: GrowableBuffer  # where in the listpack the values are, u32 each
    run_appender: NodeRunAppender
    row_count: cython.Py_ssize_t
    dropped_entries: cython.Py_ssize_t
    entries_read: cython.longlong
    work: cython.Py_ssize_t
    ms: cython.ulonglong
    seq: cython.ulonglong

    def __init__(self, columns: list[Column], stream: str, mode: str) -> None:
        self.columns = columns
        self.field_columns = []
        self.columns_by_name = {}
        self.ignored_column = Column("ignored")
        self.map_column = None
        self.keys = Column("text")
        self.items = Column("text")
        self.corrupt_column = None
        self.stream = stream
        self.mode = MODES[mode]
        column: Column
        for column in columns:
            if column.kind >= kinds.TEXT_KIND:
                self.field_columns.append(column)
                self.columns_by_name[column.name] = column
            elif column.kind == kinds.FIELDS_KIND:
                self.map_column = column
            elif column.kind == kinds.CORRUPT_KIND:
                self.corrupt_column = column
        self.node = None
        self.node_columns = []
        escape: cython.bint = self.map_column is not None and self.map_column.utf8_names
        self.node_names = FieldNames(escape)
        self.entry_names = FieldNames(escape)
        self.names = self.node_names
        self.must_escape = False
        self.value_offsets = GrowableBuffer(64)
        self.run_appender = NodeRunAppender(columns, self.keys, self.items)
        self.row_count = 0
        self.dropped_entries = 0
        self.entries_read = 0
        self.work = 0
        self.ms = 0
        self.seq = 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def encode(self, entries: StreamIterator, count: cython.longlong) -> cython.bint:
        """Encode entries until there are `count`, or the batch is full; return False if none is left.

        Raises:
            MalformedEntry: for an entry that does not fit, if the mode or a column does not allow a null.
        """
        walk: EntryWalk
        if count > ROWS_MAX:
            count = ROWS_MAX
        while self.entries_read < count and self.work < WORK_MAX:
            if not entries.next():
                return False
            assert entries.walk is not None and entries.node is not None
            walk = entries.walk
            if walk.has_same_fields and self.node is not entries.node:
                self._bind(entries.node)
            if (
                walk.has_same_fields
                and self.run_appender.can_append
                and self._append_run(entries, walk, count)
            ):
                continue
            self.ms = walk.ms
            self.seq = walk.seq
            self.entries_read += 1
            self._append(walk, walk.p)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append_run(self, entries: StreamIterator, walk: EntryWalk, count: cython.longlong) -> cython.bint:
        """Append the run that begins with the current entry; return False if there is none."""
        appender: NodeRunAppender = self.run_appender
        node: Node = walk.node
        rows: cython.Py_ssize_t = appender.append(
            node,
            walk.at,
            self.row_count,
            count - self.entries_read,
            WORK_MAX - self.work,
            entries.to_ms,
            entries.to_seq,
        )
        if rows == 0:
            return False
        self.row_count += rows
        self.entries_read += rows
        self.work += appender.work
        self.ms = appender.ms
        self.seq = appender.seq
        walk.next_element_at = appender.run_end
        walk.entry_elements_left = 0
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def skip_anchor(
        self, entries: StreamIterator, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Skip the next entry if its ID is ms-seq, else encode it; return whether it was skipped."""
        if not entries.next():
            return False
        if entries.ms == ms and entries.seq == seq:
            return True
        assert entries.walk is not None and entries.node is not None
        self.ms = entries.ms
        self.seq = entries.seq
        self.entries_read += 1
        if entries.walk.has_same_fields:
            self._bind(entries.node)
        self._append(entries.walk, entries.walk.p)
        return False

    @cython.ccall
    def message(self) -> BatchMessage:
        """Return the rows as an Arrow IPC message, which is valid until close()."""
        message: BatchMessage = BatchMessage()
        column: Column
        for column in self.columns:
            if column.kind == kinds.FIELDS_KIND:
                message.add_map(column, self.row_count, self.keys, self.items)
            else:
                message.add(column, self.row_count)
        return message

    def misfit_counts(self) -> list[int]:
        """Return for each column how many values did not fit its type; an empty list if all fitted."""
        counts = [column.misfit_count for column in self.columns]
        return counts if any(counts) else []

    @cython.ccall
    def close(self) -> cython.void:
        """Return all buffers to the pool. Copy the message before."""
        column: Column
        for column in self.columns:
            column.close()
        self.keys.close()
        self.items.close()
        self.node_names.unique_names.close()
        self.entry_names.unique_names.close()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _bind(self, node: Node) -> cython.Py_ssize_t:
        """Set the columns of the master entry's fields."""
        p: cython.p_const_uchar = node.pack.p
        at: cython.Py_ssize_t = node.fields_at
        _: cython.longlong
        names: FieldNames = self.node_names
        self.node = node
        self.node_columns.clear()
        names.offsets_in_pack.used = 0
        for _ in range(node.field_count):
            self.node_columns.append(self._column_of(p, at))
            names.offsets_in_pack.put_u32(at)
            at = listpack_walk.next_at(p, at)
        if self.map_column is not None:
            names.examine(p)
        self.run_appender.bind(self.node_columns, names.unique_names, names.are_utf8)
        self.work += at - node.fields_at
        return at

    @cython.cfunc
    def _column_of(self, p: cython.p_const_uchar, at: cython.Py_ssize_t) -> Column:
        """Return the column of the field whose name is the element at `at`, or the ignored one."""
        column: Column
        if len(self.field_columns) > NAME_COMPARISON_COLUMNS_MAX:
            return self.columns_by_name.get(field_names.element_text(p, at), self.ignored_column)
        for column in self.field_columns:
            if column.name_is_element(p, at):
                return column
        return self.ignored_column

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append(self, walk: EntryWalk, p: cython.p_const_uchar) -> cython.bint:
        """Append the row of an entry: locate and parse all its values, then write them."""
        column: Column
        good: cython.bint = True
        start: cython.Py_ssize_t = walk.next_element_at
        end: cython.Py_ssize_t = self._locate_values(walk, p)
        for column in self.columns:
            if column.kind >= kinds.TEXT_KIND:
                if column.has_value and not column.parse(p):
                    column.misfit_count += 1
                    good = self._handle_malformed(column)
            elif column.kind == kinds.FIELDS_KIND:
                column.has_value = True
                self.must_escape = column.utf8_names and not self._is_utf8(p, column)
                if self.must_escape:
                    good = self._handle_not_utf8(column, end - start)
            elif column.kind != kinds.CORRUPT_KIND and not column.read_id(self.ms, self.seq):
                good = self._handle_id_too_large(column)
            if not column.has_value and not column.nullable:
                good = self._handle_malformed(column)
        self.work += end - start + CELL_WORK * len(self.columns)
        if walk.has_same_fields:  # its bytes do not contain the names, but a map does
            self.work += self.node_names.unique_names.values.used
        if not good and self.mode == DROPMALFORMED:
            self.dropped_entries += 1
        else:
            if not good and self.corrupt_column is not None:
                self._store_corrupt(walk, self.corrupt_column)
            self._write(p)
        walk.next_element_at = end  # the walk continues there
        walk.entry_elements_left = 1
        return good

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _locate_values(self, walk: EntryWalk, p: cython.p_const_uchar) -> cython.Py_ssize_t:
        """Locate the values of the columns; return the offset of the entry's last element."""
        at: cython.Py_ssize_t = walk.next_element_at
        i: cython.longlong
        column: Column
        for column in self.columns:
            column.has_value = False
        if not walk.has_same_fields:
            return self._locate_named_values(walk, p)
        if self.map_column is not None:
            self.names = self.node_names
            self.value_offsets.used = 0
            for i in range(walk.field_count):
                self.value_offsets.put_u32(at)
                column = self.node_columns[i]
                at = column.locate_element_value(p, at)
        else:
            for column in self.node_columns:  # the last value of a repeated field counts
                at = column.locate_element_value(p, at)
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _locate_named_values(self, walk: EntryWalk, p: cython.p_const_uchar) -> cython.Py_ssize_t:
        """Locate the values of an entry that contains its fields' names."""
        at: cython.Py_ssize_t = walk.next_element_at
        _: cython.longlong
        column: Column
        names: FieldNames = self.entry_names
        names.offsets_in_pack.used = 0
        self.value_offsets.used = 0
        for _ in range(walk.field_count):
            names.offsets_in_pack.put_u32(at)
            column = self._column_of(p, at) if self.field_columns else self.ignored_column
            at = listpack_walk.next_at(p, at)
            self.value_offsets.put_u32(at)
            at = column.locate_element_value(p, at)
        if self.map_column is not None:
            self.names = names
            names.examine(p)
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_utf8(self, p: cython.p_const_uchar, column: Column) -> cython.bint:
        """Return whether all names are UTF-8, and all values if required."""
        check: cython.bint = self.names.are_utf8 and column.utf8_values
        i: cython.Py_ssize_t = self.value_offsets.used // 4 if check else 0
        while i > 0 and field_names.is_utf8_element(p, mem.u32le(self.value_offsets.p, 4 * i - 4)):
            i -= 1
        return i == 0 and self.names.are_utf8

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _handle_not_utf8(self, column: Column, size: cython.Py_ssize_t) -> cython.bint:
        """Raise MalformedEntry, or let the map be escaped (null if it is too large). Return False."""
        column.misfit_count += 1
        if self.mode == FAILFAST:
            raise malformed.not_utf8_error(self.stream, self._entry_id())
        self.work += 4 * (size + self.names.total_bytes)
        if size + self.names.total_bytes > field_names.ESCAPED_BYTES_MAX:
            self._handle_malformed(column)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _handle_malformed(self, column: Column) -> cython.bint:
        """Raise MalformedEntry or make the value null, for an entry without a fitting value. Return False."""
        column.has_value = False
        if self.mode == FAILFAST or (self.mode == PERMISSIVE and not column.nullable):
            raise malformed.missing_value_error(self.stream, self._entry_id(), column.name)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _handle_id_too_large(self, column: Column) -> cython.bint:
        """Raise MalformedEntry, or make the value null, for an ID with a too large part. Return False."""
        column.misfit_count += 1
        column.has_value = False
        if self.mode == FAILFAST or (self.mode == PERMISSIVE and not column.nullable):
            part: str = "sequence" if column.kind == kinds.SEQUENCE_KIND else "time"
            raise malformed.id_part_error(self.stream, self._entry_id(), part)
        return False

    @cython.cfunc
    def _entry_id(self) -> str:
        return f"{self.ms}-{self.seq}"

    @cython.cfunc
    def _store_corrupt(self, walk: EntryWalk, column: Column) -> cython.void:
        """Store the whole entry in the column of corrupt records."""
        words: list[bytes] = []
        while walk.next_field_or_value():
            words.append(walk.piece())
        column.converted_value = malformed.entry_json(self._entry_id(), words)
        column.has_value = True
        self.work += CORRUPT_WORK + len(column.converted_value)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write(self, p: cython.p_const_uchar) -> cython.Py_ssize_t:
        """Append the values of all columns."""
        column: Column
        for column in self.columns:
            if column.kind == kinds.ID_KIND:
                column.write_id(self.ms, self.seq, self.row_count)
            elif column.kind == kinds.FIELDS_KIND:
                self._write_pairs(p, column)
            else:
                column.write(p, self.row_count)
        self.row_count += 1
        return self.row_count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_pairs(self, p: cython.p_const_uchar, column: Column) -> cython.Py_ssize_t:
        """Append all pairs as one map; the last value of a repeated field counts."""
        i: cython.Py_ssize_t
        names: FieldNames = self.names
        keys: Column = self.keys
        before: cython.uint = keys.values.used
        if column.write_validity(self.row_count):
            keys.values.put(names.unique_names.values.p, 0, names.unique_names.values.used)
            for i in range(1, names.unique_names.offsets.used // 4):
                keys.offsets.put_u32(before + mem.u32le(names.unique_names.offsets.p, 4 * i))
            for i in range(self.value_offsets.used // 4):
                if not names.repeated_flags.p[i] and self.must_escape and column.utf8_values:
                    field_names.append_escaped(self.items, p, mem.u32le(self.value_offsets.p, 4 * i))
                elif not names.repeated_flags.p[i]:
                    self.items.append_element(p, mem.u32le(self.value_offsets.p, 4 * i))
        return column.offsets.put_u32(keys.offsets.used // 4 - 1)
