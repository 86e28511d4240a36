"""Latency events: what held up the server, when, and for how many milliseconds.

    command        a command that is expected to take its time
    fast-command   one that is not
    fork           making a copy of the process for a snapshot

Of each event the latest 160 samples are kept, one a second at most: the worst.
"""

from __future__ import annotations

from collections import deque

SAMPLES_MAX = 160


class LatencyEvent:
    """The samples of one event, oldest first: seconds since 1970 and milliseconds."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        self.worst_ms = 0

    def add(self, at_s: int, ms: int) -> None:
        """One more; the worst of those of a second stays."""
        self.worst_ms = max(self.worst_ms, ms)
        if self.samples and self.samples[-1][0] == at_s:
            self.samples[-1] = (at_s, max(ms, self.samples[-1][1]))
        else:
            self.samples.append((at_s, ms))

    def average_ms(self) -> float:
        """The mean of the samples."""
        return sum(ms for _, ms in self.samples) / len(self.samples)

    def deviation_ms(self) -> float:
        """How far the samples are from their mean, on average."""
        mean = self.average_ms()
        return sum(abs(ms - mean) for _, ms in self.samples) / len(self.samples)


class LatencyMonitor:
    """All events by name."""

    def __init__(self) -> None:
        self.events: dict[bytes, LatencyEvent] = {}

    def add(self, name: bytes, at_s: int, ms: int) -> None:
        """The event has happened, and took so long."""
        self.events.setdefault(name, LatencyEvent()).add(at_s, ms)

    def reset(self, names: list[bytes]) -> int:
        """Forget these events, or all when none is named; how many there were."""
        found = [name for name in names or list(self.events) if self.events.pop(name, None) is not None]
        return len(found)
