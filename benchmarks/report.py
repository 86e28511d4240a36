"""Report the figures as tables, as a chart, and as a list of missed targets.

All ratios are such that above 1 Headrace is better than redis-server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.rounds import Figures, Rows

HIGHER_IS_BETTER = {"per_s": "throughput"}
LOWER_IS_BETTER = {
    "cpu_us": "server CPU",
    "p50_ms": "p50",
    "p99_ms": "p99",
    "p999_ms": "p99.9",
    "worst_ms": "stall",
    "bytes": "memory",
}
CHART_MARKERS = {"cpu_us": "o", "per_s": "|", "p99_ms": "x", "worst_ms": "D", "bytes": "s"}
BUSY_MIN = 0.85  # below it the load was the bottleneck, so the ratio of throughput is doubtful
COUNTS = Path(__file__).with_name("instructions.json")
CPU_TARGET, APPEND_TARGET, HALF_MEMORY_TARGET = 1.0, 1.2, 2.0
PAGE = """\
# Beside redis-server

Written by `make bench`; [performance.md](performance.md#beside-redis-server) explains the rows.
{servers[headrace]} and {servers[redis]} on {cores} cores; rounds: {rounds};
requests of the cheaper workloads: {requests}; entries for memory: {entries}, loaded: {loaded}.

{rate_cells}
{size_cells}
![the same as a chart](bench.png)

Instructions per command in user space, as stored by `make bench-instructions`:

{instructions}
Missed targets:

{missed}"""


def ratio(by: Figures, figure: str) -> float | None:
    """Return the ratio of one figure of a row; None if it was not measured."""
    ours, theirs = by["headrace"].get(figure), by["redis"].get(figure)
    if not ours or not theirs:
        return None
    return ours / theirs if figure in HIGHER_IS_BETTER else theirs / ours


Cells = list[list[str]]  # the first row has the column names


def rate_cells(rows: Rows) -> Cells:
    """Return the table of all rows with a rate."""
    cells = [
        ["", "per s", "ratio", "CPU, µs", "ratio", "p50", "p99, ms", "p99", "p99.9", "busy", "busy, redis"]
    ]
    for name, by in rows.items():
        if "per_s" not in by["headrace"]:
            continue
        ours, theirs = by["headrace"], by["redis"]
        busy = min(ours.get("busy", 1.0), theirs.get("busy", 1.0))
        row = [
            name,
            f"{ours['per_s']:,.0f}",
            format_ratio(ratio(by, "per_s"), busy < BUSY_MIN),
            f"{ours['cpu_us']:.2f}" if ours["cpu_us"] >= 0.1 else f"{ours['cpu_us']:.3f}",
            format_ratio(ratio(by, "cpu_us")),
            format_ratio(ratio(by, "p50_ms")),
            f"{ours['p99_ms']:.2f}" if "p99_ms" in ours else "",
            format_ratio(ratio(by, "p99_ms")),
            format_ratio(ratio(by, "p999_ms")),
            *(f"{figures['busy']:.0%}" if "busy" in figures else "" for figures in (ours, theirs)),
        ]
        cells.append(row)
    return cells


def size_cells(rows: Rows) -> Cells:
    """Return the table of memory and of the longest stalls."""
    cells = [["", "headrace", "redis-server", "ratio"]]
    for name, by in rows.items():
        for figure, unit in (("bytes", "bytes"), ("worst_ms", "ms")):
            if figure in by["headrace"]:
                ours, theirs = by["headrace"][figure], by["redis"][figure]
                cells.append(
                    [name, f"{ours:,.1f} {unit}", f"{theirs:,.1f} {unit}", format_ratio(ratio(by, figure))]
                )
    return cells


def terminal_table(title: str, cells: Cells) -> Table:
    """Return a table for the terminal; cells in ** are bold."""
    shown = Table(title=title)
    for column in cells[0]:
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for row in cells[1:]:
        shown.add_row(*(f"[bold]{cell.strip('*')}[/]" if cell.startswith("**") else cell for cell in row))
    return shown


def markdown_table(cells: Cells) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(cells[0]) - 1), *lines[1:]]) + "\n"


def render_page(figures: dict[str, Any]) -> str:
    """Return all figures as Markdown."""
    rows = figures["rows"]
    missed = "".join(f"- {line}\n" for line in missed_targets(rows)) or "Nothing.\n"
    return PAGE.format(
        rate_cells=markdown_table(rate_cells(rows)),
        size_cells=markdown_table(size_cells(rows)),
        missed=missed,
        instructions=markdown_table(instruction_cells()),
        **{name: f"{n:,}" if isinstance(n, int) else n for name, n in figures.items() if name != "rows"},
    )


def instruction_cells() -> Cells:
    """Return the table of the stored counts of instructions."""
    cells = [["", "headrace", "redis-server", "ratio"]]
    for name, by in json.loads(COUNTS.read_text()).items():
        ours, theirs = by["headrace"], by.get("redis")
        compared = [f"{theirs:,.0f}", format_ratio(theirs / ours)] if theirs else ["", ""]
        cells.append([name, f"{ours:,.0f}", *compared])
    return cells


def format_ratio(value: float | None, doubtful: bool = False) -> str:
    """Return a ratio as text: in brackets if it is doubtful, bold if redis-server is better."""
    if value is None:
        return ""
    text = f"{value:.2f}"
    if doubtful:
        return f"({text})"
    return text if value >= 0.995 else f"**{text}**"


def missed_targets(rows: Rows) -> Iterator[str]:
    """Yield a line for each figure below its target."""
    for name, by in rows.items():
        for figure, target in targets(name).items():
            value = ratio(by, figure)
            if value is not None and value < target - 0.005:
                label = (HIGHER_IS_BETTER | LOWER_IS_BETTER)[figure]
                yield f"{name}: {label} {value:.2f}, target {target:.1f}"


def targets(name: str) -> dict[str, float]:
    """Return the minimum ratio of each figure of a row; none if the row measures the machine."""
    if "without BGSAVE" in name:
        return {}
    found = {"cpu_us": CPU_TARGET, "p99_ms": 1.0, "worst_ms": 1.0, "bytes": 1.0}
    if "depth 64" not in name:
        found["per_s"] = 1.0
    if name in ("XADD depth 16", "XADD depth 64"):
        found["cpu_us"] = APPEND_TARGET
    if name.startswith(("pending entry", "idle connection")):
        found["bytes"] = HALF_MEMORY_TARGET
    return found


def chart(rows: Rows, path: Path) -> None:
    """Draw a row for each row of the tables that has targets, with a mark for each ratio."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in rows if targets(name)][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.24 * len(names) + 1.5), layout="constrained")
    labels = (
        HIGHER_IS_BETTER
        | LOWER_IS_BETTER
        | {"cpu_us": "server CPU per command", "p99_ms": "p99 latency", "worst_ms": ""}
    )
    for which, (field, marker) in enumerate(CHART_MARKERS.items()):
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
