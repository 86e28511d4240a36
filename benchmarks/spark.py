"""Measure the Spark source, the sink and the archive job, with references, and latency; medians of one run.

python -m benchmarks.spark [--entries 2000000] [--rounds 3] [--latencies 60] [--out docs]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import spark_archive, spark_job, spark_latency, spark_read, spark_write
from benchmarks.servers import Server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latencies", type=int, default=60, help="entries for the measurement of latency")
    parser.add_argument(
        "--only", choices=["read", "write", "archive", "latency"], help="measure only this part"
    )
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the directory for spark_bench.json")
    args = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    figures: dict[str, Any] = {"entries": args.entries, "rounds": args.rounds}
    path = args.out / "spark_bench.json"
    if args.only and path.exists():
        figures = json.loads(path.read_text()) | figures

    def store(part: str, found: object) -> None:
        figures[part] = found
        args.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n")

    if args.only in (None, "latency"):
        found = {
            "defaults": spark_latency.run_in_subprocess(args.latencies, tuned=False),
            "tuned": spark_latency.run_in_subprocess(args.latencies, tuned=True),
        }
        store("latency", found)
        console.print(spark_latency.table(found))
    if args.only == "latency":
        return
    with Server.redis() as redis, Server.headrace() as headrace:
        servers = {"redis": redis, "headrace": headrace}
        for server in servers.values():
            spark_job.allow_all_cores(server)
        spark = spark_job.session()
        if args.only in (None, "read"):
            read = spark_read.measure(spark, servers, args.entries, args.rounds)
            store("read", read)
            console.print(spark_read.table(read))
        if args.only in (None, "write"):
            written = spark_write.measure(spark, servers, args.entries, args.rounds)
            store("write", written)
            console.print(spark_write.table(written))
        if args.only in (None, "archive"):
            archived = spark_archive.measure(spark, headrace, args.entries, args.rounds)
            store("archive", archived)
            console.print(spark_archive.table(archived))
        spark.stop()
    console.print(f"figures: {path}")


if __name__ == "__main__":
    main()
