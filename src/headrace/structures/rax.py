"""A radix tree: keys of any bytes, in byte order, each shared prefix stored once.

"field", "fields" and "final", with one byte per edge, and as stored here. A node in brackets is a key:

    (f) -> (i) -> (e n)                                   ("fi") -> (e n)
                     e -> (l) -> (d) -> [s] -> []            e -> ("ld") -> [s] -> []
                     n -> (a) -> (l) -> []                   n -> ("al") -> []

Bytes are on edges. A node is one of three kinds:

    leaf      no edge; a key, except for the root of the empty tree
    run       one edge of one or more bytes, to `child`
    branch    two or more edges of one byte each, ascending in `edges`, to `children` in the same order

Most nodes are leaves. A leaf, unless it is the root, is only its value, stored in its parent where another
child would be a RaxNode. So a key among similar keys, as IDs are, takes the eight bytes of a list item.

The child of a run is a key, a branch or a leaf: runs are always merged. So the shape, and with it the number
of nodes, depends only on the keys, not on their history. An insert splits a run in one of two ways:

    ("first") -> []       "fir" ends in it: one more node     "file" leaves it: a branch, with runs for the
                                                              bytes above it, below it and the new ones

                          ("fir") -> ["st"] -> []             ("fi") -> (l r)
                                                                 l -> (e) -> []
                                                                 r -> ("st") -> []

A remove restores the shape: a branch of one edge becomes a run, and adjacent runs are merged.

`nodes` is what Redis shows as radix-tree-nodes. If keys are prefixes of others (names, never IDs), Redis may
leave two runs unmerged after a remove. Clients cannot see that, and it is not imitated here.

Nothing here recurses: a tree can be as deep as its longest key.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import cython

from headrace import mem
from headrace.structures import footprint

INVISIBLE_PATTERN = re.compile(rb"[^!-~]")

EIGHT_ZERO_BYTES = cython.declare(bytes, bytes(8))  # one object for all trees
# The depth from which a tree is freed without nested C calls, one for each level.
DEEP_TREE_LEVELS = cython.declare(cython.Py_ssize_t, 64)
NO_VALUE = cython.declare(object, object())  # no value; None is an ordinary value


@cython.final
@cython.no_gc
@cython.cclass
class RaxNode:
    """A run, a branch or the root. Only its Rax changes it."""

    edges: bytes  # run: its bytes; branch: one byte for each child
    child: object  # run: a RaxNode or a leaf's value; branch: NO_VALUE
    children: list[object] | None  # branch: its children; run: None
    value: object  # key: its value; otherwise NO_VALUE


@cython.cfunc
def _new_run(edges: bytes, child: object, value: object) -> RaxNode:
    """Create a run. Skips __init__, which would cost more than the node."""
    node: RaxNode = RaxNode.__new__(RaxNode)
    node.edges = edges
    node.child = child
    node.children = None
    node.value = value
    return node


@cython.cfunc
def _suffix(key: bytes, at: cython.Py_ssize_t) -> bytes:
    """Return key[at:]. The most common suffix, the zero bytes of sequence number 0, is one shared object."""
    p: cython.p_const_uchar = key
    zeros: cython.p_const_uchar = EIGHT_ZERO_BYTES
    n: cython.Py_ssize_t = len(key) - at
    if n == len(EIGHT_ZERO_BYTES) and mem.compare(p, at, zeros, 0, n) == 0:
        return EIGHT_ZERO_BYTES
    return mem.to_bytes(p, at, n)


@cython.cfunc
@cython.exceptval(check=False)
def common_prefix_length(run: bytes, key: bytes, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the length of the common prefix of run and key[at:]."""
    p: cython.p_const_uchar = run
    q: cython.p_const_uchar = key
    n: cython.Py_ssize_t = min(len(run), len(key) - at)
    i: cython.Py_ssize_t = 0
    while i < n and p[i] == q[at + i]:
        i += 1
    return i


@cython.cfunc
def child_for(node: RaxNode, key: bytes, at: cython.Py_ssize_t) -> object:
    """Return the child of node on the path of key[at:]; NO_VALUE if the tree has no such path."""
    p: cython.p_const_uchar = node.edges
    q: cython.p_const_uchar = key
    n: cython.Py_ssize_t = len(node.edges)
    index: cython.Py_ssize_t
    if node.children is not None:
        index = mem.find(p, 0, n, q[at])
        return NO_VALUE if index < 0 else node.children[index]
    if len(key) - at < n or mem.compare(p, 0, q, at, n) != 0:
        return NO_VALUE
    return node.child


@cython.cfunc
@cython.exceptval(check=False)
def step_key_bytes(node: RaxNode) -> cython.Py_ssize_t:
    """Return how many bytes of a key a step from node to its child consumes."""
    return 1 if node.children is not None else len(node.edges)


@cython.cfunc
@cython.exceptval(check=False)
def edge_index(edges: bytes, byte: cython.uchar) -> cython.Py_ssize_t:
    """Return the index of byte in the ascending edges, or where it would be inserted."""
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
@cython.no_gc
@cython.cclass
class Rax:
    """A sorted map from bytes to objects. RaxCursor (rax_walk) iterates over it in order.

    No value may refer to the map: the garbage collector does not visit it.
    """

    root: RaxNode
    key_count: cython.Py_ssize_t
    node_count: cython.Py_ssize_t

    def __init__(self) -> None:
        self.root = _new_run(b"", NO_VALUE, NO_VALUE)
        self.key_count = 0
        self.node_count = 1

    def __len__(self) -> int:
        return self.key_count

    def __dealloc__(self) -> None:
        """Free the nodes of a deep tree without recursion. Called by the compiled program only."""
        node: RaxNode
        child: object
        waiting: list[RaxNode] = [self.root] if self.node_count > DEEP_TREE_LEVELS else []
        while waiting:
            node = waiting.pop()
            if node.children is not None:
                for child in node.children:
                    if type(child) is RaxNode:
                        waiting.append(child)
                node.children = None
            elif type(node.child) is RaxNode:
                waiting.append(node.child)
            node.child = NO_VALUE

    @cython.ccall
    def take_root(self) -> RaxNode:
        """Empty the map; return its former root, so that the caller can free the nodes step by step."""
        root: RaxNode = self.root
        self.root = _new_run(b"", NO_VALUE, NO_VALUE)
        self.key_count = 0
        self.node_count = 1
        return root

    @cython.ccall
    def find(self, key: bytes) -> object:
        """Return the value of key; None if the key is absent."""
        value: object = self._value_of(key)
        return None if value is NO_VALUE else value

    @cython.ccall
    def contains(self, key: bytes) -> cython.bint:
        """Return whether key is in the map."""
        return self._value_of(key) is not NO_VALUE

    @cython.ccall
    def insert(self, key: bytes, value: object) -> cython.bint:
        """Set the value of key. Returns True if the key is new, False if its value was replaced."""
        q: cython.p_const_uchar = key
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        shared: cython.Py_ssize_t
        index: cython.Py_ssize_t = 0
        is_new: cython.bint
        node: RaxNode = self.root
        child: object
        while at < n:
            if node.children is not None:
                index = edge_index(node.edges, q[at])
                if index == len(node.edges) or node.edges[index] != q[at]:
                    self._add_edge(node, index, key, at, value)
                    return True
                child = node.children[index]
                at += 1
            elif node.edges:
                shared = common_prefix_length(node.edges, key, at)
                if shared < len(node.edges):
                    self._split_run(node, shared, key, at + shared, value)
                    return True
                child = node.child
                at += shared
            else:
                node.edges = key
                node.child = self._new_child(key, n, value)
                return True
            if type(child) is RaxNode:
                node = child
                continue
            if at < n:
                _set_child(node, index, _new_run(_suffix(key, at), self._new_child(key, n, value), child))
                return True
            _set_child(node, index, value)
            return False
        is_new = node.value is NO_VALUE
        self.key_count += is_new
        node.value = value
        return is_new

    @cython.ccall
    def remove(self, key: bytes) -> cython.bint:
        """Remove key. Returns False if it is absent."""
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        node: RaxNode = self.root
        parent: RaxNode | None = None
        grandparent: RaxNode | None = None
        child: object
        while at < n:
            child = child_for(node, key, at)
            if child is NO_VALUE:
                return False
            at += step_key_bytes(node)
            if type(child) is RaxNode:
                grandparent, parent, node = parent, node, child
            elif at == n:
                self._remove_leaf(key, node, parent, grandparent)
                return True
            else:
                return False
        if node.value is NO_VALUE:
            return False
        node.value = NO_VALUE
        self.key_count -= 1
        if parent is not None:
            self._merge_runs(parent)
        return True

    @cython.ccall
    def pop_suffixes_of_prefix(self, prefix: bytes) -> list[bytes]:
        """Remove all keys that begin with `prefix`, which is not empty.

        Returns what follows the prefix in each of them, unordered; an empty list if there are none. It costs
        a fraction of removing each key.
        """
        n: cython.Py_ssize_t = len(prefix)
        at: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t = 0
        shared: cython.Py_ssize_t = 0
        node: RaxNode = self.root
        child: object = self.root
        while at < n:
            if type(child) is not RaxNode:
                return []
            node = child
            if node.children is not None:
                index = edge_index(node.edges, prefix[at])
                if index == len(node.edges) or node.edges[index] != prefix[at]:
                    return []
                child = node.children[index]
                at += 1
            else:
                shared = common_prefix_length(node.edges, prefix, at)
                if shared == 0 or (shared < len(node.edges) and at + shared < n):
                    return []
                child = node.child
                at += shared
        rest: bytes = b""
        if node.children is None:
            rest = node.edges[shared:]
            node.edges = node.edges[:shared]
        rests: list[bytes] = self._take_below(child, rest)
        _set_child(node, index, None)  # one key is left instead of them
        self.remove(prefix)
        return rests

    @cython.cfunc
    def _take_below(self, top: object, rest: bytes) -> list[bytes]:
        """Return `rest` + suffix for each key of the subtree `top`, and count the subtree as one leaf."""
        rests: list[bytes] = []
        waiting: list[tuple[object, bytes]] = [(top, rest)]
        child: object
        node: RaxNode
        i: cython.Py_ssize_t
        self.node_count += 1
        while waiting:
            child, rest = waiting.pop()
            self.node_count -= 1
            if type(child) is not RaxNode:
                rests.append(rest)
                continue
            node = child
            if node.value is not NO_VALUE:
                rests.append(rest)
            if node.children is None:
                waiting.append((node.child, rest + node.edges))
                continue
            for i in range(len(node.edges)):
                child = node.children[i]
                if type(child) is RaxNode:
                    waiting.append((child, rest + mem.to_bytes(node.edges, i, 1)))
                else:  # most children are leaves
                    self.node_count -= 1
                    rests.append(rest + mem.to_bytes(node.edges, i, 1))
        self.key_count -= len(rests) - 1
        return rests

    @cython.cfunc
    def _remove_leaf(
        self, key: bytes, node: RaxNode, parent: RaxNode | None, grandparent: RaxNode | None
    ) -> cython.void:
        """Remove the leaf of key from node, and restore the shape of the nodes above."""
        at: cython.Py_ssize_t = len(key) - step_key_bytes(node)
        self.key_count -= 1
        self.node_count -= 1
        if node.children is not None:
            _remove_edge(node, key[at])
            self._merge_runs(node)
            if parent is not None:
                self._merge_runs(parent)
        elif parent is None:
            node.edges = b""
            node.child = NO_VALUE
        elif node.value is not NO_VALUE:
            _set_child(
                parent, 0 if parent.children is None else edge_index(parent.edges, key[at - 1]), node.value
            )
        else:  # the run led only to the leaf; its parent is a branch, because runs are merged
            self.node_count -= 1
            _remove_edge(parent, key[at - 1])
            self._merge_runs(parent)
            if grandparent is not None:
                self._merge_runs(grandparent)

    @cython.cfunc
    def _value_of(self, key: bytes) -> object:
        """Return the value of key; NO_VALUE if the key is absent."""
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        node: RaxNode = self.root
        child: object
        while at < n:
            child = child_for(node, key, at)
            at += step_key_bytes(node)
            if type(child) is not RaxNode:
                return child if at == n else NO_VALUE
            node = child
        return node.value

    @cython.cfunc
    def _add_edge(
        self, branch: RaxNode, index: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t, value: object
    ) -> cython.void:
        """Add an edge to branch at index for a new key, of which key[:at] leads to branch."""
        edges: bytes = branch.edges
        children: list[object] | None = branch.children
        assert children is not None
        if index == len(edges):  # keys mostly come in order
            branch.edges = edges + mem.to_bytes(key, at, 1)
            children.append(self._new_child(key, at + 1, value))
        else:
            branch.edges = edges[:index] + mem.to_bytes(key, at, 1) + edges[index:]
            children.insert(index, self._new_child(key, at + 1, value))

    @cython.cfunc
    def _new_child(self, key: bytes, at: cython.Py_ssize_t, value: object) -> object:
        """Return a child for the rest key[at:] of a new key, and count it."""
        self.key_count += 1
        self.node_count += 1
        if at == len(key):
            return value
        self.node_count += 1
        return _new_run(_suffix(key, at), value, NO_VALUE)

    @cython.cfunc
    def _split_run(
        self, node: RaxNode, shared: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t, value: object
    ) -> cython.void:
        """Split a run after `shared` bytes to insert key, which ends or differs at offset `at`."""
        run: bytes = node.edges
        rest: object = node.child
        branch: RaxNode = node
        if at == len(key):
            node.edges = run[:shared]
            node.child = _new_run(run[shared:], rest, value)
            self.key_count += 1
            self.node_count += 1
            return
        if shared + 1 < len(run):
            rest = _new_run(run[shared + 1 :], rest, NO_VALUE)
            self.node_count += 1
        if shared > 0:
            branch = _new_run(b"", NO_VALUE, NO_VALUE)
            self.node_count += 1
            node.edges = run[:shared]
            node.child = branch
        branch.child = NO_VALUE
        branch.edges = run[shared : shared + 1]
        branch.children = [rest]
        self._add_edge(branch, edge_index(branch.edges, key[at]), key, at, value)

    @cython.cfunc
    def _merge_runs(self, node: RaxNode) -> cython.void:
        """Merge node and its child if both are runs and the child is not a key."""
        child: RaxNode
        if type(node.child) is not RaxNode:
            return
        child = node.child
        if child.children is None and child.value is NO_VALUE:
            node.edges = node.edges + child.edges
            node.child = child.child
            self.node_count -= 1

    def memory_bytes(self) -> int:
        """Return the bytes that the tree takes, without the values. Visits all nodes except leaves."""
        node: RaxNode
        total = footprint.instance_bytes(Rax)
        each = footprint.instance_bytes(RaxNode)
        for node in self._inner_nodes():
            total += each
            if node.edges is not EIGHT_ZERO_BYTES:
                total += footprint.object_bytes(node.edges)
            if node.children is not None:
                total += footprint.object_bytes(node.children)
        return total

    def check(self) -> None:
        """Assert every invariant of the module's docstring for the whole tree."""
        node: RaxNode
        child: RaxNode
        keys = 0
        nodes = 1
        for node in self._inner_nodes():
            children = _children(node)
            nodes += len(children)
            keys += (node.value is not NO_VALUE) + len([1 for x in children if type(x) is not RaxNode])
            assert not [x for x in children if x is NO_VALUE], "a leaf is a key"
            assert node.edges or node is self.root, "a node has an edge"
            if node.children is not None:
                assert node.child is NO_VALUE, "a branch has no single child"
                assert len(node.edges) >= 2, "a branch has two edges or more"
                assert len(node.edges) == len(node.children), "each edge has its child"
                assert list(node.edges) == sorted(set(node.edges)), "edges ascend"
            elif type(node.child) is RaxNode:
                child = node.child
                assert child.value is not NO_VALUE or child.children is not None, "two runs make one"
        assert keys == self.key_count, f"{keys} keys, counted as {self.key_count}"
        assert nodes == self.node_count, f"{nodes} nodes, counted as {self.node_count}"

    def draw(self) -> str:
        """Return a drawing of the tree as text, one line for each edge of a branch unless all lead to leaves.

        Nodes of keys are in brackets, others in parentheses. A run of several bytes is quoted. Bytes are
        characters if the whole tree is visible ASCII, otherwise hex.
        """
        node: RaxNode
        child: object
        format_edges = _format_text
        for node in self._inner_nodes():
            if INVISIBLE_PATTERN.search(node.edges):
                format_edges = _format_hex
        lines = []
        todo: list[tuple[str, object]] = [("", self.root)]
        while todo:
            line, child = todo.pop()
            indent = " " * (len(line) + 3)
            line += _draw_node(child, format_edges)
            while type(child) is RaxNode:
                node = child
                if node.children is not None or not node.edges:
                    break
                child = node.child
                line += " -> " + _draw_node(child, format_edges)
            if type(child) is RaxNode:
                children = _children(node)
                if [x for x in children if type(x) is RaxNode]:
                    edges = [indent + format_edges(bytes([byte])) + " -> " for byte in node.edges]
                    todo.extend(reversed(list(zip(edges, children, strict=True))))
                elif children:
                    line += " -> " + " ".join(["[]"] * len(children))
            lines.append(line)
        return "\n".join(lines)

    def _inner_nodes(self) -> list[RaxNode]:
        """Return all nodes except leaves, unordered."""
        node: RaxNode
        nodes: list[RaxNode] = [self.root]
        for node in nodes:  # the list grows during this loop
            nodes.extend([x for x in _children(node) if type(x) is RaxNode])
        return nodes


@cython.cfunc
def _set_child(node: RaxNode, index: cython.Py_ssize_t, child: object) -> cython.void:
    """Replace the child of a run, or the child of a branch at index."""
    if node.children is not None:
        node.children[index] = child
    else:
        node.child = child


@cython.cfunc
def _remove_edge(branch: RaxNode, byte: cython.uchar) -> cython.void:
    """Remove the edge `byte` of a branch. With one edge left it becomes a run."""
    index: cython.Py_ssize_t = edge_index(branch.edges, byte)
    children: list[object] | None = branch.children
    assert children is not None
    branch.edges = branch.edges[:index] + branch.edges[index + 1 :]
    children.pop(index)  # from Python 3.13 on, `del` keeps the memory of the list
    if len(children) == 1:
        branch.child = children[0]
        branch.children = None


@cython.cfunc
def _children(node: RaxNode) -> list[object]:
    """Return the children of node."""
    if node.children is not None:
        return node.children
    return [node.child] if node.edges else []


def _draw_node(x: object, format_edges: Callable[[bytes], str]) -> str:
    node: RaxNode
    if type(x) is not RaxNode:
        return "[]"
    node = x
    inside = format_edges(node.edges)
    if node.children is not None:
        inside = " ".join([format_edges(bytes([byte])) for byte in node.edges])
    elif len(node.edges) > 1:
        inside = f'"{inside}"'
    return f"({inside})" if node.value is NO_VALUE else f"[{inside}]"


def _format_text(edges: bytes) -> str:
    return edges.decode()


def _format_hex(edges: bytes) -> str:
    return edges.hex(" ")
