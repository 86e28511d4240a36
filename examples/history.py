"""Old entries and new ones as one table: what is archived and trimmed, and what is still in the stream.

headrace archive --stream orders --to archive/orders
headrace trim --stream orders --archive archive/orders
spark-submit examples/history.py redis://127.0.0.1:7777 orders archive/orders

Up to where the archive reaches, its Parquet files are read; after that, the stream. No entry comes twice and
none is missing, however far the stream was trimmed in between.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def history(spark: SparkSession, url: str, stream: str, archive: Path) -> DataFrame:
    """stream, id, timestamp, sequence, fields of every entry there ever was."""
    reader = spark.read.format("headrace").option("url", url).option("subscribe", stream)
    return reader.option("archive", str(archive)).load()


if __name__ == "__main__":
    url, stream, archive = sys.argv[1:]
    rows = history(SparkSession.builder.getOrCreate(), url, stream, Path(archive))
    rows.groupBy(rows.timestamp.cast("date").alias("day")).count().orderBy("day").show(1000)
