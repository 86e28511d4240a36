"""Which nodes of a stream become cold next: the oldest ones in memory. cold_run.py draws the result."""

from __future__ import annotations

import cython

from headrace.streams import node as node_module
from headrace.streams.cold_part import ColdPart
from headrace.streams.node import Node
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor


@cython.ccall
def oldest_in_memory(stream: Stream, size: cython.longlong) -> list[Node]:
    """Return the oldest nodes in memory, of about `size` bytes in all, fewer if the stream has fewer.

    The tail is never among them: it grows.
    """
    found: list[Node] = []
    cold: ColdPart | None = stream.cold
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^") if cold is None else cursor.seek(">", cold.last)
    node: Node
    while more and size > 0:
        node = node_module.node_at(cursor)
        if node is stream.tail:
            break
        found.append(node)
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
