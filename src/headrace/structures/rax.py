"""A radix tree: keys of any bytes, in byte order, each shared prefix stored once.

"field", "fields" and "final", one byte an edge, and as kept here. What stands in brackets is a key:

    (f) -> (i) -> (e n)                                   ("fi") -> (e n)
                     e -> (l) -> (d) -> [s] -> []            e -> ("ld") -> [s] -> []
                     n -> (a) -> (l) -> []                   n -> ("al") -> []

Bytes stand on edges, values in nodes. A node is one of three kinds:

    leaf      no edge; a key, save the root of the empty tree
    run       one edge of one or more bytes, to `child`
    branch    two or more edges of one byte each, ascending in `edges`, to `children` in the same order

Below a run stands a key, a branch or a leaf: two runs that could be one are one. So the shape, and with it
the number of nodes, follows from the keys alone, whatever their history. An insert may cut a run in two ways:

    ("first") -> []       "fir" ends in it: a node more       "file" leaves it: a branch, with runs for
                                                              what was above it, was below it and is new

                          ("fir") -> ["st"] -> []             ("fi") -> (l r)
                                                                 l -> (e) -> []
                                                                 r -> ("st") -> []

A remove mends what it leaves behind: a branch of one edge becomes a run, and runs that meet become one.

`nodes` counts what Redis shows as radix-tree-nodes. Where keys are prefixes of others (names; never IDs)
Redis may leave two runs unmended after a remove; nobody can see that, and we do not imitate it.

Nothing here recurses: a tree can be as deep as its longest key.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import cython

from headrace import mem

INVISIBLE = re.compile(rb"[^!-~]")

NO_VALUE = object()  # the value of a node that is not a key; None is a value like any other


@cython.final
# Without the trashcan a deep tree is freed by a C call within a C call for each level of it.
@cython.trashcan(True)  # type: ignore[attr-defined]
@cython.cclass
class RaxNode:
    """One node. Owned by its Rax, which alone changes it."""

    __slots__ = ("child", "children", "edges", "value")

    edges: bytes  # leaf: empty; run: its bytes; branch: one byte for each child
    child: RaxNode | None  # of a run
    children: list[RaxNode] | None  # of a branch
    value: object  # NO_VALUE: not a key


@cython.cfunc
def _node(edges: bytes, child: RaxNode | None, value: object) -> RaxNode:
    """A run, or with no edges a leaf. (Made without __init__, which would cost more than the node.)"""
    node: RaxNode = RaxNode.__new__(RaxNode)
    node.edges = edges
    node.child = child
    node.children = None
    node.value = value
    return node


@cython.cfunc
def shared(run: bytes, key: bytes, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """How many bytes run has in common with key from `at` on."""
    p: cython.p_const_uchar = run
    q: cython.p_const_uchar = key
    n: cython.Py_ssize_t = min(len(run), len(key) - at)
    i: cython.Py_ssize_t = 0
    while i < n and p[i] == q[at + i]:
        i += 1
    return i


@cython.cfunc
def below(node: RaxNode, key: bytes, at: cython.Py_ssize_t) -> RaxNode | None:
    """The node one step down the way key goes from `at` on; None when that way is not in the tree."""
    p: cython.p_const_uchar = node.edges
    q: cython.p_const_uchar = key
    n: cython.Py_ssize_t = len(node.edges)
    place: cython.Py_ssize_t
    if node.children is not None:
        place = mem.find(p, 0, n, q[at])
        return None if place < 0 else node.children[place]
    if len(key) - at < n or mem.compare(p, 0, q, at, n) != 0:
        return None
    return node.child


@cython.cfunc
def place_of(edges: bytes, byte: cython.uchar) -> cython.Py_ssize_t:
    """Where byte stands among the ascending edges, or would have to be put."""
    p: cython.p_const_uchar = edges
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(edges)
    middle: cython.Py_ssize_t = mem.find(p, 0, high, byte)
    if middle >= 0:
        return middle
    if p[high - 1] < byte:  # keys mostly come in order
        return high
    while low < high:
        middle = (low + high) >> 1
        if p[middle] < byte:
            low = middle + 1
        else:
            high = middle
    return low


@cython.final
@cython.cclass
class Rax:
    """A sorted map from bytes to objects. RaxCursor (rax_walk) goes through it in order."""

    __slots__ = ("keys", "nodes", "root")

    root: RaxNode
    keys: cython.Py_ssize_t
    nodes: cython.Py_ssize_t

    def __init__(self) -> None:
        self.root = _node(b"", None, NO_VALUE)
        self.keys = 0
        self.nodes = 1

    def __len__(self) -> int:
        return self.keys

    @cython.ccall
    def find(self, key: bytes) -> object:
        """The value of key; None when the key is absent."""
        node: RaxNode | None = self._node_at(key)
        return None if node is None or node.value is NO_VALUE else node.value

    @cython.ccall
    def contains(self, key: bytes) -> cython.bint:
        """Whether key is there."""
        node: RaxNode | None = self._node_at(key)
        return node is not None and node.value is not NO_VALUE

    @cython.ccall
    def insert(self, key: bytes, value: object) -> cython.bint:
        """Give key this value. True when the key is new, False when it was there and its value replaced."""
        q: cython.p_const_uchar = key
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        same: cython.Py_ssize_t
        place: cython.Py_ssize_t
        is_new: cython.bint
        node: RaxNode = self.root
        while at < n:
            if node.children is not None:
                place = place_of(node.edges, q[at])
                if place == len(node.edges) or node.edges[place] != q[at]:
                    self._add(node, key, at, value)
                    return True
                node = node.children[place]
                at += 1
            elif node.child is not None:
                same = shared(node.edges, key, at)
                if same < len(node.edges):
                    self._split(node, same, key, at + same, value)
                    return True
                node = node.child
                at += same
            else:
                node.edges = mem.take(q, at, n - at)
                node.child = self._tail(key, n, value)
                return True
        is_new = node.value is NO_VALUE
        self.keys += is_new
        node.value = value
        return is_new

    @cython.ccall
    def remove(self, key: bytes) -> cython.bint:
        """Remove key; False when it was not there."""
        q: cython.p_const_uchar = key
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        node: RaxNode = self.root
        lower: RaxNode | None
        above: RaxNode | None = None
        higher: RaxNode | None = None
        highest: RaxNode | None = None
        while at < n:
            lower = below(node, key, at)
            if lower is None:
                return False
            at += 1 if node.children is not None else len(node.edges)
            highest, higher, above, node = higher, above, node, lower
        if node.value is NO_VALUE:
            return False
        node.value = NO_VALUE
        self.keys -= 1
        if above is None or node.children is not None:
            return True
        if node.child is not None:
            self._absorb(above)
            return True

        # A leaf goes, and so does a run that led only to it, unless that is a key itself or the root.
        self.nodes -= 1
        if above.child is not None and above.value is NO_VALUE and higher is not None:
            self.nodes -= 1
            at -= len(above.edges)
            above, higher = higher, highest
        if above.child is not None:
            above.edges = b""
            above.child = None
        else:
            _cut(above, place_of(above.edges, q[at - 1]))
            self._absorb(above)
            if higher is not None:
                self._absorb(higher)
        return True

    @cython.cfunc
    def _node_at(self, key: bytes) -> RaxNode | None:
        """The node where key ends, be it a key or not."""
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        node: RaxNode = self.root
        lower: RaxNode | None
        while at < n:
            lower = below(node, key, at)
            if lower is None:
                return None
            at += 1 if node.children is not None else len(node.edges)
            node = lower
        return node

    @cython.cfunc
    def _add(self, branch: RaxNode, key: bytes, at: cython.Py_ssize_t, value: object) -> cython.void:
        """A new edge of branch for a new key, which leads here with its first `at` bytes."""
        edges: bytes = branch.edges
        children: list[RaxNode] | None = branch.children
        assert children is not None
        byte: bytes = key[at : at + 1]
        place: cython.Py_ssize_t = place_of(edges, key[at])
        branch.edges = edges + byte if place == len(edges) else edges[:place] + byte + edges[place:]
        children.insert(place, self._tail(key, at + 1, value))

    @cython.cfunc
    def _tail(self, key: bytes, at: cython.Py_ssize_t, value: object) -> RaxNode:
        """New nodes for a new key from `at` on."""
        node: RaxNode = _node(b"", None, value)
        self.keys += 1
        self.nodes += 1
        if at < len(key):
            node = _node(mem.take(key, at, len(key) - at), node, NO_VALUE)
            self.nodes += 1
        return node

    @cython.cfunc
    def _split(
        self, node: RaxNode, same: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t, value: object
    ) -> cython.void:
        """Insert key, which follows a run for `same` bytes and then, `at` bytes on, ends or differs."""
        run: bytes = node.edges
        rest: RaxNode | None = node.child
        branch: RaxNode = node
        assert rest is not None
        if at == len(key):
            node.edges = run[:same]
            node.child = _node(run[same:], rest, value)
            self.keys += 1
            self.nodes += 1
            return
        if same + 1 < len(run):
            rest = _node(run[same + 1 :], rest, NO_VALUE)
            self.nodes += 1
        if same > 0:
            branch = _node(b"", None, NO_VALUE)
            self.nodes += 1
            node.edges = run[:same]
            node.child = branch
        branch.child = None
        branch.edges = run[same : same + 1]
        branch.children = [rest]
        self._add(branch, key, at, value)

    @cython.cfunc
    def _absorb(self, node: RaxNode) -> cython.void:
        """Make one run of two, if node is a run that leads to a run that is not a key."""
        lower: RaxNode | None = node.child
        if lower is not None and lower.child is not None and lower.value is NO_VALUE:
            node.edges = node.edges + lower.edges
            node.child = lower.child
            self.nodes -= 1

    def check(self) -> None:
        """Assert, of the whole tree, all that the heading of this file promises."""
        node: RaxNode
        keys = 0
        nodes = self._all_nodes()
        for node in nodes:
            keys += node.value is not NO_VALUE
            if node.children is not None:
                assert node.child is None, "a branch has no single child"
                assert len(node.edges) >= 2, "a branch has two edges or more"
                assert len(node.edges) == len(node.children), "each edge has its child"
                assert list(node.edges) == sorted(set(node.edges)), "edges ascend"
            elif node.child is not None:
                assert node.edges, "a run has bytes"
                assert node.child.value is not NO_VALUE or node.child.child is None, "two runs make one"
            else:
                assert not node.edges, "a leaf has no edge"
                assert node.value is not NO_VALUE or node is self.root, "a leaf is a key"
        assert keys == self.keys, f"{keys} keys, counted as {self.keys}"
        assert len(nodes) == self.nodes, f"{len(nodes)} nodes, counted as {self.nodes}"

    def draw(self) -> str:
        """The tree as text, with a line for each edge of a branch unless all lead to leaves.

        A key's node is in brackets, another in parentheses; a run of several bytes is quoted. Bytes are
        shown as characters if all in the tree are visible ASCII, else in hex.
        """
        node: RaxNode
        spell = _spell_text
        for node in self._all_nodes():
            if INVISIBLE.search(node.edges):
                spell = _spell_hex
        lines = []
        todo = [("", self.root)]
        while todo:
            line, node = todo.pop()
            indent = " " * (len(line) + 3)
            line += _draw_node(node, spell)
            while node.child is not None:
                node = node.child
                line += " -> " + _draw_node(node, spell)
            if node.children is not None:
                leaves = [_draw_node(child, spell) for child in node.children if not child.edges]
                if len(leaves) == len(node.children):
                    line += " -> " + " ".join(leaves)
                else:
                    edges = [indent + spell(bytes([byte])) + " -> " for byte in node.edges]
                    todo.extend(reversed(list(zip(edges, node.children, strict=True))))
            lines.append(line)
        return "\n".join(lines)

    def _all_nodes(self) -> list[RaxNode]:
        """Every node, in no particular order."""
        node: RaxNode
        nodes = [self.root]
        for node in nodes:  # the list grows while we go through it
            if node.child is not None:
                nodes.append(node.child)
            elif node.children is not None:
                nodes.extend(node.children)
        return nodes


@cython.cfunc
def _cut(branch: RaxNode, place: cython.Py_ssize_t) -> cython.void:
    """Drop an edge of a branch, which becomes a run when one edge is left."""
    children: list[RaxNode] | None = branch.children
    assert children is not None
    branch.edges = branch.edges[:place] + branch.edges[place + 1 :]
    del children[place]
    if len(children) == 1:
        branch.child = children[0]
        branch.children = None


def _draw_node(node: RaxNode, spell: Callable[[bytes], str]) -> str:
    inside = spell(node.edges)
    if node.children is not None:
        inside = " ".join([spell(bytes([byte])) for byte in node.edges])
    elif len(node.edges) > 1:
        inside = f'"{inside}"'
    return f"({inside})" if node.value is NO_VALUE else f"[{inside}]"


def _spell_text(edges: bytes) -> str:
    return edges.decode()


def _spell_hex(edges: bytes) -> str:
    return edges.hex(" ")
