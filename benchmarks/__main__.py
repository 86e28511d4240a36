"""make bench: headrace and redis-server side by side; medians and ratios as tables, JSON and a chart.

    python -m benchmarks [--quick] [--rounds 5] [--requests 600000] [--entries 500000] [--loaded 10000000]
                         [--only NAME,...] [--out docs]

Each round measures both servers, in alternating order. Only one server runs a load at a time, alone on its
core. REDIS_SERVER= names another server program to compare with. --only selects rows by the beginning of
their names, or by memory, durability, loading, snapshots, replication; other rows of an earlier run stay in
bench.json and the chart.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks import durability, loading, memory, redis_benchmark, replication, report, snapshots
from benchmarks.rounds import SERVERS, Rows, medians, sample_rounds
from benchmarks.workloads import WORKLOADS, Workload

WIDTH = 130  # of the tables, also in a file
QUICK_DIVISOR = 10  # --quick measures this fraction


def workloads(rounds: int, requests: int, wanted: list[Workload]) -> Rows:
    """Measure the workloads on servers without persistence."""
    rows: Rows = {}
    with SERVERS["redis"]() as theirs, SERVERS["headrace"]() as ours:
        running = {"redis": theirs, "headrace": ours}
        for workload in track(wanted, description="workloads"):
            count = int(requests * workload.share)

            def sample(
                name: str, workload: Workload = workload, count: int = count
            ) -> redis_benchmark.Sample:
                redis_benchmark.flush(running[name])
                return workload.measure(running[name], count)

            rows[workload.name] = medians(sample_rounds(rounds, sample))
    return rows


def versions() -> dict[str, str]:
    """Return the version of each server."""
    found = {}
    for name, make in SERVERS.items():
        with make() as server:
            found[name] = server.version()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--quick", action="store_true", help="one round of a tenth of the requests; not precise"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=600_000, help="requests of the cheapest workloads")
    parser.add_argument("--entries", type=int, default=500_000, help="entries for the rows on memory")
    parser.add_argument("--loaded", type=int, default=10_000_000, help="entries to load and save")
    parser.add_argument("--only", default="", help="beginnings of row names, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the directory for the figures")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
        for size in ("requests", "entries", "loaded"):
            setattr(options, size, getattr(options, size) // QUICK_DIVISOR)
    started = time.monotonic()
    rows = measure(options)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.width = max(console.width, WIDTH)
    title = "headrace beside redis-server (ratios: above 1 is better than redis-server)"
    console.print(report.terminal_table(title, report.rate_cells(rows)))
    console.print(report.terminal_table("memory and stalls", report.size_cells(rows)))
    for line in report.missed_targets(rows):
        console.print(f"target missed: {line}", highlight=False)
    write(options, rows)
    took = time.monotonic() - started
    console.print(
        f"figures: {options.out}/bench.json, bench.md   chart: {options.out}/bench.png   {took:,.0f} s"
    )


def measure(options: argparse.Namespace) -> Rows:
    """Measure the selected rows."""
    parts = options.only.split(",") if options.only else [""]

    def is_wanted(name: str, part: str = "") -> bool:
        return any(name.startswith(p) or (part and p == part) for p in parts)

    wanted = [w for w in WORKLOADS if is_wanted(w.name)]
    logged = [name for name in durability.POLICIES if is_wanted(name, "durability")]
    is_memory, is_loading = is_wanted("memory"), is_wanted("loading")
    is_replication, is_snapshots = is_wanted("replication"), is_wanted("snapshots")
    if not (wanted or logged or is_memory or is_loading or is_replication or is_snapshots):
        raise SystemExit(f"--only {options.only}: no row has such a name")
    rows: Rows = {}
    if wanted:
        rows |= workloads(options.rounds, options.requests, wanted)
    if logged:
        rows |= durability.measure(options.rounds, options.requests, logged)
    if is_loading:
        rows |= loading.measure(min(options.rounds, 3), options.loaded)
    if is_snapshots:
        rows |= snapshots.measure(min(options.rounds, 3), options.loaded)
    if is_replication:
        rows |= replication.measure(min(options.rounds, 3), options.requests, options.entries)
    if is_memory:
        rows |= memory.measure(options.entries)
    return rows


def write(options: argparse.Namespace, rows: Rows) -> None:
    """Write bench.json, bench.md and bench.png; rows that --only left out are kept."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "bench.json"
    before = json.loads(path.read_text()).get("rows", {}) if options.only and path.exists() else {}
    figures: dict[str, Any] = {
        "servers": versions(),
        "cores": os.cpu_count(),
        **{name: getattr(options, name) for name in ("rounds", "requests", "entries", "loaded")},
        "rows": before | rows,
    }
    path.write_text(json.dumps(figures, indent=1) + "\n")
    (options.out / "bench.md").write_text(report.render_page(figures))
    report.chart(before | rows, options.out / "bench.png")


if __name__ == "__main__":
    main()
