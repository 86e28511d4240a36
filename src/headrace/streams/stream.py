"""A stream: entries in the order of their IDs, packed into nodes, and the counters around them.

    nodes (rax)                                          length           live entries
      1000-0 -> [ 1000-0  1000-1  1007-0 ... ]           entries_added    entries ever added
      1093-4 -> [ 1093-4  1101-0 ... ]                   last             the highest ID ever given
      1205-0 -> [ 1205-0 ]           <- tail             first            the first live entry, 0-0 if none
                                                         max_deleted      the highest deleted ID (no trims)

New entries are added to the tail. A node is removed from the tree when its last live entry is deleted, or
when a trim drops it as a whole.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.errors import DamagedColdRun, ElementsTooLarge
from headrace.limits import ENTRY_BYTES_MAX
from headrace.streams import cold_run, memory_account, reference_index, stream_image
from headrace.streams import node as node_module
from headrace.streams.cold_part import ColdPart
from headrace.streams.cold_run import ColdRun, ColdTotals
from headrace.streams.compaction import Compaction
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.live_counts import LiveCounts
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.streams.node_check import NodeCheck
from headrace.streams.node_walk import EntryWalk
from headrace.streams.reference_index import ReferenceIndex
from headrace.streams.rules import StreamRules
from headrace.streams.stream_image import StreamImage
from headrace.structures import stream_id
from headrace.structures.listpack import Listpack
from headrace.structures.rax import Rax
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId
from headrace.visibility import Public

ENTRY_SIZE_MAX = cython.declare(cython.longlong, ENTRY_BYTES_MAX)
IDMP_DURATION_S = cython.declare(cython.longlong, 100)
IDMP_MAXSIZE = cython.declare(cython.longlong, 100)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.final
@cython.no_gc  # no cycle can contain it, and there may be millions
@cython.cclass
class Stream:
    """An append-only sequence of entries, from which entries can be read and deleted anywhere.

    A change invalidates every walk and iterator over the stream. Methods that need the entries of a cold run
    raise DamagedColdRun if it cannot be read.
    """

    memory: MemoryAccount
    nodes: Rax
    cached_head: Node | None  # the first node; None: must be looked up
    tail: Node | None  # the last node
    length: Public[cython.ulonglong]
    entries_added: Public[cython.ulonglong]
    last_ms: Public[cython.ulonglong]
    last_seq: Public[cython.ulonglong]
    first_ms: Public[cython.ulonglong]
    first_seq: Public[cython.ulonglong]
    max_deleted_ms: Public[cython.ulonglong]
    max_deleted_seq: Public[cython.ulonglong]
    live_counts: LiveCounts | None  # of the nodes before the tail; None until there is one
    cold: ColdPart | None  # None: all nodes are in memory
    compaction: Public[Compaction | None]  # rewrites sparse nodes; None: they are not rewritten
    groups_by_name: dict[bytes, Group] | None  # None until the first group
    group_count: cython.Py_ssize_t
    group_memory: MemoryAccount | None  # of all groups and their index; None until the first group
    reference_index: ReferenceIndex | None  # None: all groups are searched
    idempotency: IdempotencyStore | None  # None until the first idempotent request
    idmp_duration_s: Public[cython.longlong]
    idmp_maxsize: Public[cython.longlong]
    # Of the last snapshot that needs nothing from it; 0: it is in no keyspace yet.
    snapshot_epoch: Public[cython.uint]
    image: StreamImage | None  # for the snapshot that is being written; None: none, or it has been written
    rules: Public[StreamRules | None]  # None: there are none
    may_have_rules: Public[cython.bint]  # it or one of its groups has rules, or had some

    def __init__(self) -> None:
        self.memory = MemoryAccount(memory_account.STREAM_BYTES)
        self.nodes = Rax()
        self.cached_head = self.tail = None
        self.length = self.entries_added = 0
        self.last_ms = self.last_seq = self.first_ms = self.first_seq = 0
        self.max_deleted_ms = self.max_deleted_seq = 0
        self.live_counts = self.compaction = self.groups_by_name = self.idempotency = None
        self.cold = None
        self.group_count = 0
        self.reference_index = None
        self.group_memory = None
        self.idmp_duration_s = IDMP_DURATION_S
        self.idmp_maxsize = IDMP_MAXSIZE
        self.snapshot_epoch = 0
        self.image = None
        self.rules = None
        self.may_have_rules = False

    # ---- adding

    @cython.ccall
    def append(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        words: list[bytes],
        start: cython.Py_ssize_t,
        node_bytes_max: cython.longlong,
        node_entries_max: cython.longlong,
    ) -> cython.void:
        """Add the entry ms-seq, which must come after the last ID, with words[start:] = field, value, ...

        A new node is opened if the tail has node_entries_max entries, or if the fields and values of the
        entry would bring it to node_bytes_max bytes. Raises ElementsTooLarge before any change if the entry
        exceeds 1 GiB.

        Args:
            node_bytes_max: 0 means 1 GiB.
            node_entries_max: 0 means no limit.
        """
        raw: cython.Py_ssize_t = node_module.total_argument_bytes(words, start)
        if raw > ENTRY_SIZE_MAX:
            raise ElementsTooLarge()
        tail: Node | None = self.tail
        if tail is None or not tail.fits(ms, seq, raw, node_bytes_max, node_entries_max):
            self._open_node(ms, seq, words, start, raw)
        else:
            cap: cython.Py_ssize_t = tail.pack.cap
            if self.image is not None:  # tested here, because most requests come this way
                self.preserve_node(tail)
            tail.append(ms, seq, words, start, raw)
            if tail.pack.cap != cap:
                self.memory.add(tail.pack.cap - cap)
        if self.length == 0:
            self.first_ms = ms
            self.first_seq = seq
        self.length += 1
        self.entries_added += 1
        self.last_ms = ms
        self.last_seq = seq

    @cython.ccall
    def append_stored_node(self, key: bytes, data: bytes | bytearray) -> cython.void:
        """Add a stored node after the existing ones. Updates the last ID; the caller sets the other counters.

        A bytearray is not copied: the node takes it over. Raises ValueError if key or data are damaged or the
        node is not after the others, and EntryBeforeNode as NodeCheck.run does.
        """
        master: StreamId = stream_id.from_key(key)
        tail: Node | None = self.tail
        block: bytearray = data if isinstance(data, bytearray) else bytearray(data)
        check: NodeCheck = NodeCheck(block)
        check.run(master.ms, master.seq)
        if tail is not None:
            if not stream_id.is_before(tail.ms, tail.seq, master.ms, master.seq):
                raise ValueError(f"node {master} is out of order")
            if not stream_id.is_before(self.last_ms, self.last_seq, master.ms, master.seq):
                raise ValueError(f"node {master} begins inside the one before it")
            self._close_node(tail)
        self.tail = node_module.node_from_checked_data(master.ms, master.seq, block, check)
        self.nodes.insert(key, self.tail)
        self.memory.add(memory_account.NODE_BYTES + self.tail.pack.cap)
        if self.tail.live_count > 0:
            self.last_ms = check.last_ms
            self.last_seq = check.last_seq

    # ---- deleting

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def delete(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Delete the entry ms-seq; return False if it does not exist."""
        walk: EntryWalk | None = self.find(ms, seq)
        if walk is None:
            return False
        node: Node = walk.node
        was_first: cython.bint = ms == self.first_ms and seq == self.first_seq
        if node.live_count == 1:
            if node.is_inner:
                self.mark_deleted(walk)
            self.drop_node(node)
            if was_first:
                self.update_first_id()
        else:
            self.mark_deleted(walk)
            if was_first:
                self._advance_first_id(walk)
            self.record_deletions(node, 1)
        if stream_id.is_before(self.max_deleted_ms, self.max_deleted_seq, ms, seq):
            self.max_deleted_ms = ms
            self.max_deleted_seq = seq
        return True

    @cython.ccall
    def mark_deleted(self, walk: EntryWalk) -> cython.void:
        """Turn the live entry of walk into a tombstone. The caller must also call record_deletions()."""
        node: Node = walk.node
        self.preserve_node(node)
        node.mark_deleted(walk.at)
        if node.is_inner and self.cold is not None:
            self.cold.record_deleted_id(walk)

    @cython.ccall
    def record_deletions(self, node: Node, n: cython.longlong) -> cython.void:
        """Update all counts after n live entries of node were marked as deleted."""
        self.length -= mem.as_unsigned(n)
        if node.is_inner and self.cold is not None and self.live_counts is not None:
            self.cold.record_deletions(node, n, self.live_counts)
            return
        cap: cython.Py_ssize_t = node.pack.cap
        node.set_counts(node.live_count - n, node.deleted_count + n)
        if node.pack.cap != cap:
            self.memory.add(node.pack.cap - cap)
        if node is not self.tail and self.live_counts is not None:
            self.live_counts.subtract(node, n)

    @cython.ccall
    def drop_node(self, node: Node) -> cython.void:
        """Remove node with all its entries. The caller must call update_first_id() if needed."""
        cursor: RaxCursor
        if self.cold is not None:
            if node.is_inner:
                self._drop_inner(node, self.cold)
                return
            self._prepare_drop(node, self.cold)
        if self.image is not None:
            self.image.preserve_node(node, True)
        self.nodes.remove(node.key())
        if node.run is None:
            self.memory.add(-memory_account.NODE_BYTES - node.pack.cap)
        else:
            self.memory.add(-memory_account.NODE_BYTES)
        if self.live_counts is not None:
            self.live_counts.last_found_node = None
        live: cython.ulonglong = node.live_count
        self.length -= live
        self.cached_head = None
        if node is self.tail:
            cursor = RaxCursor(self.nodes)
            self.tail = node_module.node_of_cursor(cursor) if cursor.seek("$") else None
            if self.tail is not None and self.live_counts is not None:
                self.live_counts.remove_last(self.tail, self.nodes)
        elif self.live_counts is not None:
            self.live_counts.remove(node, self.nodes)

    @cython.cfunc
    def _prepare_drop(self, node: Node, cold: ColdPart) -> cython.void:
        """Prepare to drop node: subtract a cold node from the totals, or restore the run before the tail.

        The node before the tail becomes the tail, which must be in memory.
        """
        before: Node
        if node.run is not None:
            cold.subtract_from_totals(node)
        elif node is self.tail and self.live_counts is not None:
            cursor: RaxCursor = RaxCursor(self.nodes)
            if cursor.seek("<", node.key()):
                before = node_module.node_of_cursor(cursor)
                if before.run is not None:
                    self.restore_last_run(before)

    @cython.cfunc
    def _drop_inner(self, inner: Node, cold: ColdPart) -> cython.void:
        """Remove an inner node of a run, and the run if no live entry is left in it."""
        outer: Node = cold.outer_of(inner)
        live: cython.ulonglong = inner.live_count
        self.preserve_node(inner)
        if self.live_counts is not None:
            cold.drop_inner_node(outer, inner, self.live_counts)
        self.length -= live
        if outer.live_count == 0:
            self.drop_node(outer)

    @cython.ccall
    def update_first_id(self) -> cython.void:
        """Set the first ID to that of the first live entry, 0-0 if there is none."""
        self.first_ms = self.first_seq = 0
        node: Node | None = self.first_node()
        cursor: RaxCursor | None = None
        run: ColdRun
        inner: Node
        nodes: list[Node]
        while node is not None:
            if node.run is not None:
                run = node.run
                if run.is_unchanged():  # so that a trim of whole runs reads none
                    self.first_ms = run.first_ms
                    self.first_seq = run.first_seq
                    return
            try:
                nodes = cold_run.inner_nodes_or_self(node)
            except DamagedColdRun:  # a read of the run reports it; its entries stay
                self.first_ms = node.ms
                self.first_seq = node.seq
                return
            for inner in nodes:
                if self._advance_first_id(EntryWalk(inner)):
                    return
            if cursor is None:
                cursor = RaxCursor(self.nodes)
                cursor.seek("^")
            node = node_module.node_of_cursor(cursor) if cursor.next() else None

    # ---- lookups

    @cython.ccall
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> EntryWalk | None:
        """Return a walk positioned on the live entry ms-seq; None if it does not exist.

        A cold run is read only if ms-seq is between its first and its last ID.
        """
        node: Node | None = self._tree_node_for(ms, seq)
        if node is not None and node.run is not None:
            run: ColdRun = cold_run.run_of(node)
            node = run.last_inner_up_to(ms, seq) if run.may_contain(ms, seq) else None
        if node is None:
            return None
        walk: EntryWalk = EntryWalk(node)
        return walk if walk.seek(ms, seq) and walk.ms == ms and walk.seq == seq else None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def contains(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the live entry ms-seq exists."""
        return self.find(ms, seq) is not None

    @cython.ccall
    def node_for_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> Node | None:
        """Return the last node whose master ID is not after ms-seq: the only one that can have that entry."""
        found: Node | None = self._tree_node_for(ms, seq)
        if found is not None and found.run is not None and self.cold is not None:
            return self.cold.last_inner_up_to(found, ms, seq)
        return found

    @cython.ccall
    def first_node_from(self, ms: cython.ulonglong, seq: cython.ulonglong) -> Node | None:
        """Return the first node that may have entries from ms-seq on.

        Returns None if all nodes are after ms-seq: then start at the first node. A run that ends before
        ms-seq is not read if another node follows it.
        """
        found: Node | None = self._tree_node_for(ms, seq)
        if found is None or found.run is None or self.cold is None:
            return found
        run: ColdRun = cold_run.run_of(found)
        cursor: RaxCursor = RaxCursor(self.nodes)
        if stream_id.is_before(run.last_ms, run.last_seq, ms, seq) and cursor.seek(">", found.key()):
            return cold_run.first_inner(node_module.node_of_cursor(cursor))
        return run.last_inner_up_to(ms, seq) or cold_run.first_inner(found)

    @cython.ccall
    def last_id_in_same_run(self, ms: cython.ulonglong, seq: cython.ulonglong) -> StreamId | None:
        """Return an ID up to which entries from ms-seq on can be read without reading another cold run.

        None if the entry ms-seq does not exist; no run is read to know this.
        """
        node: Node | None = self._tree_node_for(ms, seq)
        run: ColdRun
        if node is None:
            return None
        if node.run is not None:
            run = node.run
            return run.last_id() if run.may_contain(ms, seq) else None
        if self.cold is not None and stream_id.key_of(ms, seq) < self.cold.last_run_key:
            return StreamId(ms, seq)
        return StreamId(U64_MAX, U64_MAX)

    @cython.cfunc
    def _tree_node_for(self, ms: cython.ulonglong, seq: cython.ulonglong) -> Node | None:
        """Return the last node in the tree whose key is not after ms-seq; it may stand for a cold run."""
        tail: Node | None = self.tail
        if tail is None or not stream_id.is_before(ms, seq, tail.ms, tail.seq):
            return tail
        live_counts: LiveCounts | None = self.live_counts
        if live_counts is not None and live_counts.is_in_last_found(ms, seq):
            return live_counts.last_found_node
        cursor: RaxCursor = RaxCursor(self.nodes)
        found: Node | None = (
            node_module.node_of_cursor(cursor) if cursor.seek("<=", stream_id.key_of(ms, seq)) else None
        )
        if live_counts is not None and (found is None or found.run is None):
            live_counts.last_found_node = found
        return found

    @cython.ccall
    def live_count_before(self, node: Node) -> cython.ulonglong:
        """Return the number of live entries in the nodes before node."""
        if node is self.tail or self.live_counts is None:
            return self.length - mem.as_unsigned(node.live_count)
        if node.is_inner and self.cold is not None:
            outer: Node = self.cold.outer_of(node)
            return self.live_counts.count_before(outer) + self.cold.live_count_before(outer, node)
        return self.live_counts.count_before(node)

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def count_up_to(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.ulonglong:
        """Return the number of live entries up to and including ms-seq, which need not exist."""
        if not stream_id.is_before(ms, seq, self.last_ms, self.last_seq):
            return self.length
        if stream_id.is_before(ms, seq, self.first_ms, self.first_seq):
            return 0
        node: Node | None = self._tree_node_for(ms, seq)
        if node is not None and node.run is not None and self.cold is not None:
            run: ColdRun = cold_run.run_of(node)
            if not stream_id.is_before(ms, seq, run.last_ms, run.last_seq):
                return self.live_count_before(node) + mem.as_unsigned(node.live_count)
            node = run.last_inner_up_to(ms, seq) or cold_run.first_inner(node)
        if node is None:
            return 0
        total: cython.ulonglong = self.live_count_before(node)
        walk: EntryWalk = EntryWalk(node)
        while walk.next():
            if walk.deleted:
                continue
            if stream_id.is_before(ms, seq, walk.ms, walk.seq):
                break
            total += 1
        return total

    @cython.ccall
    def first_node(self) -> Node | None:
        """Return the first node, which may be cold; None if there is none."""
        cursor: RaxCursor
        if self.cached_head is None and self.tail is not None:
            cursor = RaxCursor(self.nodes)
            cursor.seek("^")
            self.cached_head = node_module.node_of_cursor(cursor)
        return self.cached_head

    @cython.ccall
    def last_id(self) -> StreamId:
        """Return the highest ID ever given."""
        return StreamId(self.last_ms, self.last_seq)

    @cython.ccall
    def first_id(self) -> StreamId:
        """Return the ID of the first live entry; 0-0 if there is none."""
        return StreamId(self.first_ms, self.first_seq)

    @cython.ccall
    def max_deleted_id(self) -> StreamId:
        """Return the highest ID that was deleted; trims do not count."""
        return StreamId(self.max_deleted_ms, self.max_deleted_seq)

    @cython.ccall
    def last_entry_id(self) -> StreamId | None:
        """Return the ID of the last live entry; None if there is none."""
        node: Node | None = self.tail
        inner: Node
        cursor: RaxCursor | None = None
        while node is not None:
            for inner in reversed(cold_run.inner_nodes_or_self(node)):
                walk: EntryWalk = EntryWalk(inner)
                walk.enter_end(inner)
                while walk.previous():
                    if not walk.deleted:
                        return StreamId(walk.ms, walk.seq)
            if cursor is None:
                cursor = RaxCursor(self.nodes)
                cursor.seek("$")
            node = node_module.node_of_cursor(cursor) if cursor.previous() else None
        return None

    # ---- cold runs

    @cython.ccall
    def ensure_cold_part(self) -> ColdPart:
        """Return the cold part; create it at first use."""
        cold: ColdPart | None = self.cold
        if cold is None:
            cold = self.cold = ColdPart(self.nodes, self.memory)
        return cold

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run_count(self) -> cython.Py_ssize_t:
        """Return the number of cold runs."""
        cold: ColdPart | None = self.cold
        return 0 if cold is None else cold.totals.run_count

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def node_count(self) -> cython.Py_ssize_t:
        """Return the number of nodes, with those in cold runs."""
        cold: ColdPart | None = self.cold
        return (
            self.nodes.key_count
            if cold is None
            else self.nodes.key_count - cold.totals.run_count + cold.totals.node_count
        )

    @cython.ccall
    def make_cold(self, nodes: list[Node], run: ColdRun) -> cython.void:
        """Replace adjacent closed nodes, which have live entries, by the run that stores them."""
        node: Node
        assert self.live_counts is not None and nodes[-1] is not self.tail
        if self.image is not None:
            for node in nodes:
                self.image.preserve_node(node, True)
        self.ensure_cold_part().replace_by_cold_node(nodes, run, self.live_counts, self._image_epoch())
        self.cached_head = None

    @cython.ccall
    def rewrite_runs(self, cold_nodes: list[Node], nodes: list[Node], run: ColdRun) -> cython.void:
        """Replace adjacent closed cold nodes by one for `run`.

        nodes: the nodes that `run` stores; they have the live entries of the cold ones.
        """
        node: Node
        assert self.live_counts is not None and cold_nodes[-1] is not self.tail
        if self.image is not None:
            for node in cold_nodes:
                self.image.preserve_node(node, True)
        self.ensure_cold_part().replace_cold_nodes(
            cold_nodes, nodes, run, self.live_counts, self._image_epoch()
        )
        self.cached_head = None

    @cython.ccall
    def append_cold_node(self, node: Node) -> cython.void:
        """Add a stored cold node after the existing ones. Updates the last ID, like append_stored_node()."""
        run: ColdRun = node.run
        if self.tail is not None:
            self._close_node(self.tail)
        self.nodes.insert(node.key(), node)
        self.memory.add(memory_account.NODE_BYTES)
        self.ensure_cold_part().add_to_totals(node)
        self.tail = node
        self.last_ms = run.last_ms
        self.last_seq = run.last_seq

    @cython.ccall
    def restore_last_run(self, node: Node) -> cython.void:
        """Bring the nodes of the last run, which is followed by the tail or by nothing, into memory."""
        last: cython.bint = node is self.tail
        if self.image is not None:
            self.image.preserve_node(node, True)
        if self.live_counts is None:
            self.live_counts = LiveCounts(self.compaction, self.memory)
        if last:
            self.live_counts.add(node)
        self.ensure_cold_part().replace_by_inner_nodes(node, self.live_counts, self._image_epoch())
        self.cached_head = None
        if last:
            cursor: RaxCursor = RaxCursor(self.nodes)
            cursor.seek("$")
            self.tail = node_module.node_of_cursor(cursor)
            self.live_counts.remove_last(self.tail, self.nodes)

    @cython.cfunc
    def _image_epoch(self) -> cython.uint:
        return 0 if self.image is None else self.image.epoch

    # ---- groups

    @cython.ccall
    def group(self, name: bytes) -> Group | None:
        """Return the consumer group of this name; None if there is none."""
        return None if self.groups_by_name is None else self.groups_by_name.get(name)

    @cython.ccall
    def make_group(
        self, name: bytes, ms: cython.ulonglong, seq: cython.ulonglong, entries_read: cython.longlong
    ) -> Group:
        """Create a group that has read up to ms-seq. No group may have this name."""
        made: Group = Group(name, ms, seq, entries_read)
        if self.groups_by_name is None:
            self.groups_by_name = {}
        if self.reference_index is None and self.group_count >= reference_index.UNINDEXED_GROUPS_MAX:
            self._create_reference_index(list(self.groups_by_name.values()))
        if self.reference_index is not None:
            self.reference_index.add_group(made)
        self.groups_by_name[name] = made
        made.memory.attach(self._group_account())
        self.group_count += 1
        return made

    @cython.cfunc
    def _create_reference_index(self, searched: list[Group]) -> cython.void:
        """Create the index of references, for groups besides the given ones."""
        index: ReferenceIndex = ReferenceIndex(searched)
        index.tree.memory.attach(self._group_account())
        self.reference_index = index

    @cython.cfunc
    def _copy_groups(self, groups: dict[bytes, Group]) -> cython.void:
        """Add copies of the groups of another stream, with an index if they are many."""
        group: Group
        made: list[Group] = [group.copy() for group in groups.values()]
        self.groups_by_name = {group.name: group for group in made}
        self.group_count = len(made)
        for group in made:
            group.memory.attach(self._group_account())
        if self.group_count > reference_index.UNINDEXED_GROUPS_MAX:
            self._create_reference_index(made[: reference_index.UNINDEXED_GROUPS_MAX])
            index: ReferenceIndex | None = self.reference_index
            for group in made[reference_index.UNINDEXED_GROUPS_MAX :]:
                if index is not None:
                    index.add_copied_group(group)

    @cython.cfunc
    def _group_account(self) -> MemoryAccount:
        """Return the account of the memory of all groups."""
        account: MemoryAccount | None = self.group_memory
        if account is None:
            account = self.group_memory = MemoryAccount()
            account.attach(self.memory)
        return account

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def drop_group(self, name: bytes) -> cython.bint:
        """Delete a group with its pending entries; return False if it does not exist."""
        dropped: Group | None = None if self.groups_by_name is None else self.groups_by_name.pop(name, None)
        if dropped is None:
            return False
        dropped.memory.detach()
        if self.reference_index is not None:
            self.reference_index.drop_group(dropped)
        self.group_count -= 1
        return True

    @cython.ccall
    def groups(self) -> list[Group]:
        """Return all groups, in byte order of their names."""
        if self.groups_by_name is None:
            return []
        return [self.groups_by_name[name] for name in sorted(self.groups_by_name)]

    @cython.ccall
    def unsorted_groups(self) -> list[Group]:
        """Return all groups in any order, because sorting thousands takes a millisecond."""
        return [] if self.groups_by_name is None else list(self.groups_by_name.values())

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def undelivered_count(self, group: Group) -> cython.ulonglong:
        """Return the number of live entries after the group's last ID."""
        return mem.sub_u64(self.length, self.count_up_to(group.last_ms, group.last_seq))

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def undelivered_count_or_unknown(self, group: Group) -> cython.longlong:
        """Return undelivered_count(); -1 if the group's last ID is in a cold run that cannot be read."""
        try:
            return mem.as_signed(self.undelivered_count(group))
        except DamagedColdRun:
            return -1

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def lost_unread_count(self, group: Group) -> cython.longlong:
        """Return how many entries were removed before the group read them; see group.py.

        If the group's last ID is in a run that cannot be read, only `lost_unread_base` of the group is known
        and returned.
        """
        if group.passed_count < 0:
            return group.lost_unread_base
        undelivered: cython.longlong = self.undelivered_count_or_unknown(group)
        if undelivered < 0:
            return group.lost_unread_base
        accounted: cython.ulonglong = mem.as_unsigned(group.passed_count) + mem.as_unsigned(undelivered)
        return group.lost_unread_base + max(mem.as_signed(mem.sub_u64(self.entries_added, accounted)), 0)

    @cython.ccall
    def start_counting_losses(self, group: Group) -> cython.void:
        """Count lost entries from now on. The group's `lost_unread_base` has the number of earlier losses.

        If the group's last ID is in a run that cannot be read, the count starts with the next delivery.
        """
        group.passed_count = self._passed_count_without_losses(group)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _passed_count_without_losses(self, group: Group) -> cython.longlong:
        """Return passed_count of a group that has lost no entry.

        -1 if its last ID is higher than that of the stream, or in a run that cannot be read.
        """
        if stream_id.is_before(self.last_ms, self.last_seq, group.last_ms, group.last_seq):
            return -1
        undelivered: cython.longlong = self.undelivered_count_or_unknown(group)
        if undelivered < 0:
            return -1
        return mem.as_signed(mem.sub_u64(self.entries_added, mem.as_unsigned(undelivered)))

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def derived_passed_count(self, group: Group) -> cython.longlong:
        """Return the `passed_count` to give a group that was loaded from a snapshot without losses.

        Returns -1 if it is unknown: see _passed_count_without_losses().
        """
        added: cython.longlong = self._passed_count_without_losses(group)
        if added < 0:
            return added
        removed: cython.longlong = mem.as_signed(mem.sub_u64(self.entries_added, self.length))
        if group.entries_read >= 0 and 0 <= added - group.entries_read <= removed:
            return group.entries_read
        return added

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _must_store_losses(self, group: Group) -> cython.bint:
        """Return whether the group has lost entries, or would seem to after a load without stored losses."""
        if group.lost_pending_count != 0 or self.lost_unread_count(group) != 0:
            return True
        return group.passed_count != self.derived_passed_count(group)

    @cython.ccall
    def set_idempotency(self, idempotency: IdempotencyStore) -> cython.void:
        """Attach the store of idempotent requests."""
        self.idempotency = idempotency
        idempotency.memory.attach(self.memory)

    # ---- snapshots

    @cython.ccall
    def frozen_image(self, epoch: cython.uint) -> StreamImage:
        """Return an image of the stream as it is now. Later changes of the stream do not change the image.

        An earlier image must be closed. The cost grows with the numbers of consumers and of blocks of
        pending entries, not with the number of entries.

        Args:
            epoch: the snapshot's number, higher than that of any earlier image of this stream.
        """
        image: StreamImage = self._image(epoch)
        image.groups = [group.frozen_copy() for group in self.groups()]
        if self.idempotency is not None:
            image.idempotency = self.idempotency.frozen_copy()
        self.image = image
        return image

    @cython.ccall
    def view_image(self) -> StreamImage:
        """Return an image that shares everything with the stream. It is valid until the next change."""
        image: StreamImage = self._image(stream_image.VIEW_EPOCH)
        image.groups = self.groups()
        image.idempotency = self.idempotency
        return image

    @cython.ccall
    def preserve_node(self, node: Node) -> cython.void:
        """Let a snapshot keep the bytes of node; called before the node changes."""
        if self.image is not None:
            if node.is_inner and self.cold is not None:
                node = self.cold.outer_of(node)
            self.image.preserve_node(node)
            if self.image.closed:
                self.image = None

    @cython.cfunc
    def _image(self, epoch: cython.uint) -> StreamImage:
        image: StreamImage = StreamImage(self.nodes, epoch)
        image.node_count = self.node_count()
        image.has_runs = self.run_count() > 0
        image.has_left_out_removals = self._has_left_out_removals()
        image.length = self.length
        image.entries_added = self.entries_added
        image.last_ms = self.last_ms
        image.last_seq = self.last_seq
        image.first_ms = self.first_ms
        image.first_seq = self.first_seq
        image.max_deleted_ms = self.max_deleted_ms
        image.max_deleted_seq = self.max_deleted_seq
        image.rules = self.rules
        image.group_losses = self._losses()
        image.idmp_duration_s = self.idmp_duration_s
        image.idmp_maxsize = self.idmp_maxsize
        return image

    @cython.cfunc
    def _has_left_out_removals(self) -> cython.bint:
        """Return whether entries, or pending entries, may be left that the log removes."""
        group: Group
        slot: cython.Py_ssize_t
        last: StreamId | None = None if self.cold is None else self.cold.last_left_out_id
        if self.cold is None or last is None:
            return False
        if self.length > 0 and not stream_id.is_before(last.ms, last.seq, self.first_ms, self.first_seq):
            return True
        if self.cold.left_out_removals_drop_references:
            for group in self.groups():
                slot = group.pending.first_by_id_from(0, 0)
                if slot >= 0 and not stream_id.is_before(
                    last.ms, last.seq, group.pending.ms_of(slot), group.pending.seq_of(slot)
                ):
                    return True
        return False

    def _losses(self) -> list[tuple[bytes, int, int, int]]:
        group: Group
        found: list[tuple[bytes, int, int, int]] = []
        if self.groups_by_name is not None:
            for group in self.groups():
                if self._must_store_losses(group):
                    found.append(
                        (group.name, group.passed_count, group.lost_unread_base, group.lost_pending_count)
                    )
        return found

    # ---- the whole stream

    @cython.ccall
    def copy(self) -> Stream:
        """Return a copy with the same entries, counters, groups and idempotent requests."""
        other: Stream = Stream()
        other.compaction = self.compaction
        cursor: RaxCursor = RaxCursor(self.nodes)
        node: Node
        more: cython.bint = cursor.seek("^")
        while more:
            node = node_module.node_of_cursor(cursor)
            if other.tail is not None:
                other._close_node(other.tail)
            if node.run is None:
                other.tail = node.copy()
                other.memory.add(memory_account.NODE_BYTES + other.tail.pack.cap)
            else:
                other.tail = cold_run.copy_cold_node(node)
                other.memory.add(memory_account.NODE_BYTES)
                other.ensure_cold_part().add_to_totals(other.tail)
            other.nodes.insert(cursor.key, other.tail)
            more = cursor.next()
        if self.cold is not None:
            other.ensure_cold_part().copy_left_out_removals(self.cold)
        other.rules = self.rules
        other.may_have_rules = self.may_have_rules
        other.length = self.length
        other.entries_added = self.entries_added
        other.last_ms = self.last_ms
        other.last_seq = self.last_seq
        other.first_ms = self.first_ms
        other.first_seq = self.first_seq
        other.max_deleted_ms = self.max_deleted_ms
        other.max_deleted_seq = self.max_deleted_seq
        if self.groups_by_name is not None:
            other._copy_groups(self.groups_by_name)
        if self.idempotency is not None:
            other.set_idempotency(self.idempotency.copy())
        other.idmp_duration_s = self.idmp_duration_s
        other.idmp_maxsize = self.idmp_maxsize
        return other

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        self.nodes.check()
        first: StreamId | None = None
        last: StreamId | None = None
        node: Node
        tail: Node | None = None
        weight: cython.Py_ssize_t = memory_account.STREAM_BYTES
        alive: cython.ulonglong = 0
        before: cython.ulonglong = 0
        inner: Node
        cold: ColdTotals = ColdTotals()
        cursor: RaxCursor = RaxCursor(self.nodes)
        more: cython.bint = cursor.seek("^")
        while more:
            node = node_module.node_of_cursor(cursor)
            tail = node
            assert node.key() == cursor.key, f"node {node.ms}-{node.seq} is under another key"
            if node.run is None:
                weight += memory_account.NODE_BYTES + node.pack.cap
            else:
                run: ColdRun = node.run
                weight += memory_account.NODE_BYTES + memory_account.RUN_BYTES + run.removal_record_bytes()
                cold.add(1, run.inner_count(), node.live_count, run.bytes_if_loaded)
            for inner in cold_run.inner_nodes_or_self(node):
                inner.check()
                walk: EntryWalk = EntryWalk(inner)
                while walk.next():
                    if walk.deleted:
                        continue
                    here: StreamId = StreamId(walk.ms, walk.seq)
                    assert last is None or last.precedes(here), f"{here} out of order"
                    first = first or here
                    last = here
                    alive += 1
            assert node.run is None or node.live_count == alive - before, f"{node.live_count} in a run"
            before = alive
            more = cursor.next()
        assert self.cold is not None or cold.run_count == 0
        if self.cold is not None:
            part: ColdTotals = self.cold.totals
            assert (part.run_count, part.node_count, part.entry_count) == (
                cold.run_count,
                cold.node_count,
                cold.entry_count,
            )
            assert part.bytes_if_loaded == cold.bytes_if_loaded, (
                f"{part.bytes_if_loaded} bytes cold, not {cold.bytes_if_loaded}"
            )
        assert self.tail is tail, "the tail is not the last node"
        assert self.cached_head is None or self.cached_head.key() == (cursor.seek("^") and cursor.key)
        assert alive == self.length, f"{alive} entries, length says {self.length}"
        assert self.first_id() == (first or StreamId(0, 0)), f"first is {first}, not {self.first_id()}"
        assert last == self.last_entry_id()
        assert last is None or last <= self.last_id(), f"{last} lies after the last ID, {self.last_id()}"
        if self.live_counts is not None:
            self.live_counts.check(self.nodes, tail)
        group: Group
        for group in self.groups():
            assert self.group(group.name) is group
            group.check()
            weight += group.memory.total
        assert self.group_count == len(self.groups())
        if self.reference_index is not None:
            self.reference_index.check(self.groups())
            weight += self.reference_index.tree.memory.total
        if self.idempotency is not None:
            weight += self.idempotency.memory.total
        assert weight == self.memory.total, f"weighs {weight}, not {self.memory.total}"

    # ---- inside

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _advance_first_id(self, walk: EntryWalk) -> cython.bint:
        """Set the first ID to that of the next live entry of walk; return False if there is none."""
        while walk.next():
            if not walk.deleted:
                self.first_ms = walk.ms
                self.first_seq = walk.seq
                return True
        return False

    @cython.cfunc
    def _open_node(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        words: list[bytes],
        start: cython.Py_ssize_t,
        raw: cython.Py_ssize_t,
    ) -> cython.void:
        """Add the entry as the first one of a new node."""
        room: Listpack | None = None
        if self.tail is not None:
            if self.image is not None:
                self.preserve_node(self.tail)
            cap: cython.Py_ssize_t = self.tail.pack.cap
            room = self.tail.pack.transfer_buffer()
            self.memory.add(self.tail.pack.cap - cap)
        node: Node = node_module.create_node(ms, seq, words, start, raw, room)
        while self.tail is not None and not stream_id.is_before(self.tail.ms, self.tail.seq, ms, seq):
            # The tail has only tombstones, and XSETID has set the last ID before them: drop it.
            self.drop_node(self.tail)
        if self.tail is not None:
            self._close_node(self.tail)
        if self.image is not None:
            node.snapshot_epoch = self.image.epoch
        self.nodes.insert(node.key(), node)
        self.memory.add(memory_account.NODE_BYTES + node.pack.cap)
        self.tail = node

    @cython.cfunc
    def _close_node(self, tail: Node) -> cython.void:
        """Close the tail before another node follows: free unused capacity and add it to the live counts."""
        cap: cython.Py_ssize_t = tail.pack.cap
        tail.pack.shrink()
        self.memory.add(tail.pack.cap - cap)
        if self.live_counts is None:
            self.live_counts = LiveCounts(self.compaction, self.memory)
        self.live_counts.add(tail)
        self.memory.mark_evictable(self)
