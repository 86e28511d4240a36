"""How many entries to ask for at once, so that a page of whatever entries stays at a few megabytes.

A server makes the whole page before it sends it. The first page is small; the next ones follow the size of
the entries that came, eight times as many as before at most, for nobody knows what comes.
"""

from __future__ import annotations

FIRST_ENTRIES = 16
GROWTH = 8
PAGE_BYTES = 8 << 20


class PageSize:
    """entries: how many to ask for now. At most `most`, at least 1."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.entries = min(FIRST_ENTRIES, most)

    def learn(self, entries: int, size: int) -> None:
        """A page of so many entries had so many bytes."""
        if entries:
            fitting = PAGE_BYTES * entries // max(size, 1)
            self.entries = max(1, min(self._most, fitting, GROWTH * self.entries))
