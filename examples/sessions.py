"""Sessions: clicks of a user without a long pause between them are one visit.

spark-submit examples/sessions.py redis://127.0.0.1:7777 clicks sessions

Spark keeps open visits as state, and emits a visit when the watermark guarantees that no click can join it.
The sink writes each visit as an entry of another stream, exactly once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

CLICKS = "_timestamp TIMESTAMP, user STRING, page STRING"


def visits(clicks: DataFrame, pause: str = "30 minutes", late: str = "10 minutes") -> DataFrame:
    """Return a row per finished visit: user, begin, end, pages."""
    return (
        clicks.withWatermark("_timestamp", late)
        .groupBy("user", F.session_window("_timestamp", pause).alias("visit"))
        .agg(F.count("page").alias("pages"))
        .select("user", F.col("visit.start").alias("begin"), F.col("visit.end").alias("end"), "pages")
    )


def run(spark: SparkSession, url: str, source: str, target: str, checkpoint: Path) -> None:
    """Read the clicks that are in the stream now, and write the finished visits."""
    clicks = spark.readStream.format("headrace").schema(CLICKS).option("url", url)
    clicks = clicks.option("subscribe", source).option("startingOffsets", "earliest")
    query = (
        visits(clicks.load())
        .writeStream.format("headrace")
        .option("url", url)
        .option("stream", target)
        .option("timestampFormat", "iso8601")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    url, source, target = sys.argv[1:]
    run(SparkSession.builder.getOrCreate(), url, source, target, Path("state/sessions"))
