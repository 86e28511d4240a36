"""LEASE and BACKOFF: compute when a delivered entry is to be delivered again."""

from __future__ import annotations

import cython

from headrace.streams.rules import GroupRules


@cython.final
@cython.no_gc
@cython.cclass
class Lease:
    """The rules LEASE and BACKOFF of a group. Times are Unix milliseconds."""

    lease_ms: cython.longlong
    backoff_ms: tuple[int, ...]

    def __init__(self, rules: GroupRules) -> None:
        self.lease_ms = rules.lease_ms
        self.backoff_ms = rules.backoff_ms

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def end_ms(self, delivered: cython.longlong, deliveries: cython.longlong) -> cython.longlong:
        """Return when the lease of an entry ends: from then on it is due.

        Args:
            delivered: when it was delivered last.
            deliveries: how often it was delivered.
        """
        if not self.backoff_ms:
            return delivered + self.lease_ms
        last: cython.longlong = len(self.backoff_ms) - 1
        index: cython.longlong = min(max(deliveries - 1, 0), last)
        delay: cython.longlong = self.backoff_ms[index]
        return delivered + self.lease_ms + delay
