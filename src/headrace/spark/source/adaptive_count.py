"""Choose how many entries to request at once, so that a page has a few megabytes.

A server builds the whole page before it sends it. The first page is small. The count of the next one follows
the size of the received entries, and grows at most eightfold, because later entries may be larger.
"""

from __future__ import annotations

INITIAL_COUNT = 16
GROWTH_MAX = 8
PAGE_BYTES = 8 << 20


class AdaptiveCount:
    """The count of the next request, at least 1 and at most `maximum`."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.count = min(INITIAL_COUNT, maximum)

    def record_page(self, entries: int, page_bytes: int) -> None:
        """Adjust the count after a page with this number of entries and bytes."""
        if entries:
            fitting = PAGE_BYTES * entries // max(page_bytes, 1)
            self.count = max(1, min(self._maximum, fitting, GROWTH_MAX * self.count))
