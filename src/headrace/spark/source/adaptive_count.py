"""How many entries to ask for at once, so that a page of whatever entries stays at a few megabytes.

A server makes the whole page before it sends it. The first page is small; the next ones follow the size of
the entries that came, eight times as many as before at most, as the sizes of later entries are unknown.
"""

from __future__ import annotations

INITIAL_COUNT = 16
GROWTH_MAX = 8
PAGE_BYTES = 8 << 20


class AdaptiveCount:
    """entries: how many to ask for now. At most `most`, at least 1."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.count = min(INITIAL_COUNT, maximum)

    def record_page(self, entries: int, page_bytes: int) -> None:
        """A page of so many entries had so many bytes."""
        if entries:
            fitting = PAGE_BYTES * entries // max(page_bytes, 1)
            self.count = max(1, min(self._maximum, fitting, GROWTH_MAX * self.count))
