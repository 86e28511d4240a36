"""make bench-instructions: count instructions per command, compare with stored counts.

    python -m benchmarks.instructions [--keep] [--redis] [--only PATH,...] [--profile DIRECTORY]

valgrind's callgrind counts the instructions of a server in user space, on one connection. The counts hardly
depend on the load of the machine. They are stored in instructions.json beside this file; --keep updates it.
--redis also counts redis-server, over TCP, so its counts vary by a percent or two. --profile keeps the files
of callgrind for callgrind_annotate.

Exit code: 0; 1 if a path costs over two percent more than stored; 2 without valgrind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.connection import Connection
from benchmarks.hot_paths import COUNTED, PATHS_BY_NAME, WARM_UP, encode
from benchmarks.report import COUNTS
from benchmarks.servers import IN_MEMORY, free_port

TOLERANCE = 0.02  # the relative change that is reported; smaller ones are chance
TOGGLE = "__pyx_f_*9EventLoop_run_once"  # the C function of EventLoop.run_once: only it is counted
END_SECONDS_MAX = 60


def callgrind(out: Path, *options: str) -> list[str]:
    return ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", *options]


def dump_total(out: Path, number: int) -> int:
    """Return the instructions counted between two dumps."""
    for line in Path(f"{out}.{number}").read_text().splitlines():
        if line.startswith("totals:") and (total := int(line.split()[1])):
            return total
    raise SystemExit(f"{out}.{number} has no total: callgrind counted nothing")


def count_headrace(name: str, out: Path) -> float:
    """Return the instructions per command of one path of Headrace."""
    subprocess.run(
        [
            *callgrind(out, f"--toggle-collect={TOGGLE}", "--dump-before=getppid"),
            *(sys.executable, "-m", "benchmarks.instructions_child", name),
        ],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    return dump_total(out, 2) / COUNTED


def count_redis(name: str, out: Path) -> float:
    """Return the instructions per command of one path of redis-server: of its process between two TIMEs."""
    program = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    if program is None:
        raise SystemExit("no redis-server to count: install it or name it in REDIS_SERVER=")
    path, port = PATHS_BY_NAME[name], free_port()
    total = WARM_UP + COUNTED
    log = ("--save", "", "--appendonly", "yes", "--appendfsync", "no") if path.logged else IN_MEMORY
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen(
            [*callgrind(out, "--dump-before=timeCommand"), program, "--port", str(port), "--hz", "1", *log],
            cwd=scratch,
            stdout=subprocess.DEVNULL,
        )
        try:
            client = Connection(port)
            client.exchange(path.prepare(total))
            requests = [path.request(i, total) for i in range(total)]
            for i in range(0, total, path.depth):
                if i == WARM_UP:
                    client.exchange([encode("TIME")])
                client.exchange(requests[i : i + path.depth])
            client.exchange([encode("TIME")])
            client.close()
        finally:
            process.terminate()
            process.wait(END_SECONDS_MAX)
    return dump_total(out, 2) / COUNTED


def count(names: list[str], with_redis: bool, directory: Path) -> dict[str, dict[str, float]]:
    """Return the instructions per command, by path and by server."""
    runs = [(name, "headrace", count_headrace) for name in names]
    runs += [(name, "redis", count_redis) for name in names if with_redis]
    counted: dict[str, dict[str, float]] = {name: {} for name in names}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = [
            (name, server, pool.submit(run, name, directory / f"{server}-{file_name(name)}"))
            for name, server, run in runs
        ]
        for name, server, result in waiting:
            counted[name][server] = round(result.result(), 1)
    return counted


def file_name(name: str) -> str:
    """Return the name of a path as a file name."""
    return "".join(c if c.isalnum() else "-" for c in name)


def table(counted: dict[str, dict[str, float]], stored: dict[str, dict[str, float]]) -> Table:
    shown = Table(title="instructions per command, in user space")
    for column in ("path", "stored", "now", "change", "redis-server", "ratio"):
        shown.add_column(column, justify="left" if column == "path" else "right", no_wrap=True)
    for name, by in counted.items():
        now, before = by["headrace"], stored.get(name, {}).get("headrace")
        theirs = by.get("redis", stored.get(name, {}).get("redis"))
        change = f"{now / before - 1:+.1%}" if before else ""
        shown.add_row(
            name,
            f"{before:,.0f}" if before else "",
            f"{now:,.0f}",
            f"[bold]{change}[/]" if before and abs(now / before - 1) > TOLERANCE else change,
            f"{theirs:,.0f}" if theirs else "",
            f"{theirs / now:.2f}" if theirs else "",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--keep", action="store_true", help="store the counts")
    parser.add_argument("--redis", action="store_true", help="also count redis-server")
    parser.add_argument("--only", default="", help="paths, separated by commas")
    parser.add_argument("--profile", type=Path, help="the directory for callgrind's files")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print(
            "valgrind is not installed: no instructions counted (apt-get install valgrind)", file=sys.stderr
        )
        raise SystemExit(2)
    names = options.only.split(",") if options.only else list(PATHS_BY_NAME)
    if unknown := sorted(set(names) - set(PATHS_BY_NAME)):
        raise SystemExit(f"unknown path: {', '.join(unknown)}; expected one of {', '.join(PATHS_BY_NAME)}")
    stored = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.profile or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        counted = count(names, options.redis, directory)
    Console(width=None if sys.stdout.isatty() else 110).print(table(counted, stored))
    if options.keep:
        merged = {name: stored.get(name, {}) | by for name, by in counted.items()}
        COUNTS.write_text(json.dumps(stored | merged, indent=1) + "\n")
    worse = [
        f"{name} {by['headrace'] / stored[name]['headrace'] - 1:+.1%}"
        for name, by in counted.items()
        if name in stored and by["headrace"] > stored[name]["headrace"] * (1 + TOLERANCE)
    ]
    if worse and not options.keep:
        raise SystemExit(f"costs more than stored: {', '.join(worse)}")


if __name__ == "__main__":
    main()
