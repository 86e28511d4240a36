"""An image of a stream at one moment, for a snapshot that is written while the stream goes on changing.

    tree of the stream    [1000-0]   [1093-4]   [1205-0]   [1300-0]
    Node.snapshot_epoch       0          7          0          7           7: not read by this image
                              ^
                              _last_node_key: the walk continues after this node

    _preserved            1093-4: its bytes, before entries of it were deleted
                          1150-0: its bytes, before a trim dropped it

The walk goes through the nodes in order of their IDs and takes each from the tree, or from `_preserved` if it
has changed. Before a node changes or is dropped, the stream calls preserve_node(). A node that was added
later has the epoch of the image from the beginning. So an image costs memory only for nodes that change
before the walk has reached them.

Another thread may still read nodes that the walk has returned (shared_string of persistence/rdb/output.py).
So preserve_node() leaves the block of every node to the image, and a node that changes uses a copy from then
on.

For a cold node the walk returns its inner nodes, which are read for this walk alone; or its run, if
yields_cold_runs is set.

Groups and idempotency records are copies that share memory with those of the stream
(PendingEntries.frozen_copy). A view (Stream.view_image) shares everything: it is valid only until the next
change of the stream.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import cython

from headrace import mem
from headrace.streams import cold_run
from headrace.streams import node as node_module
from headrace.streams.cold_run import ColdRun
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.rules import StreamRules
from headrace.structures import stream_id
from headrace.structures.listpack import Listpack
from headrace.structures.rax import Rax
from headrace.structures.rax_walk import RaxCursor
from headrace.visibility import Public

VIEW_EPOCH = cython.declare(cython.uint, 0xFFFFFFFF)  # no image has this epoch
EMPTY_CURSOR = cython.declare(RaxCursor, RaxCursor(Rax()))


@cython.final
@cython.cclass
class StreamImage:
    """The counters and groups of a stream, and a walk over its nodes.

    Created by Stream.frozen_image or view_image.

    After next_node() returned True, `node_ms` and `node_seq` are the master ID of the node, and `node_data`
    is the block that begins with its `node_size` bytes, which do not change before close(). Those of a view
    are valid until the stream changes. If yields_cold_runs is set and the node is cold, `node_run` is its
    run instead, `node_live_count` and `node_tombstone_count` are its counts, and `node_data` is None.
    """

    epoch: cython.uint  # that of the snapshot
    closed: cython.bint
    node_count: cython.Py_ssize_t  # with the inner nodes of cold runs
    tree_node_count: cython.Py_ssize_t  # nodes in the tree: a run is one
    has_runs: cython.bint  # some of these are runs
    yields_cold_runs: Public[cython.bint]  # the walk returns runs instead of their inner nodes
    has_left_out_removals: cython.bint  # see commands/stream/left_out_removals.py
    length: cython.ulonglong
    entries_added: cython.ulonglong
    last_ms: cython.ulonglong
    last_seq: cython.ulonglong
    first_ms: cython.ulonglong
    first_seq: cython.ulonglong
    max_deleted_ms: cython.ulonglong
    max_deleted_seq: cython.ulonglong
    groups: list[Group]  # in byte order of their names
    idempotency: IdempotencyStore | None
    idmp_duration_s: cython.longlong
    idmp_maxsize: cython.longlong
    rules: StreamRules | None
    # name, passed, lost_unread_base, lost_pending of groups that have lost entries, or seem to have
    group_losses: list[tuple[bytes, int, int, int]]
    # The current node.
    node_ms: cython.ulonglong
    node_seq: cython.ulonglong
    node_data: Any
    node_size: cython.Py_ssize_t
    node_run: ColdRun | None
    node_live_count: cython.longlong
    node_tombstone_count: cython.longlong
    # The walk.
    _cursor: RaxCursor
    _ahead: Node | None  # the node at the cursor; None: the tree has no more
    _started: cython.bint
    _last_node_key: (
        bytes  # the key of the last node from the tree or from `_preserved`; empty before the first
    )
    _preserved: list[tuple[bytes, Any, int]]  # a heap of (key, block, size); a cold node: (key, node, -1)
    _inner: list[Node]  # the inner nodes of the current cold node
    _inner_at: cython.Py_ssize_t  # the next of them

    def __init__(self, nodes: Rax, epoch: cython.uint) -> None:
        self.epoch = epoch
        self.closed = False
        self.node_count = self.tree_node_count = nodes.key_count
        self.has_runs = self.yields_cold_runs = self.has_left_out_removals = False
        self.length = self.entries_added = 0
        self.last_ms = self.last_seq = self.first_ms = self.first_seq = 0
        self.max_deleted_ms = self.max_deleted_seq = 0
        self.groups = []
        self.idempotency = None
        self.idmp_duration_s = self.idmp_maxsize = 0
        self.rules = None
        self.group_losses = []
        self.node_ms = self.node_seq = 0
        self.node_data = None
        self.node_size = 0
        self.node_run = None
        self.node_live_count = self.node_tombstone_count = 0
        self._inner = []
        self._inner_at = 0
        self._cursor = RaxCursor(nodes)
        self._ahead = None
        self._started = False
        self._last_node_key = b""
        self._preserved = []

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def next_node(self) -> cython.bint:
        """Move to the next node; return False if there is none. Raises DamagedColdRun."""
        node: Node | None
        if self._inner_at < len(self._inner):
            self._set_current_node(self._inner[self._inner_at])
            self._inner_at += 1
            return True
        if not self._started:
            self._started = True
            self._set_ahead(self._cursor.seek("^"))
        while self._ahead is not None and self._ahead.snapshot_epoch == self.epoch:
            self._set_ahead(self._cursor.next())
        node = self._ahead
        if self._preserved and (node is None or self._preserved[0][0] < node.key()):
            self._last_node_key, self.node_data, self.node_size = heappop(self._preserved)
            self.node_ms = mem.u64be(self._last_node_key, 0)
            self.node_seq = mem.u64be(self._last_node_key, 8)
            self.node_run = None
            return self.node_size >= 0 or self._set_current_cold_node(self.node_data)
        if node is None:
            return False
        self._last_node_key = self._cursor.key
        self._set_ahead(self._cursor.next())
        if node.run is not None:
            return self._set_current_cold_node(node)
        self._set_current_node(node)
        return True

    @cython.cfunc
    def _set_current_node(self, node: Node) -> cython.void:
        """Make a node in memory the current one."""
        self.node_ms = node.ms
        self.node_seq = node.seq
        self.node_data = node.pack.buf
        self.node_size = node.pack.used + 1
        self.node_run = None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _set_current_cold_node(self, node: Node) -> cython.bint:
        """Make a cold node, or the first of its inner nodes, the current one."""
        if not self.yields_cold_runs:
            self._inner = cold_run.run_of(node).read_nodes()
            self._inner_at = 0
            return self.next_node()
        self.node_ms = node.ms
        self.node_seq = node.seq
        self.node_data = None
        self.node_size = 0
        self.node_run = node.run
        self.node_live_count = node.live_count
        self.node_tombstone_count = node.deleted_count
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def contains(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the live entry ms-seq exists. The image must be a view."""
        cursor: RaxCursor = RaxCursor(self._cursor.tree)
        if not cursor.seek("<=", stream_id.key_of(ms, seq)):
            return False
        node: Node = node_module.node_of_cursor(cursor)
        nodes: list[Node] = cold_run.inner_nodes_or_self(node)
        walk: EntryWalk = EntryWalk(nodes[max(cold_run.last_index_up_to(nodes, ms, seq), 0)])
        return walk.seek(ms, seq) and walk.ms == ms and walk.seq == seq

    @cython.ccall
    def copy_node(self) -> Node:
        """Return a copy of the current node, which must have data."""
        p: cython.p_const_uchar = self.node_data
        data: bytearray = bytearray(mem.to_bytes(p, 0, self.node_size))
        return Node(self.node_ms, self.node_seq, Listpack.from_bytes(data))

    @cython.ccall
    def preserve_node(self, node: Node, dropped: cython.bint = False) -> cython.void:
        """Keep the bytes of a node that is about to change, or to be dropped.

        The walk and its reader keep the block. A node that is not dropped uses a copy from then on.
        """
        key: bytes
        if self.closed or node.snapshot_epoch == self.epoch:
            return
        node.snapshot_epoch = self.epoch
        key = node.key()
        if node.run is not None:
            if key > self._last_node_key:
                heappush(self._preserved, (key, cold_run.copy_cold_node(node), -1))
            return
        if key > self._last_node_key:
            heappush(self._preserved, (key, node.pack.buf, node.pack.used + 1))
        if not dropped:
            node.pack.unshare_block()

    @cython.ccall
    def is_frozen(self) -> cython.bint:
        """Return whether the image is not a view, so that it stays valid while the stream changes."""
        return self.epoch != VIEW_EPOCH

    @cython.ccall
    def close(self) -> cython.void:
        """Free what the image holds. The stream may still call preserve_node(), which then does nothing."""
        self.closed = True
        self.end_walk()
        self._preserved = []

    @cython.ccall
    def end_walk(self) -> cython.void:
        """Free the groups and what only the walk needs; nodes that it returned stay valid until close()."""
        group: Group
        if self.is_frozen():
            for group in self.groups:
                group.pending.free_memory()
        self.groups = []
        self.idempotency = None
        self.node_data = None
        self.node_run = None
        self._inner = []
        self._inner_at = 0
        self._ahead = None
        self._cursor = EMPTY_CURSOR

    @cython.cfunc
    def _set_ahead(self, more: cython.bint) -> cython.void:
        """Set `_ahead` to the node at the cursor; None if the tree has no more."""
        self._ahead = node_module.node_of_cursor(self._cursor) if more else None
