"""Archived and live entries of a stream as one table.

headrace archive --stream orders --to archive/orders
headrace trim --stream orders --archive archive/orders
spark-submit examples/history.py redis://127.0.0.1:7777 orders archive/orders

Entries up to the end of the archive are read from its Parquet files, later ones from the stream. No entry is
missing or read twice, even if the stream is trimmed meanwhile.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def history(spark: SparkSession, url: str, stream: str, archive: Path) -> DataFrame:
    """Return stream, id, timestamp, sequence and fields of every archived or live entry."""
    reader = spark.read.format("headrace").option("url", url).option("subscribe", stream)
    return reader.option("archive", str(archive)).load()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    url, stream, archive = sys.argv[1:]
    rows = history(SparkSession.builder.getOrCreate(), url, stream, Path(archive))
    rows.groupBy(rows.timestamp.cast("date").alias("day")).count().orderBy("day").show(1000)
