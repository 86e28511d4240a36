"""make soak: a mixed load on headrace and on redis-server, while nothing in headrace may grow.

    python -m benchmarks.soak [--seconds 600] [--chart build/soak.png]

Both servers get the same load at the same rate, and each has a replica of its own kind, which is synchronised
again and again. All four processes are sampled. The program ends with status 1 if the memory, descriptors or
threads of headrace or of its replica grow steadily (soak_samples.py), or if the load fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks import soak_samples
from benchmarks.connection import Connection
from benchmarks.rounds import SERVERS
from benchmarks.servers import ALL_CORES, Server
from benchmarks.soak_load import SoakLoad
from benchmarks.soak_samples import FIGURES, LABELS, Sample

DIRECTIVES = (
    *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    *("--repl-diskless-sync-delay", "0", "--logfile", "server.log"),
)
WIDTH = 110  # of the table in a file
SHOWN_MIN = 30  # with fewer samples there is nothing to compare
SAMPLES = 300  # at least; at most one each second
SAVES, SAVE_S_MAX = 40, 5.0
RESYNCS, RESYNC_S_MAX = 30, 10.0


class Soak:
    """The servers, their load and their samples."""

    def __init__(self, servers: dict[str, Server]) -> None:
        """servers: by name; the replica of `name` is `name replica`."""
        self.servers = servers
        self.samples: dict[str, list[Sample]] = {name: [] for name in servers}
        self._connections = {name: Connection(server.port) for name, server in servers.items()}

    def run(self, seconds: float, console: Console) -> list[str]:
        """Run the load for so long; return what went wrong with it."""
        loads = {
            name: SoakLoad(
                self.servers[name],
                self.servers[f"{name} replica"],
                min(seconds / SAVES, SAVE_S_MAX),
                min(seconds / RESYNCS, RESYNC_S_MAX),
            )
            for name in SERVERS
        }
        progress = Progress(TextColumn("soak"), BarColumn(), TimeRemainingColumn())
        bar = progress.add_task("soak", total=seconds)
        for load in loads.values():
            load.start()
        started = time.monotonic()
        with Live(console=console, refresh_per_second=2) as live:
            while (at_s := time.monotonic() - started) < seconds:
                self._sample(at_s)
                progress.update(bar, completed=at_s)
                live.update(Group(progress, self.table()))
                if any(load.failure for load in loads.values()):
                    break
                time.sleep(min(max(seconds / SAMPLES, 0.1), 1.0))
            live.update(self.table())
        for load in loads.values():
            load.stop()
        return [
            f"the load of {name} failed: {load.failure!r}" for name, load in loads.items() if load.failure
        ]

    def _sample(self, at_s: float) -> None:
        for name, server in self.servers.items():
            self.samples[name].append(soak_samples.take(server, self._connections[name], at_s))

    def table(self) -> Table:
        """Return the medians after the warm-up and at the end; of few samples the last one."""
        table = Table("", *(LABELS[figure] for figure in FIGURES))
        for name, samples in self.samples.items():
            cells = []
            for figure in FIGURES:
                values = [getattr(sample, figure) for sample in samples]
                shown = (
                    values[-1:] if len(values) < SHOWN_MIN else soak_samples.ends(values[len(values) // 3 :])
                )
                digits = 1 if figure.endswith("mb") else 0
                cells.append(" → ".join(f"{value:,.{digits}f}" for value in shown))
            table.add_row(name, *cells)
        return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--chart", type=Path, default=Path("build/soak.png"))
    arguments = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    with contextlib.ExitStack() as stack:
        servers = {
            f"{name}{kind}": stack.enter_context(make(*DIRECTIVES, cores=ALL_CORES))
            for name, make in SERVERS.items()
            for kind in ("", " replica")
        }
        console.print(f"{servers['headrace'].version()} beside {servers['redis'].version()}")
        soak = Soak(servers)
        wrong = soak.run(arguments.seconds, console)
    soak_samples.chart(soak.samples, arguments.chart)
    figures = {name: [asdict(sample) for sample in samples] for name, samples in soak.samples.items()}
    arguments.chart.with_suffix(".json").write_text(json.dumps(figures))
    console.print(f"chart: {arguments.chart}; samples: {arguments.chart.with_suffix('.json')}")
    for name in ("headrace", "headrace replica"):
        wrong += [f"{name}: {line}" for line in soak_samples.growing(soak.samples[name])]
    for line in wrong:
        console.print(f"[red]{line}[/]", soft_wrap=True)
    if not wrong:
        console.print("nothing grows steadily")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
