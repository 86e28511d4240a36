"""Through a radix tree in order, from any place, either way.

A cursor keeps no path into the tree, only the key it stands on. A step goes down from the root along that
key and notes the last edge it passed on either side; the neighbour is the nearest key behind that edge:

    (c) -> (a o)                       from "cat" the key before is behind the edge r of "ca",
       a -> (r t) -> [] []             the key after behind the edge o of "c"
       o -> (w) -> []

So whatever was inserted or removed meanwhile, the cursor's own key included, the next step is right.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.structures import rax
from headrace.structures.rax import Rax, RaxNode

ITSELF = cython.declare(cython.Py_ssize_t, -1)  # the place of a node's own key, which comes before its edges


@cython.final
@cython.cclass
class RaxCursor:
    """Stands on a key after seek, next or previous said True; `key` and `value` are what it found there.

    After one of them said False it stands nowhere, and only seek brings it back.
    """

    key: bytes
    value: object
    tree: Rax
    stands: cython.bint

    # What _part found: the value of the key or NO_VALUE, and the last way out on either side as a node,
    # the place of an edge in it, and how many bytes of the key lead to that node.
    here: object
    before: RaxNode | None
    before_place: cython.Py_ssize_t
    before_at: cython.Py_ssize_t
    after: RaxNode | None
    after_place: cython.Py_ssize_t
    after_at: cython.Py_ssize_t

    # The bytes on the way to where the cursor will stand.
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
        self.before_place = self.before_at = self.after_place = self.after_at = 0
        self.here = rax.NO_VALUE
        self.before = self.after = None
        self._leave()

    @cython.ccall
    def seek(self, op: str, key: bytes = b"") -> cython.bint:
        """Stand on the first key ("^"), the last ("$"), on key itself ("=") or on the nearest key that is
        so related to it (">", ">=", "<", "<="). False when there is none; ValueError for another op.
        """
        if op == "$":
            return self._last(self.tree.root, len(self.tree.root.edges) - 1, b"", 0)
        if op == "^":
            op = ">="
            key = b""
        self._part(key)
        if self.here is not rax.NO_VALUE and op in (">=", "<=", "="):
            return self._stand(key, self.here)
        if op in (">=", ">"):
            return self._first(self.after, self.after_place, key, self.after_at)
        if op in ("<=", "<"):
            return self._last(self.before, self.before_place, key, self.before_at)
        if op == "=":
            return self._leave()
        raise ValueError(f"no way to seek {op!r}")

    @cython.ccall
    def next(self) -> cython.bint:
        """Step to the next key; False when there is none, or the cursor stands nowhere."""
        if not self.stands:
            return False
        self._part(self.key)
        return self._first(self.after, self.after_place, self.key, self.after_at)

    @cython.ccall
    def previous(self) -> cython.bint:
        """Step to the key before; False when there is none, or the cursor stands nowhere."""
        if not self.stands:
            return False
        self._part(self.key)
        return self._last(self.before, self.before_place, self.key, self.before_at)

    @cython.cfunc
    def _part(self, key: bytes) -> cython.void:
        """Go down along key, parting the tree into what is before, here and after."""
        q: cython.p_const_uchar = key
        n: cython.Py_ssize_t = len(key)
        at: cython.Py_ssize_t = 0
        edge_count: cython.Py_ssize_t
        step: cython.Py_ssize_t
        place: cython.Py_ssize_t
        node: RaxNode = self.tree.root
        lower: object
        self.here = rax.NO_VALUE
        self.before = self.after = None
        while at < n:
            edge_count = len(node.edges)
            place = 0
            step = 1
            if node.value is not rax.NO_VALUE:
                self._note_before(node, ITSELF, at)
            if node.children is not None:
                place = rax.place_of(node.edges, q[at])
                if place > 0:
                    self._note_before(node, place - 1, at)
                if place == edge_count:
                    return
                if node.edges[place] != q[at]:
                    self._note_after(node, place, at)
                    return
                if place + 1 < edge_count:
                    self._note_after(node, place + 1, at)
                lower = node.children[place]
            else:
                step = rax.shared(node.edges, key, at)
                if step < edge_count:
                    if at + step == n or q[at + step] < node.edges[step]:
                        self._note_after(node, 0, at)
                    else:
                        self._note_before(node, 0, at)
                    return
                lower = node.child
            if type(lower) is not RaxNode:
                if at + step == n:
                    self.here = lower
                elif edge_count > 0:  # not the root of an empty tree
                    self._note_before(node, place, at)
                return
            node = lower
            at += step
        self.here = node.value
        if node.edges:
            self._note_after(node, 0, at)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _note_before(self, node: RaxNode, place: cython.Py_ssize_t, at: cython.Py_ssize_t) -> cython.void:
        self.before = node
        self.before_place = place
        self.before_at = at

    @cython.cfunc
    @cython.exceptval(check=False)
    def _note_after(self, node: RaxNode, place: cython.Py_ssize_t, at: cython.Py_ssize_t) -> cython.void:
        self.after = node
        self.after_place = place
        self.after_at = at

    @cython.cfunc
    def _first(
        self, node: RaxNode | None, place: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t
    ) -> cython.bint:
        """Stand on the first key below this edge of node, to which key[:at] leads."""
        lower: object
        if node is None:
            return self._leave()
        self.used = 0
        self._put(key, 0, at)
        lower = self._step(node, place)
        while type(lower) is RaxNode:
            node = lower
            lower = node.value if node.value is not rax.NO_VALUE else self._step(node, 0)
        return self._stand(mem.to_bytes(self.p, 0, self.used), lower)

    @cython.cfunc
    def _last(
        self, node: RaxNode | None, place: cython.Py_ssize_t, key: bytes, at: cython.Py_ssize_t
    ) -> cython.bint:
        """Stand on the last key below this edge of node, or on node's own, to which key[:at] leads."""
        lower: object
        if node is None:
            return self._leave()
        self.used = 0
        self._put(key, 0, at)
        if place == ITSELF:
            lower = node.value
        else:
            lower = self._step(node, place)
        while type(lower) is RaxNode:
            node = lower
            lower = self._step(node, len(node.edges) - 1)
        if lower is rax.NO_VALUE:  # sought the last key of an empty tree
            return self._leave()
        return self._stand(mem.to_bytes(self.p, 0, self.used), lower)

    @cython.cfunc
    def _step(self, node: RaxNode, place: cython.Py_ssize_t) -> object:
        """What is one step down, by this edge of a branch or by a run: a RaxNode or a leaf's value."""
        if node.children is not None:
            self._put(node.edges, place, 1)
            return node.children[place]
        self._put(node.edges, 0, len(node.edges))
        return node.child

    @cython.cfunc
    def _put(self, source: bytes, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
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
    def _stand(self, key: bytes, value: object) -> cython.bint:
        self.key = key
        self.value = value
        self.stands = True
        return True

    @cython.cfunc
    def _leave(self) -> cython.bint:
        self.key = b""
        self.value = None
        self.stands = False
        return False
