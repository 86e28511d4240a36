"""The radix tree over keys, as a thing to draw: its shape follows from the keys alone.

A node is a leaf, or a run of bytes to one node below, or a branch to several by one byte each; the drawing
has one line for a run with what hangs on it. counted() is what XINFO STREAM calls radix-tree-nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class RadixNode:
    """edge: the bytes that lead here. Either a key ends here, or the way parts into several below.

    count and first: how many keys lie at and below it, and the place of the first of them among all.
    """

    edge: bytes
    depth: int  # bytes before the edge
    first: int
    count: int
    below: list[RadixNode] = field(default_factory=list)


def build_tree(keys: Sequence[bytes]) -> RadixNode:
    """The tree over keys of one length, sorted and each only once; there is one key at least."""
    return _build_tree(keys, 0, len(keys), 0)


def _build_tree(keys: Sequence[bytes], start: int, end: int, depth: int) -> RadixNode:
    """The tree of keys[start:end], which agree in the bytes before depth."""
    if start + 1 == end:
        return RadixNode(keys[start][depth:], depth, start, 1)
    shared = depth
    while keys[start][shared] == keys[end - 1][shared]:  # sorted: what the outer two share, all do
        shared += 1
    node = RadixNode(keys[start][depth:shared], depth, start, end - start)
    at = start
    while at < end:
        byte = keys[at][shared]
        until = at + 1
        while until < end and keys[until][shared] == byte:
            until += 1
        node.below.append(_build_tree(keys, at, until, shared))
        at = until
    return node


def counted(node: RadixNode, *, root: bool = True) -> int:
    """How many nodes the tree has: a run and a branch are one each, and so is the empty node under a key.

    The first byte of an edge below a branch belongs to the branch; the rest, if any, is a run.
    """
    run = len(node.edge) if root else len(node.edge) - 1
    return (run > 0) + 1 + sum(counted(lower, root=False) for lower in node.below)
