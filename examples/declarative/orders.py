"""A declarative pipeline: tables of orders that Spark updates from a stream.

spark-pipelines run --spec examples/declarative/spark-pipeline.yml

`orders` grows by the entries added since the last run; `sales` is computed from it again. A second run needs
a persistent catalog, such as Hive or Unity: without one Spark forgets its tables but finds their files.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order, once."""
    return (
        spark.readStream.format("headrace")
        .option("url", spark.conf.get("headrace.url") or "")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .schema("_id STRING, _timestamp TIMESTAMP, item STRING, count INT")
        .load()
    )


@dp.materialized_view
def sales() -> DataFrame:
    """The ordered quantity of each item."""
    return spark.read.table("orders").groupBy("item").agg(F.sum("count").alias("count"))
