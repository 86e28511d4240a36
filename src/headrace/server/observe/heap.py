"""The C library's heap: return its free memory to the system, and keep it on small pages.

The C library keeps freed memory for later use. After many clients have disconnected that can be much more
than the data: RSS stays high, and looks like a memory leak.
"""

from __future__ import annotations

import ctypes

LIBC = ctypes.CDLL(None)
MASS_DISCONNECT_MIN = 500  # so many fewer clients justify a scan of the whole heap
PR_SET_THP_DISABLE = 41  # of sys/prctl.h


def disable_large_pages() -> None:
    """Disable transparent huge pages for this process, if the C library can."""
    if hasattr(LIBC, "prctl"):
        LIBC.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def release_free_memory() -> None:
    """Return all free pages to the system, if the C library can."""
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)


class MassDisconnectDetector:
    """Detects that most clients have disconnected."""

    def __init__(self) -> None:
        self.most = 0

    def detect(self, clients: int) -> bool:
        """Return whether most clients have disconnected since this last returned True."""
        self.most = max(self.most, clients)
        if self.most - clients < MASS_DISCONNECT_MIN or clients > self.most // 2:
            return False
        self.most = clients
        return True
