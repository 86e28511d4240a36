"""Latency events: what delayed the server, when, and for how many milliseconds.

    command        the execution of a command without the flag `fast` took at least latency-monitor-threshold
    fast-command   the execution of a command with this flag took that long

For each event the latest 160 samples are kept, at most one for each second: the worst of that second.
"""

from __future__ import annotations

from collections import deque

SAMPLES_MAX = 160


class LatencyEvent:
    """The samples of one event, oldest first: (seconds since 1970, milliseconds)."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        self.worst_ms = 0

    def add(self, at_s: int, ms: int) -> None:
        """Add a sample; of the samples of one second only the worst is kept."""
        self.worst_ms = max(self.worst_ms, ms)
        if self.samples and self.samples[-1][0] == at_s:
            self.samples[-1] = (at_s, max(ms, self.samples[-1][1]))
        else:
            self.samples.append((at_s, ms))

    def average_ms(self) -> float:
        """Return the mean of the samples, of which there must be at least one."""
        return sum(ms for _, ms in self.samples) / len(self.samples)

    def deviation_ms(self) -> float:
        """Return the mean deviation of the samples from their mean."""
        mean = self.average_ms()
        return sum(abs(ms - mean) for _, ms in self.samples) / len(self.samples)


class LatencyMonitor:
    """All latency events by name."""

    def __init__(self) -> None:
        self.events: dict[bytes, LatencyEvent] = {}

    def add(self, name: bytes, at_s: int, ms: int) -> None:
        """Add a sample of `ms` milliseconds to the event."""
        self.events.setdefault(name, LatencyEvent()).add(at_s, ms)

    def reset(self, names: list[bytes]) -> int:
        """Delete these events, or all if none is named; return how many existed."""
        found = [name for name in names or list(self.events) if self.events.pop(name, None) is not None]
        return len(found)
