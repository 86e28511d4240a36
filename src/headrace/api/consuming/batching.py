"""Decide when a batch is delivered to the handler.

    entries ready   full: `size` entries                       at once
                    fewer, and all that exist are fetched      `seconds` after the first one was ready
                    one in its last delivery                   at once, in a batch of its own

A batch fails as a whole, but only one of its entries may be the cause. So an entry that would become a dead
letter after one more failure is delivered without others. If that delivery fails, the entry is the cause.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.api.retry_policy import SECONDS_MAX
from headrace.errors import UsageError

BATCH_SIZE_DEFAULT = 500
BATCH_SIZE_MAX = 10_000
BATCH_SECONDS_DEFAULT = 1.0


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How many entries a batch has, and how long it waits for them.

    Args:
        size: the maximum number of entries, up to 10,000.
        seconds: how long after its first entry a batch is delivered even if it is not full.

    Raises:
        UsageError: if one of them is out of range.
    """

    size: int = BATCH_SIZE_DEFAULT
    seconds: float = BATCH_SECONDS_DEFAULT

    def __post_init__(self) -> None:
        if not (isinstance(self.size, int) and 1 <= self.size <= BATCH_SIZE_MAX):
            raise UsageError(f"size of a batch: {self.size!r} must be from 1 to {BATCH_SIZE_MAX} entries")
        if not (isinstance(self.seconds, int | float) and self.seconds >= 0):
            raise UsageError(f"seconds of a batch: {self.seconds!r} must be a number of at least 0")


class BatchTimer:
    """Decides when a batch that is not full is due. Used under the Worker's lock.

    Args:
        settings: the size of the batches, and how long they wait for entries.
        block_ms: the consumer's `block` in milliseconds: a batch does not wait longer; None: no limit.

    Attributes:
        size: the maximum number of entries of a batch.
        due_ms: when the ready entries are delivered even if they are fewer, in Unix milliseconds; None: no
            entry is ready.
        has_fetched: whether new entries were requested since the last batch.
    """

    def __init__(self, settings: BatchSettings, block_ms: int | None) -> None:
        self.size = settings.size
        self.due_ms: int | None = None
        self.has_fetched = False
        wait_ms = round(min(settings.seconds, SECONDS_MAX) * 1000)
        self._wait_ms = wait_ms if block_ms is None else min(wait_ms, block_ms)

    def start_or_stop(self, is_ready: bool, now: int) -> None:
        """Start the timer if an entry is ready; reset it if none is."""
        if not is_ready:
            self.due_ms = None
        elif self.due_ms is None:
            self.due_ms = now + self._wait_ms

    def is_due(self, now: int, complete: bool) -> bool:
        """Return whether to deliver a batch that is not full: it has waited long enough.

        Args:
            now: in Unix milliseconds.
            complete: no other action can add entries, so deliver the batch even if no new entries were
                requested since the last one.
        """
        return self.due_ms is not None and self.due_ms <= now and (complete or self.has_fetched)

    def reset_after_delivery(self) -> None:
        """Record that a batch was delivered."""
        self.due_ms = None
        self.has_fetched = False
