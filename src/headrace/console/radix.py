"""Compute the shape of a radix tree, for drawing, from its keys alone.

In the server a node is a leaf, a run of bytes to one child, or a branch to several children by one byte each.
Here a run and its branch are one node. node_count() returns what XINFO STREAM calls radix-tree-nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class RadixNode:
    """A node: either a key ends here, or there are several children.

    Attributes:
        edge: The bytes that lead here.
        depth: Number of bytes before the edge.
        first_key_index: Index of the first key at or below this node.
        key_count: Number of keys at or below this node.
    """

    edge: bytes
    depth: int
    first_key_index: int
    key_count: int
    children: list[RadixNode] = field(default_factory=list)


def build_tree(keys: Sequence[bytes]) -> RadixNode:
    """Return the tree of one or more keys, which are sorted, distinct and of one length."""
    return _build_tree(keys, 0, len(keys), 0)


def _build_tree(keys: Sequence[bytes], start: int, end: int, depth: int) -> RadixNode:
    """Return the tree of keys[start:end], whose first `depth` bytes are equal."""
    if start + 1 == end:
        return RadixNode(keys[start][depth:], depth, start, 1)
    shared = depth
    while keys[start][shared] == keys[end - 1][shared]:  # sorted: all share what the outer two share
        shared += 1
    node = RadixNode(keys[start][depth:shared], depth, start, end - start)
    at = start
    while at < end:
        byte = keys[at][shared]
        until = at + 1
        while until < end and keys[until][shared] == byte:
            until += 1
        node.children.append(_build_tree(keys, at, until, shared))
        at = until
    return node


def node_count(node: RadixNode, *, root: bool = True) -> int:
    """Return the server's number of nodes: each run, each branch and the empty node under each key.

    The first byte of an edge below a branch belongs to the branch; the rest, if any, is a run.
    """
    run = len(node.edge) if root else len(node.edge) - 1
    return (run > 0) + 1 + sum(node_count(child, root=False) for child in node.children)
