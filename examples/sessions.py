"""Sessions: clicks of a user with no more than a pause between them are one visit.

spark-submit examples/sessions.py redis://127.0.0.1:7777 clicks sessions

Spark keeps the open visits as state, and gives one out when the watermark says that nothing can join it any
more. The sink writes each visit as an entry of another stream, exactly once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

CLICKS = "_timestamp TIMESTAMP, user STRING, page STRING"


def visits(clicks: DataFrame, pause: str = "30 minutes", late: str = "10 minutes") -> DataFrame:
    """user, begin, end, pages: one row a visit that is over."""
    return (
        clicks.withWatermark("_timestamp", late)
        .groupBy("user", F.session_window("_timestamp", pause).alias("visit"))
        .agg(F.count("page").alias("pages"))
        .select("user", F.col("visit.start").alias("begin"), F.col("visit.end").alias("end"), "pages")
    )


def run(spark: SparkSession, url: str, source: str, target: str, checkpoint: Path) -> None:
    """Reads what is in the stream now, writes the visits that are over, and ends."""
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
    url, source, target = sys.argv[1:]
    run(SparkSession.builder.getOrCreate(), url, source, target, Path("state/sessions"))
