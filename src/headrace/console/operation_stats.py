"""Statistics of single requests: the slow log, latency spikes and distributions, and limits of buffers.

They are read by ordinary commands; what a server rejects is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

SendPipeline = Callable[[list[Sequence[bytes | str | int]]], list[object]]

REQUESTS: list[Sequence[bytes | str | int]] = [
    ("SLOWLOG", "LEN"),
    ("SLOWLOG", "GET", 1),
    ("LATENCY", "LATEST"),
    ("LATENCY", "HISTOGRAM"),
    ("CONFIG", "GET", "client-output-buffer-limit"),
]


@dataclass
class OperationStats:
    """The replies to REQUESTS; 0 or empty where the server rejected the request.

    Attributes:
        slow_log_length: length of the slow log.
        slow_last_id, slow_last_us: ID and duration in microseconds of its newest entry.
        spikes: event, time in seconds since 1970, and duration in milliseconds.
        durations: command, calls, and pairs of an upper bound in microseconds and the calls up to it.
        output_limits: class of clients, hard and soft limit in bytes, and seconds.
    """

    slow_log_length: int = 0
    slow_last_id: int = 0
    slow_last_us: int = 0
    spikes: list[tuple[str, int, int]] = field(default_factory=list)
    durations: list[tuple[str, int, list[tuple[int, int]]]] = field(default_factory=list)
    output_limits: list[tuple[str, int, int, int]] = field(default_factory=list)


def read_operation_stats(send: SendPipeline) -> OperationStats:
    """Return the statistics of a server."""
    length, newest, latest, histograms, limits = send(REQUESTS)
    stats = OperationStats(length if isinstance(length, int) else 0)
    if isinstance(newest, list) and newest:
        stats.slow_last_id, stats.slow_last_us = newest[0][0], newest[0][2]
    if isinstance(latest, list):
        stats.spikes = [(event.decode(), at_s, duration_ms) for event, at_s, duration_ms, *_ in latest]
    if isinstance(histograms, list):
        stats.durations = list(_durations(histograms))
    if isinstance(limits, list) and len(limits) == 2:
        words = limits[1].decode().split()
        stats.output_limits = [
            (words[i], int(words[i + 1]), int(words[i + 2]), int(words[i + 3]))
            for i in range(0, len(words), 4)
        ]
    return stats


def _durations(reply: list[object]) -> Iterator[tuple[str, int, list[tuple[int, int]]]]:
    """Return the distributions in a reply of LATENCY HISTOGRAM."""
    for name, facts in zip(reply[::2], reply[1::2], strict=True):
        if isinstance(name, bytes) and isinstance(facts, list):
            _, calls, _, buckets = facts
            yield name.decode(), calls, list(zip(buckets[::2], buckets[1::2], strict=True))
