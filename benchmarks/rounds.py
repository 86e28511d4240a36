"""Measure both servers in rounds of alternating order, and take medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict

from benchmarks.redis_benchmark import Sample
from benchmarks.servers import Server

SERVERS: dict[str, Callable[..., Server]] = {"redis": Server.redis, "headrace": Server.headrace}
Figures = dict[str, dict[str, float]]  # by server and by figure: the fields of Sample, bytes, worst_ms
Rows = dict[str, Figures]  # by name of the row


def sample_rounds(
    rounds: int, sample: Callable[[str], Sample | dict[str, float]]
) -> dict[str, list[dict[str, float]]]:
    """Return the samples of all rounds, by server."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    for turn in range(rounds):
        for name in list(SERVERS)[:: -1 if turn % 2 else 1]:
            figures = sample(name)
            taken[name].append(asdict(figures) if isinstance(figures, Sample) else figures)
    return taken


def medians(taken: dict[str, list[dict[str, float]]]) -> Figures:
    """Return the median of each figure, by server."""
    return {
        server: {figure: statistics.median(sample[figure] for sample in samples) for figure in samples[0]}
        for server, samples in taken.items()
    }
