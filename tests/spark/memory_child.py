"""Read streams as one task each in a worker with limited memory, and print the results as JSON."""

import json
import os
import pathlib
import sys

from pyspark.sql import SparkSession
from spark_child import session
from spark_workers import workers_below

LIMIT = 512 << 20
LIMITED = "--conf spark.executor.pyspark.memory=512m pyspark-shell"


def peak() -> int:
    """Return the peak resident memory, in bytes, of the workers with limited memory."""
    found = []
    for pid in workers_below(os.getpid()):
        about = pathlib.Path(f"/proc/{pid}")
        [limit] = [line for line in (about / "limits").read_text().splitlines() if "address space" in line]
        [high] = [line for line in (about / "status").read_text().splitlines() if line.startswith("VmHWM")]
        if limit.split()[3] == str(LIMIT):
            found.append(int(high.split()[1]) * 1024)
    return max(found)


def read(spark: SparkSession, url: str, stream: str, fetch: str) -> tuple[int, int, int]:
    """Return (rows, the sum of their numbers, the peak memory afterwards)."""
    reader = spark.read.format("headrace").option("url", url).option("subscribe", stream)
    rows = reader.option("fetch", fetch).option("minPartitions", "1").schema("n LONG, text STRING").load()
    [row] = rows.selectExpr("count(text) AS rows", "sum(n) AS total").collect()
    return row.rows, row.total, peak()


def main(url: str, folder: str, *ways: str) -> None:
    os.environ["PYSPARK_SUBMIT_ARGS"] = LIMITED  # of this process only: others import the module
    spark = session(f"{folder}/warehouse", "local[1]")
    found = {way: [read(spark, url, stream, way) for stream in ("short", "long")] for way in ways}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
