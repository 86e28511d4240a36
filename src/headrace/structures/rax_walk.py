"""A cursor that iterates over a radix tree in order, in both directions.

The cursor keeps no path into the tree, only its current key. A step descends from the root along that key
and remembers the last edge it passed on either side. The neighbour is the nearest key below that edge:

    (c) -> (a o)                       from "cat" the previous key is below edge r of "ca",
       a -> (r t) -> [] []             the next key below edge o of "c"
       o -> (w) -> []

So the next step is correct whatever was inserted or removed in between, even the cursor's own key.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.structures import rax
from headrace.structures.rax import Rax, RaxNode

OWN_KEY = cython.declare(cython.Py_ssize_t, -1)  # stands for the node's own key, which sorts before its edges


@cython.final
@cython.freelist(8)
@cython.cclass
class RaxCursor:
    """A position in a radix tree.

    After seek(), next() or previous() returned True, `key` and `value` are the current item. After one of
    them returned False there is no current item, and only seek() continues.
    """

    key: bytes
    value: object
    tree: Rax
    positioned: cython.bint

    # Results of _descend: the value of the key or NO_VALUE, and on either side the last edge passed, as a
    # node, the index of the edge in it, and how many bytes of the key lead to that node.
    exact_match_value: object
    before_node: RaxNode | None
    before_index: cython.Py_ssize_t
    before_key_length: cython.Py_ssize_t
    after_node: RaxNode | None
    after_index: cython.Py_ssize_t
    after_key_length: cython.Py_ssize_t

    # The bytes of the key that is being built.
    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t

    def __init__(self, tree: Rax) -> None:
        self.tree = tree
        self.cap = 32
        self.buf = bytearray(self.cap)
        self.p = self.buf
        self.used = 0
        self.before_index = self.before_key_length = self.after_index = self.after_key_length = 0
        self.exact_match_value = rax.NO_VALUE
        self.before_node = self.after_node = None
        self._clear_position()

    @cython.ccall
    def seek(self, op: str, key: bytes = b"") -> cython.bint:
        """Move to the first key ("^"), the last ("$"), `key` itself ("=") or the nearest one above or below.

        ">" and ">=" move to the lowest key above `key`, "<" and "<=" to the highest one below; ">=" and "<="
        move to `key` itself if it exists. Returns False if there is none. Raises ValueError for another op.
        """
        if op == "$":
            return self._last(self.tree.root, len(self.tree.root.edges) - 1, b"", 0)
        if op == "^":
            op = ">="
            key = b""
        self._descend(key)
        if self.exact_match_value is not rax.NO_VALUE and op in (">=", "<=", "="):
            return self._set_position(key, self.exact_match_value)
        if op in (">=", ">"):
            return self._first(self.after_node, self.after_index, key, self.after_key_length)
        if op in ("<=", "<"):
            return self._last(self.before_node, self.before_index, key, self.before_key_length)
        if op == "=":
            return self._clear_position()
        raise ValueError(f"unknown seek operation {op!r}; use ^ $ = > >= < or <=")

    @cython.ccall
    def next(self) -> cython.bint:
        """Move to the next key. Returns False if there is none, or no current item."""
        if not self.positioned:
            return False
        self._descend(self.key)
        return self._first(self.after_node, self.after_index, self.key, self.after_key_length)

    @cython.ccall
    def previous(self) -> cython.bint:
        """Move to the previous key. Returns False if there is none, or no current item."""
        if not self.positioned:
            return False
        self._descend(self.key)
        return self._last(self.before_node, self.before_index, self.key, self.before_key_length)

    @cython.cfunc
    def _descend(self, key: bytes) -> cython.void:
        """Descend along key and set exact_match_value and the attributes before_... and after_...."""
        q: cython.p_const_uchar = key
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        edge_count: cython.Py_ssize_t
        step: cython.Py_ssize_t
        index: cython.Py_ssize_t
        node: RaxNode = self.tree.root
        child: object
        self.exact_match_value = rax.NO_VALUE
        self.before_node = self.after_node = None
        while at < n:
            edge_count = len(node.edges)
            index = 0
            step = 1
            if node.value is not rax.NO_VALUE:
                self._set_before(node, OWN_KEY, at)
            if node.children is not None:
                index = rax.edge_index(node.edges, q[at])
                if index > 0:
                    self._set_before(node, index - 1, at)
                if index == edge_count:
                    return
                if node.edges[index] != q[at]:
                    self._set_after(node, index, at)
                    return
                if index + 1 < edge_count:
                    self._set_after(node, index + 1, at)
                child = node.children[index]
            else:
                step = rax.common_prefix_length(node.edges, key, at)
                if step < edge_count:
                    if at + step == n or q[at + step] < node.edges[step]:
                        self._set_after(node, 0, at)
                    else:
                        self._set_before(node, 0, at)
                    return
                child = node.child
            if type(child) is not RaxNode:
                if at + step == n:
                    self.exact_match_value = child
                elif edge_count > 0:  # not the root of an empty tree
                    self._set_before(node, index, at)
                return
            node = child
            at += step
        self.exact_match_value = node.value
        if node.edges:
            self._set_after(node, 0, at)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _set_before(self, node: RaxNode, index: cython.Py_ssize_t, at: cython.Py_ssize_t) -> cython.void:
        self.before_node = node
        self.before_index = index
        self.before_key_length = at

    @cython.cfunc
    @cython.exceptval(check=False)
    def _set_after(self, node: RaxNode, index: cython.Py_ssize_t, at: cython.Py_ssize_t) -> cython.void:
        self.after_node = node
        self.after_index = index
        self.after_key_length = at

    @cython.cfunc
    def _first(
        self, node: RaxNode | None, index: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t
    ) -> cython.bint:
        """Move to the first key below the edge `index` of node, to which key[:at] leads.

        Returns False if node is None.
        """
        child: object
        if node is None:
            return self._clear_position()
        self.used = 0
        self._append_to_key(key, 0, at)
        child = self._step(node, index)
        while type(child) is RaxNode:
            node = child
            child = node.value if node.value is not rax.NO_VALUE else self._step(node, 0)
        return self._set_position(mem.to_bytes(self.p, 0, self.used), child)

    @cython.cfunc
    def _last(
        self, node: RaxNode | None, index: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t
    ) -> cython.bint:
        """Move to the last key below the edge `index` of node, or to node's own key for OWN_KEY.

        key[:at] leads to node. Returns False if there is no such key.
        """
        child: object
        if node is None:
            return self._clear_position()
        self.used = 0
        self._append_to_key(key, 0, at)
        if index == OWN_KEY:
            child = node.value
        else:
            child = self._step(node, index)
        while type(child) is RaxNode:
            node = child
            child = self._step(node, len(node.edges) - 1)
        if child is rax.NO_VALUE:  # the last key of an empty tree
            return self._clear_position()
        return self._set_position(mem.to_bytes(self.p, 0, self.used), child)

    @cython.cfunc
    def _step(self, node: RaxNode, index: cython.Py_ssize_t) -> object:
        """Append the bytes of edge `index` of a branch, or of a run, to the key; return the child there.

        The child is a RaxNode or the value of a leaf.
        """
        if node.children is not None:
            self._append_to_key(node.edges, index, 1)
            return node.children[index]
        self._append_to_key(node.edges, 0, len(node.edges))
        return node.child

    @cython.cfunc
    def _append_to_key(self, source: bytes, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
        """Append source[at : at + n] to the buffer of the key."""
        cap: cython.Py_ssize_t = self.cap
        if self.used + n > cap:
            while self.used + n > cap:
                cap *= 2
            mem.resize(self.buf, cap)
            self.p = self.buf
            self.cap = cap
        mem.copy(self.p, self.used, source, at, n)
        self.used += n

    @cython.cfunc
    def _set_position(self, key: bytes, value: object) -> cython.bint:
        self.key = key
        self.value = value
        self.positioned = True
        return True

    @cython.cfunc
    def _clear_position(self) -> cython.bint:
        self.key = b""
        self.value = None
        self.positioned = False
        return False
