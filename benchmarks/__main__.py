"""make bench: alternating rounds against headrace and redis-server; medians and ratios as table, JSON, chart.

    python -m benchmarks [--quick] [--rounds 5] [--requests 400000] [--out docs]

What durability costs comes last: see durable.py. A ratio above 1 is better than redis-server.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import durable, load
from benchmarks.servers import Server

XADD = ["XADD", "bench", "*", "device", "dev123", "temp", "21.5"]
WORKLOADS = {
    # name: (command, pipeline depth, share of the requests)
    "XADD, depth 1": (XADD, 1, 0.25),
    "XADD, depth 16": (XADD, 16, 1.0),
    "XADD, depth 64": (XADD, 64, 1.0),
    "XADD MAXLEN ~ 1000, depth 16": (["XADD", "bench", "MAXLEN", "~", "1000", *XADD[2:]], 16, 1.0),
    "PING, depth 16": (["PING"], 16, 1.0),
    "GET, depth 16": (["GET", "bench"], 16, 1.0),
}


def measure(rounds: int, requests: int) -> dict[str, dict[str, dict[str, float]]]:
    """For each workload and server the median of each figure over the rounds."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    with Server.headrace() as ours, Server.redis() as theirs:
        for name, (command, depth, share) in WORKLOADS.items():
            samples: dict[str, list[load.Sample]] = {ours.name: [], theirs.name: []}
            for turn in track(range(rounds), description=name):
                for server in (ours, theirs) if turn % 2 else (theirs, ours):
                    samples[server.name].append(load.run(server, command, depth, int(requests * share)))
            result[name] = {
                server: {
                    field: statistics.median(getattr(s, field) for s in taken)
                    for field in load.Sample.__dataclass_fields__
                }
                for server, taken in samples.items()
            }
    return result


def memory(entries: int) -> dict[str, float]:
    figures = {}
    for make in (Server.headrace, Server.redis):
        with make() as server:
            figures[server.name] = load.bytes_per_entry(server, entries)
    return figures


def table(result: dict[str, dict[str, dict[str, float]]], entry: dict[str, float]) -> Table:
    shown = Table(title="headrace beside redis-server (ratio above 1: better than redis-server)")
    for column in ("workload", "requests/s", "ratio", "server CPU µs", "ratio", "p99 ms", "ratio"):
        shown.add_column(column, justify="left" if column == "workload" else "right")
    for name, by in result.items():
        h, r = by["headrace"], by["redis"]
        shown.add_row(
            name,
            f"{h['requests_per_s']:,.0f}",
            f"{h['requests_per_s'] / r['requests_per_s']:.2f}",
            f"{h['cpu_us']:.2f}",
            f"{r['cpu_us'] / h['cpu_us']:.2f}",
            f"{h['p99_ms']:.2f}",
            f"{r['p99_ms'] / h['p99_ms']:.2f}",
        )
    shown.add_row("bytes per entry", f"{entry['headrace']:.1f}", f"{entry['redis'] / entry['headrace']:.2f}")
    return shown


def chart(result: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.55 * len(result) + 1.4), layout="constrained")
    names = list(result)[::-1]
    for offset, field, label, upward in (
        (0.2, "requests_per_s", "throughput", True),
        (-0.2, "cpu_us", "server CPU per command", False),
    ):
        ratios = []
        for name in names:
            h, r = result[name]["headrace"][field], result[name]["redis"][field]
            ratios.append(h / r if upward else r / h)
        axes.barh([i + offset for i in range(len(names))], ratios, height=0.36, label=label)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("ratio to redis-server (1 = the same, more is better)")
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one round, fewer requests: a look, not a figure"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--entries", type=int, default=500_000, help="entries for the memory figure")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="where the figures and the chart go")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.requests = 1, options.requests // 10
    result = measure(options.rounds, options.requests)
    entry = memory(options.entries)
    Console().print(table(result, entry))
    options.out.mkdir(parents=True, exist_ok=True)
    figures = {"rounds": options.rounds, "workloads": result, "bytes_per_entry": entry}
    (options.out / "bench.json").write_text(json.dumps(figures, indent=1) + "\n")
    chart(result, options.out / "bench.png")
    durable.report(options.rounds, options.requests // 4, 2 * options.entries, options.out)
    print(f"figures: {options.out}/bench.json, durable.json   chart: {options.out}/bench.png")


if __name__ == "__main__":
    main()
