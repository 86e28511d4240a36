"""Memory that is free, given back to the system.

The C library keeps what was freed for the next who wants it. After a crowd of clients has gone that can be
much more than all that is left: RSS stays where it was, and an operator looks for a leak.
"""

from __future__ import annotations

import ctypes

LIBC = ctypes.CDLL(None)
CROWD = 500  # so many clients fewer are worth a look at the whole heap


def give_back() -> None:
    """Give every free page back; where the C library cannot, nothing happens."""
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)


class Crowd:
    """How many clients there have been, to notice when they are gone."""

    def __init__(self) -> None:
        self.most = 0

    def has_gone(self, clients: int) -> bool:
        """Whether most of them have, since this was last True."""
        self.most = max(self.most, clients)
        if self.most - clients < CROWD or clients > self.most // 2:
            return False
        self.most = clients
        return True
