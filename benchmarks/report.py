"""What was measured, for people: tables, a chart, and what falls short of the aims.

A ratio is always of redis-server's figure and ours, turned so that above 1 is better than redis-server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.rounds import Figures, Rows

UPWARD = {"per_s": "throughput"}  # more is better
DOWNWARD = {
    "cpu_us": "server CPU",
    "p50_ms": "p50",
    "p99_ms": "p99",
    "p999_ms": "p99.9",
    "worst_ms": "stall",
    "bytes": "memory",
}
DRAWN = {"cpu_us": "o", "per_s": "|", "p99_ms": "x", "worst_ms": "D", "bytes": "s"}
BUSY_ENOUGH = 0.85  # below, the load was too slow to tell the servers' throughput apart
COUNTS = Path(__file__).with_name("instructions.json")
CPU_AIM, APPEND_AIM, BY_HALF_AIM = 1.0, 1.2, 2.0
PAGE = """\
# Beside redis-server

Written by `make bench`; what the rows are: [performance.md](performance.md#beside-redis-server).
{servers[headrace]} and {servers[redis]} on {cores} cores; rounds: {rounds};
requests of the cheaper workloads: {requests}; entries for memory: {entries}, loaded: {loaded}.

{speeds}
{sizes}
![the same as a chart](bench.png)

Instructions per command in user space, as `make bench-instructions` noted them:

{instructions}
Short of the aims:

{below}"""


def ratio(by: Figures, figure: str) -> float | None:
    """Of one figure of one row; None where there is none."""
    ours, theirs = by["headrace"].get(figure), by["redis"].get(figure)
    if not ours or not theirs:
        return None
    return ours / theirs if figure in UPWARD else theirs / ours


Cells = list[list[str]]  # the first row is the head


def speeds(rows: Rows) -> Cells:
    """Everything that has a rate."""
    cells = [["", "per s", "ratio", "CPU, µs", "ratio", "p50", "p99, ms", "p99", "p99.9", "busy"]]
    for name, by in rows.items():
        if "per_s" not in by["headrace"]:
            continue
        ours, theirs = by["headrace"], by["redis"]
        busy = min(ours.get("busy", 1.0), theirs.get("busy", 1.0))
        row = [
            name,
            f"{ours['per_s']:,.0f}",
            said(ratio(by, "per_s"), busy < BUSY_ENOUGH),
            f"{ours['cpu_us']:.2f}" if ours["cpu_us"] >= 0.1 else f"{ours['cpu_us']:.3f}",
            said(ratio(by, "cpu_us")),
            said(ratio(by, "p50_ms")),
            f"{ours['p99_ms']:.2f}" if "p99_ms" in ours else "",
            said(ratio(by, "p99_ms")),
            said(ratio(by, "p999_ms")),
            f"{ours['busy']:.0%} {theirs['busy']:.0%}" if "busy" in ours else "",
        ]
        cells.append(row)
    return cells


def sizes(rows: Rows) -> Cells:
    """Memory, and the longest stalls."""
    cells = [["", "headrace", "redis-server", "ratio"]]
    for name, by in rows.items():
        for figure, unit in (("bytes", "bytes"), ("worst_ms", "ms")):
            if figure in by["headrace"]:
                ours, theirs = by["headrace"][figure], by["redis"][figure]
                cells.append([name, f"{ours:,.1f} {unit}", f"{theirs:,.1f} {unit}", said(ratio(by, figure))])
    return cells


def table(title: str, cells: Cells) -> Table:
    """For a terminal; what is in ** is bold."""
    shown = Table(title=title)
    for column in cells[0]:
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for row in cells[1:]:
        shown.add_row(*(f"[bold]{cell.strip('*')}[/]" if cell.startswith("**") else cell for cell in row))
    return shown


def markdown(cells: Cells) -> str:
    """For a page."""
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(cells[0]) - 1), *lines[1:]]) + "\n"


def page(figures: dict[str, Any]) -> str:
    """All figures as Markdown."""
    rows = figures["rows"]
    below = "".join(f"- {line}\n" for line in short(rows)) or "Nothing.\n"
    return PAGE.format(
        speeds=markdown(speeds(rows)),
        sizes=markdown(sizes(rows)),
        below=below,
        instructions=markdown(instructions()),
        **{name: f"{n:,}" if isinstance(n, int) else n for name, n in figures.items() if name != "rows"},
    )


def instructions() -> Cells:
    """Those that instructions.py has noted."""
    cells = [["", "headrace", "redis-server", "ratio"]]
    for name, by in json.loads(COUNTS.read_text()).items():
        ours, theirs = by["headrace"], by.get("redis")
        beside = [f"{theirs:,.0f}", said(theirs / ours)] if theirs else ["", ""]
        cells.append([name, f"{ours:,.0f}", *beside])
    return cells


def said(value: float | None, doubtful: bool = False) -> str:
    if value is None:
        return ""
    text = f"{value:.2f}"
    if doubtful:
        return f"({text})"
    return text if value >= 0.995 else f"**{text}**"


def short(rows: Rows) -> Iterator[str]:
    """What falls short of the aims: CPU, throughput up to depth 16, p99, memory; a line each."""
    for name, by in rows.items():
        for figure, least in aims(name).items():
            value = ratio(by, figure)
            if value is not None and value < least - 0.005:
                yield f"{name}: {(UPWARD | DOWNWARD)[figure]} {value:.2f}, aim {least:.1f}"


def aims(name: str) -> dict[str, float]:
    """The least ratio wanted of each figure of a row."""
    found = {"cpu_us": CPU_AIM, "p99_ms": 1.0, "worst_ms": 1.0, "bytes": 1.0}
    if "depth 64" not in name:
        found["per_s"] = 1.0
    if name in ("XADD depth 16", "XADD depth 64"):
        found["cpu_us"] = APPEND_AIM
    if name.startswith(("pending entry", "idle connection")):
        found["bytes"] = BY_HALF_AIM
    return found


def chart(rows: Rows, path: Path) -> None:
    """One row for everything measured, one mark for each ratio."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.24 * len(rows) + 1.5), layout="constrained")
    names = list(rows)[::-1]
    labels = UPWARD | DOWNWARD | {"cpu_us": "server CPU per command", "p99_ms": "p99 latency", "worst_ms": ""}
    for which, (field, marker) in enumerate(DRAWN.items()):
        found = [(ratio(rows[name], field), i) for i, name in enumerate(names)]
        points = [(value, i) for value, i in found if value is not None]
        if points:
            color = "C2" if field == "worst_ms" else f"C{which}"
            axes.plot(*zip(*points, strict=True), marker, color=color, label=labels[field] or "longest stall")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    ticks = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(alpha=0.25)
    axes.set_xlabel("ratio to redis-server (1: the same; right of it: better)")
    figure.legend(loc="outside upper right", ncols=5, frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
