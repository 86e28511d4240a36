"""What changed, as requests: what a log must hold and a replica must repeat, in order.

Commands record effects, not themselves: `XADD key *` becomes the XADD with the ID it chose. While nobody
listens nothing is kept.
"""

from __future__ import annotations

import cython


@cython.final
@cython.cclass
class Effects:
    """The effects since the last take()."""

    __slots__ = ("_depth", "_transaction", "items", "listening")

    listening: cython.bint
    items: list[tuple[int, list[bytes]]]  # (database, words)
    _transaction: cython.Py_ssize_t  # where the effects that happen as one begin
    _depth: cython.Py_ssize_t  # a command of several effects may run inside of an EXEC

    def __init__(self) -> None:
        self.listening = False
        self.items = []
        self._transaction = 0
        self._depth = 0

    @cython.ccall
    def record(self, database: cython.Py_ssize_t, words: list[bytes]) -> cython.void:
        """Words, a whole request, have changed that database."""
        if self.listening:
            self.items.append((database, words))

    @cython.ccall
    def begin(self) -> cython.void:
        """What follows until the matching end() happened as one."""
        if self._depth == 0:
            self._transaction = len(self.items)
        self._depth += 1

    @cython.ccall
    def end(self) -> cython.void:
        """Wrap what was recorded since begin() in MULTI and EXEC, when it is more than one effect."""
        self._depth -= 1
        start = self._transaction
        if self._depth == 0 and len(self.items) - start > 1:
            self.items.insert(start, (self.items[start][0], [b"MULTI"]))
            self.items.append((self.items[-1][0], [b"EXEC"]))

    def take(self) -> list[tuple[int, list[bytes]]]:
        """All effects so far, oldest first; they are the caller's from now on."""
        items = self.items
        self.items = []
        return items
