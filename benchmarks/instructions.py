"""make bench-instructions: instructions per command of the hottest paths, compared with those noted before.

    python -m benchmarks.instructions [--keep] [--redis] [--only PATH,...] [--profile DIRECTORY]

valgrind's callgrind counts what a server executes in user space, sixteen requests a turn, on one connection.
Counts hardly move with what else the machine does: a regression is seen without a quiet one. They are kept in
instructions.json beside this file; --keep writes it anew, --redis counts redis-server, too (over a socket, so
that its figures waver by a percent or two), --profile leaves callgrind's files for callgrind_annotate.

Exit code: 0; 1 when a path costs over two percent more than noted; 2 without valgrind.
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

from benchmarks.paths import BY_NAME, COUNTED, WARM_UP, words
from benchmarks.report import COUNTS
from benchmarks.servers import IN_MEMORY, free_port
from benchmarks.wire import Wire

MOVED = 0.02  # of a path's instructions: less is chance, such as where the allocator finds room
TOGGLE = "__pyx_f_*4Turn_once"  # the C function of Turn.once: what is outside of it is not counted
END_SECONDS_MAX = 60


def callgrind(out: Path, *options: str) -> list[str]:
    return ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", *options]


def part(out: Path, number: int) -> int:
    """What callgrind counted between two dumps."""
    for line in Path(f"{out}.{number}").read_text().splitlines():
        if line.startswith("totals:") and (total := int(line.split()[1])):
            return total
    raise SystemExit(f"{out}.{number} has no total: callgrind counted nothing")


def of_headrace(name: str, out: Path) -> float:
    """Instructions per command of one path of ours."""
    subprocess.run(
        [
            *callgrind(out, f"--toggle-collect={TOGGLE}", "--dump-before=getppid"),
            *(sys.executable, "-m", "benchmarks.instructions_child", name),
        ],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    return part(out, 2) / COUNTED


def of_redis(name: str, out: Path) -> float:
    """Instructions per command of one path of redis-server, all of its process, between two TIMEs."""
    program = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    if program is None:
        raise SystemExit("no redis-server to count: install it or name it in REDIS_SERVER=")
    path, port = BY_NAME[name], free_port()
    total = WARM_UP + COUNTED
    log = ("--save", "", "--appendonly", "yes", "--appendfsync", "no") if path.logged else IN_MEMORY
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen(
            [*callgrind(out, "--dump-before=timeCommand"), program, "--port", str(port), "--hz", "1", *log],
            cwd=scratch,
            stdout=subprocess.DEVNULL,
        )
        try:
            client = Wire(port)
            client.exchange(path.prepare(total))
            requests = [path.request(i, total) for i in range(total)]
            for i in range(0, total, path.depth):
                if i == WARM_UP:
                    client.exchange([words("TIME")])
                client.exchange(requests[i : i + path.depth])
            client.exchange([words("TIME")])
            client.close()
        finally:
            process.terminate()
            process.wait(END_SECONDS_MAX)
    return part(out, 2) / COUNTED


def count(names: list[str], with_redis: bool, directory: Path) -> dict[str, dict[str, float]]:
    """By path, then by server."""
    asked = [(name, "headrace", of_headrace) for name in names]
    asked += [(name, "redis", of_redis) for name in names if with_redis]
    counted: dict[str, dict[str, float]] = {name: {} for name in names}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = [
            (name, server, pool.submit(run, name, directory / f"{server}-{plain(name)}"))
            for name, server, run in asked
        ]
        for name, server, result in waiting:
            counted[name][server] = round(result.result(), 1)
    return counted


def plain(name: str) -> str:
    """The name of a path as a file may be called."""
    return "".join(c if c.isalnum() else "-" for c in name)


def table(counted: dict[str, dict[str, float]], noted: dict[str, dict[str, float]]) -> Table:
    shown = Table(title="instructions per command, in user space")
    for column in ("path", "noted", "now", "moved", "redis-server", "ratio"):
        shown.add_column(column, justify="left" if column == "path" else "right", no_wrap=True)
    for name, by in counted.items():
        now, before = by["headrace"], noted.get(name, {}).get("headrace")
        theirs = by.get("redis", noted.get(name, {}).get("redis"))
        moved = f"{now / before - 1:+.1%}" if before else ""
        shown.add_row(
            name,
            f"{before:,.0f}" if before else "",
            f"{now:,.0f}",
            f"[bold]{moved}[/]" if before and abs(now / before - 1) > MOVED else moved,
            f"{theirs:,.0f}" if theirs else "",
            f"{theirs / now:.2f}" if theirs else "",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--keep", action="store_true", help="note the counts as those to compare with")
    parser.add_argument("--redis", action="store_true", help="count redis-server, too")
    parser.add_argument("--only", default="", help="paths, with commas between")
    parser.add_argument("--profile", type=Path, help="where callgrind's files are to stay")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print(
            "valgrind is not installed: no instructions counted (apt-get install valgrind)", file=sys.stderr
        )
        raise SystemExit(2)
    names = options.only.split(",") if options.only else list(BY_NAME)
    if unknown := sorted(set(names) - set(BY_NAME)):
        raise SystemExit(f"no such path: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    noted = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.profile or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        counted = count(names, options.redis, directory)
    Console(width=None if sys.stdout.isatty() else 110).print(table(counted, noted))
    if options.keep:
        merged = {name: noted.get(name, {}) | by for name, by in counted.items()}
        COUNTS.write_text(json.dumps(noted | merged, indent=1) + "\n")
    worse = [
        f"{name} {by['headrace'] / noted[name]['headrace'] - 1:+.1%}"
        for name, by in counted.items()
        if name in noted and by["headrace"] > noted[name]["headrace"] * (1 + MOVED)
    ]
    if worse and not options.keep:
        raise SystemExit(f"costs more than noted: {', '.join(worse)}")


if __name__ == "__main__":
    main()
