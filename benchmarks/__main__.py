"""make bench: headrace and redis-server side by side; medians and ratios as tables, JSON and a chart.

    python -m benchmarks [--quick] [--rounds 5] [--requests 600000] [--entries 500000] [--loaded 10000000]
                         [--only NAME,...] [--out docs]

Each round measures both servers, the next one in the other order; one server is at work at a time, alone on
its core. REDIS_SERVER= names another program to compare with. --only takes beginnings of rows' names, or
memory, durability, loading; the rows of an earlier run stay in bench.json and in the chart beside them.
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

from benchmarks import durable, load, loading, memory, report
from benchmarks.rounds import SERVERS, Rows, alternately, medians
from benchmarks.workloads import WORKLOADS, Workload

WIDTH = 130  # into a file, too, the tables are whole
QUICK = 10  # how much less --quick does


def workloads(rounds: int, requests: int, wanted: list[Workload]) -> Rows:
    """The rows of all that redis-benchmark and our own load do to servers that keep nothing on disk."""
    rows: Rows = {}
    with SERVERS["redis"]() as theirs, SERVERS["headrace"]() as ours:
        running = {"redis": theirs, "headrace": ours}
        for workload in track(wanted, description="workloads"):
            count = int(requests * workload.share)

            def sample(name: str, workload: Workload = workload, count: int = count) -> load.Sample:
                load.flush(running[name])
                return workload.measure(running[name], count)

            rows[workload.name] = medians(alternately(rounds, sample))
    return rows


def versions() -> dict[str, str]:
    said = {}
    for name, make in SERVERS.items():
        with make() as server:
            said[name] = server.version()
    return said


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="one round of a tenth: a look, not a figure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=600_000, help="of the cheapest workloads")
    parser.add_argument("--entries", type=int, default=500_000, help="for memory")
    parser.add_argument("--loaded", type=int, default=10_000_000, help="entries that are loaded and saved")
    parser.add_argument("--only", default="", help="beginnings of names, with commas between")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="where the figures go")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
        for size in ("requests", "entries", "loaded"):
            setattr(options, size, getattr(options, size) // QUICK)
    begun = time.monotonic()
    rows = measure(options)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.width = max(console.width, WIDTH)
    title = "headrace beside redis-server (ratios: above 1 is better than redis-server)"
    console.print(report.table(title, report.speeds(rows)))
    console.print(report.table("memory and stalls", report.sizes(rows)))
    for line in report.short(rows):
        console.print(f"short of the aim: {line}", highlight=False)
    write(options, rows)
    took = time.monotonic() - begun
    console.print(
        f"figures: {options.out}/bench.json, bench.md   chart: {options.out}/bench.png   {took:,.0f} s"
    )


def measure(options: argparse.Namespace) -> Rows:
    """All rows that are wanted."""
    parts = options.only.split(",") if options.only else [""]

    def is_wanted(name: str, part: str = "") -> bool:
        return any(name.startswith(p) or (part and p == part) for p in parts)

    wanted = [w for w in WORKLOADS if is_wanted(w.name)]
    logged = [name for name in durable.POLICIES if is_wanted(name, "durability")]
    is_memory, is_loading = is_wanted("memory"), is_wanted("loading")
    if not (wanted or logged or is_memory or is_loading):
        raise SystemExit(f"--only {options.only}: nothing is called so")
    rows: Rows = {}
    if wanted:
        rows |= workloads(options.rounds, options.requests, wanted)
    if logged:
        rows |= durable.measure(options.rounds, options.requests, logged)
    if is_loading:
        rows |= loading.measure(min(options.rounds, 3), options.loaded)
    if is_memory:
        rows |= memory.measure(options.entries)
    return rows


def write(options: argparse.Namespace, rows: Rows) -> None:
    """bench.json, bench.md and bench.png; what --only has left out stays as it was."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "bench.json"
    before = json.loads(path.read_text()).get("rows", {}) if options.only and path.exists() else {}
    said: dict[str, Any] = {
        "servers": versions(),
        "cores": os.cpu_count(),
        **{name: getattr(options, name) for name in ("rounds", "requests", "entries", "loaded")},
        "rows": before | rows,
    }
    path.write_text(json.dumps(said, indent=1) + "\n")
    (options.out / "bench.md").write_text(report.page(said))
    report.chart(before | rows, options.out / "bench.png")


if __name__ == "__main__":
    main()
