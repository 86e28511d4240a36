"""Which nodes of a stream become cold next: the oldest ones in memory. cold_run.py draws the result."""

from __future__ import annotations

from typing import Any

import cython

from headrace.streams import node as node_module
from headrace.streams.cold_part import ColdPart
from headrace.streams.node import Node
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor


@cython.ccall
def oldest_in_memory(stream: Stream, size: cython.longlong) -> list[Node]:
    """Return the oldest nodes in memory, of about `size` bytes in all, fewer if the stream has fewer.

    One of them has a live entry, unless no node has. The tail is never among them: it grows.
    """
    live: cython.longlong = 0
    found: list[Node] = []
    cold: ColdPart | None = stream.cold
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^") if cold is None else cursor.seek(">", cold.last)
    node: Node
    while more and (size > 0 or live == 0):
        node = node_module.node_at(cursor)
        if node is stream.tail:
            break
        found.append(node)
        live += node.live
        size -= node.pack.used + 1
        more = cursor.next()
    return found


@cython.ccall
def contents(nodes: list[Node]) -> list[tuple[bytes, bytes]]:
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
    return stream.nodes.keys > stream.run_count() + 1


@cython.ccall
@cython.exceptval(-1, check=False)
def count_of(nodes: list[Node], size: cython.longlong) -> cython.Py_ssize_t:
    """Return how many of the first nodes have `size` bytes and a live entry together.

    All of them if they have fewer bytes; 0 if no entry is live: a run must have one.
    """
    count: cython.Py_ssize_t = 0
    live: cython.longlong = 0
    node: Node
    for node in nodes:
        if size <= 0 and live > 0:
            break
        size -= node.pack.used + 1
        live += node.live
        count += 1
    return count if live > 0 else 0


@cython.ccall
@cython.exceptval(-1, check=False)
def have_live_entries(nodes: list[Node]) -> cython.bint:
    """Return whether one of the nodes has a live entry."""
    return count_of(nodes, 0) > 0


@cython.ccall
def states(nodes: list[Node]) -> list[Any]:
    """Return numbers that differ if a node changes."""
    found: list[Any] = []
    node: Node
    for node in nodes:
        found.append((node.live, node.deleted, node.reclaimed))
    return found


@cython.ccall
@cython.exceptval(-1, check=False)
def dropped_count(stream: Stream, nodes: list[Node]) -> cython.Py_ssize_t:
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
    node: Node
    for node in nodes:
        if node is stream.tail or stream.nodes.find(node.key()) is not node:
            return False
    return states(nodes) == before
