"""Recorded effects: the requests that a log must store and a replica must repeat, in order.

Commands record effects, not themselves: `XADD key *` becomes the XADD with the ID it chose. While `recording`
is off, nothing is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import cython

from headrace.visibility import Public


class Redis7Equivalent(NamedTuple):
    """Commands of Redis 7.0 that have the effect of a request on a server that knows no others."""

    request: list[bytes]  # kept, so that its identity is not used again
    commands: list[list[bytes]]
    exact: bool  # whether the result is the same for Headrace, too, down to what other servers lack


@cython.final
@cython.cclass
class Effects:
    """The effects recorded since the last take()."""

    recording: Public[cython.bint]
    # a replica knows only the commands of Redis 7.0: commands note equivalents of their newer effects
    needs_redis7_equivalents: Public[cython.bint]
    items: list[tuple[int, list[bytes]]]  # (database, request); never replaced: calls append to it
    # The log's length before these items; the caller of take() advances it.
    log_offset: Public[cython.longlong]
    _redis7_equivalents: dict[int, Redis7Equivalent]  # by the identity of the request
    _transaction: cython.Py_ssize_t  # index of the running EXEC's first effect; -1 outside of an EXEC

    def __init__(self) -> None:
        self.recording = self.needs_redis7_equivalents = False
        self._redis7_equivalents = {}
        self.items = []
        self.log_offset = 0
        self._transaction = -1

    @cython.ccall
    def record(self, database: cython.Py_ssize_t, request: list[bytes]) -> cython.void:
        """Record a request that changed the database, unless recording is off."""
        if self.recording:
            self.items.append((database, request))

    @cython.ccall
    def drop_last(self) -> cython.void:
        """Remove the effect that was recorded last: its command changes nothing after all."""
        self.items.pop()

    def set_redis7_equivalent(self, request: list[bytes], commands: list[list[bytes]], exact: bool) -> None:
        """Note commands of Redis 7.0 with the effect of a recorded request, if `needs_redis7_equivalents`.

        exact: see Redis7Equivalent.
        """
        if self.needs_redis7_equivalents:
            self._redis7_equivalents[id(request)] = Redis7Equivalent(request, commands, exact)

    def redis7_equivalent(self, request: list[bytes]) -> Redis7Equivalent | None:
        """Return the equivalent that was noted for this request object; None if there is none."""
        return self._redis7_equivalents.get(id(request))

    def clear_redis7_equivalents(self) -> None:
        """Forget all equivalents. Call it when the replicas have received the effects."""
        self._redis7_equivalents.clear()

    def record_expired(self, database: int, key: bytes) -> None:
        """Record that the database's key expired."""
        self.record(database, [b"DEL", key])

    @cython.ccall
    def begin_transaction(self) -> cython.void:
        """Begin an EXEC: all effects until end_transaction() are atomic."""
        self._transaction = len(self.items)

    @cython.ccall
    def in_transaction(self) -> cython.bint:
        """Return whether an EXEC is running."""
        return self._transaction >= 0

    @cython.ccall
    def end_transaction(self) -> cython.void:
        """End the EXEC."""
        start: cython.Py_ssize_t = self._transaction
        self._transaction = -1
        self.make_atomic(start)

    def drop_transaction(self) -> None:
        """Forget the effects of the running transaction so far."""
        del self.items[self._transaction :]

    @cython.ccall
    def next_index(self) -> cython.Py_ssize_t:
        """Return the index of the next effect, for make_atomic()."""
        return len(self.items)

    @cython.ccall
    def make_atomic(self, start: cython.Py_ssize_t) -> cython.void:
        """Wrap the effects recorded since index `start` in MULTI and EXEC.

        A single effect needs no wrapping. Inside an EXEC everything is wrapped already.
        """
        if self._transaction < 0 and len(self.items) - start > 1:
            self.items.insert(start, (self.items[start][0], [b"MULTI"]))
            self.items.append((self.items[-1][0], [b"EXEC"]))

    def take(self) -> list[tuple[int, list[bytes]]]:
        """Return all effects so far, as (database, request), oldest first, and forget them."""
        items = self.items[:]
        self.items.clear()
        return items
