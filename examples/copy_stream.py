"""Copy a stream to another stream, exactly once, on the same server or on another one.

spark-submit examples/copy_stream.py redis://127.0.0.1:7777 orders redis://127.0.0.1:6379 orders-copy

After a crash a new run adds the missing entries and none twice: the transaction that adds entries also
sets a marker on the server. One task per stream keeps the order.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def run(spark: SparkSession, url: str, source: str, to: str, target: str, checkpoint: Path) -> None:
    """Copy the entries that exist now and were not copied yet."""
    entries = (
        spark.readStream.format("headrace")
        .option("url", url)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("minPartitions", 1)
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    query = (
        entries.writeStream.format("headrace")
        .option("url", to)
        .option("stream", target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    url, source, to, target = sys.argv[1:]
    run(SparkSession.builder.getOrCreate(), url, source, to, target, Path("state/copy"))
