"""Rounds and medians: each round measures both servers, and the next round does so in the other order."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict

from benchmarks.load import Sample
from benchmarks.servers import Server

SERVERS: dict[str, Callable[..., Server]] = {"redis": Server.redis, "headrace": Server.headrace}
Figures = dict[str, dict[str, float]]  # by server, then by figure: the fields of Sample, bytes, worst_ms
Rows = dict[str, Figures]  # by what was measured


def alternately(
    rounds: int, sample: Callable[[str], Sample | dict[str, float]]
) -> dict[str, list[dict[str, float]]]:
    """What sample(server) said, by server."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    for turn in range(rounds):
        for name in list(SERVERS)[:: -1 if turn % 2 else 1]:
            said = sample(name)
            taken[name].append(asdict(said) if isinstance(said, Sample) else said)
    return taken


def medians(taken: dict[str, list[dict[str, float]]]) -> Figures:
    """The median of each figure, for each server."""
    return {
        server: {figure: statistics.median(said[figure] for said in samples) for figure in samples[0]}
        for server, samples in taken.items()
    }
