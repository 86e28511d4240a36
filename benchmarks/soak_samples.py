"""What the soak samples of a server, when that counts as growth, and how it is drawn.

The first third of the samples is the warm-up. In the rest a leak raises nearly every sample above the one a
quarter of the time before. Peaks do so now and then, and one step of the heap for a third of the samples. So
the median of these differences, times four, is the steady growth. A figure must not exceed its allowance.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.connection import Connection
from benchmarks.hot_paths import encode
from benchmarks.servers import Server

MB = 1e6
QUARTERS = 4
SAMPLES_MIN = 12  # after the warm-up; fewer show nothing


@dataclass(frozen=True)
class Sample:
    """The state of a process at one moment."""

    at_s: float  # since the start of the load
    resident_mb: float
    used_mb: float  # used_memory
    descriptors: int
    threads: int
    log_mb: float  # all files of the log


FIGURES = tuple(field.name for field in fields(Sample))[1:]
LABELS = {
    "resident_mb": "resident memory, MB",
    "used_mb": "used_memory, MB",
    "descriptors": "descriptors",
    "threads": "threads",
    "log_mb": "log, MB",
}
# What each judged figure may grow by: a share of it, and an absolute amount. The log is not judged: its size
# depends on when it was last rewritten.
ALLOWANCES = {
    "resident_mb": (0.05, 3.0),
    "used_mb": (0.05, 1.0),
    "descriptors": (0.0, 2.5),
    "threads": (0.0, 0.5),
}


def take(server: Server, connection: Connection, at_s: float) -> Sample:
    """Sample a server. connection: one to it."""
    [info] = connection.exchange([encode("INFO", "memory")])
    assert isinstance(info, bytes)
    used = next(line for line in info.splitlines() if line.startswith(b"used_memory:"))
    process = Path(f"/proc/{server.pid}")
    return Sample(
        at_s,
        server.resident_bytes() / MB,
        int(used.split(b":")[1]) / MB,
        len(os.listdir(process / "fd")),
        len(os.listdir(process / "task")),
        directory_bytes(server.directory / "appendonlydir") / MB,
    )


def directory_bytes(directory: Path) -> int:
    """Return the size of the files of a directory, which may vanish meanwhile."""
    total = 0
    for path in directory.glob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the first and of the last third of at least three values."""
    third = len(values) // 3
    return statistics.median(values[:third]), statistics.median(values[-third:])


def steady_growth(values: Sequence[float]) -> float:
    """Return by how much the values rise steadily from the first to the last."""
    apart = len(values) // QUARTERS
    pairs = zip(values[:-apart], values[apart:], strict=True)
    return QUARTERS * statistics.median(after - before for before, after in pairs)


def growing(samples: Sequence[Sample]) -> list[str]:
    """Return a line for each judged figure that grows steadily by more than its allowance."""
    lines = []
    rest = samples[len(samples) // 3 :]
    for figure, (share, amount) in ALLOWANCES.items() if len(rest) >= SAMPLES_MIN else ():
        values = [getattr(sample, figure) for sample in rest]
        growth, (first, last) = steady_growth(values), ends(values)
        allowed = max(share * first, amount)
        if growth > allowed:
            lines.append(
                f"{LABELS[figure]}: {first:,.1f} after the warm-up, {last:,.1f} at the end;"
                f" steady growth {growth:,.1f}, allowed {allowed:,.1f}"
            )
    return lines


def chart(samples: dict[str, list[Sample]], path: Path) -> None:
    """Draw each figure over the time, a line for each server."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(
        len(FIGURES), figsize=(9, 2.1 * len(FIGURES)), sharex=True, layout="constrained"
    )
    for axes, name in zip(rows, FIGURES, strict=True):
        for which, (server, taken) in enumerate(samples.items()):
            minutes = [sample.at_s / 60 for sample in taken]
            values = [getattr(sample, name) for sample in taken]
            axes.plot(minutes, values, color=f"C{which // 2}", linestyle="-:"[which % 2], label=server)
        axes.set_ylim(bottom=0)
        axes.set_title(LABELS[name], loc="left", fontsize=9)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    rows[-1].set_xlabel("minutes")
    rows[0].legend(ncols=4, frameon=False, fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
