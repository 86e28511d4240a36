"""Backfill: read the archive of a stream, then follow the stream from where the archive ends.

headrace archive --stream orders --to archive/orders
spark-submit examples/backfill.py redis://127.0.0.1:7777 orders archive/orders out/orders

The first run writes all archived entries, then those of the stream; later runs continue from the checkpoint.
No entry is missing or written twice, even if the archive grows meanwhile. A run that was killed can be
started again at any point. If entries between archive and stream were lost, the program ends with DataLoss.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.spark import offsets_after_archive

COLUMNS = "_id STRING, _timestamp TIMESTAMP, _fields MAP<STRING, STRING>"


def run(spark: SparkSession, url: str, stream: str, archive: Path, out: Path) -> DataFrame:
    """Write the entries that were not written yet to Parquet files; return all rows."""
    offsets = "earliest"  # the checkpoint of a query that has begun overrides it
    if not (out / "checkpoint" / "offsets" / "0").exists():
        offsets = offsets_after_archive(archive, stream, url=url)
        history = spark.read.format("headrace").schema(COLUMNS).option("subscribe", stream)
        history = history.option("archive", str(archive)).option("archiveOnly", True)
        history.option("endingOffsets", offsets).load().write.mode("overwrite").parquet(str(out / "history"))
    live = spark.readStream.format("headrace").schema(COLUMNS).option("subscribe", stream)
    query = (
        live.option("url", url)
        .option("startingOffsets", offsets)
        .load()
        .writeStream.format("parquet")
        .option("path", str(out / "live"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(out / "history"))
    return rows.union(spark.read.schema(rows.schema).parquet(str(out / "live")))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    url, stream, archive, out = sys.argv[1:]
    print(run(SparkSession.builder.getOrCreate(), url, stream, Path(archive), Path(out)).count(), "entries")
