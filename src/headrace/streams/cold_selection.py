"""Choose the nodes that move from memory to a file next (the oldest), and the runs that are written again.

A run is written again if most of its entries are deleted, or if its file is stale: most bytes of it are dead,
which means that no run refers to them. cold_run.py shows nodes and runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from headrace.streams import cold_run, compaction, memory_account, retention
from headrace.streams import node as node_module
from headrace.streams.cold_part import ColdPart
from headrace.streams.cold_run import ColdRun
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor

COLD_NODE_BYTES = cython.declare(cython.Py_ssize_t, memory_account.NODE_BYTES + memory_account.RUN_BYTES)
ANY_TIME = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.ccall
def oldest_nodes_in_memory(
    stream: Stream,
    size: cython.longlong,
    before_ms: cython.ulonglong = ANY_TIME,
    overhead: cython.longlong = 0,
) -> list[Node]:
    """Return the oldest nodes in memory, of about `size` bytes in all, fewer if the stream has fewer.

    One of them has a live entry, unless no node has. The tail is never among them: it grows.

    Args:
        size: bytes to select: each node counts its listpack plus `overhead` bytes.
        before_ms: only nodes all of whose entries have earlier IDs, in Unix milliseconds.
    """
    live: cython.longlong = 0
    found: list[Node] = []
    cold: ColdPart | None = stream.cold
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^") if cold is None else cursor.seek(">", cold.last_run_key)
    node: Node
    while more and (size > 0 or live == 0):
        node = node_module.node_of_cursor(cursor)
        if node is stream.tail or (before_ms != ANY_TIME and last_entry_ms(node) >= before_ms):
            break
        found.append(node)
        live += node.live_count
        size -= node.pack.used + 1 + overhead
        more = cursor.next()
    return found


@cython.ccall
@cython.exceptval(check=False)
def last_entry_ms(node: Node) -> cython.ulonglong:
    """Return the milliseconds of the last entry of a node in memory, live or deleted."""
    walk: EntryWalk = EntryWalk(node)
    walk.enter_end(node)
    return walk.ms if walk.previous() else node.ms


@cython.ccall
@cython.exceptval(check=False)
def hot_bytes(stream: Stream) -> cython.longlong:
    """Return the bytes of the nodes in memory, without the tree nodes that stand for cold runs."""
    cold: ColdPart | None = stream.cold
    total: cython.longlong = retention.total_node_bytes(stream)
    if cold is not None:
        total -= cold.totals.bytes_if_loaded + cold.totals.run_count * COLD_NODE_BYTES
    return total


@cython.ccall
@cython.exceptval(check=False)
def total_listpack_bytes(nodes: list[Node]) -> cython.longlong:
    """Return the size of the nodes' listpacks together, in bytes."""
    total: cython.longlong = 0
    node: Node
    for node in nodes:
        total += node.pack.used + 1
    return total


@cython.ccall
def copy_keys_and_listpacks(nodes: list[Node]) -> list[tuple[bytes, bytes]]:
    """Return copies of the keys and listpacks of nodes, to be stored as a run."""
    copies: list[tuple[bytes, bytes]] = []
    node: Node
    for node in nodes:
        copies.append((node.key(), node.pack.to_bytes()))
    return copies


@cython.ccall
@cython.exceptval(-1, check=False)
def has_closed_nodes(stream: Stream) -> cython.bint:
    """Return whether a node besides the tail is in memory."""
    return stream.nodes.key_count > stream.run_count() + 1


@cython.ccall
@cython.exceptval(-1, check=False)
def run_node_count(nodes: list[Node], size: cython.longlong) -> cython.Py_ssize_t:
    """Return how many of the first nodes make a run of at least `size` bytes that has a live entry.

    Returns the number of all nodes if they have fewer bytes in all, and 0 if none has a live entry.
    """
    count: cython.Py_ssize_t = 0
    live: cython.longlong = 0
    node: Node
    for node in nodes:
        if size <= 0 and live > 0:
            break
        size -= node.pack.used + 1
        live += node.live_count
        count += 1
    return count if live > 0 else 0


@cython.ccall
@cython.exceptval(-1, check=False)
def have_live_entries(nodes: list[Node]) -> cython.bint:
    """Return whether one of the nodes has a live entry."""
    return run_node_count(nodes, 0) > 0


@cython.ccall
def node_states(nodes: list[Node]) -> list[Any]:
    """Return the counts of each node. If a node changes, they differ: see are_unchanged()."""
    found: list[Any] = []
    node: Node
    for node in nodes:
        found.append((node.live_count, node.deleted_count, node.reclaimed_count))
    return found


@cython.ccall
@cython.exceptval(-1, check=False)
def count_dropped_leading_nodes(stream: Stream, nodes: list[Node]) -> cython.Py_ssize_t:
    """Return how many of the first nodes are not in the stream any more."""
    count: cython.Py_ssize_t = 0
    node: Node
    for node in nodes:
        if stream.nodes.find(node.key()) is node:
            break
        count += 1
    return count


@cython.ccall
@cython.exceptval(-1, check=False)
def are_unchanged(stream: Stream, nodes: list[Node], before: list[Any]) -> cython.bint:
    """Return whether the nodes are still closed nodes of the stream, with the same states as before."""
    return are_in_stream(stream, nodes) and node_states(nodes) == before


# ---- runs that are written again


@cython.ccall
def next_nodes_to_rewrite(
    stream: Stream, key: bytes, size: cython.longlong, is_stale: Callable[[Any], bool]
) -> list[Node]:
    """Return the next cold nodes after a key that should be written again as one run of about `size` bytes.

    The nodes are adjacent. is_stale: gets where a run is stored; returns whether most bytes of the file are
    dead.
    """
    found: list[Node] = []
    live: cython.longlong = 0
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek(">", key) if stream.run_count() > 0 else False
    node: Node
    run: ColdRun
    while more:
        node = node_module.node_of_cursor(cursor)
        if node.run is None or node is stream.tail:
            break
        run = node.run
        if cold_run.is_sparse(node) or is_stale(run.storage_location):
            live += run.bytes_if_loaded * node.live_count // (node.live_count + node.deleted_count)
            if found and live > size:
                break
            found.append(node)
        elif found:
            break
        more = cursor.next()
    return found


@cython.ccall
def read_compacted_nodes(runs: list[ColdRun]) -> list[Node]:
    """Read runs; return their nodes that have live entries.

    Nodes of which more than half is deleted are returned without the tombstones that need not stay. Raises
    DamagedColdRun.
    """
    nodes: list[Node] = []
    node: Node
    run: ColdRun
    unused: MemoryAccount = MemoryAccount()
    for run in runs:
        for node in run.read_nodes():
            if node.live_count > 0:
                if compaction.needs_rewrite(node):
                    compaction.remove_tombstones(node, unused)
                nodes.append(node)
    return nodes


@cython.ccall
@cython.exceptval(-1, check=False)
def are_in_stream(stream: Stream, nodes: list[Node]) -> cython.bint:
    """Return whether the nodes are closed nodes of the stream."""
    node: Node
    missing: cython.Py_ssize_t = 0
    for node in nodes:
        missing += node is stream.tail or stream.nodes.find(node.key()) is not node
    return missing == 0
