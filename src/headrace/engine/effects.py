"""What changed, as requests: what a log must hold and a replica must repeat, in order.

Commands record effects, not themselves: `XADD key *` becomes the XADD with the ID it chose. While nobody
listens nothing is kept.
"""

from __future__ import annotations

import cython

from headrace.visibility import Public


@cython.final
@cython.cclass
class Effects:
    """The effects since the last take()."""

    recording: Public[cython.bint]
    items: list[tuple[int, list[bytes]]]  # (database, words); never another list: calls add to it
    offset: Public[cython.longlong]  # how long the log is before the items: who takes them moves it on
    _transaction: cython.Py_ssize_t  # where the running EXEC's effects begin; -1 outside of one

    def __init__(self) -> None:
        self.recording = False
        self.items = []
        self.offset = 0
        self._transaction = -1

    @cython.ccall
    def record(self, database: cython.Py_ssize_t, request: list[bytes]) -> cython.void:
        """Words, a whole request, have changed that database."""
        if self.recording:
            self.items.append((database, request))

    def record_expired(self, database: int, key: bytes) -> None:
        """That database's key has died of age."""
        self.record(database, [b"DEL", key])

    @cython.ccall
    def begin_transaction(self) -> cython.void:
        """An EXEC begins: what follows until end() happened as one."""
        self._transaction = len(self.items)

    @cython.ccall
    def end_transaction(self) -> cython.void:
        """The EXEC is over."""
        start: cython.Py_ssize_t = self._transaction
        self._transaction = -1
        self.make_atomic(start)

    @cython.ccall
    def position(self) -> cython.Py_ssize_t:
        """Where the next effect will stand, for bind()."""
        return len(self.items)

    @cython.ccall
    def make_atomic(self, start: cython.Py_ssize_t) -> cython.void:
        """What was recorded since that position happened as one: it is wrapped in MULTI and EXEC.

        A single effect needs no wrapping, and inside of an EXEC all is wrapped anyway.
        """
        if self._transaction < 0 and len(self.items) - start > 1:
            self.items.insert(start, (self.items[start][0], [b"MULTI"]))
            self.items.append((self.items[-1][0], [b"EXEC"]))

    def take(self) -> list[tuple[int, list[bytes]]]:
        """All effects so far, oldest first; they are the caller's from now on."""
        items = self.items[:]
        self.items.clear()
        return items
