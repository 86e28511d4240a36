"""A change log as a table: the latest value of each key.

spark-submit examples/latest.py redis://127.0.0.1:7777 changes out/customers

An entry has the fields `op` (put or delete), `key` and `value`. Each micro-batch computes the next version of
the table from the previous one and the changes: batch 7 writes v7 from v6. A batch that is repeated after a
failure writes the same version again, so that no change is applied twice. With Delta or Iceberg the body of
`apply` is one MERGE.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

CHANGES = "_timestamp TIMESTAMP, _sequence LONG, op STRING, key STRING, value STRING"
TABLE = "key STRING, value STRING, time TIMESTAMP, sequence LONG"


def latest(table: DataFrame, changes: DataFrame) -> DataFrame:
    """Return the table after the changes, ordered by time and sequence: IDs do not sort as text."""
    changed = changes.select(
        "key", "value", F.col("_timestamp").alias("time"), F.col("_sequence").alias("sequence"), "op"
    )
    newest = Window.partitionBy("key").orderBy(F.desc("time"), F.desc("sequence"))
    return (
        table.withColumn("op", F.lit("put"))
        .unionByName(changed)
        .withColumn("rank", F.row_number().over(newest))
        .where("rank = 1 AND op = 'put'")
        .drop("rank", "op")
    )


def run(spark: SparkSession, url: str, stream: str, folder: Path, most: int = 100_000) -> DataFrame:
    """Apply the changes that are in the stream now; return the table."""

    def apply(changes: DataFrame, batch: int) -> None:
        session = changes.sparkSession
        latest(version(session, folder, batch - 1), changes).write.mode("overwrite").parquet(
            path(folder, batch)
        )

    changes = spark.readStream.format("headrace").schema(CHANGES).option("url", url)
    changes = changes.option("subscribe", stream).option("startingOffsets", "earliest")
    query = (
        changes.option("maxOffsetsPerTrigger", most)
        .load()
        .writeStream.foreachBatch(apply)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    made = [int(each.parent.name[1:]) for each in folder.glob("v*/_SUCCESS")]
    return version(spark, folder, max(made, default=-1))


def path(folder: Path, batch: int) -> str:
    """Return the path of the version that a batch writes."""
    return str(folder / f"v{batch}")


def version(spark: SparkSession, folder: Path, batch: int) -> DataFrame:
    """Return the table after a batch; an empty one before the first."""
    return (
        spark.createDataFrame([], TABLE)
        if batch < 0
        else spark.read.schema(TABLE).parquet(path(folder, batch))
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    url, stream, folder = sys.argv[1:]
    run(SparkSession.builder.getOrCreate(), url, stream, Path(folder)).show()
