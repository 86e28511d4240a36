"""A radix tree: keys of any bytes, in byte order, each shared prefix stored once.

"field", "fields" and "final", one byte an edge, and as kept here. What stands in brackets is a key:

    (f) -> (i) -> (e n)                                   ("fi") -> (e n)
                     e -> (l) -> (d) -> [s] -> []            e -> ("ld") -> [s] -> []
                     n -> (a) -> (l) -> []                   n -> ("al") -> []

Bytes stand on edges. A node is one of three kinds:

    leaf      no edge; a key, save the root of the empty tree
    run       one edge of one or more bytes, to `child`
    branch    two or more edges of one byte each, ascending in `edges`, to `children` in the same order

Most nodes are leaves, and a leaf (but for the root) is nothing but its value: that stands where other nodes
have a RaxNode below them. So a key among neighbours, as IDs are, takes the eight bytes of a place in a list.

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
from headrace.structures import footprint

INVISIBLE = re.compile(rb"[^!-~]")

ZEROS = cython.declare(bytes, bytes(8))  # one object for all trees
NO_VALUE = cython.declare(object, object())  # where a value could be: None is a value like any other


@cython.final
# Without the trashcan a deep tree is freed by a C call within a C call for each level of it.
@cython.trashcan(True)
@cython.cclass
class RaxNode:
    """A run or a branch, or the root of any kind. Owned by its Rax, which alone changes it."""

    edges: bytes  # of a run its bytes, of a branch one byte for each child
    child: object  # of a run: a RaxNode or a leaf's value; else NO_VALUE
    children: list[object] | None  # of a branch: as many of them; else None
    value: object  # of a key; else NO_VALUE


@cython.cfunc
def _node(edges: bytes, child: object, value: object) -> RaxNode:
    """A run. (Made without __init__, which would cost more than the node.)"""
    node: RaxNode = RaxNode.__new__(RaxNode)
    node.edges = edges
    node.child = child
    node.children = None
    node.value = value
    return node


@cython.cfunc
def _run(key: bytes, at: cython.Py_ssize_t) -> bytes:
    """The bytes of key from `at` on. Of an ID they mostly end as all others do, in a sequence number of 0."""
    p: cython.p_const_uchar = key
    zeros: cython.p_const_uchar = ZEROS
    n: cython.Py_ssize_t = len(key) - at
    if n == len(ZEROS) and mem.compare(p, at, zeros, 0, n) == 0:
        return ZEROS
    return mem.to_bytes(p, at, n)


@cython.cfunc
@cython.exceptval(check=False)
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
def below(node: RaxNode, key: bytes, at: cython.Py_ssize_t) -> object:
    """What is one step down the way key goes from `at` on; NO_VALUE when that way is not in the tree."""
    p: cython.p_const_uchar = node.edges
    q: cython.p_const_uchar = key
    n: cython.Py_ssize_t = len(node.edges)
    place: cython.Py_ssize_t
    if node.children is not None:
        place = mem.find(p, 0, n, q[at])
        return NO_VALUE if place < 0 else node.children[place]
    if len(key) - at < n or mem.compare(p, 0, q, at, n) != 0:
        return NO_VALUE
    return node.child


@cython.cfunc
@cython.exceptval(check=False)
def width(node: RaxNode) -> cython.Py_ssize_t:
    """How many bytes a step down from node takes."""
    return 1 if node.children is not None else len(node.edges)


@cython.cfunc
@cython.exceptval(check=False)
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

    root: RaxNode
    keys: cython.Py_ssize_t
    nodes: cython.Py_ssize_t

    def __init__(self) -> None:
        self.root = _node(b"", NO_VALUE, NO_VALUE)
        self.keys = 0
        self.nodes = 1

    def __len__(self) -> int:
        return self.keys

    @cython.ccall
    def find(self, key: bytes) -> object:
        """The value of key; None when the key is absent."""
        value: object = self._value(key)
        return None if value is NO_VALUE else value

    @cython.ccall
    def contains(self, key: bytes) -> cython.bint:
        """Whether key is there."""
        return self._value(key) is not NO_VALUE

    @cython.ccall
    def insert(self, key: bytes, value: object) -> cython.bint:
        """Give key this value. True when the key is new, False when it was there and its value replaced."""
        q: cython.p_const_uchar = key
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        same: cython.Py_ssize_t
        place: cython.Py_ssize_t = 0
        is_new: cython.bint
        node: RaxNode = self.root
        lower: object
        while at < n:
            if node.children is not None:
                place = place_of(node.edges, q[at])
                if place == len(node.edges) or node.edges[place] != q[at]:
                    self._add(node, place, key, at, value)
                    return True
                lower = node.children[place]
                at += 1
            elif node.edges:
                same = shared(node.edges, key, at)
                if same < len(node.edges):
                    self._split(node, same, key, at + same, value)
                    return True
                lower = node.child
                at += same
            else:
                node.edges = key
                node.child = self._tail(key, n, value)
                return True
            if type(lower) is RaxNode:
                node = lower
                continue
            if at < n:
                _hang(node, place, _node(_run(key, at), self._tail(key, n, value), lower))
                return True
            _hang(node, place, value)
            return False
        is_new = node.value is NO_VALUE
        self.keys += is_new
        node.value = value
        return is_new

    @cython.ccall
    def remove(self, key: bytes) -> cython.bint:
        """Remove key; False when it was not there."""
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        node: RaxNode = self.root
        above: RaxNode | None = None
        higher: RaxNode | None = None
        lower: object
        while at < n:
            lower = below(node, key, at)
            if lower is NO_VALUE:
                return False
            at += width(node)
            if type(lower) is RaxNode:
                higher, above, node = above, node, lower
            elif at == n:
                self._drop_leaf(key, node, above, higher)
                return True
            else:
                return False
        if node.value is NO_VALUE:
            return False
        node.value = NO_VALUE
        self.keys -= 1
        if above is not None:
            self._absorb(above)
        return True

    @cython.cfunc
    def _drop_leaf(
        self, key: bytes, node: RaxNode, above: RaxNode | None, higher: RaxNode | None
    ) -> cython.void:
        """Remove key, a leaf of node, and mend what is above."""
        at: cython.Py_ssize_t = len(key) - width(node)
        self.keys -= 1
        self.nodes -= 1
        if node.children is not None:
            _cut(node, key[at])
            self._absorb(node)
            if above is not None:
                self._absorb(above)
        elif above is None:
            node.edges = b""
            node.child = NO_VALUE
        elif node.value is not NO_VALUE:
            _hang(above, 0 if above.children is None else place_of(above.edges, key[at - 1]), node.value)
        else:  # the run led only to the leaf; above it is a branch, for two runs would have been one
            self.nodes -= 1
            _cut(above, key[at - 1])
            self._absorb(above)
            if higher is not None:
                self._absorb(higher)

    @cython.cfunc
    def _value(self, key: bytes) -> object:
        """The value of key; NO_VALUE when the key is absent."""
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        node: RaxNode = self.root
        lower: object
        while at < n:
            lower = below(node, key, at)
            at += width(node)
            if type(lower) is not RaxNode:
                return lower if at == n else NO_VALUE
            node = lower
        return node.value

    @cython.cfunc
    def _add(
        self, branch: RaxNode, place: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t, value: object
    ) -> cython.void:
        """A new edge of branch, at this place, for a new key, which leads here with its first `at` bytes."""
        edges: bytes = branch.edges
        children: list[object] | None = branch.children
        assert children is not None
        if place == len(edges):  # keys mostly come in order
            branch.edges = edges + mem.to_bytes(key, at, 1)
            children.append(self._tail(key, at + 1, value))
        else:
            branch.edges = edges[:place] + mem.to_bytes(key, at, 1) + edges[place:]
            children.insert(place, self._tail(key, at + 1, value))

    @cython.cfunc
    def _tail(self, key: bytes, at: cython.Py_ssize_t, value: object) -> object:
        """What to put below for a new key of which the bytes from `at` on are left."""
        self.keys += 1
        self.nodes += 1
        if at == len(key):
            return value
        self.nodes += 1
        return _node(_run(key, at), value, NO_VALUE)

    @cython.cfunc
    def _split(
        self, node: RaxNode, same: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t, value: object
    ) -> cython.void:
        """Insert key, which follows a run for `same` bytes and then, `at` bytes on, ends or differs."""
        run: bytes = node.edges
        rest: object = node.child
        branch: RaxNode = node
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
            branch = _node(b"", NO_VALUE, NO_VALUE)
            self.nodes += 1
            node.edges = run[:same]
            node.child = branch
        branch.child = NO_VALUE
        branch.edges = run[same : same + 1]
        branch.children = [rest]
        self._add(branch, place_of(branch.edges, key[at]), key, at, value)

    @cython.cfunc
    def _absorb(self, node: RaxNode) -> cython.void:
        """Make one run of two, if node is a run that leads to a run that is not a key."""
        lower: RaxNode
        if type(node.child) is not RaxNode:
            return
        lower = node.child
        if lower.children is None and lower.value is NO_VALUE:
            node.edges = node.edges + lower.edges
            node.child = lower.child
            self.nodes -= 1

    def memory_bytes(self) -> int:
        """What the tree takes, without the values; goes through all nodes that are not leaves."""
        node: RaxNode
        total = footprint.instance_bytes(Rax)
        each = footprint.instance_bytes(RaxNode)
        for node in self._inner_nodes():
            total += each
            if node.edges is not ZEROS:
                total += footprint.object_bytes(node.edges)
            if node.children is not None:
                total += footprint.object_bytes(node.children)
        return total

    def check(self) -> None:
        """Assert, of the whole tree, all that the heading of this file promises."""
        node: RaxNode
        lower: RaxNode
        keys = 0
        nodes = 1
        for node in self._inner_nodes():
            lowers = _below(node)
            nodes += len(lowers)
            keys += (node.value is not NO_VALUE) + len([1 for x in lowers if type(x) is not RaxNode])
            assert not [x for x in lowers if x is NO_VALUE], "a leaf is a key"
            assert node.edges or node is self.root, "a node has an edge"
            if node.children is not None:
                assert node.child is NO_VALUE, "a branch has no single child"
                assert len(node.edges) >= 2, "a branch has two edges or more"
                assert len(node.edges) == len(node.children), "each edge has its child"
                assert list(node.edges) == sorted(set(node.edges)), "edges ascend"
            elif type(node.child) is RaxNode:
                lower = node.child
                assert lower.value is not NO_VALUE or lower.children is not None, "two runs make one"
        assert keys == self.keys, f"{keys} keys, counted as {self.keys}"
        assert nodes == self.nodes, f"{nodes} nodes, counted as {self.nodes}"

    def draw(self) -> str:
        """The tree as text, with a line for each edge of a branch unless all lead to leaves.

        A key's node is in brackets, another in parentheses; a run of several bytes is quoted. Bytes are
        shown as characters if all in the tree are visible ASCII, else in hex.
        """
        node: RaxNode
        lower: object
        spell = _spell_text
        for node in self._inner_nodes():
            if INVISIBLE.search(node.edges):
                spell = _spell_hex
        lines = []
        todo: list[tuple[str, object]] = [("", self.root)]
        while todo:
            line, lower = todo.pop()
            indent = " " * (len(line) + 3)
            line += _draw_node(lower, spell)
            while type(lower) is RaxNode:
                node = lower
                if node.children is not None or not node.edges:
                    break
                lower = node.child
                line += " -> " + _draw_node(lower, spell)
            if type(lower) is RaxNode:
                lowers = _below(node)
                if [x for x in lowers if type(x) is RaxNode]:
                    edges = [indent + spell(bytes([byte])) + " -> " for byte in node.edges]
                    todo.extend(reversed(list(zip(edges, lowers, strict=True))))
                elif lowers:
                    line += " -> " + " ".join(["[]"] * len(lowers))
            lines.append(line)
        return "\n".join(lines)

    def _inner_nodes(self) -> list[RaxNode]:
        """Every node but the leaves, in no particular order."""
        node: RaxNode
        nodes: list[RaxNode] = [self.root]
        for node in nodes:  # the list grows while we go through it
            nodes.extend([x for x in _below(node) if type(x) is RaxNode])
        return nodes


@cython.cfunc
def _hang(node: RaxNode, place: cython.Py_ssize_t, lower: object) -> cython.void:
    """Put lower below node, at this place of a branch, in exchange for what is there."""
    if node.children is not None:
        node.children[place] = lower
    else:
        node.child = lower


@cython.cfunc
def _cut(branch: RaxNode, byte: cython.uchar) -> cython.void:
    """Drop this edge of a branch, which becomes a run when one edge is left."""
    place: cython.Py_ssize_t = place_of(branch.edges, byte)
    children: list[object] | None = branch.children
    assert children is not None
    branch.edges = branch.edges[:place] + branch.edges[place + 1 :]
    del children[place]
    if len(children) == 1:
        branch.child = children[0]
        branch.children = None


@cython.cfunc
def _below(node: RaxNode) -> list[object]:
    """All that is one step down from node."""
    if node.children is not None:
        return node.children
    return [node.child] if node.edges else []


def _draw_node(x: object, spell: Callable[[bytes], str]) -> str:
    node: RaxNode
    if type(x) is not RaxNode:
        return "[]"
    node = x
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
