"""Enrichment: join new orders with a table of prices.

spark-submit examples/enrich.py redis://127.0.0.1:7777 orders prices.csv out/orders

The table is a file here. A Delta table or a JDBC source is joined in the same way, and is read again by each
micro-batch. An order of an unknown item is kept, with nulls.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ORDERS = "_id STRING, _timestamp TIMESTAMP, item STRING, count INT"
PRICES = "item STRING, price DECIMAL(10,2)"


def priced(orders: DataFrame, prices: DataFrame) -> DataFrame:
    """Return the orders with price and total."""
    return orders.join(F.broadcast(prices), "item", "left").withColumn(
        "total", F.col("count") * F.col("price")
    )


def run(spark: SparkSession, url: str, stream: str, prices: Path, out: Path) -> None:
    """Append the orders that are in the stream now, and were not written yet, to Parquet files."""
    table = spark.read.schema(PRICES).option("header", True).csv(str(prices))
    orders = spark.readStream.format("headrace").schema(ORDERS).option("url", url)
    orders = orders.option("subscribe", stream).option("startingOffsets", "earliest")
    query = (
        priced(orders.load(), table)
        .writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    url, stream, prices, out = sys.argv[1:]
    run(SparkSession.builder.getOrCreate(), url, stream, Path(prices), Path(out))
